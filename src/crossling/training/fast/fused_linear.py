"""Linear layers and embeddings with bf16 weights whose gradients are added straight to the float32 gradients.

Autograd gives a weight's gradient in the weight's own precision, to be converted and added by two more passes over all
of them. Here the matrix product that computes the gradient adds it, in float32, to where it belongs; on a GPU in a side
stream, for which the backward pass does not wait. Query, key and value are one fused layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

JOINED = re.compile(r"\.(query|key|value|q_lin|k_lin|v_lin)\.(weight|bias)$")
"""Names of parameters of layers that read the same input."""
MOST_HELD = 48
"""Tensors that the side stream may keep from being freed; beyond it the main stream waits."""


class SideStream:
    """A CUDA stream for work that the backward pass does not wait for; on a CPU the work is done at once."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._held: list[Tensor] = []

    def run(self, work: Callable[[], None], *read: Tensor) -> None:
        """Start work that reads these tensors, which must not be written meanwhile."""
        if self._stream is None:
            work()
            return
        if len(self._held) > MOST_HELD:
            self.wait()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        self._held += read

    def wait(self) -> None:
        """Wait until all of it is done."""
        if self._stream is not None and self._held:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._held = []


@dataclass
class FusedLinear:
    """One or more linear layers with the same input as one matrix product, their weights below each other."""

    targets: Sequence[Tensor]
    """The parameters that gradients are for: weights, outputs x inputs."""
    biases: Sequence[Tensor]
    """None, or one for each weight."""
    precision: torch.dtype
    weight: Tensor = field(init=False)
    bias: Tensor | None = field(init=False, default=None)
    copies: list[Tensor] = field(init=False)
    """The copies that take the place of each weight, then of each bias."""
    waiting: tuple[Tensor, list[Tensor | None]] | None = field(init=False, default=None)
    """An input, and those of its outputs that have not been used yet."""

    def __post_init__(self) -> None:
        self.sizes = [len(target) for target in self.targets]
        with torch.no_grad():
            self.weight = torch.cat([target.to(self.precision) for target in self.targets])
            if self.biases:
                self.bias = torch.cat([bias.to(self.precision) for bias in self.biases])
        joined = [self.weight] if self.bias is None else [self.weight, self.bias]
        self._gradients = [torch.zeros_like(one, dtype=torch.float32) for one in joined]
        self.copies = [part.detach().requires_grad_() for one in joined for part in torch.split(one, self.sizes)]

    def apply(self, number: int, x: Tensor, side: SideStream, *, sum_bias: bool = True) -> Tensor:
        """The output of one of the layers; those of the others are kept until they are applied to the same input.

        Without ``sum_bias`` the bias gets no gradient here: what reads the output gives it one.
        """
        if self.waiting is None or self.waiting[0] is not x or self.waiting[1][number] is None:
            made = _FusedLinear.apply(x, self, side, sum_bias, *self.copies)  # type: ignore[no-untyped-call]
            self.waiting = (x, list(made))
        outputs = self.waiting[1]
        output, outputs[number] = outputs[number], None
        if not any(one is not None for one in outputs):
            self.waiting = None
        assert output is not None
        return output

    def add(self, by_output_TO: Tensor, x_TI: Tensor, ones_1T: Tensor | None) -> None:
        """Add the gradients of T rows of outputs to those of the parameters; without ones, not to those of biases."""
        self._join_gradients()
        add_product(self._gradients[0], by_output_TO.t(), x_TI)
        if self.biases and ones_1T is not None:
            add_product(self._gradients[1].view(1, -1), ones_1T, by_output_TO)

    def _join_gradients(self) -> None:
        """Make the parameters' gradients views of one tensor, to which one product can add."""
        owners = (self.targets, self.biases)
        for gradients, parameters in zip(self._gradients, owners, strict=False):
            for part, parameter in zip(torch.split(gradients, self.sizes), parameters, strict=True):
                if parameter.grad is None:
                    part.zero_()
                elif parameter.grad.data_ptr() == part.data_ptr():
                    continue
                else:
                    part.copy_(parameter.grad)
                parameter.grad = part


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, fused: FusedLinear, side: SideStream, sum_bias: bool, *copies: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.fused, ctx.side, ctx.sum_bias = fused, side, sum_bias
        ctx.save_for_backward(x)
        return torch.split(functional.linear(x, fused.weight, fused.bias), fused.sizes, -1)

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        fused: FusedLinear = ctx.fused
        joined = grad_output[0] if len(grad_output) == 1 else torch.cat(grad_output, -1)
        by_output_TO, x_TI = joined.reshape(-1, joined.shape[-1]), x.reshape(-1, x.shape[-1])
        ones_1T = get_ones(len(x_TI), x) if ctx.sum_bias else None
        ctx.side.run(lambda: fused.add(by_output_TO, x_TI, ones_1T), by_output_TO, x_TI)
        grad_input = (by_output_TO @ fused.weight).view(x.shape) if ctx.needs_input_grad[0] else None
        return grad_input, None, None, None, *(None for _ in fused.copies)


@dataclass
class FusedEmbedding:
    """:func:`torch.nn.functional.embedding` that adds to rows of some tables' gradients in place."""

    targets: dict[int, Tensor]
    """By the identity of a table's copy: the parameter that gradients are for."""
    side: SideStream

    def __call__(
        self,
        rows: Tensor,
        weight: Tensor,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Tensor:
        target = self.targets.get(id(weight))
        unsupported = max_norm is not None or scale_grad_by_freq or sparse
        if target is None or unsupported or not torch.is_grad_enabled():
            more = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
            return functional.embedding(rows, weight, *more)
        found: Tensor = _FusedEmbedding.apply(rows, weight, target, padding_idx, self.side)  # type: ignore[no-untyped-call]
        return found


class _FusedEmbedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, target: Tensor, padding: int | None, side: SideStream) -> Tensor:
        ctx.target, ctx.padding, ctx.side = target, padding, side
        ctx.save_for_backward(rows)
        return functional.embedding(rows, copy)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, ...]:
        (rows,) = ctx.saved_tensors
        target, padding = ctx.target, ctx.padding

        def add() -> None:
            if target.grad is None:
                target.grad = torch.zeros_like(target)
            wide = gradient.reshape(-1, gradient.shape[-1]).float()
            if padding is not None:
                wide = wide.masked_fill((rows == padding).reshape(-1, 1), 0.0)
            target.grad.index_add_(0, rows.reshape(-1), wide)

        ctx.side.run(add, rows, gradient)
        return None, None, None, None, None


def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product of bf16 matrices to a float32 one, without rounding in between."""
    if into.is_cuda and left.dtype != into.dtype:
        torch.addmm(into, left, right, out_dtype=torch.float32, out=into)
    else:
        into.addmm_(left.float(), right.float())


_ones: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}


def get_ones(count: int, like: Tensor) -> Tensor:
    """A row of ones: its product with a matrix is the sum of the matrix's rows, and faster than a sum."""
    key = (count, like.dtype, like.device)
    if key not in _ones:
        _ones[key] = like.new_ones(1, count)
    return _ones[key]


def group_names(names: Sequence[str]) -> list[list[str]]:
    """Names of weights, grouped by the input that their layers read."""
    groups: dict[str, list[str]] = {}
    for name in names:
        found = JOINED.search(name)
        groups.setdefault(name[: found.start()] if found else name, []).append(name)
    return list(groups.values())
