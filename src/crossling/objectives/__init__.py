"""What a model is trained on: batches of a few fixed shapes and a loss that is a pure function of tensors.

One file each. An objective's module defines ``Objective``; tasks say which one they use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

    from crossling.data.batching import Batch, Examples
    from crossling.model import Model

    Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]


class Objective(Protocol):
    """A loss on an encoder, with the head that it needs."""

    name: str

    def build_head(self, width: int) -> nn.Module | None:
        """A new head, or None for an objective on the encoder itself."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """A batch as arrays of fixed shapes: ``size`` rows, the last ones empty where the plan has fewer."""

    def count_targets(self, batch: Arrays) -> int:
        """How many labels the batch holds: what a mean loss divides by."""

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """The loss summed over the batch's labels."""

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """What is to be stored of each example, without gradients."""
