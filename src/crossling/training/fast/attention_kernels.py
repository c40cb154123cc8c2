"""Triton kernels of attention over short texts: one pass each way, with the mask of dropout drawn inside.

All keys of a text are read by one block, so that scores are normalised at once and the backward pass needs no sums
over blocks: what a kernel for long texts spends on that is most of its time on texts of a sentence's length. Query, key
and value are read where one matrix product left them, and their gradients are written side by side, as one matrix
product reads them. Sums have a fixed order, so that the same inputs give the same bits; float32 is multiplied as such.

B texts, H heads, S subwords, D a head's width.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from crossling.training.fast.kernels import draw_dropout_mask, find_dropout_threshold

LONGEST = 128
"""Subwords of the longest text that the kernels read; others are torch's."""
WIDTHS = (16, 32, 64, 128)
"""Of heads."""
MOST_QUERIES = 64
"""That a block of the forward pass reads."""
BACKWARD_BLOCKS = {16: (16, 2), 32: (16, 2), 64: (16, 2), 128: (16, 4)}
"""By keys: the queries that the backward pass reads at once, and its warps; the fastest on an H200."""
LOWEST = tl.constexpr(-1e4)
"""What masks add at least: it hides a key, and the scores of a text that is all padding keep their digits."""
LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def _load_bias(mask, text, stride_mask, key_N, length, MASKED: tl.constexpr):
    """What is added to the scores of each key, in powers of 2; nothing of them is left beyond the text."""
    inside = key_N < length
    if MASKED:
        bias = tl.load(mask + text * stride_mask + key_N, mask=inside, other=0.0).to(tl.float32)
        bias = tl.maximum(bias, LOWEST) * LOG2_E
    else:
        bias = tl.zeros_like(key_N).to(tl.float32)
    return tl.where(inside, bias, float("-inf"))


