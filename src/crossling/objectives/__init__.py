"""What a model is trained on: batches of a few fixed shapes and a loss that is a pure function of tensors.

One file each. An objective's module defines ``Objective``; tasks say which one they use. A loss of several terms, each
a mean over labels of its own, names them (``terms``) and may say how they add up (``weigh``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from crossling.data.batching import Batch, Examples
    from crossling.models.model import Model

    Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


class Reading(Protocol):
    """What is read from a model, batch by batch; nothing need be learnt."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """A batch as arrays of fixed shapes: ``size`` rows, the last ones empty where the plan has fewer."""

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is to be stored of each example, without gradients."""


class Objective(Reading, Protocol):
    """A loss on an encoder, with the head that it needs."""

    name: str

    def build_head(self, width: int) -> nn.Module | None:
        """A new head, or None for an objective on the encoder itself."""

    def count_targets(self, batch: Arrays) -> int | tuple[int, ...]:
        """How many labels the batch holds, for each term: what a mean loss divides by."""

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """The loss summed over the batch's labels: one number, or one for each term."""


def list_terms(objective: Objective) -> tuple[str, ...]:
    """The names of a loss's terms; of a single one, ``loss``."""
    terms: tuple[str, ...] = getattr(objective, "terms", ("loss",))
    return terms


def weigh_terms(objective: Objective, targets: Sequence[float]) -> list[float]:
    """What each term of a summed loss is multiplied by, given the labels of the whole update: a mean, by default."""
    weigh: Callable[[Sequence[float]], Sequence[float]] | None = getattr(objective, "weigh", None)
    return list(weigh(targets)) if weigh else [1.0 / max(count, 1.0) for count in targets]
