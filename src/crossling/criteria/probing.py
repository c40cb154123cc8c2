"""Auxiliary tasks by probing results: those that multi-lingual training makes an encoder know better.

For an axis of sets of auxiliary tasks. A task adds to the score of its set what the multi-lingual model's probing
result is above the cross-lingual one's, less ``min_gain``: the set of all tasks that gain enough scores highest.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from crossling.analyses._probes.results import MIN_GAIN, choose_from_results, read_csv
from crossling.criteria import ChoiceContext, FinishedCell
from crossling.data.declarations import load_declaration
from crossling.data.spec import parse_spec
from crossling.errors import RecipeError, UserError
from crossling.recipe.recipe import FrozenSettings
from crossling.tasks import PRESETS, parse_task

LABELS = (
    "labels of the target languages, on which the probes of {settings.cross} and {settings.multi} in {settings.table} "
    "were scored"
)
TIE = 1e-6
"""A task that gains just enough is chosen."""


class Settings(FrozenSettings):
    """Whose probing results decide, and how much better they must be."""

    kind: Literal["probing"] = "probing"
    table: str
    """What ``crossling analyse probe`` wrote: probe.csv."""
    cross: str
    """The name in it of the model that was trained on the source language alone."""
    multi: str
    """The name of the model that was trained on several languages."""
    min_gain: float = Field(default=MIN_GAIN, ge=0, le=100)
    """Percentage points that a task must gain."""
    score: str = "macro_f1"
    """The score that is compared."""


def score(cells: Sequence[FinishedCell], context: ChoiceContext[Settings]) -> float:
    """The sum over a value's auxiliary tasks of what each gains above what is asked for; no task: 0."""
    settings = context.settings
    if "choice" not in context.facts:
        context.facts["choice"] = choose_from_results(
            read_csv(Path(settings.table)),
            cross=settings.cross,
            multi=settings.multi,
            score=settings.score,
            min_gain=settings.min_gain,
        )
    gains = {one.probe: one.gain for one in context.facts["choice"].gains}
    total = 0.0
    for name in list_auxiliary(context.recipe):
        if name not in gains:
            raise RecipeError(
                f"auxiliary task {name}: {settings.table} has no probing result of it for {settings.cross} and "
                f"{settings.multi} (it has {', '.join(gains) or 'none'})"
            )
        total += gains[name] - settings.min_gain + TIE
    return total


def list_auxiliary(recipe: Any) -> list[str]:
    """The names of a recipe's auxiliary tasks."""
    found = [one for stage in recipe.stage for one in getattr(stage, "auxiliary", ())]
    return [name_task(one.task, one.train[0]) for one in found]


def name_task(task: Any, data: Any) -> str:
    """The name of a task whose settings are known: what its data set is for, or the one preset that it could be."""
    named = data if isinstance(data, str) else data.get("data")
    if isinstance(named, str):
        try:
            known = load_declaration(parse_spec(named).name, parse_spec(named).version).task
        except UserError:
            known = ""
        if known in PRESETS:
            return known
    like = [name for name in PRESETS if _shape(parse_task(name)) == _shape(task)]
    return like[0] if len(like) == 1 else str(task.kind)


def _shape(task: Any) -> tuple[str, str]:
    return task.kind, getattr(task, "scheme", "")
