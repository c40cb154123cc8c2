"""Moments of AdamW in 8 bits: how they are rounded, and that updates are AdamW's up to that."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from crossling.training import eight_bit
from crossling.training.distributed import Distributed
from crossling.training.eight_bit import BLOCK, EightBitAdamW, dequantise, list_levels, quantise
from crossling.training.loop import Execution, fit
from crossling.training.settings import TrainingSettings
from learner import make_learner, update_matrix

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
PLAIN = partial(torch.optim.AdamW, betas=(0.9, 0.999), eps=1e-8, fused=True)
ROUNDED = partial(EightBitAdamW, betas=(0.9, 0.999), eps=1e-8)


@pytest.mark.parametrize(("signed", "half_step"), [(True, 0.9 / 128), (False, 0.9 / 256)])
def test_levels_cover_seven_decades_and_each_number_becomes_the_nearest(signed: bool, half_step: float) -> None:
    levels = list_levels(signed=signed)
    assert len(levels.unique()) == 256 and bool((levels.diff() > 0).all())
    assert {0.0, 1.0} <= set(levels.tolist()) and 1e-7 < float(levels[levels > 0].min()) < 6e-7
    assert float(levels.min()) == (pytest.approx(-1 + half_step) if signed else 0.0)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(3 * BLOCK + 17, generator=generator) * 10 ** torch.empty(3 * BLOCK + 17).uniform_(
        -6, 0, generator=generator
    )
    values = values if signed else values.abs()
    codes, scales = quantise(values, signed=signed)
    assert codes.dtype == torch.uint8 and codes.shape == values.shape and scales.shape == (4,)
    found = dequantise(codes, scales, signed=signed)
    for start in range(0, len(values), BLOCK):
        block = values[start : start + BLOCK]
        scale = float(block.abs().max())
        nearest = torch.stack([levels[(levels - value / scale).abs().argmin()] * scale for value in block])
        torch.testing.assert_close((found[start : start + BLOCK] - block).abs(), (nearest - block).abs())
        assert float((found[start : start + BLOCK] - block).abs().max()) <= 1.001 * half_step * scale
    zeros = quantise(torch.zeros(BLOCK), signed=signed)
    assert not dequantise(*zeros, signed=signed).any()
    assert not dequantise(torch.zeros(BLOCK, dtype=torch.uint8), torch.zeros(1), signed=signed).any()


def test_first_update_equals_adamw_and_later_ones_stay_within_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bit, "CHUNK", 4 * BLOCK)  # several chunks, the last one shorter
    (expected, _), (found, _) = update_matrix(PLAIN, 20), update_matrix(ROUNDED, 20)
    torch.testing.assert_close(found[0], expected[0])
    moved = [(after - before).abs() for before, after in zip(expected, expected[1:], strict=False)]
    apart = [(one - other).abs() for one, other in zip(found, expected, strict=True)]
    # Numbers of one block differ by up to a factor of 10 here: roots in the decade below the largest have 64 parts.
    assert float(apart[1].max()) < 0.05 * float(moved[0].max())
    assert float(apart[-1].mean()) < 0.02 * float(sum(step.mean() for step in moved))


def test_means_take_a_quarter_of_the_memory() -> None:
    def count(optimiser: torch.optim.Optimizer) -> int:
        return sum(v.nbytes for state in optimiser.state.values() for v in state.values())

    weight = torch.nn.Parameter(torch.randn(1000, 384))
    bias = torch.nn.Parameter(torch.zeros(384))
    weight.grad, bias.grad = torch.ones_like(weight), torch.ones_like(bias)
    sizes = []
    for optimiser in (
        EightBitAdamW([{"params": [weight, bias], "lr": 0.1}], betas=(0.9, 0.999), eps=1e-8),
        torch.optim.AdamW([weight, bias], lr=0.1),
    ):
        optimiser.step()
        sizes.append(count(optimiser))
    assert sizes[0] == 2 * 384_000 + 2 * 4 * 1500 + 2 * 4 * 384 + 8
    assert sizes[0] / sizes[1] == pytest.approx(0.25, abs=0.01)


def test_small_model_learns_as_with_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bit, "SMALLEST", 64)
    ends = []
    for states in ("float32", "8bit"):
        model, stream = make_learner(tmp_path, count=24)
        settings = TrainingSettings(epochs=5, batch=8, lr=4e-3, optimizer_states=states)
        position = fit(model, stream, settings, Execution(ONE, 1, tmp_path / states))
        losses = [entry["loss"] for entry in position.history]
        assert losses[-1] < 0.9 * losses[0]
        ends.append(losses[-1])
    assert ends[1] == pytest.approx(ends[0], rel=0.03)


def test_update_waits_for_nothing_on_the_device() -> None:
    """A CUDA graph can hold what runs on fake tensors, which have no values: nothing is read back."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        weight = torch.nn.Parameter(torch.empty(100, 300))
        weight.grad = torch.empty(100, 300)
        rate = torch.empty(())
        optimiser = EightBitAdamW([{"params": [weight], "lr": rate, "weight_decay": 0.1}], betas=(0.9, 0.99), eps=1e-8)
        optimiser.grad_scale = torch.empty(())
        eight_bit.find_levels.cache_clear()
        optimiser.step()
    eight_bit.find_levels.cache_clear()
