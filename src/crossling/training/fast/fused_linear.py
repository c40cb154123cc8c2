"""Linear layers and embeddings with bf16 weights whose gradients are added straight to the float32 gradients.

Autograd gives a weight's gradient in the weight's own precision, to be converted and added by two more passes over all
of them. Here the matrix product that computes the gradient adds it, in float32, to where it belongs; on a GPU in a side
stream, for which the backward pass does not wait. Where a step has one pass only, which has nothing to add to, the
product can be left in the precision of the passes, as autograd has it: half as much to write and to read. Query, key
and value are one fused layer. The gradient of a residual connection is added by the matrix product that computes the
other gradient of the same input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

JOINED = re.compile(r"\.(query|key|value|q_lin|k_lin|v_lin)\.(weight|bias)$")
"""Names of parameters of layers that read the same input."""
MOST_COUNTED = 1024
"""Rows of the largest table whose gradient is a matrix product: in a small one (of positions, of types) so many
subwords have the same row that adding them one by one takes longer."""
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
class ResidualGradient:
    """The gradient that an input gets from a residual connection, until the layer that reads the input adds it."""

    waiting: Tensor | None = None
    taken: bool = False

    def give(self, gradient: Tensor) -> bool:
        """Leave a gradient for the layer; false if the layer is done and would not see it."""
        if not self.taken:
            self.waiting = gradient
        return not self.taken

    def take(self) -> Tensor | None:
        """What was left; nothing can be left from now on."""
        found, self.waiting, self.taken = self.waiting, None, True
        return found


@dataclass
class OutputSums:
    """Sums over rows of the gradients of a layer's outputs, from the kernel that computes these gradients."""

    gradients: Sequence[Tensor] = ()
    sums: Tensor | None = None
    """Blocks x outputs x width."""

    def give(self, gradients: Sequence[Tensor], sums: Tensor) -> None:
        """Leave the sums, for the very gradients that the kernel has made."""
        self.gradients, self.sums = gradients, sums

    def take(self, gradients: Sequence[Tensor]) -> Tensor | None:
        """The sums, if they are of these gradients: an output that others read, too, has another one."""
        found = self.sums if _is_same_memory(self.gradients, gradients) else None
        self.gradients, self.sums = (), None
        return found


