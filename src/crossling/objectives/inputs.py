"""The part of a batch that all tasks share: subwords, mask and segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from crossling.data.batching import Batch, Examples, pad_column

if TYPE_CHECKING:
    from crossling.objectives import Arrays

IGNORED = -100
"""The label of a position that has none; torch's own default."""


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
