"""Passes in reduced precision, on copies of the encoder's weights; the optimiser moves the whole ones.

Autocast converts every weight and most activations anew in every pass: on a GPU that is half of all kernels of a
small batch. Here all weights of the encoder are converted once for each update, together, and its gradients come back
together. Fusion and heads, small as they are, stay with autocast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from crossling.model import Model

if TYPE_CHECKING:
    from crossling.objectives import Objective

PREFIX = "encoder."


class ReducedWeights:
    """Copies of an encoder's weights in the precision of the run, with the way of gradients back to the originals."""

    def __init__(self, model: Model, precision: torch.dtype) -> None:
        self.model, self.precision = model, precision
        named: list[tuple[str, Tensor]] = [(n, p) for n, p in model.named_parameters() if p.is_floating_point()]
        encoder = [(name, p) for name, p in named if name.startswith(PREFIX)]
        self._whole = [p for _, p in encoder]
        self._copies = {name: p.detach().to(precision).requires_grad_(p.requires_grad) for name, p in encoder}
        moving = [(p, self._copies[name]) for name, p in encoder if p.requires_grad]
        beside = [p for name, p in named if not name.startswith(PREFIX) and p.requires_grad]
        self._targets = [p for p, _ in moving] + beside
        """The parameters that gradients are for."""
        self._sources = [copy for _, copy in moving] + beside
        """What the passes read in their place."""
        self._converted: dict[Tensor, Tensor] = {}

    def refresh(self) -> None:
        """Take over the weights as they are now."""
        with torch.no_grad():
            torch._foreach_copy_(list(self._copies.values()), self._whole)

    def backward(self, objective: Objective, batch: dict[str, Tensor], scale: Tensor) -> Tensor:
        """Add a batch's gradients to those of the parameters; gives the scaled terms of its loss."""
        terms = torch.func.functional_call(
            _Loss(self.model, objective), {f"model.{name}": copy for name, copy in self._copies.items()}, (batch,)
        )
        scaled: Tensor = terms.float().reshape(-1) * scale
        gradients = torch.autograd.grad(scaled.sum(), self._sources, allow_unused=True)
        with torch.no_grad():
            self._add(gradients)
        return scaled.detach()

    def _add(self, gradients: tuple[Tensor | None, ...]) -> None:
        """A parameter that the loss does not reach keeps whatever gradient it has, or none."""
        found = [(p, g) for p, g in zip(self._targets, gradients, strict=True) if g is not None]
        for parameter, _ in found:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        reduced = [(p, g) for p, g in found if g.dtype != p.dtype]
        if reduced:
            room = [self._room_for(p) for p, _ in reduced]
            torch._foreach_copy_(room, [g for _, g in reduced])
        wide = [self._converted[p] if g.dtype != p.dtype else g for p, g in found]
        torch._foreach_add_([p.grad for p, _ in found if p.grad is not None], wide)

    def _room_for(self, parameter: Tensor) -> Tensor:
        """Where a parameter's gradient is converted to; the same place every time, so that a graph can be captured."""
        if parameter not in self._converted:
            self._converted[parameter] = torch.empty_like(parameter)
        return self._converted[parameter]


class _Loss(nn.Module):
    """A loss as a module, which is what weights can be replaced in."""

    def __init__(self, model: Model, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.objective.sum_loss(self.model, batch)
