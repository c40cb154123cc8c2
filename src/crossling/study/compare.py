"""A study's systems compared: stored predictions of all finished cells, tested against the baseline of each task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError, UserError
from crossling.files import read_json, write_atomic
from crossling.recipe.recipe import Recipe
from crossling.report.run_summary import list_seed_scores
from crossling.report.system_tables import ComparisonTable, comparison_tables
from crossling.scores.predictions import Predictions
from crossling.scores.significance import Comparison, Difference, Result, compare
from crossling.scores.significance import Settings as TestSettings
from crossling.scores.significance.holm import correct_results
from crossling.scores.significance.results import PUBLISHED, Interval
from crossling.study.cell_scores import (
    StudyFiles,
    list_seed_records,
    score_cells,
    trained_languages,
)
from crossling.study.choose import Choice, make_choices
from crossling.study.folder import (
    CHOICES,
    COMPARISON,
    CellMarker,
    StudyPlan,
    name_file,
    prediction_path,
    read_marker,
    read_plan,
    set_name,
)

SEEDS, SEED_RECORDS = "seed-scores.csv", "seed-records.csv"
MACHINE_FACTS = ("torch", "device", "gpu", "precision", "processor", "threads")
"""What can change the last bits of a result, or more."""


Finished = Mapping[str, Mapping[int, CellMarker]]
"""The markers of finished cells, by folder of their variant and seed."""


@dataclass(frozen=True)
class TaskComparison:
    """The comparison of one task."""

    task: str
    comparison: Comparison
    tables: tuple[ComparisonTable, ...]


@dataclass(frozen=True)
class StudyComparison:
    """All that ``crossling study compare`` shows and writes."""

    name: str
    parts: tuple[TaskComparison, ...]
    choices: tuple[Choice, ...]
    lines: tuple[str, ...]
    """What a reader must not miss: choices, missing cells, different machines."""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class _System:
    """A name in the tables and the variant behind it."""

    name: str
    folder: str


def compare_study(
    out: Path,
    *,
    every: bool = False,
    groups: Sequence[str] = (),
    score: str | None = None,
    interval: Interval = "hierarchical",
    as_published: bool = False,
) -> StudyComparison:
    """Compare every system with the baseline of its task and write the tables into the study's folder.

    ``groups`` are ways to group languages, for a line with each group's mean; ``score`` is another score than the
    tasks' own and ``interval`` another way to find intervals and to test, with tables of their own beside the usual.
    ``as_published`` tests as the adjustment paper did.
    """
    result = gather_comparison(
        read_plan(out), out, every=every, groups=groups, score=score, interval=interval, as_published=as_published
    )
    if not result.parts:
        reasons = "; ".join(line.removeprefix("Note: ").removesuffix(".") for line in result.lines)
        raise ArtefactError(f"{out}: nothing to compare yet; {reasons or 'no cell is finished'}")
    named = "as-published" if as_published else None if interval == "hierarchical" else interval
    seeds = () if score or named else _write_seeds(out)
    return replace(result, files=(*_write(result, out, asked=(score, named)), *seeds))


def gather_comparison(
    plan: StudyPlan,
    out: Path,
    *,
    every: bool = False,
    groups: Sequence[str] = (),
    score: str | None = None,
    interval: Interval = "hierarchical",
    as_published: bool = False,
    choose_again: bool = True,
    files: StudyFiles | None = None,
) -> StudyComparison:
    """The comparisons that the finished cells allow, perhaps none, and notes on what is missing.

    Without ``choose_again`` choices on record count, for a criterion may load every model to choose. ``files``: of the
    same folder, where the caller reads them too.
    """
    files = files or StudyFiles(out)
    stored = _read_choices(plan, out)
    choices, notes = (stored, []) if stored and not choose_again else _find_choices(plan, out, stored)
    finished = read_finished(plan, out)
    notes += _note_missing(plan, finished) + _note_machines(finished)
    parts = []
    for task in dict.fromkeys(variant.task for variant in plan.variants):
        systems = _list_systems(plan, task, choices, every=every)
        part, more = _compare_task(
            plan,
            task,
            systems,
            choices,
            finished=finished,
            files=files,
            groups=groups,
            score=score,
            settings=PUBLISHED if as_published else TestSettings(interval=interval),
        )
        notes += more
        parts += [part] if part is not None else []
    lines = (*(choice.describe() for choice in choices), *(f"Note: {note}." for note in dict.fromkeys(notes)))
    return StudyComparison(plan.name, tuple(parts), tuple(choices), lines)


def _find_choices(plan: StudyPlan, out: Path, stored: list[Choice]) -> tuple[list[Choice], list[str]]:
    """What the criteria choose now; where trained models are gone, what they chose when these were there."""
    try:
        if plan.settings.choose and not plan.store.is_dir():
            raise ArtefactError(f"{plan.store}: the store with the trained models is not here")
        return make_choices(plan, out)
    except UserError as error:
        if stored:
            return stored, [f"choices are those on record, since none can be made now: {error}"]
        return [], [f"nothing is chosen: {error}"]


def _read_choices(plan: StudyPlan, out: Path) -> list[Choice]:
    """The choices on record; none where they are of another plan."""
    tables = read_json(out / CHOICES)
    try:
        choices = [Choice(**table) for table in tables] if isinstance(tables, list) else []
    except TypeError:
        return []
    labels = {variant.folder: variant.label for variant in plan.variants}
    return choices if all(labels.get(choice.folder) == choice.chosen for choice in choices) else []


def load_comparison(out: Path) -> StudyComparison | None:
    """What ``crossling study compare`` found last, for predictions may be too large to travel with a study."""
    facts = read_json(out / COMPARISON)
    if not isinstance(facts, dict):
        return None
    try:
        parts = [_load_part(table) for table in facts["tasks"]]
        choices = tuple(Choice(**table) for table in facts["choices"])
        return StudyComparison(facts["name"], tuple(parts), choices, tuple(facts["notes"]))
    except (KeyError, TypeError) as error:
        raise ArtefactError(f"{out / COMPARISON}: was not written by this version ({error!r})") from None


def leave_out_values(result: StudyComparison, plan: StudyPlan) -> StudyComparison:
    """Without the values of an axis that one was chosen from; p-values are corrected for what is left."""
    parts = []
    for part in result.parts:
        wanted = {system.name for system in _list_systems(plan, part.task, result.choices, every=False)}
        wanted |= {part.comparison.baseline, part.comparison.second or part.comparison.baseline}
        results = [one for one in part.comparison.results if one.system in wanted]
        comparison = replace(
            part.comparison,
            systems=tuple(name for name in part.comparison.systems if name in wanted),
            results=correct_results(results, part.comparison.settings),
        )
        parts.append(TaskComparison(part.task, comparison, comparison_tables(comparison)))
    return replace(result, parts=tuple(parts))


def _load_part(table: dict[str, Any]) -> TaskComparison:
    known = {key: table[key] for key in ("baseline", "second")}
    results = []
    for one in table["results"]:
        differences = {role: one[role] and Difference(**one[role]) for role in ("from_baseline", "from_second")}
        results.append(Result(**{**one, **differences}))
    comparison = Comparison(
        **known,
        systems=tuple(table["systems"]),
        results=tuple(results),
        settings=TestSettings(**{"interval": "bootstrap", **table["settings"]}),  # older versions had no other
        notes=tuple(table["notes"]),
    )
    return TaskComparison(table["task"], comparison, comparison_tables(comparison))


def read_finished(plan: StudyPlan, out: Path) -> Finished:
    """The markers of finished cells, by folder of their variant and seed."""
    found: dict[str, dict[int, CellMarker]] = {}
    for cell in plan.cells:
        marker = read_marker(out, cell)
        if marker is not None:
            found.setdefault(cell.folder, {})[cell.seed] = marker
    return found


def _note_missing(plan: StudyPlan, finished: Finished) -> list[str]:
    missing = [cell.name for cell in plan.cells if cell.seed not in finished.get(cell.folder, {})]
    if not missing:
        return []
    listed = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
    return [f"{len(missing)} of {len(plan.cells)} cells are not finished: {listed}"]


def _note_machines(finished: Finished) -> list[str]:
    """Say where cells were made with different hardware or versions."""
    machines = [marker.machine for seeds in finished.values() for marker in seeds.values()]
    notes = []
    for fact in MACHINE_FACTS:
        values = sorted({str(machine.get(fact)) for machine in machines})
        if len(values) > 1:
            notes.append(f"cells were made with different {fact}: {', '.join(values)}")
    return notes


def _list_systems(plan: StudyPlan, task: str, choices: Sequence[Choice], *, every: bool) -> list[_System]:
    """Names and folders, in the study's order; of a system with a choice the chosen variant, or all of them too."""
    systems: list[_System] = []
    for variant in plan.variants:
        if variant.task != task:
            continue
        of_system = [c for c in choices if c.task == task and c.system == variant.system]
        if every or not of_system:
            systems.append(_System(variant.label, variant.folder))
        known = {system.name for system in systems}
        systems += [_System(choice.name, choice.folder) for choice in of_system if choice.name not in known]
    return systems


