"""The update of AdamW with moments in 8 bits as one Triton kernel for each parameter.

torch's own operations read and write every number about thirty times, in chunks. Here it is read and written once. The
result is that of ``eight_bit.py``, up to the last bits of float32.

Triton comes with torch for CUDA on Linux: import this module only through ``eight_bit.find_kernel``.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from crossling.training.eight_bit import BLOCK, find_levels

ROWS = 8
"""Blocks that are updated at once."""
TINY = tl.constexpr(torch.finfo(torch.float32).tiny)


@triton.jit
def _read(codes, scales, levels, place, row, inside, has_row, QUANTISED: tl.constexpr):
    """A moment in float32."""
    if QUANTISED:
        code = tl.load(codes + place, inside, other=0).to(tl.int32)
        value = tl.load(levels + code) * tl.load(scales + row, has_row, other=0.0)[:, None]
    else:
        value = tl.load(codes + place, inside, other=0.0)
    return value


@triton.jit
def _write(values, codes, scales, limits, place, row, inside, has_row, QUANTISED: tl.constexpr):
    """Store a moment: the number of limits below a value that is divided by its block's largest is its code."""
    if QUANTISED:
        scale = tl.max(tl.abs(values), 1)
        divided = values / tl.maximum(scale, TINY)[:, None]
        code = tl.zeros_like(place).to(tl.int32)
        for power in tl.static_range(8):
            step = 128 >> power
            code += tl.where(tl.load(limits + code + (step - 1)) < divided, step, 0)
        tl.store(codes + place, code.to(tl.uint8), inside)
        tl.store(scales + row, scale, has_row)
    else:
        tl.store(codes + place, values, inside)


@triton.jit(do_not_specialize=["count"])
def _update(
    weight, gradient, mean, root, mean_scales, root_scales, mean_levels, root_levels, mean_limits, root_limits,
    rate, step, grad_scale, count, one_minus_beta1, beta2, one_minus_beta2, log_beta1, log_beta2, eps, decay,
    QUANTISED: tl.constexpr, SCALED: tl.constexpr, BLOCK: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    place = row[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside, has_row = place < count, row * BLOCK < count
    g = tl.load(gradient + place, inside, other=0.0)
    if SCALED:
        g = g / tl.load(grad_scale)
    m = _read(mean, mean_scales, mean_levels, place, row, inside, has_row, QUANTISED)
    r = _read(root, root_scales, root_levels, place, row, inside, has_row, QUANTISED)
    m = m + (g - m) * one_minus_beta1
    r = tl.sqrt(r * r * beta2 + g * g * one_minus_beta2)
    _write(m, mean, mean_scales, mean_limits, place, row, inside, has_row, QUANTISED)
    _write(r, root, root_scales, root_limits, place, row, inside, has_row, QUANTISED)
    number, lr = tl.load(step).to(tl.float32), tl.load(rate)
    first, second = 1 - tl.exp(number * log_beta1), tl.sqrt(1 - tl.exp(number * log_beta2))
    w = tl.load(weight + place, inside, other=0.0) * (1 - lr * decay)
    tl.store(weight + place, w - lr / first * m / (r / second + eps), inside)


def update(
    parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any], grad_scale: Any
) -> None:
    """Update a parameter and its moments; ``state["step"]`` is this update's number already."""
    quantised, device = "mean_scales" in state, parameter.device
    scales = [state[f"{name}_scales"] if quantised else state[name] for name in ("mean", "root")]
    (mean_levels, mean_limits), (root_levels, root_limits) = (find_levels(signed, device) for signed in (True, False))
    beta1, beta2 = group["betas"]
    log_beta1, log_beta2 = (math.log(beta) if beta else -math.inf for beta in (beta1, beta2))
    _update[(triton.cdiv(parameter.numel(), BLOCK * ROWS),)](
        parameter, gradient, state["mean"], state["root"], *scales,
        mean_levels, root_levels, mean_limits, root_limits,
        group["lr"], state["step"], grad_scale if grad_scale is not None else group["lr"], parameter.numel(),
        1 - beta1, beta2, 1 - beta2, log_beta1, log_beta2, group["eps"], float(group["weight_decay"]),
        QUANTISED=quantised, SCALED=grad_scale is not None, BLOCK=BLOCK, R=ROWS, num_warps=8,
    )  # fmt: skip
