"""The part of a batch that tasks share: subwords, mask, segments, and targets that are distributions.

B examples, S subwords, C classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crossling.data.batching import Array, Batch, Examples, pad_column

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.objectives import Arrays

IGNORED = -100
"""The label of a position that has none; torch's own default."""
TARGETS = "targets"
"""The column of examples that holds a distribution over classes for each label, times the example's weight. Examples
without one are learnt by their labels, with weight 1."""


def collate_inputs(examples: Examples, plan: Batch, *, size: int) -> Arrays:
    """Subwords (-1 where there is none), mask, and segments where the examples have them.

    Rows beyond the plan's are empty but for one visible position, since attention over nothing is not a number.
    """
    ids = pad_column(examples, "ids", plan, size=size, fill=-1)
    mask = (ids >= 0).astype(np.int64)
    mask[len(plan.rows) :, 0] = 1
    batch = {"ids": ids, "mask": mask}
    if "types" in examples.columns:
        batch["types"] = pad_column(examples, "types", plan, size=size, fill=0)
    return batch


def fill_targets(examples: Examples, row: int, labels: Array, classes: int) -> Array:
    """What an example's labels are learnt by, labels x classes: its own distributions, or 1 for each label's class."""
    given = examples.get(TARGETS, row)
    if len(given):
        return given.reshape(len(labels), classes)
    certain = np.zeros((len(labels), classes), np.float32)
    labelled = np.flatnonzero(labels >= 0)
    certain[labelled, labels[labelled]] = 1
    return certain


def sum_cross_entropy(logits_BC: Tensor, batch: dict[str, Tensor]) -> Tensor:
    """Cross-entropy summed over all labels of a batch; of targets where it has them, weights included."""
    from torch.nn import functional

    if TARGETS in batch:
        targets_BC = batch[TARGETS].flatten(0, -2)
        return -(targets_BC * functional.log_softmax(logits_BC.float(), dim=-1)).sum()
    labels_B = batch["labels"].flatten()
    return functional.cross_entropy(logits_BC.float(), labels_B, ignore_index=IGNORED, reduction="sum")
