"""The report of a study, gathered from its folder: predictions, markers, analyses, and records of the store.

Nothing is trained, and no model is loaded unless a criterion that needs it has not chosen yet. Whatever is not there,
because the study is not over or its store is elsewhere, is left out and told.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError
from crossling.files import read_json, write_atomic
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import load_recipe
from crossling.report.citations import find_citations
from crossling.report.document import Document, Sweep, render_document, to_markdown, write_tables
from crossling.report.panels import Panel, make_panel
from crossling.report.wording import judge
from crossling.study.comparing import (
    StudyComparison,
    gather_comparison,
    leave_out_values,
    load_comparison,
    read_finished,
)
from crossling.study.found_analyses import find_analyses
from crossling.study.layout import COMPARISON, name_file, prediction_path, read_plan
from crossling.study.report_tables import (
    Finished,
    cite_data,
    count_cells,
    list_choices,
    list_data,
    list_identities,
    list_machines,
    list_recipes,
    list_used,
)
from crossling.study.status import StudyStatus, read_status
from crossling.study.sweeps import draw_sweeps, has_axes, read_scores, score_variants
from crossling.study.trainings import draw_learning, read_trainings, tell_times

PAGE, TEXT, TABLES = "report.html", "report.md", "report"
"""The page, the same as Markdown, and the folder of its tables; all in the study's folder."""
GROUPS = ("family", "script")


@dataclass(frozen=True)
class Report:
    """What ``crossling study report`` shows and wrote."""

    document: Document
    files: tuple[Path, ...]


def report_study(out: Path, *, every: bool = False, store: Path | None = None) -> Report:
    """Gather a study's report and write it into the study's folder."""
    document = gather_report(out, every=every, store=store)
    files = {out / PAGE: render_document(document), out / TEXT: to_markdown(document)}
    files |= {out / TABLES / name: text for name, text in write_tables(document).items()}
    for path, text in files.items():
        write_atomic(path, text)
    return Report(document, tuple(files))


def gather_report(out: Path, *, every: bool = False, store: Path | None = None) -> Document:
    """All that the report says; ``store`` where it is not the one that the study was run with."""
    plan = read_plan(out)
    if store is not None:
        plan = {**plan, "store": str(store)}
    finished, status = read_finished(plan, out), read_status(out)
    whole, is_stored = _find_comparison(plan, finished, out, every=every)
    comparison = whole if every else leave_out_values(whole, plan)
    trainings = read_trainings(plan, Path(plan["store"]))
    recipes = [load_recipe(path) for v in plan["variants"] if (path := out / v["folder"] / "recipe.toml").is_file()]
    whole_recipes, variants = list_recipes(plan, out)
    analyses = tuple(find_analyses(out))
    used = list_used(recipes) | {f"analyses/{part.title.partition(':')[0]}" for part in analyses}
    used |= {f"encoder/{label}" for label in _list_encoders(plan, out)} | _list_tests(comparison)
    return Document(
        name=plan["name"],
        facts=_describe(plan, status, comparison),
        panels=tuple(_make_panels(comparison)),
        cells=count_cells(status),
        timing=tell_times(trainings, finished, out),
        machines=list_machines(finished),
        notes=tuple(line for line in comparison.lines if line.startswith("Note: ")),
        choices=tuple(list_choices(comparison.choices, out)),
        sweeps=tuple(_find_sweeps(plan, out, whole, is_stored=is_stored)),
        learning=tuple(draw_learning(trainings)),
        learning_note=trainings.note_missing(),
        analyses=analyses,
        data=list_data(plan, finished, out),
        recipes=tuple(whole_recipes),
        variants=variants,
        settings=_show_settings(plan),
        command=str(plan.get("command", "")),
        identities=list_identities(plan),
        citations=(*find_citations(used), *cite_data(recipes)),
    )


