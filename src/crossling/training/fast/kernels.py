"""Triton kernels of a training step: what torch launches as several small kernels, each in one or two.

Only a GPU's memory is read (with TRITON_INTERPRET=1 a CPU's, slowly). Sizes of blocks are fixed, since none can be
tried out while a graph is captured, and numbers of rows are not specialised on: a kernel is compiled once for each
width. Sums over rows are made in two steps of a fixed order, in float32, so that the same inputs give the same bits.
What is random is a function of a seed that is read from the device, so that a replayed graph draws anew, and of a
number's place, so that the backward pass draws the same again.

Triton comes with torch for CUDA on Linux: import this module only where ``fused_norm.is_available`` says so. D width.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from crossling.training.fast.cpu_operations import LEVELS

ROUNDS = tl.constexpr(7)
"""Rounds of Philox: the fewest that pass all of its authors' tests."""
MOST_BLOCKS = 528
"""That share the rows of a backward pass: four for each multiprocessor of an H200."""
CHUNK = 16384
"""Weights that one block of the optimiser updates; all of them are in one tensor."""
TILE = tl.constexpr(1024)
"""Of these, those that are read at once."""
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)
TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
FIELDS = tl.constexpr(10)
"""Numbers that describe a chunk: addresses of weight, gradient, both moments, copy (0: none) and learning rate, the
number of its weights, the number of the tensor, which call of the generator serves its first weights, and 0, so that
every chunk's begin at a multiple of 16 bytes."""


