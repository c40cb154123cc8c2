"""Objectives: what a model is trained on, one file per kind. Tasks and stages say which one they use.

An objective makes batches of a few fixed shapes from examples, and a loss, a pure function of tensors, from a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from crossling.data.batching import Batch, Examples
    from crossling.models.model import Model

    Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]

T = TypeVar("T")


class Terms(NamedTuple, Generic[T]):
    """A value for each term of the loss ``task + pull * L_pull + stay * L_stay + consistency * L_consistency``; None:
    there is no such term.

    A task has the first term. Aligned words have the next two: see ``aligned_words.py``. A task that is learnt with
    changed copies of its examples has the first and the last: see ``consistency.py``.
    """

    task: T | None = None
    pull: T | None = None
    stay: T | None = None
    consistency: T | None = None


class Extractor(Protocol):
    """Reads something from a model, batch by batch: predictions or features; nothing is learnt."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """A batch as arrays of fixed shapes: ``size`` rows, the last ones empty where the plan has fewer."""

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is to be stored of each example, without gradients."""


class Objective(Extractor, Protocol):
    """A loss on an encoder, with the head that it needs."""

    name: str
    weights: Terms[float]
    """The weight of each term that this objective has: 1 for a task."""

    def build_head(self, width: int) -> nn.Module | None:
        """A new head, or None for an objective on the encoder itself."""

    def count_targets(self, batch: Arrays) -> Terms[int]:
        """The number of targets in a batch, by which the sum of a term is divided; 0 for a term that stays a sum."""

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        """Each term, summed over the batch's targets."""


class TaskObjective(Objective, Protocol):
    """A task's loss in two parts, so that a model's predictions can be compared between an example and a copy of it."""

    def logits(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """The logits, a row for each example."""

    def sum_task(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        """The task's loss, summed over the batch's targets."""

    def locate_predictions(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """``compared``: which of an example's P predictions there are, ``size`` x P. ``places``: where they are, in as
        many columns as needed."""

    def log_probabilities(self, logits: Tensor, places: Tensor) -> Tensor:
        """The log-probabilities of each prediction, a row for each example, x P x classes."""

    def decode(self, logits: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """What is to be stored of each example; arrays of torch or of numpy, as they are given."""
