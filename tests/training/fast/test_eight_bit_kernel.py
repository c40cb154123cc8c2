"""The Triton kernel of AdamW in 8 bits against torch's operations: on a GPU, or interpreted with TRITON_INTERPRET=1."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from interpreted import DEVICE

from crossling.training.eight_bit import BLOCK, SMALLEST, EightBitAdamW, dequantise, update_parameter
from crossling.training.fast.eight_bit_kernel import ROWS, update


@pytest.mark.parametrize("count", [768, SMALLEST, BLOCK * ROWS * 3, 20_011])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_kernel_updates_weights_and_moments_as_torch_does(count: int, decay: float) -> None:
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(count, generator=generator).to(DEVICE)
    weights = [start.clone() for _ in range(2)]
    group: dict[str, Any] = {
        "lr": torch.tensor(1e-2, device=DEVICE),
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": decay,
    }
    optimiser = EightBitAdamW([{"params": weights, **group}], betas=group["betas"], eps=group["eps"])
    states = [optimiser._find_state(weight) for weight in weights]
    for step in range(4):
        gradient = (torch.randn(count, generator=generator) * 10.0 ** (step - 3)).to(DEVICE)
        grad_scale = torch.tensor(2.0, device=DEVICE) if step % 2 else None
        for weight, state, run in zip(weights, states, (update_parameter, update), strict=True):
            state["step"] += 1
            run(weight, gradient, state, group, grad_scale)
        if step == 0:  # nothing was rounded before
            torch.testing.assert_close(weights[1], weights[0], rtol=0, atol=2e-6)
        first, second = (_read(state) for state in states)
        for one, other in zip(first, second, strict=True):
            # A difference in the last bit can move a number to the next of the 256 values.
            assert ((one - other).abs() > 1e-5 * one.abs().max()).float().mean() < 0.01
    assert ((weights[0] - weights[1]).abs() > 1e-4).float().mean() < 0.01
    assert float((weights[0] - start).abs().mean()) > 1e-3


def _read(state: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    if "mean_scales" not in state:
        return [state["mean"], state["root"]]
    return [dequantise(state[n], state[f"{n}_scales"], signed=n == "mean") for n in ("mean", "root")]