def _compare_task(
    plan: StudyPlan,
    task: str,
    systems: Sequence[_System],
    choices: Sequence[Choice],
    *,
    finished: Finished,
    files: StudyFiles,
    groups: Sequence[str],
    score: str | None,
    settings: TestSettings,
) -> tuple[TaskComparison | None, list[str]]:
    recipes = {system.name: files.load_recipe(system.folder) for system in systems}
    predictions = {
        system.name: _read_predictions(files, system.folder, sorted(finished[system.folder]))
        for system in systems
        if finished.get(system.folder)
    }
    own = plan.settings.tasks.get(task)
    renamed = {one.system: one.label for one in plan.variants if one.task == task and not one.axes}
    renamed |= {choice.system: choice.name for choice in choices if choice.task == task}
    baseline = (own and own.baseline) or plan.settings.baseline
    second = (own and own.second) or plan.settings.second
    baseline, second = renamed.get(baseline, baseline), renamed.get(second or "", second)
    if baseline not in predictions:
        return None, [f"{task or plan.name}: the baseline {baseline!r} has no finished cell"]
    notes = []
    if second is not None and second not in predictions:
        notes.append(f"{task or plan.name}: the second system {second!r} has no finished cell")
        second = None
    sources = trained_languages(recipes[baseline])
    notes += _note_further_labels({name: trained_languages(recipes[name]) - sources for name in predictions}, task)
    comparison = compare(
        predictions,
        baseline,
        second=second,
        score=score or _main_scores(recipes[baseline]),
        sources=sorted(sources),
        groups=groups,
        settings=settings,
    )
    return TaskComparison(task, comparison, comparison_tables(comparison)), notes


