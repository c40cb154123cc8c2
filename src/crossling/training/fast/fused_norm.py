"""Dropout, residual and normalisation of a layer as one kernel each way.

Modules that compute ``LayerNorm(dropout(linear(x)) + residual)`` are found by what they consist of, and tried out
before they are replaced; others stay as they are. The matrix product adds the bias at no cost. The gradients of the
bias, of gamma and of beta are summed by the kernel of the backward pass, which has read the numbers already, and added
in float32 to where they belong. The gradient of the residual is left for the layer that reads the same tensor.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from crossling.training.fast.fused_linear import FusedLinear, Pass, ResidualGradient, SideStream, add_to_gradients
from crossling.training.fast.seeds import Seeds

if TYPE_CHECKING:
    from crossling.training.settings import Kernels

log = logging.getLogger(__name__)


@cache
def is_available(device: torch.device) -> bool:
    """Whether the kernels run here: Triton needs a C compiler, too."""
    if device.type != "cuda" or importlib.util.find_spec("triton") is None:
        return False
    try:
        from crossling.training.fast import kernels

        kernels.add_sums(torch.ones(1, 3, 16, device=device), [None, None, None])
    except Exception as error:  # whatever a compiler, a driver or a version of Triton may raise
        log.warning("Triton cannot compile kernels: %s", str(error).partition("\n")[0] or type(error).__name__)
        return False
    return True


def choose_kernels(wanted: Kernels, device: torch.device) -> Kernels:
    """The setting, where its kernels run; else torch's."""
    if wanted == "torch" or device.type != "cuda":
        return "torch"
    if not is_available(device):
        log.warning("kernels = %r: torch's own are used, since Triton's cannot be", wanted)
        return "torch"
    return wanted


@dataclass(frozen=True)
class NormBlock:
    """A module that computes ``LayerNorm(dropout(linear(x)) + residual)``."""

    module: nn.Module
    linear: nn.Linear
    norm: nn.LayerNorm
    dropout: nn.Dropout


def find_norm_blocks(root: nn.Module) -> list[NormBlock]:
    """All such modules in a model."""
    found = []
    for module in root.modules():
        parts = list(module.children())
        chosen = [[part for part in parts if type(part) is kind] for kind in (nn.Linear, nn.LayerNorm, nn.Dropout)]
        if len(parts) == 3 and all(len(some) == 1 for some in chosen) and "forward" not in vars(module):
            block = NormBlock(module, *(some[0] for some in chosen))  # type: ignore[arg-type]
            if block.linear.bias is not None and block.norm.bias is not None and _is_norm_block(block):
                found.append(block)
    return found


@torch.no_grad()
def _is_norm_block(block: NormBlock) -> bool:
    """Try it out: without dropout, and with all of it."""
    linear, norm, dropout = block.linear, block.norm, block.dropout
    if norm.normalized_shape != (linear.out_features,) or dropout.inplace:
        return False
    x, residual = _make_input(linear.in_features, linear), _make_input(linear.out_features, linear).flip(0)
    before, modes = dropout.p, (block.module.training, dropout.training)
    try:
        dropout.p = 1.0
        return _is_equal(block.module.eval(), (x, residual), norm(linear(x) + residual)) and _is_equal(
            block.module.train(), (x, residual), norm(residual)
        )
    finally:
        dropout.p = before
        block.module.train(modes[0])
        dropout.train(modes[1])


def _make_input(width: int, like: nn.Linear) -> Tensor:
    """Two rows of different numbers; not random, so that nothing random depends on it."""
    return torch.arange(2.0 * width, device=like.weight.device).view(2, 1, width).sin().to(like.weight.dtype)


def _is_equal(module: nn.Module, inputs: tuple[Tensor, ...], expected: Tensor) -> bool:
    try:
        found = module(*inputs)
    except Exception:  # a module that takes other inputs raises almost anything
        return False
    return isinstance(found, Tensor) and found.shape == expected.shape and torch.allclose(found, expected, atol=1e-5)


class FusedNorms:
    """Replaces the blocks of a model for the time of a pass."""

    def __init__(
        self,
        root: nn.Module,
        current: Pass,
        seeds: Seeds,
        *,
        find_linear: Callable[[Tensor], FusedLinear | None],
        target_of: Callable[[Tensor], Tensor | None],
    ) -> None:
        """``find_linear``: the fused layer that a weight's copy belongs to; ``target_of``: the parameter that a copy's
        gradients are for, if it learns."""
        self.find_linear, self.target_of, self.current, self.seeds = find_linear, target_of, current, seeds
        with torch.autocast(next(root.parameters()).device.type, enabled=False):
            self.blocks = find_norm_blocks(root)

    @contextmanager
    def replacing(self) -> Iterator[None]:
        """A context in which all blocks run as kernels."""
        for block in self.blocks:
            block.module.forward = partial(self._normalise, block, block.module.forward)
        try:
            yield
        finally:
            for block in self.blocks:
                del block.module.forward

    def _normalise(self, block: NormBlock, plain: Callable[..., Tensor], x: Tensor, residual: Tensor) -> Tensor:
        norm, weight = block.norm, block.linear.weight
        fused = self.find_linear(weight)
        suits = fused is not None and len(fused.sizes) == 1 and torch.is_grad_enabled()
        if fused is None or not suits or not x.dtype == residual.dtype == weight.dtype:
            return plain(x, residual)
        rate = block.dropout.p if block.dropout.training else 0.0
        targets = [self.target_of(norm.weight), self.target_of(norm.bias), fused.biases[0]]
        z = fused.apply(0, x, self.current, sum_bias=False)
        left = self.current.find_residual(residual)
        how = _Norm(self.seeds.draw(x.device), rate, norm.eps, targets, self.current.side, left)
        output: Tensor = _FusedNorm.apply(z, residual, norm.weight, norm.bias, how)  # type: ignore[no-untyped-call]
        return output


@dataclass(frozen=True)
class _Norm:
    seed: Tensor
    rate: float
    eps: float
    targets: list[Tensor | None]
    """The parameters of gamma, beta and the bias; none where they do not learn."""
    side: SideStream
    residual: ResidualGradient | None
    """Where the gradient of the residual can be left."""


class _FusedNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, how: _Norm) -> Tensor:
        from crossling.training.fast import kernels

        z, residual = z.contiguous(), residual.contiguous()
        output, means, rstds = kernels.normalise(z, residual, gamma, beta, how.seed, rate=how.rate, eps=how.eps)
        ctx.save_for_backward(z, residual, gamma, means, rstds)
        ctx.how = how
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        from crossling.training.fast import kernels

        z, residual, gamma, means, rstds = ctx.saved_tensors
        how: _Norm = ctx.how
        grad_z, grad_residual, sums = kernels.normalise_backward(
            grad_output.contiguous(), z, residual, gamma, how.seed, means, rstds, rate=how.rate
        )
        how.side.run(partial(add_to_gradients, sums, how.targets), sums)
        left = how.residual is not None and how.residual.give(grad_residual)
        return grad_z, None if left else grad_residual, None, None, None
