"""How much more alike translations are than unrelated sentences: needs no label, and a collapsed model has 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crossling.criteria import ChoiceContext, FinishedCell
from crossling.criteria.similarity import LABELS, SimilaritySettings, mean_similarity

__all__ = ["LABELS", "Settings", "score"]


class Settings(SimilaritySettings):
    """Which parallel text decides."""

    kind: Literal["margin"] = "margin"


def score(cells: Sequence[FinishedCell], context: ChoiceContext[Settings]) -> float:
    """The mean over seeds and languages of the margin between translations and unrelated sentences; more is better."""
    return mean_similarity(cells, context, column="margin")