@triton.jit
def draw_dropout_mask(seed, row_R, R: tl.constexpr, BLOCK: tl.constexpr, threshold):
    """The dropout mask of R rows, true where a column is kept: one call of Philox decides about eight."""
    place = row_R[:, None] * (BLOCK // 8) + tl.arange(0, BLOCK // 8)[None, :]
    a, b, c, d = tl.randint4x(seed, place, n_rounds=ROUNDS)
    four = tl.join(tl.join(a, b), tl.join(c, d)).to(tl.uint32, bitcast=True)
    eight = tl.join(four & 0xFFFF, four >> 16).to(tl.int32)
    return tl.reshape(eight, (R, BLOCK)) >= threshold


@triton.jit(do_not_specialize=["threshold"], do_not_specialize_on_alignment=["seed"])
def _norm_forward(
    z, residual, gamma, beta, seed, output, means, rstds, threshold, factor, eps,
    D: tl.constexpr, BLOCK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """One row of LayerNorm(dropout(z) + residual)."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    place = row.to(tl.int64) * D + columns
    x = tl.load(z + place, mask=inside, other=0.0).to(tl.float32)
    if DROPOUT:
        mask = draw_dropout_mask(tl.load(seed), row + tl.arange(0, 1), 1, BLOCK, threshold)
        x = tl.where(tl.reshape(mask, (BLOCK,)), x * factor, 0.0)
    x += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / D
    x = tl.where(inside, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(x * x, 0) / D + eps)
    weight = tl.load(gamma + columns, mask=inside, other=0.0).to(tl.float32)
    shift = tl.load(beta + columns, mask=inside, other=0.0).to(tl.float32)
    tl.store(output + place, (x * rstd * weight + shift).to(output.dtype.element_ty), mask=inside)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)


@triton.jit(do_not_specialize=["rows", "threshold", "steps"], do_not_specialize_on_alignment=["seed"])
def _norm_backward(
    grad_output, z, residual, gamma, seed, means, rstds, grad_z, grad_residual, sums, rows, threshold, factor, steps,
    D: tl.constexpr, BLOCK: tl.constexpr, DROPOUT: tl.constexpr,
):  # fmt: skip
    """Gradients of this block's rows, one by one; sums over them of those of gamma, beta and the bias inside z."""
    block = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < D
    weight = tl.load(gamma + columns, mask=inside, other=0.0).to(tl.float32)
    sum_gamma = tl.zeros((BLOCK,), tl.float32)
    sum_beta = tl.zeros((BLOCK,), tl.float32)
    sum_bias = tl.zeros((BLOCK,), tl.float32)
    for step in range(steps):
        row = block * steps + step
        there = inside & (row < rows)
        place = row.to(tl.int64) * D + columns
        gradient = tl.load(grad_output + place, mask=there, other=0.0).to(tl.float32)
        x = tl.load(z + place, mask=there, other=0.0).to(tl.float32)
        if DROPOUT:
            mask = draw_dropout_mask(tl.load(seed), row + tl.arange(0, 1), 1, BLOCK, threshold)
            mask = tl.reshape(mask, (BLOCK,))
            x = tl.where(mask, x * factor, 0.0)
        x += tl.load(residual + place, mask=there, other=0.0).to(tl.float32)
        mean = tl.load(means + row, mask=row < rows, other=0.0)
        rstd = tl.load(rstds + row, mask=row < rows, other=0.0)
        x = tl.where(there, (x - mean) * rstd, 0.0)
        weighted = gradient * weight
        projection = tl.sum(weighted * x, 0) / D
        offset = tl.sum(weighted, 0) / D
        grad_x = (weighted - x * projection - offset) * rstd
        tl.store(grad_residual + place, grad_x.to(grad_residual.dtype.element_ty), mask=there)
        if DROPOUT:
            grad_x = tl.where(mask, grad_x * factor, 0.0)
        tl.store(grad_z + place, grad_x.to(grad_z.dtype.element_ty), mask=there)
        sum_gamma += gradient * x
        sum_beta += gradient
        sum_bias += grad_x
    into = sums + block.to(tl.int64) * 3 * D + columns
    tl.store(into, sum_gamma, mask=inside)
    tl.store(into + D, sum_beta, mask=inside)
    tl.store(into + 2 * D, sum_bias, mask=inside)


@triton.jit(do_not_specialize=["blocks"])
def _add_sums(
    sums, first, second, third, blocks, D: tl.constexpr, BLOCK: tl.constexpr, R: tl.constexpr, KINDS: tl.constexpr,
    FIRST: tl.constexpr, SECOND: tl.constexpr, THIRD: tl.constexpr,
):  # fmt: skip
    """Add what the blocks of the backward pass summed to the gradients of up to three vectors."""
    kind = tl.program_id(1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < D
    total = tl.zeros((R, BLOCK), tl.float32)
    for start in range(0, blocks, R):
        block = start + tl.arange(0, R)
        place = (block[:, None] * KINDS + kind).to(tl.int64) * D + columns[None, :]
        total += tl.load(sums + place, mask=(block < blocks)[:, None] & inside[None, :], other=0.0)
    found = tl.sum(total, 0)
    if FIRST and kind == 0:
        tl.store(first + columns, tl.load(first + columns, mask=inside, other=0.0) + found, mask=inside)
    if SECOND and kind == 1:
        tl.store(second + columns, tl.load(second + columns, mask=inside, other=0.0) + found, mask=inside)
    if THIRD and kind == 2:
        tl.store(third + columns, tl.load(third + columns, mask=inside, other=0.0) + found, mask=inside)


@triton.jit
def _load_pointer(address, KIND: tl.constexpr, EVEN: tl.constexpr):
    """The numbers at an address; of even ones, four are read by one instruction."""
    found = tl.load(address).to(tl.pointer_type(KIND))
    return tl.multiple_of(found, 4 * KIND.primitive_bitwidth // 8) if EVEN else found


@triton.jit
def _sum_squares(chunks, sums, GRADIENT: tl.constexpr, CHUNK: tl.constexpr, EVEN: tl.constexpr):
    """The sum of a chunk's squared gradients: 0 only if all of them are 0."""
    about = chunks + tl.program_id(0).to(tl.int64) * FIELDS
    gradient = _load_pointer(about + 1, GRADIENT, EVEN)
    count = tl.load(about + 6).to(tl.int32)
    count = tl.multiple_of(count, 16) if EVEN else count
    total = tl.zeros((TILE,), tl.float32)
    largest = tl.zeros((TILE,), tl.float32)
    for start in tl.static_range(0, CHUNK, TILE):
        place = start + tl.arange(0, TILE)
        g = tl.load(gradient + place, mask=place < count, other=0.0).to(tl.float32)
        total += g * g
        largest = tl.maximum(largest, tl.abs(g))
    found = tl.sum(total, 0)
    found = tl.where(found == 0.0, tl.minimum(tl.max(largest, 0), TINY), found)  # squares of tiny numbers underflow
    tl.store(sums + tl.program_id(0), found)


@triton.jit(do_not_specialize=["blocks", "tensors"])
def _prepare_update(
    sums, blocks, steps, tensors, clip, grad_scale, bias_corrections, log_beta1, log_beta2,
    CLIP: tl.constexpr, BLOCK: tl.constexpr, TENSORS: tl.constexpr,
):  # fmt: skip
    """What clipping divides gradients by; each tensor's step, counted up, and the bias corrections of its moments."""
    if CLIP:
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, blocks, BLOCK):
            place = start + tl.arange(0, BLOCK)
            total += tl.load(sums + place, mask=place < blocks, other=0.0)
        tl.store(grad_scale, tl.maximum((tl.sqrt(tl.sum(total, 0)) + 1e-6) / clip, 1.0))
    else:
        tl.store(grad_scale, 1.0)
    beta1 = tl.load(log_beta1)
    beta2 = tl.load(log_beta2)
    for start in range(0, tensors, TENSORS):
        place = start + tl.arange(0, TENSORS)
        there = place < tensors
        counter = tl.load(steps + place, mask=there, other=0).to(tl.pointer_type(tl.float32))
        step = tl.load(counter, mask=there, other=0.0) + 1.0
        tl.store(counter, step, mask=there)
        # In float64: 1 - beta^step loses most of float32's digits in the first steps.
        wide = step.to(tl.float64)
        tl.store(bias_corrections + place * 2, (1.0 - tl.exp(wide * beta1)).to(tl.float32), mask=there)
        tl.store(bias_corrections + place * 2 + 1, tl.sqrt(1.0 - tl.exp(wide * beta2)).to(tl.float32), mask=there)


@triton.jit
def _draw_bits(seed, step, draw, TILE: tl.constexpr):
    """32 random bits for each number of a tile, as ``bf16_states.draw_bits`` has them: a call serves four, which are
    those that one thread reads, so that no bits travel between threads."""
    place = draw + tl.arange(0, TILE // 4)
    zero = place * 0
    a, b, c, d = tl.philox(seed, place, zero + step, zero, zero, n_rounds=ROUNDS)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), (TILE,))


@triton.jit
def _round_stochastically(values, bits):
    """Stochastic rounding to bfloat16, as ``bf16_states.round_stochastically`` does it."""
    whole = values.to(tl.uint32, bitcast=True) + tl.where(values == values, bits, 0)  # else NaN might become 0
    return (whole >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _update(
    chunks, sums, weight_decays, grad_scale, bias_corrections, steps, seed,
    beta1, beta2, one_minus_beta1, one_minus_beta2, eps,
    GRADIENT: tl.constexpr, CLEARED: tl.constexpr, COPY: tl.constexpr, CHUNK: tl.constexpr, EVEN: tl.constexpr,
    SUMMED: tl.constexpr, ROUNDED: tl.constexpr,
):  # fmt: skip
    """AdamW on one chunk: weight, moments, the weight's copy for the passes; ``CLEARED``: the gradient becomes 0.

    Gradients of 0 are neither read nor cleared: of an embedding table a batch reaches few rows. ``ROUNDED``: moments
    are stored in bfloat16, rounded stochastically by the step that ``_prepare_update`` has counted.
    """
    about = chunks + tl.program_id(0).to(tl.int64) * FIELDS
    weight, gradient = _load_pointer(about, tl.float32, EVEN), _load_pointer(about + 1, GRADIENT, EVEN)
    if ROUNDED:
        first, second = _load_pointer(about + 2, tl.bfloat16, EVEN), _load_pointer(about + 3, tl.bfloat16, EVEN)
    else:
        first, second = _load_pointer(about + 2, tl.float32, EVEN), _load_pointer(about + 3, tl.float32, EVEN)
    copy = _load_pointer(about + 4, COPY, EVEN)
    has_copy = tl.load(about + 4) != 0
    lr = tl.load(_load_pointer(about + 5, tl.float32, False))
    count = tl.load(about + 6).to(tl.int32)
    count = tl.multiple_of(count, 16) if EVEN else count
    tensor = tl.load(about + 7)
    decay_factor = 1.0 - lr * tl.load(weight_decays + tensor)
    step_size = lr / tl.load(bias_corrections + tensor * 2)
    root_correction = tl.load(bias_corrections + tensor * 2 + 1)
    scale = tl.load(grad_scale)
    if ROUNDED:
        key = tl.load(seed)
        step = tl.load(tl.load(steps + tensor).to(tl.pointer_type(tl.float32))).to(tl.int32)
        draw = tl.load(about + 8).to(tl.int32)
    has_gradient = tl.load(sums + tl.program_id(0)).to(tl.int32, bitcast=True) != 0 if SUMMED else True
    for start in range(0, CHUNK, TILE):
        place = start + tl.arange(0, TILE)
        there = place < count
        g = tl.load(gradient + place, mask=there & has_gradient, other=0.0).to(tl.float32) / scale
        m = tl.load(first + place, mask=there, other=0.0).to(tl.float32) * beta1 + g * one_minus_beta1
        v = tl.load(second + place, mask=there, other=0.0).to(tl.float32) * beta2 + g * g * one_minus_beta2
        p = tl.load(weight + place, mask=there, other=0.0) * decay_factor
        p -= step_size * m / (tl.sqrt(v) / root_correction + eps)
        if ROUNDED:
            bits = _draw_bits(key, step, draw + start // 4, TILE)
            m = _round_stochastically(m, bits & 0xFFFF)
            v = _round_stochastically(v, bits >> 16)
        tl.store(first + place, m, mask=there)
        tl.store(second + place, v, mask=there)
        tl.store(weight + place, p, mask=there)
        if CLEARED:
            tl.store(gradient + place, tl.zeros((TILE,), tl.float32), mask=there & has_gradient)
        tl.store(copy + place, p.to(COPY), mask=there & has_copy)


def normalise(
    z: Tensor, residual: Tensor, gamma: Tensor, beta: Tensor, seed: Tensor, *, rate: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """LayerNorm(dropout(z) + residual) of contiguous rows, with each row's mean and reciprocal standard deviation."""
    width = z.shape[-1]
    rows = z.numel() // width
    output = torch.empty_like(z)
    means, rstds = (torch.empty(rows, dtype=torch.float32, device=z.device) for _ in range(2))
    threshold, factor = find_dropout_threshold(rate)
    _norm_forward[(rows,)](
        z, residual, gamma, beta, seed, output, means, rstds, threshold, factor, eps,
        D=width, BLOCK=find_block(width), DROPOUT=threshold > 0, num_warps=4,
    )  # fmt: skip
    return output, means, rstds


def normalise_backward(
    grad_output: Tensor,
    z: Tensor,
    residual: Tensor,
    gamma: Tensor,
    seed: Tensor,
    means: Tensor,
    rstds: Tensor,
    *,
    rate: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of z and of the residual; sums of those of gamma, beta and z over rows, blocks x 3 x width."""
    width = z.shape[-1]
    rows = z.numel() // width
    steps = triton.cdiv(rows, MOST_BLOCKS)
    blocks = triton.cdiv(rows, steps)
    threshold, factor = find_dropout_threshold(rate)
    grad_z, grad_residual = torch.empty_like(z), torch.empty_like(z)
    sums = torch.empty(blocks, 3, width, dtype=torch.float32, device=z.device)
    _norm_backward[(blocks,)](
        grad_output, z, residual, gamma, seed, means, rstds, grad_z, grad_residual, sums,
        rows, threshold, factor, steps, D=width, BLOCK=find_block(width), DROPOUT=threshold > 0, num_warps=4,
    )  # fmt: skip
    return grad_z, grad_residual, sums


def add_sums(sums: Tensor, targets: Sequence[Tensor | None]) -> None:
    """Add sums, blocks x vectors x width, over all blocks to as many vectors of float32, three at most; those that are
    None are left out."""
    blocks, kinds, width = sums.shape
    three = [*targets, None, None][:3]
    first, second, third = (target if target is not None else sums for target in three)
    _add_sums[(triton.cdiv(width, 32), kinds)](
        sums, first, second, third, blocks, D=width, BLOCK=32, R=128, KINDS=kinds,
        FIRST=three[0] is not None, SECOND=three[1] is not None, THIRD=three[2] is not None, num_warps=8,
    )  # fmt: skip


def find_block(width: int) -> int:
    """The power of two that a row fits into; at least what one call of the generator decides about."""
    return max(8, int(triton.next_power_of_2(width)))


def find_dropout_threshold(rate: float) -> tuple[int, float]:
    """Random numbers of 16 bits below this drop an element; and the factor for the others, which keeps the mean."""
    threshold = round(rate * LEVELS)
    return threshold, LEVELS / (LEVELS - threshold) if threshold < LEVELS else 0.0


def update_weights(table: Any) -> None:
    """Clip and update all weights that a :class:`~crossling.training.fast.fused_adamw.ChunkTable` describes."""
    if table.clip:
        for begin, end, even, gradient in table.ranges:
            _sum_squares[(end - begin,)](
                table.chunks[begin:], table.sums[begin:], GRADIENT=TYPES[gradient], CHUNK=CHUNK, EVEN=even, num_warps=4
            )
    _prepare_update[(1,)](
        table.sums, len(table.sums), table.steps, len(table.steps), table.clip,
        table.grad_scale, table.bias_corrections, table.log_betas[0:], table.log_betas[1:],
        CLIP=table.clip > 0, BLOCK=4096, TENSORS=256, num_warps=8,
    )  # fmt: skip
    beta1, beta2 = table.betas
    for begin, end, even, gradient in table.ranges:
        _update[(end - begin,)](
            table.chunks[begin:], table.sums[begin:], table.weight_decays, table.grad_scale, table.bias_corrections,
            table.steps, table.seed, beta1, beta2, 1 - beta1, 1 - beta2, table.eps,
            GRADIENT=TYPES[gradient], CLEARED=gradient == torch.float32, COPY=TYPES[table.copied],
            CHUNK=CHUNK, EVEN=even, SUMMED=table.clip > 0, ROUNDED=table.rounded, num_warps=4,
        )  # fmt: skip
