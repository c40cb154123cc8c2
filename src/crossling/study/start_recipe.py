"""The recipe that ``crossling start`` writes, with comments that say why; what more data would bring; how long it
takes.
"""

from __future__ import annotations

import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.data.catalogue import has_files
from crossling.data.declarations import load_declaration
from crossling.data.languages import name_of
from crossling.data.spec import parse_spec
from crossling.recipe.overrides import format_value
from crossling.recipe.recipe import parse_recipe
from crossling.study.choices import Ingredient, choose_best
from crossling.study.start_data import AvailableData
from crossling.study.start_files import Found, Spec
from crossling.training.settings import OptimiserSettings

if TYPE_CHECKING:
    from crossling.encoders.coverage import Coverage
    from crossling.progress import Progress
    from crossling.recipe.recipe import Recipe
    from crossling.study.memory import Inspection

WIDTH = 100
"""Of comments, and of lists on one line."""
SAMPLE_SEED = 1
BATCH = int(OptimiserSettings.model_fields["batch"].default)
"""Rows of an update, unless a recipe says otherwise."""
AVERAGED = "One model, whose weights are the mean of those of three models that began with the same head."


@dataclass
class Block:
    """A table of a recipe with the comments above it."""

    header: str
    comments: list[str]
    values: dict[str, Any] = field(default_factory=dict)

    def write(self) -> str:
        """As TOML."""
        lines = [line for comment in self.comments for line in write_comment(comment)]
        if self.header:
            lines.append(self.header)
        tables = {name: value for name, value in self.values.items() if isinstance(value, dict)}
        long = {name: table for name, table in tables.items() if not _fits(name, table)}
        lines += [_write_value(name, value) for name, value in self.values.items() if name not in long]
        for name, table in long.items():  # TOML has no line end inside a table in braces
            lines += ["", f"[{self.header.strip('[]')}.{name}]", *(_write_value(*item) for item in table.items())]
        return "\n".join(lines)


def write_comment(text: str) -> list[str]:
    """Lines of a comment; a line end in a file's name must not end it."""
    return textwrap.wrap(
        " ".join(text.split()), WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False
    )


def _fits(name: str, value: Any) -> bool:
    return len(f"{name} = {format_value(value)}") <= WIDTH


def _write_value(name: str, value: Any) -> str:
    if _fits(name, value) or not isinstance(value, list | tuple):
        return f"{name} = {format_value(value)}"
    return "\n".join([f"{name} = [", *(f"    {format_value(one)}," for one in value), "]"])


def fit_recipe(
    write: Callable[[int], str], *, place: Path, store: Path, progress: Progress
) -> tuple[str, Recipe, Inspection]:
    """A recipe as text and parsed, and what it reads; written anew, with batches in parts, where a CPU's memory is too
    small for it."""
    from crossling.study.memory import inspect_recipe
    from crossling.study.memory_fit import find_main_memory, split_batches
    from crossling.training.distributed import setup_distributed

    def inspect(accumulate: int) -> tuple[str, Recipe, Inspection]:
        text = write(accumulate)
        recipe = parse_recipe(tomllib.loads(text), where=str(place), folder=place.parent)
        return text, recipe, inspect_recipe(recipe, store=store, progress=progress)

    text, recipe, inspection = inspect(1)
    parts = split_batches(recipe, inspection.memory, find_main_memory())
    if parts and setup_distributed(recipe.run).device.type == "cpu":
        return inspect(max(parts.values()))
    return text, recipe, inspection


def write_recipe(
    available: AvailableData,
    accumulate: int,
    *,
    encoder: str,
    coverage: Mapping[str, Coverage],
    command: str,
    place: Path,
) -> str:
    """A recipe with the best known choices for what there is; batches in ``accumulate`` parts, if memory is short."""
    used, _ = available.choose()
    languages = ", ".join(f"{name_of(code)} ({code})" for code in available.languages)
    labels = ", ".join(dict.fromkeys(name_of(found.language) for found in available.labels))
    head = Block(
        "",
        [
            f"{available.choices.what.capitalize()} in {languages}, learnt from labels in {labels}.",
            f"Written by: {command}",
            f"Check it: crossling check {place}; run it: crossling run {place}",
        ],
        {"seeds": [1], **({"source": available.source} if available.source != "en" else {})},
    )
    head.comments.append("More seeds, [1, 2, 3], give a mean with its spread, and take that many times as long.")
    covered = [f"{name_of(code)}: {one.judge()}." for code, one in coverage.items()]
    blocks = [head, Block("[encoder]", covered, {"name": encoder})]
    blocks += _write_stages(available, used, accumulate)
    blocks += _write_evaluation(available)
    return "\n\n".join(block.write() for block in blocks) + "\n"


