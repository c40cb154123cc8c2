"""The report of a study, gathered from its folder: predictions, markers, analyses, and records of the store.

Nothing is trained, and no model is loaded unless a criterion that needs it has not chosen yet. Whatever is not there,
because the study is not over or its store is elsewhere, is left out, with a note.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossling.analyses.result import AnalysisResult, find_results
from crossling.data.declarations import list_names, load_declaration
from crossling.errors import ArtefactError
from crossling.files import read_json, write_atomic
from crossling.recipe.identity import canonical_json
from crossling.recipe.overrides import read_toml, to_toml
from crossling.recipe.recipe import Recipe
from crossling.report.charts import draw_heat
from crossling.report.citations import DATA_WORKS, find_citations
from crossling.report.parts import AnalysisPart, Figure
from crossling.report.study_page import (
    Document,
    Panel,
    Sweep,
    render_document,
    to_markdown,
    write_tables,
)
from crossling.report.table import Table
from crossling.report.teaching import show_rounds
from crossling.report.wording import summarise_comparison
from crossling.scores.predictions import read_predictions
from crossling.scores.significance.results import Interval
from crossling.study.cell_scores import StudyFiles
from crossling.study.choose import Choice
from crossling.study.compare import (
    Finished,
    StudyComparison,
    gather_comparison,
    leave_out_values,
    load_comparison,
    read_finished,
)
from crossling.study.folder import (
    COMPARISON,
    PICKS,
    RECIPE,
    PlannedVariant,
    StudyPlan,
    name_file,
    prediction_path,
    read_plan,
)
from crossling.study.report_charts import (
    Trainings,
    draw_learning,
    draw_sweeps,
    has_axes,
    list_times,
    read_scores,
    read_trainings,
    score_variants,
)
from crossling.study.run_record import DataRecord, find_run_record
from crossling.study.status import STATES, StudyStatus, read_status

PAGE, TEXT, TABLES = "report.html", "report.md", "report"
"""The page, the same as Markdown, and the folder of its tables; all in the study's folder."""
GROUPS = ("family", "script")
LARGEST_FIGURE = 4_000_000
"""Bytes of a figure that is put into the page."""


@dataclass(frozen=True)
class Report:
    """What ``crossling study report`` shows and wrote."""

    document: Document
    files: tuple[Path, ...]


def report_study(
    out: Path, *, every: bool = False, store: Path | None = None, interval: Interval = "hierarchical"
) -> Report:
    """Gather a study's report and write it into the study's folder."""
    document = gather_report(out, every=every, store=store, interval=interval)
    files = {out / PAGE: render_document(document), out / TEXT: to_markdown(document)}
    files |= {out / TABLES / name: text for name, text in write_tables(document).items()}
    for path, text in files.items():
        write_atomic(path, text)
    return Report(document, tuple(files))


def gather_report(
    out: Path, *, every: bool = False, store: Path | None = None, interval: Interval = "hierarchical"
) -> Document:
    """All that the report says; ``store`` where it is not the one that the study was run with."""
    plan = read_plan(out)
    if store is not None:
        plan = replace(plan, store=store)
    finished, status = read_finished(plan, out), read_status(out)
    files = StudyFiles(out, keep_scores=has_axes(plan))
    whole, is_stored = _find_comparison(plan, finished, files, every=every, interval=interval)
    comparison = whole if every else leave_out_values(whole, plan)
    trainings = read_trainings(plan, plan.store)
    recipes = [files.load_recipe(v.folder) for v in plan.variants if (out / v.folder / RECIPE).is_file()]
    whole_recipes, variants = list_recipes(plan, out)
    analyses = find_results(out)
    used = list_used(recipes) | {f"analyses/{result.kind}" for result in analyses}
    used |= {f"encoder/{label}" for label in _list_encoders(plan, out)} | _list_tests(comparison)
    return Document(
        name=plan.name,
        facts=_describe(plan, status, comparison),
        panels=tuple(_make_panels(comparison)),
        cells=count_cells(status),
        timing=list_times(trainings, finished, out),
        machines=list_machines(finished),
        notes=tuple(line for line in comparison.lines if line.startswith("Note: ")),
        choices=tuple(list_choices(comparison.choices, out)),
        sweeps=tuple(_find_sweeps(plan, files, whole, is_stored=is_stored)),
        learning=tuple(draw_learning(trainings)),
        learning_note=trainings.note_missing(),
        analyses=(*_show_teaching(plan, trainings), *map(_show_analysis, analyses)),
        data=list_data(plan, finished, files),
        recipes=tuple(whole_recipes),
        variants=variants,
        settings=_show_settings(plan),
        command=plan.command,
        identities=list_identities(plan),
        citations=(*find_citations(used), *cite_data(recipes)),
    )


