"""Passes in reduced precision, on copies of the encoder's weights; the optimiser moves the whole ones.

Autocast converts every weight and most activations anew in every pass: on a GPU that is half of all kernels of a
small batch. Here all weights of the encoder are converted once for each update, together. Gradients of its products
and tables are added to the whole weights' where they arise (see ``products.py``), the others together. Fusion and
heads, small as they are, stay with autocast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from crossling.models.model import Model
from crossling.training.fast.cpu_operations import Replacing
from crossling.training.fast.fused_linear import Lookups, Product, SideLine, group_names

if TYPE_CHECKING:
    from crossling.objectives import Objective

PREFIX = "encoder."


class ReducedWeights:
    """Copies of an encoder's weights in the precision of the run, with the way of gradients back to the originals."""

    def __init__(self, model: Model, precision: torch.dtype, *, apart: Tensor | None = None) -> None:
        """``apart``: a parameter that somebody else keeps the copy of up to date."""
        self.model, self.precision = model, precision
        named: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
        encoder = {name: p for name, p in named.items() if name.startswith(PREFIX)}
        self._encoder, self._apart = encoder, apart
        self._side = SideLine(next(iter(encoder.values())).device)
        self._products: dict[int, tuple[Product, int]] = {}
        """By a weight's copy: the product that it is part of, and its place there."""
        joined = self._join_products(encoder)
        self._copies = {
            name: joined[name] if name in joined else p.detach().to(precision).requires_grad_(p.requires_grad)
            for name, p in encoder.items()
        }
        tables = {id(self._copies[name]): encoder[name] for name in self._name_tables(encoder)}
        moving = [(p, self._copies[name]) for name, p in encoder.items() if p.requires_grad]
        beside = [p for name, p in named.items() if name not in encoder and p.requires_grad]
        self._targets = [p for p, _ in moving] + beside
        """The parameters that gradients are for."""
        self._sources = [copy for _, copy in moving] + beside
        """What the passes read in their place."""
        self._converted: dict[Tensor, Tensor] = {}
        self._ways = Replacing({functional.linear: self._multiply, functional.embedding: Lookups(tables, self._side)})

    def _join_products(self, encoder: dict[str, Tensor]) -> dict[str, Tensor]:
        """Products for all weights of linear layers that learn; gives what stands in their parameters' place."""
        layers = {f"{n}.weight": m for n, m in self.model.named_modules() if isinstance(m, nn.Linear)}
        weights = [name for name, p in encoder.items() if name in layers and p.requires_grad]
        copies: dict[str, Tensor] = {}
        for names in group_names(weights):
            biases = [name.removesuffix("weight") + "bias" for name in names if layers[name].bias is not None]
            if not all(encoder[name].requires_grad for name in biases) or len(biases) not in (0, len(names)):
                continue
            product = Product([encoder[n] for n in names], [encoder[n] for n in biases], self.precision)
            copies.update(zip([*names, *biases], product.copies, strict=True))
            self._products.update({id(copies[name]): (product, place) for place, name in enumerate(names)})
        return copies

    def _name_tables(self, encoder: dict[str, Tensor]) -> list[str]:
        """The weights of embeddings that learn."""
        tables = [f"{n}.weight" for n, m in self.model.named_modules() if isinstance(m, nn.Embedding)]
        return [name for name in tables if name in encoder and encoder[name].requires_grad]

    def _multiply(self, read: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product, place = self._products.get(id(weight), (None, 0))
        if product is None or read.dtype != self.precision or not torch.is_grad_enabled():
            return functional.linear(read, weight, bias)
        return product.apply(place, read, self._side)

    def refresh(self) -> None:
        """Take over the weights as they are now."""
        names = [name for name, p in self._encoder.items() if p is not self._apart]
        with torch.no_grad():
            torch._foreach_copy_([self._copies[name] for name in names], [self._encoder[name] for name in names])

    def copy_of(self, parameter: Tensor) -> Tensor:
        """What stands in a parameter's place."""
        return next(self._copies[name] for name, p in self._encoder.items() if p is parameter)

    def backward(self, objective: Objective, batch: dict[str, Tensor], scale: Tensor) -> Tensor:
        """Add a batch's gradients to those of the parameters; gives the scaled terms of its loss."""
        copies = {f"model.{name}": copy for name, copy in self._copies.items()}
        with self._ways:
            terms = torch.func.functional_call(_Loss(self.model, objective), copies, (batch,))
        scaled: Tensor = terms.float().reshape(-1) * scale
        gradients = torch.autograd.grad(scaled.sum(), self._sources, allow_unused=True)
        self._side.wait()
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