def _write_stages(available: AvailableData, used: Ingredient | None, accumulate: int) -> list[Block]:
    before = _write_before(available, used) if used else []
    after = _fill_first(used.after, _name_text(available, used)) if used and used.after else []
    if used is not None and used.replaces_words:
        after = [_add_lexicon(table, available, used) for table in after]
    blocks = [Block("[[stage]]", [], table) for table in (*before, _write_finetuning(available, used), *after)]
    finetune = blocks[len(before)]
    rows = sum(len(found.rows) for found in available.labels)
    finetune.comments.append(f"Fine-tuning on {rows:,} labelled rows.")
    finetune.comments += [f"Warning: {warning}." for warning in available.warnings]
    if accumulate > 1:
        finetune.values |= {"batch": BATCH // accumulate, "accumulate": accumulate}
        finetune.comments.append(f"An update reads {BATCH} rows, in parts that fit into the memory of this machine.")
    if finetune.values.get("select") == "last":
        reason = "the dev set is taught on" if available.dev else "no dev set was found for these labels"
        finetune.comments.append(f"The last epoch is kept, since {reason}.")
    if used is None:
        finetune.comments.append(explain_choice(available))
        return blocks
    first = blocks[1] if not before and after and _reads_data(after[0]) else blocks[0]
    first.comments.append(explain_choice(available))
    if used.needs == "text":
        first.comments.append(f"Labels that the text may have are not read. At most {used.rows:,} rows of each file.")
    for block in blocks:
        if "leave_out" in block.values:
            block.comments.append("leave_out: what is scored is never taught on.")
    if after and after[-1]["kind"] == "average":
        blocks[-1].comments.append(AVERAGED)
    elif len(after) > 1:
        blocks[-1].comments.append("The second round: all as before, but the students teach.")
    return blocks


def _write_before(available: AvailableData, used: Ingredient) -> list[dict[str, Any]]:
    """Stages before fine-tuning: on data of another task, or on translations."""
    if others := used.list_other_sets(available.source):
        return [{**stage, "train": train} for stage, train in zip(used.before, others, strict=True)]
    return _fill_first(used.before, {"parallel": [_limit(found, used.rows) for found in available.translations]})


def _fill_first(stages: Sequence[Mapping[str, Any]], more: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tables of stages, the data in the first one: a further round takes over what it reads, an average reads none."""
    return [{**stage, **(more if number == 0 and _reads_data(stage) else {})} for number, stage in enumerate(stages)]


def _reads_data(stage: Mapping[str, Any]) -> bool:
    return bool(stage["kind"] != "average")


def _add_lexicon(table: dict[str, Any], available: AvailableData, used: Ingredient) -> dict[str, Any]:
    """A stage's table; where words are replaced, with what their translations are made from."""
    if not table.get("consistency", {}).get("words"):
        return table
    pairs: dict[str, list[Spec]] = {}
    for found in available.lexicon:
        pairs.setdefault(found.rows.language, []).append(_limit(found, used.rows))
    lexicon = [{"parallel": specs} for specs in pairs.values()]
    return {**table, "consistency": {**table["consistency"], "lexicon": lexicon}}


def _write_finetuning(available: AvailableData, used: Ingredient | None) -> dict[str, Any]:
    specs = [found.spec for found in available.labels]
    table: dict[str, Any] = {"kind": "finetune", "task": available.task, "train": specs if len(specs) > 1 else specs[0]}
    table |= {"dev": dev.spec} if (dev := available.find_dev()) else {"select": "last"}
    table |= available.chosen_set.finetune if available.chosen_set else {}
    if used is None:
        return table
    table |= used.finetune
    if "replay" in table:
        parallel = [_limit(found, used.rows) for found in available.translations]
        table["replay"] = {**table["replay"], "parallel": parallel}
    return _add_lexicon(table, available, used)


def _name_text(available: AvailableData, used: Ingredient) -> dict[str, Any]:
    """The text that a teach stage reads, and what it must not read."""
    scored = [found.spec for found in available.tests]
    left_out = {"leave_out": scored} if scored else {}
    if used.needs == "text":
        return {"text": [_limit(found, used.rows) for found in available.text], **left_out}
    if used.needs == "nothing":
        return {}
    if used.needs == "translations":
        return {"parallel": [_limit(found, used.rows) for found in available.translations], **left_out}
    entries: dict[str, dict[str, Any]] = {}
    for source, target in available.pairs:
        entry = entries.setdefault(str(source.spec), {"source": source.spec, "target": []})
        entry["target"].append(_name_target(source.spec, target.spec))
    return {"parallel": list(entries.values()), **left_out}


def _limit(found: Found, most: int) -> Spec:
    """At most this number of random rows: as many as were measured."""
    if len(found.rows) <= most:
        return found.spec
    table = {"data": found.spec} if isinstance(found.spec, str) else found.spec
    return {**table, "limit": most, "sample_seed": SAMPLE_SEED}


def _name_target(source: Spec, target: Spec) -> Spec:
    """A target by its language alone, where it is the source's set."""
    if isinstance(source, str) and isinstance(target, str):
        one, other = parse_spec(source), parse_spec(target)
        if (one.name, one.version, one.split_text) == (other.name, other.version, other.split_text):
            return other.language
    return target


def _write_evaluation(available: AvailableData) -> list[Block]:
    groups: dict[tuple[str, str], list[str]] = {}
    blocks = []
    own = [found.language for found in available.tests if not isinstance(found.spec, str)]
    shared = {"name": "test"} if len(own) == len(set(own)) > 1 else {}  # one table for all languages
    for found in available.tests:
        if isinstance(found.spec, str):
            spec = parse_spec(found.spec)
            name = f"{spec.name}@{spec.version}" if spec.version else spec.name
            groups.setdefault((name, spec.split_text), []).append(spec.language)
        else:
            blocks.append(Block("[[evaluate]]", [], {**shared, "on": found.spec}))
    for (name, split), languages in groups.items():
        blocks.append(Block("[[evaluate]]", [], {"on": name, "split": split, "languages": languages}))
    missing = find_unscored(available)
    if missing:
        example = f'{{ format = "…", path = "test.{missing[0]}.tsv", language = "{missing[0]}" }}'
        comment = (
            f"Not scored for lack of a labelled test set: {', '.join(missing)}. Add one: [[evaluate]] on = {example}"
        )
        blocks.append(Block("", [comment]))
    return blocks


def find_unscored(available: AvailableData) -> list[str]:
    """Target languages without a test set."""
    scored = {found.language for found in available.tests}
    return [code for code in available.languages if code not in scored]


def explain_choice(available: AvailableData) -> str:
    """What is done beside fine-tuning and what it brought, or why nothing is."""
    used, gain = available.choose()
    if used is not None:
        text = available.find_text(used)
        own = {code: used.gain_in(code, text[code]) for code in text}
        where = f" in {', '.join(map(name_of, own))}" if all(own.values()) else ""
        source = f"{used.page}{_compare_rows(available, used)}"
        more = [f" {name_of(code)} itself: {found}." for code, found in own.items() if found and found.high < 0]
        for code in own:
            if own[code] is None and (found := used.gain_in(code, not text[code])):
                more.append(f" {name_of(code)} {'without' if text[code] else 'with'} such text: {found}.")
        return f"{used.why} In our study: {gain} over plain fine-tuning{where} ({source}).{''.join(more)}"
    tried = [one for one in available.choices.ingredients if one.needs != "labels"]
    if not any(map(available.gain, tried)):
        return "Nothing else was measured to help with this task."
    if choose_best(tried, available.gain)[0] is None:
        scored = [
            name_of(code) for code in available.languages if any(code in one.text_in | one.none_in for one in tried)
        ]
        where = f" in {', '.join(scored)}" if len(scored) == len(available.languages) else ""
        return f"In our studies no use of other text gained anything significant on this task{where}."
    return "Other text would help; there is none here."


def _compare_rows(available: AvailableData, used: Ingredient) -> str:
    """How many rows the gain was measured with, where there are fewer than half of them in a target language (or, where
    none has any, in another)."""
    rows: dict[str, int] = {}
    for found in available.data_for(used):
        if found.language != available.source:
            rows[found.language] = rows.get(found.language, 0) + len(found.rows)
    few = min([code for code in available.languages if code in rows] or rows, key=lambda code: rows[code], default="")
    if not few or 2 * rows[few] >= used.rows:
        return ""
    return f"; measured with {used.rows:,} rows a language, here {rows[few]:,} in {few}"


def suggest_data(available: AvailableData) -> list[str]:
    """What more data would bring, the most helpful first, in the words and with the figures of our studies."""
    used, reached = available.choose()
    asked = dict.fromkeys(available.languages, True)  # it would be in the target languages
    suggestions: list[tuple[float, str]] = []
    for needs in dict.fromkeys(one.needs for one in available.choices.ingredients):
        some = [one for one in available.choices.ingredients if one.needs == needs]
        best, gain = choose_best(some, lambda one: available.gain(one) or one.gain(asked))
        if best is None or gain is None or available.has_data(best) or _has_labels(available, needs):
            continue
        if reached is None or gain.mean > reached.mean:
            suggestions.append((gain.mean, f"{best.ask}: {gain} on {available.choices.what} ({best.page})"))
    if used is not None and reached is not None and (lacking := _list_lacking(available, used)):
        with_text = used.group_gain(has_text=True)
        if with_text is not None and with_text.mean > reached.mean:
            suggestion = f"such text in {', '.join(lacking)}: languages with text gained {with_text}, others {reached}"
            suggestions.append((with_text.mean - reached.mean, f"{suggestion} ({used.page})"))
    found = [text for _, text in sorted(suggestions, key=lambda item: -item[0])]
    found += [suggestion] if (suggestion := _suggest_labels(available)) else []
    for code in find_unscored(available):
        known = list(dict.fromkeys(name for one in available.choices.sets if (name := _name_set(one.test, code))))
        there = f" (the catalogue has {', '.join(known)}: crossling data show {known[0]})" if known else ""
        found.append(f"a few hundred labelled rows in {code} to score on{there}: without them its score stays unknown")
    return found


def _suggest_labels(available: AvailableData) -> str:
    """A larger labelled set of the catalogue, whose files were not found."""
    preferred = available.choices.sets[0]
    spec = parse_spec(preferred.trains[0].format(source=available.source))
    rows, found = load_declaration(spec.name).rows.get("train", 0), sum(len(found.rows) for found in available.labels)
    if available.chosen_set is None or rows <= found or has_files(str(spec)):
        return ""
    return f"more labels: {spec.name}:{spec.language} of the catalogue has {rows:,} rows; its files were not found"


def _name_set(template: str, language: str) -> str:
    """A test set in a language, where the catalogue declares it; its files may have to be fetched."""
    spec = parse_spec(template.format(language=language))
    return f"{spec.name}:{language}:{spec.split}" if language in load_declaration(spec.name).languages else ""


def _list_lacking(available: AvailableData, used: Ingredient) -> list[str]:
    """Target languages that text is missing in, where text is what is used."""
    return [] if used.needs == "nothing" else available.find_lacking(used)


def _has_labels(available: AvailableData, needs: str) -> bool:
    """Whether labels in every target language are there already."""
    languages = {found.language for found in available.labels}
    return needs == "labels" and set(available.languages) <= languages


def forecast_hours(recipe: Recipe, *, store: Path, out: Path) -> tuple[float, str]:
    """Hours that a recipe takes on this machine, and which speeds that is computed from."""
    from crossling.store.artefacts import Store
    from crossling.study.forecast import forecast_study
    from crossling.study.grid import Study, StudySettings, SystemSettings, Variant

    settings = StudySettings(seeds=recipe.seeds, baseline="start", systems={"start": SystemSettings(recipe="start")})
    study = Study("start", settings, (Variant("", "start", {}, recipe, "start"),))
    forecast = forecast_study(study, store=Store(store), out=out, workers=1)
    return forecast.times[0].hours, forecast.basis