def _find_comparison(
    plan: Mapping[str, Any], finished: Finished, out: Path, *, every: bool
) -> tuple[StudyComparison, bool]:
    """Compared now, from predictions; or, where these are not here, as it was found before. Tells which."""
    missing = _count_missing(finished, out)
    if not missing:
        return gather_comparison(plan, out, every=every, groups=GROUPS, choose_again=False), False
    total = sum(len(seeds) for seeds in finished.values())
    lost = f"the predictions of {missing} of {total} finished cells are not in this folder"
    try:
        stored = load_comparison(out)
    except ArtefactError as error:
        stored, lost = None, f"{lost}; {error}"
    if stored is None:
        note = f"Note: {lost}, and no comparison is stored in it, so that there is nothing to compare."
        return StudyComparison(plan["name"], (), (), (note,)), True
    made = time.strftime("%Y-%m-%d", time.gmtime((out / COMPARISON).stat().st_mtime))
    note = f"Note: {lost}; figures and tests are those that crossling study compare stored on {made}."
    return StudyComparison(stored.name, stored.parts, stored.choices, (*stored.lines, note)), True


def _count_missing(finished: Finished, out: Path) -> int:
    """Finished cells that lack some of their predictions."""
    missing = 0
    for folder, seeds in finished.items():
        recipe = load_recipe(out / folder / "recipe.toml")
        for seed in seeds:
            files = [
                prediction_path(out / folder, seed, entry, language)
                for entry in recipe.evaluate
                for language, _ in entry.specs()
            ]
            missing += not all(file.is_file() for file in files)
    return missing


def _make_panels(comparison: StudyComparison) -> list[Panel]:
    return [
        make_panel(
            name_file("compare", part.task, data), part.task, table, judge(part.comparison, data, task=part.task)
        )
        for part in comparison.parts
        for table, data in zip(part.tables, part.comparison.data_sets, strict=True)
    ]


def _find_sweeps(plan: Mapping[str, Any], out: Path, comparison: StudyComparison, *, is_stored: bool) -> list[Sweep]:
    if not has_axes(plan) or not comparison.parts:
        return []
    scores = read_scores(comparison) if is_stored else score_variants(plan, out, comparison)
    return draw_sweeps(plan, scores, comparison)


def _describe(plan: Mapping[str, Any], status: StudyStatus, comparison: StudyComparison) -> tuple[tuple[str, str], ...]:
    """What the study is, in a few words each."""
    settings = plan["settings"]
    languages = {r.language for part in comparison.parts for r in part.comparison.results if not r.is_average}
    facts = [
        ("tasks", ", ".join(settings["tasks"])),
        ("systems", str(len(settings["systems"]))),
        ("baseline", settings["baseline"]),
        ("languages", str(len(languages)) if languages else ""),
        ("seeds", ", ".join(map(str, settings["seeds"]))),
        ("cells done", f"{status.count('done')} of {len(status.cells)}"),
    ]
    return tuple((name, value) for name, value in facts if value)


def _show_settings(plan: Mapping[str, Any]) -> str:
    """The study as it was asked for, as TOML, with what the command line changed."""
    lines = [f"# --set {text}" for text in plan.get("overrides", ())]
    tables: dict[str, Any] = {}
    for name, value in plan["settings"].items():
        if name in ("tasks", "systems"):
            for key, inside in value.items():
                quoted = key if key.isidentifier() else json.dumps(key, ensure_ascii=False)
                tables[f"{name}.{quoted}"] = {k: v for k, v in inside.items() if v}
        elif value:
            tables[name] = value
    return "\n".join([*lines, to_toml(tables)])


def _list_encoders(plan: Mapping[str, Any], out: Path) -> set[str]:
    """What the encoders are, where a recipe names a folder."""
    files = (read_json(out / variant["folder"] / "run.json") for variant in plan["variants"])
    return {str(facts["encoder"]) for facts in files if isinstance(facts, dict) and "encoder" in facts}


def _list_tests(comparison: StudyComparison) -> set[str]:
    tests = {
        f"test/{one.test}"
        for part in comparison.parts
        for result in part.comparison.results
        for one in (result.from_baseline, result.from_second)
        if one
    }
    return tests | {"test/Holm", "test/bootstrap"} if tests else tests