def _note_further_labels(further: Mapping[str, set[str]], task: str) -> list[str]:
    """Zero-shot is what the baseline has no labels for, so that all systems share one mean; say whose it is not."""
    where = f"{task}: " if task else ""
    return [
        f"{where}{name} learns from labels in {', '.join(sorted(languages))} too, so that it is not zero-shot there"
        for name, languages in further.items()
        if languages
    ]


def _read_predictions(files: StudyFiles, folder: str, seeds: Sequence[int]) -> dict[tuple[str, str], list[Predictions]]:
    return {
        (set_name(entry), language): [
            files.read_predictions(prediction_path(files.out / folder, seed, entry, language)) for seed in seeds
        ]
        for entry in files.load_recipe(folder).evaluate
        for language, _ in entry.specs()
    }


def _main_scores(recipe: Recipe) -> dict[str, str]:
    """The score that the last stage's task names, for each data set."""
    return {set_name(entry): recipe.main_score for entry in recipe.evaluate}


def _write(result: StudyComparison, out: Path, *, asked: Sequence[str | None]) -> tuple[str, ...]:
    """Everything as files: for a document, a paper, a spreadsheet and a program; ``asked``: what is not the default."""
    named = "".join(f"-{name}" for name in asked if name)
    start, facts = f"compare{named}", f"{Path(COMPARISON).stem}{named}.json"
    files = {f"{start}.md": _to_markdown(result), facts: _to_json(result)}
    for part in result.parts:
        for table, data in zip(part.tables, part.comparison.data_sets, strict=True):
            stem = name_file(start, part.task, data)
            files |= {f"{stem}.csv": table.to_data().to_csv(), f"{stem}.tex": table.to_table(wide=True).to_latex()}
    if result.choices:
        files[CHOICES] = json.dumps([asdict(choice) for choice in result.choices], indent=1, ensure_ascii=False)
    for name, text in files.items():
        write_atomic(out / name, text)
    return tuple(files)


def _write_seeds(out: Path) -> tuple[str, ...]:
    """The scores and records of every seed, whatever is compared: what a page of results should be archived with."""
    plan = read_plan(out)
    scores = [one for cell in score_cells(plan, out) for one in cell.list_results()]
    tables = {SEEDS: list_seed_scores(scores), SEED_RECORDS: list_seed_records(plan, out)}
    for name, table in tables.items():
        write_atomic(out / name, table.to_csv())
    return tuple(tables)


def _to_markdown(result: StudyComparison) -> str:
    lines = [f"# {result.name}", ""]
    lines += [line for sentence in result.lines for line in (sentence, "")]
    lines += [table.to_markdown(part.task) for part in result.parts for table in part.tables]
    return "\n".join(lines)


def _to_json(result: StudyComparison) -> str:
    facts = {
        "name": result.name,
        "notes": list(result.lines),
        "choices": [asdict(choice) for choice in result.choices],
        "tasks": [{"task": part.task, **asdict(part.comparison)} for part in result.parts],
    }
    return json.dumps(facts, indent=1, ensure_ascii=False)
