"""Updates of the subword table that move only the rows of the step's batches.

AdamW moves every row in every step, by the momentum that is left of earlier ones. Here a row's momentum waits for the
row's next turn, and nothing decays in between: another method, for tables of which a step sees a small part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from crossling.training.fast.cpu_operations import Replacing
from crossling.training.fast.fused_linear import Lookups, SideLine
from crossling.training.settings import TrainingSettings

if TYPE_CHECKING:
    from crossling.models.model import Model


class TableRows:
    """AdamW for one table, row by row; its means are in the optimiser's state, where checkpoints look for them."""

    def __init__(self, table: nn.Parameter, optimiser: torch.optim.Optimizer, settings: TrainingSettings) -> None:
        self.table, self.optimiser, self.settings = table, optimiser, settings
        in_place = Lookups({id(table): table}, SideLine(torch.device("cpu")))
        self.ways = Replacing({functional.embedding: in_place})
        """What passes over whole weights are entered with, so that no gradient of the whole table is made."""

    @torch.no_grad()
    def move(self, ids: Sequence[Tensor], rate: float, scale: Tensor | None, copy: Tensor | None = None) -> None:
        """Apply and clear the gradient of the rows in ``ids``; ``scale`` divides it, ``copy`` follows the table.

        A row that occurs several times is computed several times, with the same result: a GPU need not be asked how
        many different ones there are.
        """
        gradients = self.table.grad
        if gradients is None:
            return
        rows = torch.cat([part.reshape(-1) for part in ids])
        gradient = gradients.index_select(0, rows)
        if scale is not None:
            gradient /= scale
        state = self._get_state()
        state["step"] += 1
        (slow, slower), step = self.settings.betas, state["step"]
        mean = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - slow)
        square = state["exp_avg_sq"].index_select(0, rows).mul_(slower).addcmul_(gradient, gradient, value=1 - slower)
        root = (square / (1 - slower**step)).sqrt_().add_(self.settings.eps)
        moved = self.table.index_select(0, rows).mul_(1 - rate * self.settings.weight_decay)
        moved -= (mean / (1 - slow**step)).div_(root).mul_(rate)
        for target, values in ((self.table, moved), (state["exp_avg"], mean), (state["exp_avg_sq"], square)):
            target.index_copy_(0, rows, values)
        gradients.index_fill_(0, rows, 0.0)
        if copy is not None:
            copy.index_copy_(0, rows, moved.to(copy.dtype))

    def _get_state(self) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.optimiser.state[self.table]
        if not state:
            state["step"] = torch.zeros((), device=self.table.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(self.table), torch.zeros_like(self.table)
        return state


def find_table(model: Model, settings: TrainingSettings) -> nn.Parameter | None:
    """The table that is to be moved row by row, if any."""
    table: nn.Parameter = model.encoder.model.get_input_embeddings().weight
    return table if settings.table_update == "rows" and table.requires_grad else None
