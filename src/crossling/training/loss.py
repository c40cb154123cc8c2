"""The loss that training minimises: ``task + pull * L_pull + stay * L_stay``, equation 2 of the adjustment paper.

A plain task has the first term alone. Adjustment has the other two: equation 1. Replay has all three. Consistency
training adds a term of its own: ``consistency * L_consistency``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from crossling.objectives import Terms

if TYPE_CHECKING:
    from crossling.objectives import Objective


def add_terms(sums: Terms[Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of one batch, and its weighted terms for the report.

    A batch has the terms of its objective; the others are 0. The batches of an update go backward one by one and their
    gradients add up, which makes the update follow the gradient of the whole sum. ``weights`` is what
    :func:`weigh_terms` gives, as a tensor.
    """
    mean, pull, stay, consistency = weights
    total, L_pull, L_stay, L_consistency = (0.0 if term is None else term.float() for term in sums)
    task = mean * total
    loss = task + pull * L_pull + stay * L_stay + consistency * L_consistency
    return loss, torch.stack([task, pull * L_pull, stay * L_stay, consistency * L_consistency]).detach()


def weigh_terms(weights: Terms[float], targets: Terms[float]) -> tuple[float, ...]:
    """What the sum of each term is multiplied by: its weight, divided by the number of its targets in the update."""
    return tuple(
        0.0 if weight is None else weight / max(count or 0.0, 1.0)
        for weight, count in zip(weights, targets, strict=True)
    )


def name_terms(objective: Objective) -> dict[int, str]:
    """The terms that an objective has, by their places, under the names that reports use."""
    present = enumerate(zip(Terms._fields, objective.weights, strict=True))
    return {
        place: objective.name if term == "task" else f"{objective.name}_{term}"
        for place, (term, weight) in present
        if weight is not None
    }