def _show_teaching(plan: StudyPlan, trainings: Trainings) -> list[AnalysisPart]:
    """What teachers labelled, round by round, for each system that was taught."""
    systems: dict[str, list[list[Mapping[str, Any]]]] = {}
    for cell in plan.cells:
        rounds = [identity for identity in cell.stages if identity.startswith("teach-")]
        if rounds:
            name = ": ".join(filter(None, (cell.task, cell.label)))
            records = systems.setdefault(name, [[] for _ in rounds])
            for some, identity in zip(records, rounds, strict=True):
                some += [trainings.records[identity]] if identity in trainings.records else []
    part = show_rounds(systems)
    return [part] if part else []


def _show_analysis(result: AnalysisResult) -> AnalysisPart:
    """What an analysis found, with its figures; those that cannot be shown are reported."""
    figures, notes = [], list(result.notes)
    for name, path in result.figures.items():
        if not path.is_file():
            notes.append(f"The figure {path.name} is missing.")
        elif path.stat().st_size > LARGEST_FIGURE:
            notes.append(f"The figure {path.name} is too large for this page.")
        else:
            figures.append(Figure.from_svg(name, path.read_text(encoding="utf-8", errors="replace"), path.name))
    for heat in result.heat_maps:
        drawing = draw_heat(heat.values, rows=heat.rows, columns=heat.columns, title=heat.title)
        figures.append(Figure(heat.title, drawing))
    title = f"{result.kind}: {result.title}"
    return AnalysisPart(title, f"Settings: {result.settings}.", result.tables, tuple(figures), tuple(notes))


def _find_comparison(
    plan: StudyPlan, finished: Finished, files: StudyFiles, *, every: bool, interval: Interval
) -> tuple[StudyComparison, bool]:
    """Compared now, from predictions; where these are not here, as it was stored. And whether it was stored."""
    out = files.out
    missing = _count_missing(finished, files)
    if not missing:
        made = gather_comparison(
            plan, out, every=every, groups=GROUPS, interval=interval, choose_again=False, files=files
        )
        return made, False
    total = sum(len(seeds) for seeds in finished.values())
    lost = f"the predictions of {missing} of {total} finished cells are not in this folder"
    try:
        stored = load_comparison(out)
    except ArtefactError as error:
        stored, lost = None, f"{lost}; {error}"
    if stored is None:
        note = f"Note: {lost}, and no comparison is stored in it, so that there is nothing to compare."
        return StudyComparison(plan.name, (), (), (note,)), True
    day = time.strftime("%Y-%m-%d", time.gmtime((out / COMPARISON).stat().st_mtime))
    note = f"Note: {lost}; figures and tests are those that crossling study compare stored on {day}."
    return StudyComparison(stored.name, stored.parts, stored.choices, (*stored.lines, note)), True


def _count_missing(finished: Finished, files: StudyFiles) -> int:
    """Finished cells that lack some of their predictions."""
    missing = 0
    for folder, seeds in finished.items():
        recipe = files.load_recipe(folder)
        for seed in seeds:
            paths = (
                prediction_path(files.out / folder, seed, entry, language)
                for entry in recipe.evaluate
                for language, _ in entry.specs()
            )
            missing += not all(path.is_file() for path in paths)
    return missing


def _make_panels(comparison: StudyComparison) -> list[Panel]:
    return [
        Panel(
            name_file("compare", part.task, data),
            part.task,
            *table.split_groups(),
            summarise_comparison(part.comparison, data, task=part.task),
        )
        for part in comparison.parts
        for table, data in zip(part.tables, part.comparison.data_sets, strict=True)
    ]


def _find_sweeps(plan: StudyPlan, files: StudyFiles, comparison: StudyComparison, *, is_stored: bool) -> list[Sweep]:
    if not has_axes(plan) or not comparison.parts:
        return []
    scores = read_scores(comparison) if is_stored else score_variants(plan, files, comparison)
    return draw_sweeps(plan, scores, comparison)


