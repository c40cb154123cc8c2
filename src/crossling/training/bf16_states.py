"""AdamW whose two moments are stored in bfloat16: half the memory of float32, and half of what updates move for them.

bfloat16 has 8 bits of precision. The mean of squared gradients changes by a thousandth in a step (beta2 = 0.999), which
is less than half of its last bit: rounded to nearest, it would stay where it is. Therefore both are rounded
stochastically: up with the probability of what would be cut off, so that the expectation of what is stored is the exact
number. An update is computed in float32 from what was stored, so the first one equals AdamW's; rounding only affects
what the next ones start from.

Random bits are a function of seed, step and place, by a counter-based generator (Philox 4x32 of seven rounds, Salmon et
al. 2011): a run that is continued rounds as one that was not, all processes round alike, and nothing random is stored.
The step is read from the device, so that a replayed CUDA graph draws anew. The fused kernel draws the same bits
(``fast/kernels.py``); here is what defines them.

Nothing here waits for the device; tensors are read in chunks, so that the float32 copies take little room.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

DRAWN = 4
"""Numbers that one call of the generator serves: 32 bits for each, 16 for either moment."""
CHUNK = 1 << 20
"""Numbers that are updated at once; a multiple of those that one call serves."""
ROUNDS = 7
"""The fewest that pass all tests of Philox's authors."""
FACTORS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
MASK = 0xFFFFFFFF


class Bfloat16AdamW(torch.optim.Optimizer):
    """AdamW with moments in bfloat16. Each group has an ``lr``, a number or a tensor, and a ``weight_decay``."""

    grad_scale: Tensor | None = None
    """What gradients are divided by as they are read."""

    def __init__(
        self, groups: Iterable[dict[str, Any]], *, betas: tuple[float, float], eps: float, seed: int = 0
    ) -> None:
        super().__init__(groups, {"betas": betas, "eps": eps, "weight_decay": 0.0, "capturable": True})
        self.seed = seed
        self.first_draws: dict[Tensor, int] = {}
        """By parameter: which call of the generator serves its first numbers."""
        draws = 0
        for parameter in (p for group in self.param_groups for p in group["params"]):
            self.first_draws[parameter] = draws
            draws += -(-parameter.numel() // DRAWN)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            learning = [(p, p.grad, self.find_state(p)) for p in group["params"] if p.grad is not None]
            if learning:
                torch._foreach_add_([state["step"] for *_, state in learning], 1)
            for parameter, gradient, state in learning:
                self._update(parameter, gradient, state, group)

    def find_state(self, parameter: Tensor) -> dict[str, Tensor]:
        """Moments and step of a parameter, by the names of torch's AdamW; all zero before its first update."""
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state |= {name: torch.zeros_like(parameter, dtype=torch.bfloat16) for name in ("exp_avg", "exp_avg_sq")}
        return state

    def _update(self, parameter: Tensor, gradient: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        # In float64: 1 - beta^step loses most of float32's digits in the first steps.
        step = state["step"].double()
        size = group["lr"] / (1 - beta1**step).float()
        root_correction = (1 - beta2**step).sqrt().float()
        flat, flat_gradient = parameter.view(-1), gradient.reshape(-1)
        first, second = state["exp_avg"].view(-1), state["exp_avg_sq"].view(-1)
        for start in range(0, flat.numel(), CHUNK):
            rows = slice(start, start + CHUNK)
            g = flat_gradient[rows] if self.grad_scale is None else flat_gradient[rows] / self.grad_scale
            m = first[rows].float() * beta1 + g * (1 - beta1)
            v = second[rows].float() * beta2 + g * g * (1 - beta2)
            p = flat[rows] * (1 - group["lr"] * group["weight_decay"])
            flat[rows] = p - size * m / (v.sqrt() / root_correction + group["eps"])
            draw = self.first_draws[parameter] + start // DRAWN
            for_first, for_second = draw_bits(self.seed, state["step"], draw, len(g))
            first[rows] = round_stochastically(m, for_first)
            second[rows] = round_stochastically(v, for_second)


def round_stochastically(values: Tensor, bits: Tensor) -> Tensor:
    """Stochastic rounding of float32 to bfloat16, which has the upper half of its bits: 16 random bits are added to the
    lower half, and what carries over rounds up, away from 0. What is no number stays so."""
    whole = values.view(torch.int32)
    rounded = (whole + bits) & ~0xFFFF
    return torch.where(values.isnan(), values, rounded.view(torch.float32)).bfloat16()


def draw_bits(seed: int, step: Tensor, draw: int, count: int) -> tuple[Tensor, Tensor]:
    """16 random bits for either moment of ``count`` numbers; the generator's call ``draw`` serves the first of them."""
    calls = torch.arange(draw, draw + -(-count // DRAWN), device=step.device)
    words = torch.stack(philox(seed, calls, step.long()), 1).view(-1)[:count]
    return (words & 0xFFFF).int(), (words >> 16).int()


def philox(seed: int, place: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 random bits for each place in a step, as int64, whose products wrap around as they should."""
    keys = [seed & MASK, seed >> 32 & MASK]
    zero = torch.zeros_like(place)
    a, b, c, d = place, zero + step, zero, zero
    for _ in range(ROUNDS):
        left, right = FACTORS[0] * a, FACTORS[1] * c
        a, b = (right >> 32 & MASK) ^ b ^ keys[0], right & MASK
        c, d = (left >> 32 & MASK) ^ d ^ keys[1], left & MASK
        keys = [(key + more) & MASK for key, more in zip(keys, KEY_STEPS, strict=True)]
    return a, b, c, d