@dataclass
class Pass:
    """What the fused operations of one forward and backward pass share."""

    side: SideStream
    joins: bool = False
    """Whether kernels leave gradients of residual connections and sums of gradients for the linear layers."""
    overwrites: bool = False
    """Whether gradients of weights are written in the precision of the pass, as of the only one of its step."""
    written: list[FusedLinear] = field(default_factory=list)
    """The layers whose gradients were written."""
    residuals: dict[int, tuple[Tensor, ResidualGradient]] = field(default_factory=dict)
    """By the identity of a layer's input: the input and the gradient that it may get from a residual connection."""
    found: list[ResidualGradient] = field(default_factory=list)
    """Those that a residual connection uses."""
    sums: dict[int, tuple[Sequence[Tensor], OutputSums]] = field(default_factory=dict)
    """By the address of a layer's first output: the outputs and the sums of their gradients."""

    def begin(self, *, overwrites: bool) -> None:
        """Before a forward pass."""
        self.overwrites = overwrites
        self.written, self.residuals, self.found, self.sums = [], {}, [], {}

    def end_forward(self) -> None:
        """Inputs and outputs are no longer needed here."""
        self.residuals, self.sums = {}, {}

    def end_backward(self) -> None:
        """Wait for what runs beside it. No gradient is left over: what leaves one has read the layer's output."""
        self.side.wait()
        assert not any(residual.waiting is not None for residual in self.found), "a residual's gradient was lost"

    def register_input(self, x: Tensor) -> ResidualGradient | None:
        """Where a residual connection that reads the same tensor may leave its gradient."""
        if not self.joins or not x.requires_grad:
            return None
        self.residuals[id(x)] = (x, ResidualGradient())
        return self.residuals[id(x)][1]

    def find_residual(self, x: Tensor) -> ResidualGradient | None:
        """The place for the gradient of a residual connection; for one of them only."""
        residual = self.residuals.pop(id(x), (x, None))[1]
        self.found += [residual] if residual is not None else []
        return residual

    def register_outputs(self, outputs: Sequence[Tensor]) -> OutputSums:
        """Where a kernel that reads all outputs of a layer may leave sums of their gradients."""
        made = OutputSums()
        if self.joins:
            self.sums[outputs[0].data_ptr()] = (outputs, made)
        return made

    def find_sums(self, *read: Tensor) -> OutputSums | None:
        """The place for sums of the gradients of these tensors, if they are all outputs of one layer."""
        outputs, sums = self.sums.get(read[0].data_ptr(), ((), None))
        return sums if _is_same_memory(outputs, read) else None


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
        self._added: dict[bool, Tensor] = {}
        """The gradients in float32 of the weights (true) and of the biases."""
        self._written: Tensor | None = None
        """Those of the weights in the precision of the pass."""
        self.copies = [part.detach().requires_grad_() for one in joined for part in torch.split(one, self.sizes)]

    def apply(self, number: int, x: Tensor, current: Pass, *, sum_bias: bool = True) -> Tensor:
        """The output of one of the layers; those of the others are kept until they are applied to the same input.

        Without ``sum_bias`` the bias gets no gradient here: what reads the output gives it one.
        """
        if self.waiting is None or self.waiting[0] is not x or self.waiting[1][number] is None:
            made = list(_FusedLinear.apply(x, self, current, sum_bias, *self.copies))  # type: ignore[no-untyped-call]
            self.waiting = (x, made)
        outputs = self.waiting[1]
        output, outputs[number] = outputs[number], None
        if not any(one is not None for one in outputs):
            self.waiting = None
        assert output is not None
        return output

    def add(self, by_output_TO: Tensor, x_TI: Tensor, ones_1T: Tensor | None) -> None:
        """Add the gradients of T rows of outputs to those of the parameters; without ones, not to those of biases."""
        add_product(self._join_gradients(of_weights=True), by_output_TO.t(), x_TI)
        self._add_to_biases(by_output_TO, ones_1T)

    def write(self, by_output_TO: Tensor, x_TI: Tensor, ones_1T: Tensor | None, *, first: bool) -> None:
        """As :meth:`add`, but those of weights in the precision of the pass, and the first ones replace what was
        there."""
        if self._written is None:
            self._written = torch.empty_like(self.weight)
        if first:
            torch.mm(by_output_TO.t(), x_TI, out=self._written)
        else:
            self._written.addmm_(by_output_TO.t(), x_TI)
        self._add_to_biases(by_output_TO, ones_1T)

    def list_written(self) -> list[tuple[Tensor, Tensor]]:
        """Each weight with the gradient that was written last."""
        assert self._written is not None
        return list(zip(self.targets, torch.split(self._written, self.sizes), strict=True))

    def _add_to_biases(self, by_output_TO: Tensor, ones_1T: Tensor | None) -> None:
        if self.biases:
            gradients = self._join_gradients(of_weights=False)
            if ones_1T is not None:
                add_product(gradients.view(1, -1), ones_1T, by_output_TO)

    def _join_gradients(self, *, of_weights: bool) -> Tensor:
        """Make the parameters' gradients views of one tensor, to which one product can add."""
        parameters = self.targets if of_weights else self.biases
        if of_weights not in self._added:
            parts = [torch.zeros_like(parameter) for parameter in parameters]
            self._added[of_weights] = torch.cat(parts)
        gradients = self._added[of_weights]
        for part, parameter in zip(torch.split(gradients, self.sizes), parameters, strict=True):
            if parameter.grad is None:
                part.zero_()
            elif parameter.grad.data_ptr() == part.data_ptr():
                continue
            else:
                part.copy_(parameter.grad)
            parameter.grad = part
        return gradients


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, fused: FusedLinear, current: Pass, sum_bias: bool, *copies: Tensor
    ) -> tuple[Tensor, ...]:
        ctx.fused, ctx.current, ctx.sum_bias = fused, current, sum_bias
        ctx.residual = current.register_input(x)
        ctx.save_for_backward(x)
        outputs = torch.split(functional.linear(x, fused.weight, fused.bias), fused.sizes, -1)
        ctx.sums = current.register_outputs(outputs) if sum_bias and fused.biases else None
        return outputs

    @staticmethod
    def backward(ctx: Any, *grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (x,) = ctx.saved_tensors
        fused: FusedLinear = ctx.fused
        current: Pass = ctx.current
        joined = _join_columns(grad_output)
        by_output_TO, x_TI = joined.reshape(-1, joined.shape[-1]), x.reshape(-1, x.shape[-1])
        sums = ctx.sums.take(grad_output) if ctx.sums is not None else None
        if sums is not None:
            current.side.run(partial(add_to_gradients, sums, fused.biases), sums)
        ones_1T = get_ones(len(x_TI), x) if ctx.sum_bias and sums is None else None
        if current.overwrites:
            first = not any(fused is other for other in current.written)  # else it was applied more than once
            current.written += [fused] if first else []
            current.side.run(partial(fused.write, by_output_TO, x_TI, ones_1T, first=first), by_output_TO, x_TI)
        else:
            current.side.run(partial(fused.add, by_output_TO, x_TI, ones_1T), by_output_TO, x_TI)
        residual: Tensor | None = ctx.residual.take() if ctx.residual is not None else None
        if not ctx.needs_input_grad[0]:
            grad_input = None
        elif residual is None:
            grad_input = (by_output_TO @ fused.weight).view(x.shape)
        else:
            residual.view(x_TI.shape).addmm_(by_output_TO, fused.weight)
            grad_input = residual
        return grad_input, None, None, None, *(None for _ in fused.copies)


def _is_same_memory(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether tensors are views of the same numbers as others, one by one."""
    return len(some) == len(others) and all(
        one.data_ptr() == other.data_ptr() and one.numel() == other.numel()
        for one, other in zip(some, others, strict=True)
    )


def add_to_gradients(sums: Tensor, targets: Sequence[Tensor | None]) -> None:
    """Add sums, blocks x vectors x width, to the gradients of parameters; those that are None do not learn."""
    from crossling.training.fast import kernels

    gradients = []
    for target in targets:
        if target is not None and target.grad is None:
            target.grad = torch.zeros_like(target)
        gradients.append(None if target is None else target.grad)
    kernels.add_sums(sums, gradients)


def _join_columns(parts: Sequence[Tensor]) -> Tensor:
    """Tensors beside each other in their last dimension; without a copy where they lie so already."""
    first = parts[0]
    place, width = first.storage_offset(), sum(part.shape[-1] for part in parts)
    if len(parts) == 1:
        return first
    for part in parts:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr() and part.dtype == first.dtype
        if not same or part.storage_offset() != place or part.stride() != first.stride():
            return torch.cat(list(parts), -1)
        place += part.shape[-1]
    if first.stride()[-2:] != (width, 1):
        return torch.cat(list(parts), -1)
    return first.as_strided((*first.shape[:-1], width), first.stride(), first.storage_offset())


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
            if target.is_cuda and len(target) <= MOST_COUNTED:
                add_rows(target.grad, rows, gradient, padding)
                return
            wide = gradient.reshape(-1, gradient.shape[-1]).float()
            if padding is not None:
                wide = wide.masked_fill((rows == padding).reshape(-1, 1), 0.0)
            target.grad.index_add_(0, rows.reshape(-1), wide)

        ctx.side.run(add, rows, gradient)
        return None, None, None, None, None


def add_rows(into_RD: Tensor, rows: Tensor, gradient: Tensor, padding: int | None) -> None:
    """Add the gradients of T subwords to the rows of a small table that they have read, as a matrix product."""
    number_R = torch.arange(len(into_RD), device=rows.device)
    read_TR = (rows.reshape(-1, 1) == number_R) & (number_R != (-1 if padding is None else padding))
    add_product(into_RD, read_TR.to(gradient.dtype).t(), gradient.reshape(-1, gradient.shape[-1]))


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