def _describe(plan: StudyPlan, status: StudyStatus, comparison: StudyComparison) -> tuple[tuple[str, str], ...]:
    """What the study is, in a few words each."""
    settings = plan.settings
    languages = {r.language for part in comparison.parts for r in part.comparison.results if not r.is_average}
    facts = [
        ("tasks", ", ".join(settings.tasks)),
        ("systems", str(len(settings.systems))),
        ("baseline", settings.baseline),
        ("languages", str(len(languages)) if languages else ""),
        ("seeds", ", ".join(map(str, settings.seeds))),
        ("cells done", f"{status.count('done')} of {len(status.cells)}"),
    ]
    return tuple((name, value) for name, value in facts if value)


def _show_settings(plan: StudyPlan) -> str:
    """The study as it was asked for, as TOML, with what the command line changed."""
    lines = [f"# --set {text}" for text in plan.overrides]
    tables: dict[str, Any] = {}
    for name, value in plan.settings.model_dump(mode="json").items():
        if name in ("tasks", "systems"):
            for key, inside in value.items():
                quoted = key if key.isidentifier() else json.dumps(key, ensure_ascii=False)
                tables[f"{name}.{quoted}"] = {k: v for k, v in inside.items() if v}
        elif value:
            tables[name] = value
    return "\n".join([*lines, to_toml(tables)])


def _list_encoders(plan: StudyPlan, out: Path) -> set[str]:
    """What the encoders are, where a recipe names a folder."""
    records = (find_run_record(out / variant.folder) for variant in plan.variants)
    named = ((record.encoder, *record.teachers) for record in records if record is not None)
    return {encoder for encoders in named for encoder in encoders if encoder}


def _list_tests(comparison: StudyComparison) -> set[str]:
    tests = {
        f"test/{one.test}"
        for part in comparison.parts
        for result in part.comparison.results
        for one in (result.from_baseline, result.from_second)
        if one
    }
    resampled = any(part.comparison.settings.interval == "bootstrap" for part in comparison.parts)
    return tests | {"test/Holm"} | ({"test/bootstrap"} if resampled else set()) if tests else tests


def count_cells(status: StudyStatus) -> Table:
    """Cells by state: all of them, those of every variant that is not finished, and what failed."""
    rows = [
        (task, label, *(str(counts[state]) for state in STATES))
        for (task, label), counts in status.groups.items()
        if counts["done"] < counts.total()
    ]
    rows.append(("", f"{len(status.cells)} cells", *(str(status.count(state)) for state in STATES)))
    failed = [f"{cell.name} failed: {cell.error.splitlines()[0]}" for cell in status.cells if cell.state == "failed"]
    head = ("task", "system", *STATES)
    table = Table("How far the study is", head, tuple(rows), names=2, notes=tuple(failed), stem="cells")
    return table.without_empty_names()


def list_machines(finished: Finished) -> Table:
    """Hardware and versions, with the number of cells where they differ."""
    facts: dict[str, Counter[str]] = {}
    for seeds in finished.values():
        for marker in seeds.values():
            for name, value in marker.machine.items():
                facts.setdefault(name, Counter())[str(value)] += 1
    rows = []
    for name, values in facts.items():
        shown = [value if len(values) == 1 else f"{value} ({count} cells)" for value, count in values.most_common()]
        rows.append((name, ", ".join(shown)))
    notes = () if rows else ("No finished cell says what it was made with.",)
    return Table("Hardware and versions", ("fact", "value"), tuple(rows), names=2, notes=notes, stem="machines")


def list_data(plan: StudyPlan, finished: Finished, files: StudyFiles) -> Table:
    """Every set that was trained or tested on, with the fingerprint of its rows."""
    rows: dict[tuple[str, ...], None] = {}
    for variant in plan.variants:
        record = find_run_record(files.out / variant.folder)
        known = record.data if record is not None else ()
        for one in known or _read_tested(variant, finished, files):
            count = f"{one.rows:,}" if one.rows is not None else "–"
            rows.setdefault((variant.task, one.role, one.name, one.language, count, one.fingerprint))
    head = ("task", "role", "set", "language", "rows", "fingerprint")
    notes = () if rows else ("The fingerprints of this study's data are not on record in its folder.",)
    table = Table("Data", head, tuple(rows), names=4, notes=notes, stem="data")
    return table.without_empty_names() if rows else table


