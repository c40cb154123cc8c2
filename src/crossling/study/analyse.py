"""An analysis of any list of models: cells of a study, seeds of a run, saved models, pretrained encoders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa

from crossling.analyses import AnalysisContext, Measures, Prepares, load_analysis
from crossling.analyses.correlation import Variant
from crossling.analyses.models import AnalysedModel, AnalysedModels
from crossling.analyses.result import AnalysisTable
from crossling.analyses.settings import AnalysisSettings, parse_settings
from crossling.analyses.stored import analyse_model
from crossling.progress import NoProgress, Progress
from crossling.recipe.recipe import RunSettings
from crossling.study.cell_scores import score_cells
from crossling.study.folder import read_plan
from crossling.study.model_arguments import ModelArgument, find_models, label_cell
from crossling.training.distributed import setup_distributed


def analyse(
    models: str | Path | Iterable[str | Path],
    settings: AnalysisSettings | Mapping[str, Any],
    *,
    source: str | None = None,
    progress: Progress | None = None,
) -> AnalysisTable[AnalysisSettings]:
    """Analyse every model that is named. Finished tables are kept in the store, so that a killed analysis continues.

    ``settings`` may be a table with ``kind`` and whatever is not the default. ``source`` is the language that others
    are compared with: by default the one that a model's labels came from, and for a pretrained encoder that of the
    models beside it, or English.
    """
    progress = progress or NoProgress()
    settings = parse_settings(settings) if isinstance(settings, Mapping) else settings
    found = find_models([models] if isinstance(models, str | Path) else models)
    kind = load_analysis(settings.kind)
    named = {setting: find_models([text]).models for setting, text in settings.name_models().items()}
    selected = AnalysedModels(found.models, named.get("against", ()), heads=named.get("head", ()))
    if isinstance(kind, Prepares):
        settings, selected = kind.prepare(settings, selected)
    table = _analyse_all(selected.models, settings, source, progress)
    variants = relate_scores(found.arguments, table, kind.MEASURES) if isinstance(kind, Measures) else ()
    return AnalysisTable(
        settings,
        table,
        found.title(),
        found.home(),
        bases=selected.bases,
        pretrained=selected.pretrained,
        variants=tuple(variants),
        notes=found.notes,
    )


def _analyse_all(
    models: Sequence[AnalysedModel], settings: AnalysisSettings, source: str | None, progress: Progress
) -> pa.Table:
    """The tables of all models, one below the other; data are opened before any model is loaded."""
    kind, distributed = load_analysis(settings.kind), setup_distributed(RunSettings())
    sources, store = _choose_sources(models, source), models[0].store
    data = {code: kind.open_analysis_data(settings, source=code, store=store) for code in dict.fromkeys(sources)}
    parts = []
    progress.begin(f"{settings.kind} of {len(models)} models", len(models))
    for model, code in zip(models, sources, strict=True):
        context = AnalysisContext(distributed, model.store, progress)
        parts.append(_name_rows(analyse_model(settings, data[code], model.location, context), model))
        seed = "" if model.seed is None else f" seed {model.seed}"
        progress.advance(1, last=f"{model.task} {model.label}{seed}".strip())
    progress.end()
    return pa.concat_tables(parts)


def _choose_sources(models: Sequence[AnalysedModel], source: str | None) -> list[str]:
    """The source language for each model."""
    others = source or next((model.source for model in models if model.source), "en")
    return [source or model.source or others for model in models]


def _name_rows(table: pa.Table, model: AnalysedModel) -> pa.Table:
    count = len(table)
    names = {
        "task": pa.array([model.task] * count, pa.string()),
        "model": pa.array([model.label] * count, pa.string()),
        "seed": pa.array([model.seed] * count, pa.int64()),
    }
    return pa.table({**names, **{name: table.column(name) for name in table.column_names}})


def relate_scores(arguments: Sequence[ModelArgument], table: pa.Table, measures: Sequence[str]) -> list[Variant]:
    """Each variant of studies: its measures, over languages and seeds, and its mean zero-shot score."""
    scores: dict[tuple[str, str], list[float]] = {}
    for argument in arguments:
        if not argument.is_study or argument.after:  # scores are those of the last stage
            continue
        for cell in score_cells(read_plan(argument.folder), argument.folder):
            if cell.zero_shot is not None:
                scores.setdefault((cell.task, label_cell(argument, cell.label)), []).append(cell.zero_shot)
    means = average_models(table, measures)
    return [Variant(*key, means[key], fmean(values)) for key, values in scores.items() if key in means]


def average_models(table: pa.Table, measures: Sequence[str]) -> dict[tuple[str, str], dict[str, float]]:
    """The mean over seeds and languages of each measure, by task and model."""
    rows: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in table.select(["task", "model", *measures]).to_pylist():
        rows.setdefault((row["task"], row["model"]), []).append(row)
    return {
        key: {name: fmean([row[name] for row in some if row[name] is not None] or [math.nan]) for name in measures}
        for key, some in rows.items()
    }
