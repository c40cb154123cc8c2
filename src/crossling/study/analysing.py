"""An analysis of any list of models: cells of a study, seeds of a run, saved models, encoders as they were."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pyarrow as pa

from crossling.analyses._stored import analyse_model
from crossling.analyses.context import AnalysisContext
from crossling.errors import RecipeError
from crossling.progress import NoProgress, Progress
from crossling.recipe.recipe import RunSettings, parse_kind
from crossling.registry import load_kind
from crossling.report.association import Correlation, Point, correlate
from crossling.study.cell_scores import score_cells
from crossling.study.folder import read_plan
from crossling.study.subjects import Found, Named, Subject, find_subjects, label_cell
from crossling.training.distributed import setup_distributed


@dataclass(frozen=True)
class Analysis:
    """The tables of all models as one, and how its figures go with the scores."""

    settings: Any
    table: pa.Table
    """``task``, ``model`` and ``seed``, then the columns of the analysis."""
    title: str = ""
    """What was looked at."""
    home: Path | None = None
    """Where results go unless told otherwise: a study's, a run's or a model's folder, if it alone was looked at."""
    points: tuple[Point, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> ModuleType:
        """The module of the analysis, which says what of its table is shown."""
        return load_kind("analyses", self.settings.kind)

    def to_csv(self) -> str:
        """For a spreadsheet; lists, which are there to be drawn, are left out."""
        import io

        import pyarrow.csv

        text = io.BytesIO()
        plain = [field.name for field in self.table.schema if not pa.types.is_nested(field.type)]
        pyarrow.csv.write_csv(self.table.select(plain), text)
        return text.getvalue().decode()


def parse_settings(table: Mapping[str, Any]) -> Any:
    """The settings of an analysis, or one error that lists every problem."""
    problems: list[str] = []
    settings = parse_kind("analyses", table, key=str(table.get("kind")), problems=problems)
    if settings is None:
        raise RecipeError("\n  ".join(problems))
    return settings


def analyse(
    models: str | Path | Iterable[str | Path],
    settings: Any,
    *,
    source: str | None = None,
    progress: Progress | None = None,
) -> Analysis:
    """Analyse every model that is named. What is done is kept in the store, so that a killed analysis goes on.

    ``source`` is the language that others are held against: by default the one that a model's labels came from, and
    for an original encoder that of the models beside it, or English.
    """
    progress = progress or NoProgress()
    found = find_subjects([models] if isinstance(models, str | Path) else models)
    kind = load_kind("analyses", settings.kind)
    if hasattr(kind, "settle"):
        settings = kind.settle(settings, [subject.encoder for subject in found.subjects])
    whole = _analyse_all(found, settings, _choose_sources(found.subjects, source), progress)
    remarks = kind.remarks(whole, settings=settings) if hasattr(kind, "remarks") else ()
    points = relate_scores(found.named, whole, measures=getattr(kind, "MEASURES", ()))
    notes = (*found.notes, *remarks)
    return Analysis(settings, whole, found.title(), found.home(), tuple(points), tuple(correlate(points)), notes)


def _analyse_all(found: Found, settings: Any, sources: Sequence[str], progress: Progress) -> pa.Table:
    """The tables of all models, one below the other; data are opened before any model is."""
    kind, distributed = load_kind("analyses", settings.kind), setup_distributed(RunSettings())
    store = found.subjects[0].store
    data = {source: kind.open_analysis_data(settings, source=source, store=store) for source in dict.fromkeys(sources)}
    parts = []
    progress.begin(f"{settings.kind} of {len(found.subjects)} models", len(found.subjects))
    for subject, source in zip(found.subjects, sources, strict=True):
        context = AnalysisContext(distributed, subject.store, progress)
        parts.append(_name_rows(analyse_model(settings, data[source], subject.model, context), subject))
        seed = "" if subject.seed is None else f" seed {subject.seed}"
        progress.advance(1, last=f"{subject.task} {subject.label}{seed}".strip())
    progress.end()
    return pa.concat_tables(parts)


def _choose_sources(subjects: Sequence[Subject], source: str | None) -> list[str]:
    """The source language for each model."""
    others = source or next((subject.source for subject in subjects if subject.source), "en")
    return [source or subject.source or others for subject in subjects]


def _name_rows(table: pa.Table, subject: Subject) -> pa.Table:
    count = len(table)
    names = {
        "task": pa.array([subject.task] * count, pa.string()),
        "model": pa.array([subject.label] * count, pa.string()),
        "seed": pa.array([subject.seed] * count, pa.int64()),
    }
    return pa.table({**names, **{name: table.column(name) for name in table.column_names}})


def relate_scores(named: Sequence[Named], table: pa.Table, *, measures: Sequence[str]) -> list[Point]:
    """A point for each variant of studies: its measures, over languages and seeds, and its mean zero-shot score."""
    scores: dict[tuple[str, str], list[float]] = {}
    for one in named if measures else ():
        if not one.is_study or one.after:  # scores are those of the last stage
            continue
        for cell in score_cells(read_plan(one.folder), one.folder):
            if cell.zero_shot is not None:
                scores.setdefault((cell.task, label_cell(one, cell.label)), []).append(cell.zero_shot)
    means = average_models(table, measures)
    return [Point(*key, means[key], fmean(values)) for key, values in scores.items() if key in means]


def average_models(table: pa.Table, measures: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """The mean over seeds and languages of each measure, by task and model."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.select(["task", "model", *measures]).to_pylist():
        rows.setdefault((row["task"], row["model"]), []).append(row)
    return {key: {name: fmean(row[name] for row in some) for name in measures} for key, some in rows.items()}


def describe_settings(settings: Any) -> str:
    """The settings that are not the default, for the record."""
    table: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
    return json.dumps(table, ensure_ascii=False)


def list_lines(analysis: Analysis) -> Sequence[str]:
    """What a reader must not miss."""
    return (*(one.describe() for one in analysis.correlations), *(f"Note: {note}." for note in analysis.notes))