def _read_tested(variant: PlannedVariant, finished: Finished, files: StudyFiles) -> Iterator[DataRecord]:
    """What predictions say of the rows that they are of, for a study that has no record of its data."""
    folder = files.out / variant.folder
    for seed in sorted(finished.get(variant.folder, {}))[:1]:
        recipe = files.load_recipe(variant.folder)
        for entry in recipe.evaluate:
            for language, _ in entry.specs():
                path = prediction_path(folder, seed, entry, language)
                if path.is_file():
                    found = read_predictions(path)
                    fingerprint = str(found.meta.get("fingerprint", "–"))
                    yield DataRecord("test", found.data, found.language, found.n_rows, fingerprint)


def list_choices(choices: tuple[Choice, ...], out: Path) -> list[Table]:
    """What criteria chose, and how good that was where it was judged."""
    tables = []
    if choices:
        rows = tuple((c.task, c.system, c.axis.rpartition(".")[2], c.criterion, c.chosen, c.labels) for c in choices)
        head = ("task", "system", "axis", "criterion", "chosen", "labels used")
        notes = tuple(choice.describe() for choice in choices)
        tables.append(Table("Choices", head, rows, names=6, notes=notes, stem="choices").without_empty_names())
    picks = read_json(out / PICKS)
    if isinstance(picks, dict) and picks["rows"]:
        tables.append(Table.from_json(picks).without_empty_names())
    return tables


def list_recipes(plan: StudyPlan, out: Path) -> tuple[list[tuple[str, str]], Table | None]:
    """The first recipe of each task whole, and of the others what differs from it, key by key."""
    first: dict[str, dict[str, str]] = {}
    whole, others = [], []
    for variant in plan.variants:
        path = out / variant.folder / RECIPE
        if not path.is_file():
            continue
        name = ": ".join(filter(None, (variant.task, variant.label)))
        flat = dict(flatten(read_toml(path)))
        if variant.task not in first:
            first[variant.task] = flat
            whole.append((name, path.read_text(encoding="utf-8")))
            continue
        base = first[variant.task]
        lines = [f"{key} = {value}" for key, value in flat.items() if base.get(key) != value]
        lines += [f"without {key}" for key in base if key not in flat]
        others.append((variant.task, variant.label, "; ".join(lines) or "nothing"))
    head, title = ("task", "system", "keys that differ"), "What differs from the recipe above"
    table = Table(title, head, tuple(others), names=3, stem="recipes").without_empty_names() if others else None
    return whole, table


def flatten(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Nested tables as dotted keys and values; lists of plain values stay whole."""
    if isinstance(value, dict):
        for name, inside in value.items():
            yield from flatten(inside, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
        for number, inside in enumerate(value):
            yield from flatten(inside, f"{key}.{number}")
    else:
        yield key, json.dumps(value, ensure_ascii=False)


def list_identities(plan: StudyPlan) -> Table:
    """The identities of every cell's stages and of its predictions."""
    rows = tuple((cell.name, " → ".join(cell.stages), cell.identity) for cell in plan.cells)
    note = "A hash of all that affects a result: settings, seed, data, encoder, precision, versions of the code."
    return Table("Identities", ("cell", "stages", "predictions"), rows, names=3, notes=(note,), stem="identities")


def list_used(recipes: list[Recipe]) -> set[str]:
    """Kinds and encoders that recipes name, by the names that citations use."""
    used = set()
    for recipe in recipes:
        used |= {f"encoder/{encoder.name}" for encoder in recipe.encoders}
        for stage in recipe.stage:
            used.add(f"stages/{stage.kind}")
            table = stage.model_dump(mode="json")
            used |= {f"{stage.kind}/{name}" for name, value in table.items() if value}
            if isinstance(table.get("fusion"), dict):
                used.add(f"fusions/{table['fusion'].get('kind')}")
    return used


def cite_data(recipes: list[Recipe]) -> list[str]:
    """What the catalogue says of the sets that recipes name."""
    text = canonical_json([recipe.model_dump(mode="json") for recipe in recipes])
    cited = []
    for name in list_names():
        if any(f'"{name}{mark}' in text for mark in ('"', ":", "@")):
            declaration = load_declaration(name)
            work = f" {DATA_WORKS[declaration.citation]}" if declaration.citation else ""
            cited.append(f"{name}: {declaration.title}. Licence: {declaration.licence}.{work}")
    return cited
