"""One update of a model: gradients of one or more batches, added up, clipped, applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from crossling.errors import UserError
from crossling.models.model import Model, to_device
from crossling.training.distributed import Distributed
from crossling.training.fast.bf16_weights import ReducedWeights
from crossling.training.fast.cpu_operations import replace_operations
from crossling.training.settings import TrainingSettings
from crossling.training.table_rows import TableRows, find_table

if TYPE_CHECKING:
    from crossling.objectives import Objective

Batches = Sequence[tuple["Objective", dict[str, Tensor]]]
Scales = Mapping[str, Sequence[float]]
"""By objective: what each term of its summed loss is multiplied by."""
Losses = list[tuple["Objective", Tensor]]
"""The scaled terms of every batch's loss, still on the device."""


class PlainSteps:
    """Updates launched operation by operation: what runs everywhere, and what defines the result."""

    def __init__(
        self, model: Model, optimiser: torch.optim.Optimizer, settings: TrainingSettings, distributed: Distributed
    ) -> None:
        self.model, self.optimiser, self.settings, self.distributed = model, optimiser, settings, distributed
        self._reduced: ReducedWeights | None = None
        table = find_table(model, settings)
        if table is not None and distributed.size > 1:
            raise UserError(
                "table_update = 'rows': for one process only, since others see other rows. Set it to 'all'."
            )
        self._rows = TableRows(table, optimiser, settings) if table is not None else None

    def update(self, batches: Batches, *, scales: Scales, rate: float) -> Losses:
        """Apply the gradient of the scaled losses of all batches; gives those losses."""
        self.optimiser.zero_grad(set_to_none=True)
        losses: Losses = []
        moved = [(objective, to_device(batch, self.distributed.device)) for objective, batch in batches]
        for objective, batch in moved:
            scale = torch.tensor(scales[objective.name], device=self.distributed.device)
            losses.append((objective, self.backward(objective, batch, scale)))
        self.distributed.sum_gradients(self.model)
        self.set_rate(rate)
        self.apply()
        self.move_rows([batch["ids"] for _, batch in moved], rate)
        return losses

    def backward(self, objective: Objective, batch: dict[str, Tensor], scale: Tensor) -> Tensor:
        """Add a batch's gradients up; gives the scaled terms of its loss."""
        reduced = self.distributed.precision != torch.float32
        # A captured graph must cast weights anew at every replay, so casts are never remembered.
        with (
            replace_operations(self.distributed.device),
            nullcontext() if self._rows is None else self._rows.ways,
            torch.autocast(
                self.distributed.device.type, dtype=self.distributed.precision, enabled=reduced, cache_enabled=False
            ),
        ):
            if reduced and not self.settings.gradient_checkpointing:
                return self.reduced_weights().backward(objective, batch, scale)
            terms = objective.sum_loss(self.model, batch).float().reshape(-1) * scale
        terms.sum().backward()  # type: ignore[no-untyped-call]
        return terms.detach()

    def reduced_weights(self) -> ReducedWeights:
        """Copies of the weights as they are at the first step, kept up to date by every step from there."""
        if self._reduced is None:
            table = self._rows.table if self._rows is not None else None
            self._reduced = ReducedWeights(self.model, self.distributed.precision, apart=table)
        return self._reduced

    def apply(self) -> None:
        """Clip and step; the optimiser divides gradients as it reads them, which spares a pass over all of them."""
        if self.settings.clip:
            norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
            self.optimiser.grad_scale = ((norm + 1e-6) / self.settings.clip).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimiser.step()
        if self._reduced is not None:
            self._reduced.refresh()

    def move_rows(self, ids: Sequence[Tensor], rate: float) -> None:
        """Move the subword table where it is moved by the rows that a step has seen."""
        if self._rows is not None:
            copy = self._reduced.copy_of(self._rows.table) if self._reduced is not None else None
            here = [part.to(self.distributed.device, non_blocking=True) for part in ids]
            self._rows.move(here, rate, getattr(self.optimiser, "grad_scale", None), copy)

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step; on a GPU it is a tensor, so that a captured step sees it."""
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["rate"])
            else:
                group["lr"] = rate * group["rate"]


def build_optimiser(model: Model, settings: TrainingSettings, device: torch.device) -> torch.optim.Optimizer:
    """AdamW; biases and normalisation do not decay, and a fusion may learn at a rate of its own.

    A table that is moved by rows is not among what it moves.
    """
    groups = []
    fusion_rate = (getattr(model.fusion, "lr", None) or settings.lr) / settings.lr
    table = find_table(model, settings)
    for part, rate in (("encoder", 1.0), ("fusion", fusion_rate), ("heads", 1.0)):
        parameters = [p for p in getattr(model, part).parameters() if p.requires_grad and p is not table]
        for decay, chosen in (
            (settings.weight_decay, [p for p in parameters if p.ndim > 1]),
            (0.0, [p for p in parameters if p.ndim <= 1]),
        ):
            if chosen:
                groups.append({"params": chosen, "weight_decay": decay, "rate": rate, "lr": _rate(settings.lr, device)})
    on_gpu = device.type == "cuda"
    return torch.optim.AdamW(
        groups, lr=_rate(settings.lr, device), betas=settings.betas, eps=settings.eps, fused=True, capturable=on_gpu
    )


def _rate(value: float, device: torch.device) -> float | Tensor:
    return torch.tensor(value, device=device) if device.type == "cuda" else value
