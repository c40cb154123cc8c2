"""What a recipe reads, opened and checked before anything is trained, and how long it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.errors import Problems, RecipeError
from crossling.inference.evaluate import check_kind
from crossling.progress import Progress
from crossling.recipe.recipe import EvaluateSettings, Recipe
from crossling.stages import StageData, load_stage
from crossling.study.folder import prediction_path
from crossling.tasks import Task, build_task

Target = tuple[EvaluateSettings, str, Rows]
"""An entry of the recipe, one of its languages, and its rows in that language."""


SAMPLE_ROWS = 100
"""Rows from which the length of a data set is estimated."""


_subword_estimates: dict[str, float] = {}


def resolve_recipe(recipe: Recipe, opened: Sequence[StageData]) -> Recipe:
    """A recipe with what depends on the data of its stages filled in."""
    stages = []
    for settings, data in zip(recipe.stage, opened, strict=True):
        resolve = getattr(load_stage(settings), "resolve_settings", None)
        stages.append(resolve(settings, data) if resolve is not None else settings)
    return recipe.model_copy(update={"stage": tuple(stages)})


def check_stages(recipe: Recipe) -> None:
    """Refuse a recipe that trains nothing."""
    if not recipe.stage:
        raise RecipeError('stage: missing; a run trains at least once: [[stage]] with kind = "finetune"')


def build_final_task(recipe: Recipe) -> Task | None:
    """The task that is scored: the last stage's; none where there is nothing to score and no task."""
    if recipe.task is not None:
        return build_task(recipe.task, ())
    if recipe.evaluate and recipe.stage:
        raise RecipeError(
            f"evaluate: the last stage, {recipe.stage[-1].kind!r}, learns no task that could be scored; end with a "
            "finetune stage, or leave evaluate out"
        )
    return None


def open_stages(
    recipe: Recipe, store: Path, problems: Problems, *, progress: Progress | None = None
) -> list[StageData]:
    """What each stage reads, opened; complete where no problem was found. ``progress``: of what is made for it."""
    opened = []
    given: dict[str, Any] = {"source": recipe.source, "store": store, "progress": progress}
    for number, settings in enumerate(recipe.stage):
        with problems.collect(f"stage.{number}"):
            opened.append(load_stage(settings).open_stage_data(settings, **given))
    return opened


def open_targets(recipe: Recipe, store: Path, problems: Problems) -> list[Target]:
    """Everything to be predicted, opened; complete where no problem was found."""
    opened = []
    for number, entry in enumerate(recipe.evaluate):
        for language, spec in entry.specs():
            with problems.collect(f"evaluate.{number}"):
                opened.append((entry, language, open_data(spec, split=entry.split, store=store)))
    return opened


def open_recipe(
    recipe: Recipe, store: Path, problems: Problems, *, progress: Progress | None = None
) -> tuple[list[StageData], list[Target]]:
    """All data that a recipe names, opened, and checked for whether its parts fit together."""
    task = build_final_task(recipe)
    opened = open_stages(recipe, store, problems, progress=progress)
    whole = not problems
    targets = open_targets(recipe, store, problems)
    seen: set[Path] = set()
    for entry, language, rows in targets:
        with problems.collect(f"evaluate.{recipe.evaluate.index(entry)}"):
            if task is not None:
                check_kind(task, rows)
            path = prediction_path(Path(), 0, entry, language)
            if path in seen:
                raise RecipeError(
                    f"two sets would be stored as {path.parent.name}/{path.stem}, one over the other; leave one out, "
                    "or give it another name"
                )
            seen.add(path)
    if whole:
        scored = [rows for *_, rows in targets]
        for number, (settings, data) in enumerate(zip(recipe.stage, opened, strict=True)):
            if check := getattr(load_stage(settings), "check_scored", None):
                with problems.collect(f"stage.{number}"):
                    check(settings, data, scored)
    return opened, targets


def count_subwords(data: StageData) -> float:
    """Subwords that one epoch of a stage reads: estimated as in forecasts, so that the error cancels."""
    return float(sum(times * estimate_subwords(rows) for rows, times in data.reads_per_epoch()))


def estimate_subwords(rows: Rows) -> float:
    """Subwords of a data set, from the letters of its first rows: about four make one, and each text has two marks."""
    if rows.fingerprint not in _subword_estimates:
        sample = [_letters(record) for record in islice(rows, SAMPLE_ROWS)]
        _subword_estimates[rows.fingerprint] = len(rows) * (2 + statistics.mean(sample) / 4) if sample else 0.0
    return _subword_estimates[rows.fingerprint]


def _letters(record: Any) -> int:
    """Letters of a record's texts; labels and tags are not read by an encoder."""
    letters = 0
    for name in record.__dataclass_fields__:
        if name in ("tags", "label", "id", "starts", "answers", "links"):
            continue
        value = getattr(record, name)
        letters += sum(len(word) + 1 for word in value) if isinstance(value, tuple) else len(value)
    return letters
