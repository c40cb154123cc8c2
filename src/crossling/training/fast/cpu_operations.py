"""Operations of a training pass that replace torch's own on a CPU: the same mathematics in less time.

Dropout's random numbers, which torch draws one by one, took an eighth of a step; here each draw of 64 bits decides
about four elements. The operations are replaced from outside, so that any encoder can use them unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

LEVELS = 1 << 16
"""Values of the random numbers that are compared with the rate of dropout."""


class ReplacedFunctions(TorchFunctionMode):
    """A context in which some functions of torch are replaced by others."""

    def __init__(self, replacements: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self.replacements = replacements

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.replacements.get(func, func)(*args, **(kwargs or {}))


def replace_operations(device: torch.device) -> AbstractContextManager[Any]:
    """The context for a training pass on this device: on a CPU, its faster operations."""
    return ReplacedFunctions(CPU_OPERATIONS) if device.type == "cpu" else nullcontext()


def draw_dropout_mask(like: Tensor, rate: float) -> Tensor:
    """For each element 0 with a probability of ``rate``, else the factor that keeps the mean."""
    dropped = round(rate * LEVELS)
    if dropped >= LEVELS:
        return torch.zeros_like(like)
    # Seeded by torch's generator, drawn by one that is twice as fast.
    bits = np.random.SFC64(int(torch.empty((), dtype=torch.int64).random_()))
    words = torch.from_numpy(bits.random_raw(-(-like.numel() // 4)).view(np.int16))
    levels = words[: like.numel()].view(like.shape)
    return (levels >= dropped - LEVELS // 2).to(like.dtype).mul_(LEVELS / (LEVELS - dropped))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Dropout, with the arguments of torch's."""
    if not training or not p or inplace:
        return functional.dropout(input, p, training, inplace)
    return input * draw_dropout_mask(input, p)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention with dropout, with the arguments of torch's, which is faster where there is no dropout."""
    shapes = {query.shape, key.shape, value.shape}
    plain_mask = attn_mask is None or (attn_mask.is_floating_point() and not attn_mask.requires_grad)
    if not dropout_p or is_causal or enable_gqa or query.ndim != 4 or len(shapes) > 1 or not plain_mask:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    batch, heads, length, width = query.shape
    flat = (batch * heads, length, width)
    bias = query.new_zeros(1, 1, 1, 1) if attn_mask is None else attn_mask
    bias = bias.expand(batch, heads, bias.shape[-2], length).reshape(batch * heads, -1, length)
    parts = (query.reshape(flat), key.reshape(flat), value.reshape(flat))
    output: Tensor = _Attention.apply(*parts, bias, scale or 1 / math.sqrt(width), dropout_p)  # type: ignore[no-untyped-call]
    return output.view(query.shape)


class _Attention(torch.autograd.Function):
    """Heads one below the other, N x S x D; the bias gets no gradient."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float, rate: float) -> Tensor:
        weights = torch.softmax(torch.baddbmm(bias, query, key.transpose(1, 2), alpha=scale), -1)
        mask = draw_dropout_mask(weights, rate)
        ctx.save_for_backward(query, key, value, weights, mask)
        ctx.scale = scale
        return torch.bmm(weights * mask, value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, weights, mask = ctx.saved_tensors
        grad_value = torch.bmm((weights * mask).transpose(1, 2), gradient)
        grad_weights = torch.bmm(gradient, value.transpose(1, 2)).mul_(mask)
        grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype).mul_(ctx.scale)
        return torch.bmm(grad_scores, key), torch.bmm(grad_scores.transpose(1, 2), query), grad_value, None, None, None


CPU_OPERATIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.dropout: dropout,
    functional.scaled_dot_product_attention: attention,
}