@triton.jit(
    do_not_specialize=["length", "heads", "threshold", "stride_mask"], do_not_specialize_on_alignment=["seed", "mask"]
)
def _attention_forward(
    query, key, value, mask, seed, output, normalisers,
    stride_b, stride_h, stride_s, stride_mask, heads, length, scale, threshold, factor,
    D: tl.constexpr, M: tl.constexpr, KEYS: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """softmax(QK' scale + mask) V for some queries of one head; the logarithms of what scores are divided by."""
    head_of_all = tl.program_id(0)
    text, head = head_of_all // heads, head_of_all % heads
    query_M = tl.program_id(1) * M + tl.arange(0, M)
    key_N, column_D = tl.arange(0, KEYS), tl.arange(0, D)
    base = text.to(tl.int64) * stride_b + head * stride_h
    there_MD, there_ND = (query_M < length)[:, None], (key_N < length)[:, None]
    q_MD = tl.load(query + base + query_M[:, None] * stride_s + column_D[None, :], mask=there_MD, other=0.0)
    place_ND = key_N[:, None] * stride_s + column_D[None, :]
    k_ND = tl.load(key + base + place_ND, mask=there_ND, other=0.0)
    scores_MN = tl.dot(q_MD, tl.trans(k_ND), input_precision="ieee") * (scale * LOG2_E)
    scores_MN += _load_bias(mask, text, stride_mask, key_N, length, MASKED)[None, :]
    highest_M = tl.max(scores_MN, 1)
    weights_MN = tl.exp2(scores_MN - highest_M[:, None])
    sum_M = tl.sum(weights_MN, 1)
    weights_MN = weights_MN / sum_M[:, None]
    if DROPOUT:
        row_M = head_of_all * length + query_M
        weights_MN = tl.where(draw_dropout_mask(tl.load(seed), row_M, M, KEYS, threshold), weights_MN * factor, 0.0)
    v_ND = tl.load(value + base + place_ND, mask=there_ND, other=0.0)
    mean_MD = tl.dot(weights_MN.to(v_ND.dtype), v_ND, input_precision="ieee")
    written = (text.to(tl.int64) * length * heads + head) * D
    place_MD = query_M[:, None] * heads * D + column_D[None, :]
    tl.store(output + written + place_MD, mean_MD.to(output.dtype.element_ty), mask=there_MD)
    tl.store(normalisers + head_of_all * length + query_M, highest_M + tl.log2(sum_M), mask=query_M < length)


@triton.jit(
    do_not_specialize=["length", "heads", "threshold", "stride_mask"], do_not_specialize_on_alignment=["seed", "mask"]
)
def _attention_backward(
    query, key, value, mask, seed, normalisers, grad_output, gradients, sums,
    stride_b, stride_h, stride_s, stride_mask, heads, length, scale, threshold, factor,
    D: tl.constexpr, M: tl.constexpr, KEYS: tl.constexpr, DROPOUT: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Gradients of query, key and value of one head, B x S x (query, key, value) x H x D; their sums over a text."""
    head_of_all = tl.program_id(0)
    text, head = head_of_all // heads, head_of_all % heads
    key_N, column_D = tl.arange(0, KEYS), tl.arange(0, D)
    base = text.to(tl.int64) * stride_b + head * stride_h
    there_ND = (key_N < length)[:, None]
    place_ND = key_N[:, None] * stride_s + column_D[None, :]
    k_ND = tl.load(key + base + place_ND, mask=there_ND, other=0.0)
    v_ND = tl.load(value + base + place_ND, mask=there_ND, other=0.0)
    bias_N = _load_bias(mask, text, stride_mask, key_N, length, MASKED)
    read = (text.to(tl.int64) * length * heads + head) * D
    written = (text.to(tl.int64) * length * 3 * heads + head) * D
    sum_q_D = tl.zeros((D,), tl.float32)
    grad_k_ND = tl.zeros((KEYS, D), tl.float32)
    grad_v_ND = tl.zeros((KEYS, D), tl.float32)
    for start in range(0, length, M):
        query_M = start + tl.arange(0, M)
        there_MD = (query_M < length)[:, None]
        q_MD = tl.load(query + base + query_M[:, None] * stride_s + column_D[None, :], mask=there_MD, other=0.0)
        place_MD = query_M[:, None] * heads * D + column_D[None, :]
        grad_MD = tl.load(grad_output + read + place_MD, mask=there_MD, other=0.0)
        normaliser_M = tl.load(normalisers + head_of_all * length + query_M, mask=query_M < length, other=0.0)
        scores_MN = tl.dot(q_MD, tl.trans(k_ND), input_precision="ieee") * (scale * LOG2_E) + bias_N[None, :]
        weights_MN = tl.where(there_MD, tl.exp2(scores_MN - normaliser_M[:, None]), 0.0)
        grad_weights_MN = tl.dot(grad_MD, tl.trans(v_ND), input_precision="ieee")
        used_MN = weights_MN
        if DROPOUT:
            kept = draw_dropout_mask(tl.load(seed), head_of_all * length + query_M, M, KEYS, threshold)
            used_MN = tl.where(kept, weights_MN * factor, 0.0)
            grad_weights_MN = tl.where(kept, grad_weights_MN * factor, 0.0)
        grad_v_ND += tl.dot(tl.trans(used_MN.to(grad_MD.dtype)), grad_MD, input_precision="ieee")
        mean_M = tl.sum(weights_MN * grad_weights_MN, 1)
        grad_scores_MN = (weights_MN * (grad_weights_MN - mean_M[:, None]) * scale).to(q_MD.dtype)
        grad_k_ND += tl.dot(tl.trans(grad_scores_MN), q_MD, input_precision="ieee")
        grad_q_MD = tl.dot(grad_scores_MN, k_ND, input_precision="ieee")
        sum_q_D += tl.sum(grad_q_MD, 0)
        place_MD = query_M[:, None] * 3 * heads * D + column_D[None, :]
        tl.store(gradients + written + place_MD, grad_q_MD.to(gradients.dtype.element_ty), mask=there_MD)
    place_ND = key_N[:, None] * 3 * heads * D + column_D[None, :]
    into = gradients + written + heads * D + place_ND
    tl.store(into, grad_k_ND.to(gradients.dtype.element_ty), mask=there_ND)
    tl.store(into + heads * D, grad_v_ND.to(gradients.dtype.element_ty), mask=there_ND)
    into = sums + (text * 3 * heads + head) * D + column_D
    tl.store(into, sum_q_D)
    tl.store(into + heads * D, tl.sum(grad_k_ND, 0))
    tl.store(into + 2 * heads * D, tl.sum(grad_v_ND, 0))


def suits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    """Whether the kernels can do it: short texts, and masks that hide the same keys from all queries and heads."""
    texts, _, length, width = query.shape
    alike = query.shape == key.shape == value.shape and query.stride() == key.stride() == value.stride()
    types = query.dtype == key.dtype == value.dtype
    if not alike or not types or query.stride(3) != 1 or length > LONGEST or width not in WIDTHS:
        return False
    if mask is None:
        return True
    return (
        mask.is_floating_point()
        and not mask.requires_grad
        and mask.shape in ((texts, 1, 1, length), (texts, 1, length, length))
        and mask.stride(3) == 1
        and (mask.shape[2] == 1 or mask.stride(2) == 0)
    )


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, seed: Tensor, *, rate: float, scale: float
) -> tuple[Tensor, Tensor]:
    """What each head reads, B x S x H x D, and the logarithms to the base 2 of what its scores were divided by."""
    texts, heads, length, width = query.shape
    keys = _find_block(length)
    queries = min(keys, MOST_QUERIES)
    output = query.new_empty(texts, length, heads, width)
    normalisers = torch.empty(texts * heads, length, dtype=torch.float32, device=query.device)
    threshold, factor = find_dropout_threshold(rate)
    _attention_forward[(texts * heads, triton.cdiv(length, queries))](
        query, key, value, query if mask is None else mask, seed, output, normalisers,
        *query.stride()[:3], 0 if mask is None else mask.stride(0), heads, length, scale, threshold, factor,
        D=width, M=queries, KEYS=keys, DROPOUT=threshold > 0, MASKED=mask is not None, num_warps=4,
    )  # fmt: skip
    return output, normalisers


def attend_backward(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    seed: Tensor,
    normalisers: Tensor,
    *,
    rate: float,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Gradients of query, key and value, B x S x 3 x H x D, from that of a contiguous output, B x S x H x D; and their
    sums over each text, B x 3 x HD."""
    texts, heads, length, width = query.shape
    keys = _find_block(length)
    queries, warps = BACKWARD_BLOCKS[keys]
    gradients = query.new_empty(texts, length, 3, heads, width)
    sums = torch.empty(texts, 3, heads * width, dtype=torch.float32, device=query.device)
    threshold, factor = find_dropout_threshold(rate)
    _attention_backward[(texts * heads,)](
        query, key, value, query if mask is None else mask, seed, normalisers, grad_output, gradients, sums,
        *query.stride()[:3], 0 if mask is None else mask.stride(0), heads, length, scale, threshold, factor,
        D=width, M=queries, KEYS=keys, DROPOUT=threshold > 0, MASKED=mask is not None, num_warps=warps,
    )  # fmt: skip
    return gradients, sums


def _find_block(length: int) -> int:
    """How many keys a block has room for: a power of two, and at least what matrix units multiply."""
    return max(16, int(triton.next_power_of_2(length)))
