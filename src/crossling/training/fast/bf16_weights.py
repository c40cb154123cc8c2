"""Passes in bf16, on copies of the encoder's weights; the optimiser updates the float32 ones.

Autocast converts every weight and most activations anew in every pass: on a GPU that is half of all kernels of a
small batch. Here all weights of the encoder are converted once for each update, together. Gradients of its linear
layers and embeddings are added to the float32 gradients where they arise (see ``fused_linear.py``), the others
together. Fusion and heads are small and stay with autocast. With fused kernels, attention over short texts
(``fused_attention.py``) and normalisation (``fused_norm.py``) are kernels of our own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from crossling.training.fast.cpu_operations import ReplacedFunctions
from crossling.training.fast.fused_attention import FusedAttention
from crossling.training.fast.fused_linear import FusedEmbedding, FusedLinear, Pass, SideStream, group_names
from crossling.training.fast.fused_norm import FusedNorms
from crossling.training.fast.seeds import Seeds
from crossling.training.loss import add_terms

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.objectives import Objective, Terms

PREFIX = "encoder."


class Bf16Weights:
    """Copies of an encoder's weights in the precision of the run, whose gradients go to the originals."""

    def __init__(
        self, model: Model, precision: torch.dtype, *, fuse_norms: bool = False, fuse_attention: bool = False
    ) -> None:
        self.model, self.precision = model, precision
        named: dict[str, Tensor] = {n: p for n, p in model.named_parameters() if p.is_floating_point()}
        encoder = {name: p for name, p in named.items() if name.startswith(PREFIX)}
        self._pass = Pass(SideStream(next(iter(encoder.values())).device), joins=fuse_norms)
        self._seeds = Seeds()
        self.written: dict[str, dict[Tensor, Tensor]] = {}
        """By objective: the gradients of weights that its last pass wrote, where it was the only one of its step."""
        self._fused: dict[int, tuple[FusedLinear, int]] = {}
        """By the identity of a weight's copy: the fused layer that it is part of, and its place there."""
        joined = self._fuse_layers(encoder)
        self._copies = {
            name: joined[name] if name in joined else p.detach().to(precision).requires_grad_(p.requires_grad)
            for name, p in encoder.items()
        }
        tables = {id(self._copies[name]): encoder[name] for name in self._name_tables(encoder)}
        learning = [(p, self._copies[name]) for name, p in encoder.items() if p.requires_grad]
        others = [p for name, p in named.items() if name not in encoder and p.requires_grad]
        self._targets = [p for p, _ in learning] + others
        """The parameters that gradients are for."""
        self._sources = [copy for _, copy in learning] + others
        """What the passes read in their place."""
        self._learning = learning
        self._converted: dict[Tensor, Tensor] = {}
        replaced: dict[Callable[..., Any], Callable[..., Any]] = {
            functional.linear: self._linear,
            functional.embedding: FusedEmbedding(tables, self._pass.side),
        }
        if fuse_attention:
            replaced[functional.scaled_dot_product_attention] = FusedAttention(self._seeds, self._pass)
        self._functions = ReplacedFunctions(replaced)
        parameters = {id(copy): p for p, copy in learning}
        self._norms = (
            FusedNorms(
                model.encoder,
                self._pass,
                self._seeds,
                find_linear=lambda weight: self._fused.get(id(weight), (None, 0))[0],
                target_of=lambda copy: parameters.get(id(copy)),
            )
            if fuse_norms
            else None
        )

    def _fuse_layers(self, encoder: dict[str, Tensor]) -> dict[str, Tensor]:
        """Fuse all linear layers that learn; gives the copies that take the place of their parameters."""
        layers = {f"{n}.weight": m for n, m in self.model.named_modules() if isinstance(m, nn.Linear)}
        weights = [name for name, p in encoder.items() if name in layers and p.requires_grad]
        copies: dict[str, Tensor] = {}
        for names in group_names(weights):
            biases = [name.removesuffix("weight") + "bias" for name in names if layers[name].bias is not None]
            if not all(encoder[name].requires_grad for name in biases) or len(biases) not in (0, len(names)):
                continue
            fused = FusedLinear([encoder[n] for n in names], [encoder[n] for n in biases], self.precision)
            copies.update(zip([*names, *biases], fused.copies, strict=True))
            self._fused.update({id(copies[name]): (fused, place) for place, name in enumerate(names)})
        return copies

    def _name_tables(self, encoder: dict[str, Tensor]) -> list[str]:
        """The weights of embeddings that learn."""
        tables = [f"{n}.weight" for n, m in self.model.named_modules() if isinstance(m, nn.Embedding)]
        return [name for name in tables if name in encoder and encoder[name].requires_grad]

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        fused, place = self._fused.get(id(weight), (None, 0))
        if fused is None or x.dtype != self.precision or not torch.is_grad_enabled():
            return functional.linear(x, weight, bias)
        return fused.apply(place, x, self._pass)

    @property
    def copies(self) -> dict[Tensor, Tensor]:
        """By parameter that learns: its copy."""
        return dict(self._learning)

    def refresh(self) -> None:
        """Copy the weights that learn, as they are now."""
        if self._learning:
            with torch.no_grad():
                torch._foreach_copy_([copy for _, copy in self._learning], [p for p, _ in self._learning])

    def backward(
        self, objective: Objective, batch: dict[str, Tensor], weights: Tensor, *, only: bool = False
    ) -> Tensor:
        """Add a batch's gradients to those of the parameters; gives the weighted terms of its loss.

        ``only``: it is the only batch of its step. Gradients of linear layers' weights are then in :attr:`written`.
        """
        copies = {f"model.{name}": copy for name, copy in self._copies.items()}
        self._pass.begin(overwrites=only)
        self._seeds.clear()
        with self._functions, self._norms.replacing() if self._norms else nullcontext():
            sums = torch.func.functional_call(_SummedLoss(self.model, objective), copies, (batch,))
        self._pass.end_forward()
        loss, terms = add_terms(sums, weights)
        gradients = torch.autograd.grad(loss, self._sources, allow_unused=True)
        self._pass.end_backward()
        if only:
            pairs = [pair for fused in self._pass.written for pair in fused.list_written()]
            self.written[objective.name] = dict(pairs)
        with torch.no_grad():
            self._add(gradients)
        return terms

    def _add(self, gradients: tuple[Tensor | None, ...]) -> None:
        """A parameter that the loss does not reach keeps whatever gradient it has, or none."""
        found = [(p, g) for p, g in zip(self._targets, gradients, strict=True) if g is not None]
        for parameter, _ in found:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        reduced = [(p, g) for p, g in found if g.dtype != p.dtype]
        if reduced:
            buffers = [self._get_buffer(p) for p, _ in reduced]
            torch._foreach_copy_(buffers, [g for _, g in reduced])
        in_float32 = [self._converted[p] if g.dtype != p.dtype else g for p, g in found]
        torch._foreach_add_([p.grad for p, _ in found if p.grad is not None], in_float32)

    def _get_buffer(self, parameter: Tensor) -> Tensor:
        """Where a parameter's gradient is converted to: always the same memory, so that a graph can be captured."""
        if parameter not in self._converted:
            self._converted[parameter] = torch.empty_like(parameter)
        return self._converted[parameter]


class _SummedLoss(nn.Module):
    """A loss as a module, because ``functional_call`` replaces the weights of modules."""

    def __init__(self, model: Model, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def forward(self, batch: dict[str, Tensor]) -> Terms[Tensor]:
        return self.objective.sum_loss(self.model, batch)
