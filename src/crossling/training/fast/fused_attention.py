"""Attention over short texts as one kernel each way, in the place of torch's.

The backward pass sums the gradients of query, key and value over rows: for the biases of the layer that computes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from crossling.training.fast.fused_linear import OutputSums, Pass
from crossling.training.fast.seeds import Seeds


@dataclass
class FusedAttention:
    """:func:`torch.nn.functional.scaled_dot_product_attention`, for what the kernels can do; torch does the rest."""

    seeds: Seeds
    current: Pass

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        from crossling.training.fast import attention_kernels

        plain = is_causal or enable_gqa or query.ndim != 4
        if plain or not torch.is_grad_enabled() or not attention_kernels.suits(query, key, value, attn_mask):
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        scale = scale or 1 / math.sqrt(query.shape[3])
        sums = self.current.find_sums(query, key, value)
        how = _Attention(attn_mask, self.seeds.draw(query.device), dropout_p, scale, sums)
        output: Tensor = _FusedAttention.apply(query, key, value, how)  # type: ignore[no-untyped-call]
        return output.transpose(1, 2)


@dataclass(frozen=True)
class _Attention:
    mask: Tensor | None
    seed: Tensor
    rate: float
    scale: float
    sums: OutputSums | None
    """Where sums of gradients can be left."""


class _FusedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, how: _Attention) -> Tensor:
        from crossling.training.fast import attention_kernels

        output, normalisers = attention_kernels.attend(
            query, key, value, how.mask, how.seed, rate=how.rate, scale=how.scale
        )
        ctx.save_for_backward(query, key, value, normalisers)
        ctx.how = how
        return output

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        from crossling.training.fast import attention_kernels

        query, key, value, normalisers = ctx.saved_tensors
        how: _Attention = ctx.how
        gradients, sums = attention_kernels.attend_backward(
            grad_output.contiguous(), query, key, value, how.mask, how.seed, normalisers, rate=how.rate, scale=how.scale
        )
        parts = [part.transpose(1, 2) for part in gradients.unbind(2)]
        if how.sums is not None:
            how.sums.give(parts, sums)
        return *parts, None
