"""Products with weights in reduced precision, whose gradients go straight into those of the whole weights.

Autograd gives a weight's gradient in the weight's own precision, to be converted and added by two more passes over all
of them. Here the product that makes the gradient adds it, in float32, to where it belongs; on a GPU beside the main
line of the backward pass, which does not wait for it. Query, key and value are one product.
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
"""Names of parameters whose products have the same input."""
HELD = 48
"""Tensors that may wait for the side line before the main one waits for it: they cannot be freed so long."""


class SideLine:
    """Work that the main line of a backward pass does not wait for."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._held: list[Tensor] = []

    def do(self, work: Callable[[], None], *read: Tensor) -> None:
        """Work that reads these tensors, which nobody may write meanwhile."""
        if self._stream is None:
            work()
            return
        if len(self._held) > HELD:
            self.wait()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            work()
        self._held += read

    def wait(self) -> None:
        """Until all of it is done."""
        if self._stream is not None and self._held:
            torch.cuda.current_stream().wait_stream(self._stream)
            self._held = []


@dataclass
class Product:
    """One product with the weights of one or more layers that read the same, below each other."""

    targets: Sequence[Tensor]
    """The parameters that gradients are for: weights, outputs x inputs."""
    biases: Sequence[Tensor]
    """None, or one for each weight."""
    precision: torch.dtype
    weight: Tensor = field(init=False)
    bias: Tensor | None = field(init=False, default=None)
    copies: list[Tensor] = field(init=False)
    """What stands in place of each weight, then of each bias."""
    waiting: tuple[Tensor, list[Tensor | None]] | None = field(init=False, default=None)
    """An input and those outputs of it that nobody has asked for yet."""

    def __post_init__(self) -> None:
        self.sizes = [len(target) for target in self.targets]
        with torch.no_grad():
            self.weight = torch.cat([target.to(self.precision) for target in self.targets])
            if self.biases:
                self.bias = torch.cat([bias.to(self.precision) for bias in self.biases])
        joined = [self.weight] if self.bias is None else [self.weight, self.bias]
        self._gradients = [torch.zeros_like(one, dtype=torch.float32) for one in joined]
        self.copies = [part.detach().requires_grad_() for one in joined for part in torch.split(one, self.sizes)]

    def apply(self, number: int, read: Tensor, side: SideLine) -> Tensor:
        """What one of the layers makes of its input; the others' share is kept until they ask."""
        if self.waiting is None or self.waiting[0] is not read or self.waiting[1][number] is None:
            self.waiting = (read, list(_Product.apply(read, self, side, *self.copies)))  # type: ignore[no-untyped-call]
        outputs = self.waiting[1]
        output, outputs[number] = outputs[number], None
        if not any(one is not None for one in outputs):
            self.waiting = None
        assert output is not None
        return output

    def add(self, by_output_TO: Tensor, read_TI: Tensor, ones_1T: Tensor) -> None:
        """Add the gradients of T rows of outputs to those of the parameters."""
        self._place()
        add_product(self._gradients[0], by_output_TO.t(), read_TI)
        if self.biases:
            add_product(self._gradients[1].view(1, -1), ones_1T, by_output_TO)

    def _place(self) -> None:
        """Have the parameters' gradients where one product can add to all of them."""
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


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, read: Tensor, product: Product, side: SideLine, *copies: Tensor) -> tuple[Tensor, ...]:
        ctx.product, ctx.side = product, side
        ctx.save_for_backward(read)
        return torch.split(functional.linear(read, product.weight, product.bias), product.sizes, -1)

    @staticmethod
    def backward(ctx: Any, *by_output: Tensor) -> tuple[Tensor | None, ...]:
        (read,) = ctx.saved_tensors
        product: Product = ctx.product
        joined = by_output[0] if len(by_output) == 1 else torch.cat(by_output, -1)
        by_output_TO, read_TI = joined.reshape(-1, joined.shape[-1]), read.reshape(-1, read.shape[-1])
        ones_1T = get_ones(len(read_TI), read)
        ctx.side.do(lambda: product.add(by_output_TO, read_TI, ones_1T), by_output_TO, read_TI)
        back = (by_output_TO @ product.weight).view(read.shape) if ctx.needs_input_grad[0] else None
        return back, None, None, *(None for _ in product.copies)


@dataclass
class Lookups:
    """:func:`torch.nn.functional.embedding` for some tables, which adds to rows of their gradients in place."""

    targets: dict[int, Tensor]
    """By the identity of what is read, a table or a copy of it: the parameter that gradients are for."""
    side: SideLine

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
        unusual = max_norm is not None or scale_grad_by_freq or sparse
        if target is None or unusual or not torch.is_grad_enabled():
            more = (padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
            return functional.embedding(rows, weight, *more)
        found: Tensor = _Lookup.apply(rows, weight, target, padding_idx, self.side)  # type: ignore[no-untyped-call]
        return found


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, copy: Tensor, target: Tensor, padding: int | None, side: SideLine) -> Tensor:
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

        ctx.side.do(add, rows, gradient)
        return None, None, None, None, None


def add_product(into: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a product of reduced matrices to a float32 one, without rounding in between."""
    if into.is_cuda:
        torch.addmm(into, left, right, out_dtype=torch.float32, out=into)
    else:
        into.addmm_(left.float(), right.float())


_ones: dict[tuple[int, torch.dtype, torch.device], Tensor] = {}


def get_ones(count: int, like: Tensor) -> Tensor:
    """A row of ones: its product with a matrix is the sum of the matrix's rows, faster than a sum is."""
    key = (count, like.dtype, like.device)
    if key not in _ones:
        _ones[key] = like.new_ones(1, count)
    return _ones[key]


def group_names(names: Sequence[str]) -> list[list[str]]:
    """Names of two-dimensional weights, those that read the same input together."""
    groups: dict[str, list[str]] = {}
    for name in names:
        found = JOINED.search(name)
        groups.setdefault(name[: found.start()] if found else name, []).append(name)
    return list(groups.values())
