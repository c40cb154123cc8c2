"""An analysis of everything in a folder: all finished cells of a study, all seeds of a run, or one saved model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa

from crossling.analyses._context import AnalysisContext
from crossling.analyses._stored import analyse_folder
from crossling.errors import ArtefactError, RecipeError
from crossling.model import read_card
from crossling.recipe import RunSettings, load_recipe, parse_kind
from crossling.registry import load_kind
from crossling.report.association import Correlation, Point, correlate
from crossling.study.layout import PLAN, is_finished, read_plan
from crossling.study.run import find_model, read_run_file
from crossling.study.scoring import score_cells
from crossling.study.store import Store, find_store
from crossling.training.progress import Progress, Silence
from crossling.training.world import join_world

MEASURES = ("cosine", "margin")
"""Columns of an analysis that are held against the scores."""


@dataclass(frozen=True)
class Subject:
    """A trained model in a study or a run."""

    task: str
    label: str
    seed: int | None
    model: Path
    source: str
    """The language that its labels came from."""


@dataclass(frozen=True)
class Analysis:
    """The tables of all models as one, and how its figures go with the scores."""

    folder: Path
    settings: Any
    table: pa.Table
    """``task``, ``model`` and ``seed``, then the columns of the analysis."""
    points: tuple[Point, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    notes: tuple[str, ...] = ()

    def to_csv(self) -> str:
        """For a spreadsheet."""
        import io

        import pyarrow.csv

        text = io.BytesIO()
        pyarrow.csv.write_csv(self.table, text)
        return text.getvalue().decode()


def parse_settings(table: Mapping[str, Any]) -> Any:
    """The settings of an analysis, or one error that lists every problem."""
    problems: list[str] = []
    settings = parse_kind("analyses", table, key=str(table.get("kind")), problems=problems)
    if settings is None:
        raise RecipeError("\n  ".join(problems))
    return settings


def analyse(folder: Path, settings: Any, *, progress: Progress | None = None) -> Analysis:
    """Analyse every model of a folder. What is done is kept in the store, so that a killed analysis goes on."""
    progress = progress or Silence()
    subjects, store, notes = find_subjects(folder)
    kind = load_kind("analyses", settings.kind)
    data = {
        source: kind.open_analysis_data(settings, source=source, store=store)
        for source in {subject.source for subject in subjects}
    }
    context = AnalysisContext(join_world(RunSettings()), store)
    parts = []
    progress.begin(f"{settings.kind} of {len(subjects)} models", len(subjects))
    for subject in subjects:
        table = analyse_folder(settings, data[subject.source], subject.model, context)
        parts.append(_name_rows(table, subject))
        progress.advance(1, last=f"{subject.task} {subject.label} seed {subject.seed}".strip())
    progress.end()
    whole = pa.concat_tables(parts)
    points = relate_scores(folder, whole) if (folder / PLAN).is_file() else []
    return Analysis(folder, settings, whole, tuple(points), tuple(correlate(points)), tuple(notes))


def find_subjects(folder: Path) -> tuple[list[Subject], Path, list[str]]:
    """The models of a folder, the store that they lie in, and what is not there yet."""
    if (folder / PLAN).is_file():
        return _find_cells(folder)
    if (folder / "model.json").is_file():
        return [Subject("", folder.name, None, folder, read_card(folder).source)], find_store(), []
    facts, recipe = read_run_file(folder), load_recipe(folder / "recipe.toml")
    seeds = [int(seed) for seed in facts["stages"]]
    found = [Subject("", folder.name, seed, find_model(folder, seed=seed), recipe.source) for seed in seeds]
    return found, Path(facts["store"]), []


def _find_cells(folder: Path) -> tuple[list[Subject], Path, list[str]]:
    plan = read_plan(folder)
    store = Store(Path(plan["store"]))
    sources = {v["folder"]: load_recipe(folder / v["folder"] / "recipe.toml").source for v in plan["variants"]}
    subjects = [
        Subject(
            cell["task"],
            cell["label"],
            cell["seed"],
            store.artefact(cell["stages"][-1]),
            sources[cell["folder"]],
        )
        for cell in plan["cells"]
        if is_finished(folder, cell["name"], cell["identity"])
    ]
    if not subjects:
        raise ArtefactError(f"{folder}: no cell is finished yet; crossling study run goes on")
    gone = [subject.model for subject in subjects if not (subject.model / "model.json").is_file()]
    if gone:
        raise ArtefactError(
            f"{gone[0]}: the model is gone ({len(gone)} of {len(subjects)} are), though its predictions are there. "
            "Bring the store back, or run the study again into another folder."
        )
    missing = len(plan["cells"]) - len(subjects)
    return subjects, store.root, [f"{missing} of {len(plan['cells'])} cells are not finished"] if missing else []


def _name_rows(table: pa.Table, subject: Subject) -> pa.Table:
    count = len(table)
    names = {
        "task": pa.array([subject.task] * count, pa.string()),
        "model": pa.array([subject.label] * count, pa.string()),
        "seed": pa.array([subject.seed] * count, pa.int64()),
    }
    return pa.table({**names, **{name: table.column(name) for name in table.column_names}})


def relate_scores(folder: Path, table: pa.Table) -> list[Point]:
    """A point for each variant: its measures, over languages and seeds, and its mean score where it was not trained."""
    scores: dict[tuple[str, str], list[float]] = {}
    for cell in score_cells(read_plan(folder), folder):
        if cell.zero_shot is not None:
            scores.setdefault((cell.task, cell.label), []).append(cell.zero_shot)
    means = average_models(table)
    return [Point(*key, means[key], fmean(values)) for key, values in scores.items() if key in means]


def average_models(table: pa.Table) -> dict[tuple[str, str], dict[str, float]]:
    """The mean over seeds and languages of each measure, by task and model."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        rows.setdefault((row["task"], row["model"]), []).append(row)
    measures = [name for name in MEASURES if name in table.column_names]
    return {key: {name: fmean(row[name] for row in some) for name in measures} for key, some in rows.items()}


def describe_settings(settings: Any) -> str:
    """The settings that are not the default, for the record."""
    table: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(table, ensure_ascii=False)


def list_lines(analysis: Analysis) -> Sequence[str]:
    """What a reader must not miss."""
    return (*(one.describe() for one in analysis.correlations), *(f"Note: {note}." for note in analysis.notes))
