"""The mean cosine of sentences and their translations: needs no label, but rewards a model that collapses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from crossling.criteria import ChoiceContext, FinishedCell
from crossling.criteria.similarity import LABELS, SimilaritySettings, mean_similarity

__all__ = ["LABELS", "Settings", "score"]


class Settings(SimilaritySettings):
    """Which parallel text decides."""

    kind: Literal["cosine"] = "cosine"


def score(cells: Sequence[FinishedCell], context: ChoiceContext[Settings]) -> float:
    """The mean over seeds and languages; more is better, and a model that gives all sentences one vector has 1."""
    return mean_similarity(cells, context, column="cosine")
