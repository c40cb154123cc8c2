"""The score on the source language's dev set, which already selects the checkpoint: needs no label of any target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crossling.criteria import ChoiceContext, FinishedCell
from crossling.errors import ArtefactError
from crossling.recipe.recipe import FrozenSettings

LABELS = "labels of the source language's dev set"


class Settings(FrozenSettings):
    """No choices to make."""

    kind: Literal["source_dev"] = "source_dev"


def score(cells: Sequence[FinishedCell], context: ChoiceContext[Settings]) -> float:
    """The mean over seeds of the best epoch's score; more is better."""
    found = [cell.record.get("dev_score") for cell in cells]
    scores = [float(value) for value in found if value is not None]
    if not scores or len(scores) < len(found):
        raise ArtefactError(
            f"{cells[0].folder.parent}: source_dev needs a dev score, which a stage with select = 'last' does not have"
        )
    return sum(scores) / len(scores)
