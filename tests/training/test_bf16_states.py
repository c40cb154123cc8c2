"""Moments of AdamW in bfloat16: stochastic rounding, and that updates are AdamW's up to that."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from crossling.training import bf16_states
from crossling.training.bf16_states import Bfloat16AdamW, draw_bits, philox, round_stochastically
from crossling.training.distributed import Distributed
from crossling.training.fast.fused_adamw import FusedAdamW
from crossling.training.loop import Execution, fit
from crossling.training.settings import TrainingSettings, drop_unused
from crossling.training.steps import build_optimiser
from learner import make_learner, update_matrix

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
PLAIN = partial(torch.optim.AdamW, betas=(0.9, 0.999), eps=1e-8, fused=True)
ROUNDED = partial(Bfloat16AdamW, betas=(0.9, 0.999), eps=1e-8, seed=1)


def test_generator_gives_the_words_that_its_authors_published() -> None:
    words = philox(0, torch.zeros(1, dtype=torch.int64), torch.tensor(0))
    assert [int(word) for word in words] == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]


def test_bits_are_uniform_and_a_function_of_seed_step_and_place() -> None:
    step = torch.tensor(3.0)
    both = draw_bits(1, step, 0, 40_000)
    for bits in both:
        assert bits.dtype == torch.int32 and int(bits.min()) >= 0 and int(bits.max()) < 1 << 16
        counts = torch.bincount(bits >> 8, minlength=256).float()
        assert float(((counts - counts.mean()) ** 2 / counts.mean()).sum()) < 255 + 5 * 510**0.5
    later = draw_bits(1, step, 2_500, 7)
    assert all(torch.equal(part, whole[10_000:10_007]) for part, whole in zip(later, both, strict=True))
    others = [
        draw_bits(2, step, 0, 40_000),
        draw_bits(1 + (1 << 32), step, 0, 40_000),
        draw_bits(1, step + 1, 0, 40_000),
    ]
    for one in (both[1], *(bits for pair in others for bits in pair)):
        shared = torch.corrcoef(torch.stack((both[0].float(), one.float())))[0, 1]
        assert abs(float(shared)) < 5 / 200


def test_numbers_that_bfloat16_represents_stay_as_they_are() -> None:
    exact = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    for bits in (0, 1, 0xFFFF):
        found = round_stochastically(exact.float(), torch.full((1 << 16,), bits, dtype=torch.int32))
        assert torch.equal(found.isnan(), exact.isnan()) and torch.equal(found[~exact.isnan()], exact[~exact.isnan()])
    wild = torch.tensor([0x7FFFFFFF, -1, 0x7F800001], dtype=torch.int32).view(torch.float32)
    assert round_stochastically(wild, torch.full((3,), 0xFFFF, dtype=torch.int32)).isnan().all()


@pytest.mark.parametrize("value", [1.003, -1.003, 3e-41, 7.7e-9, -1234.56, 1.999])
def test_expectation_of_a_rounded_number_is_the_number(value: float) -> None:
    """Exactly: over all random bits that there are."""
    every = torch.arange(1 << 16, dtype=torch.int32)
    number = torch.tensor(value)
    found = round_stochastically(number.expand(1 << 16).clone(), every).double()
    assert len(found.unique()) == 2 and float(found.min()) < float(number) < float(found.max())
    assert float(found.mean()) == pytest.approx(float(number), rel=1e-12, abs=0)


def test_first_update_equals_adamw_and_later_ones_stay_within_the_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16_states, "CHUNK", 1024)  # several chunks, the last one shorter
    (expected, plain), (found, rounded) = update_matrix(PLAIN, 20), update_matrix(ROUNDED, 20)
    torch.testing.assert_close(found[0], expected[0])
    moved = [(after - before).abs() for before, after in zip(expected, expected[1:], strict=False)]
    apart = [(one - other).abs() for one, other in zip(found, expected, strict=True)]
    assert float(apart[1].max()) < 0.02 * float(moved[0].max())
    assert float(apart[-1].mean()) < 0.01 * float(sum(step.mean() for step in moved))
    (ours,), (theirs,) = rounded.state.values(), plain.state.values()
    assert set(ours) == set(theirs) and ours["exp_avg"].dtype == ours["exp_avg_sq"].dtype == torch.bfloat16
    monkeypatch.setattr(bf16_states, "CHUNK", 1 << 20)
    assert torch.equal(update_matrix(ROUNDED, 20)[0][-1], found[-1]), "chunks do not change what is drawn"


def test_mean_of_squares_falls_as_fast_as_in_float32() -> None:
    """Rounded to nearest it would stay at 1: a thousandth is less than half of the last bit of bfloat16."""
    weight = torch.nn.Parameter(torch.zeros(20_000))
    optimiser = Bfloat16AdamW([{"params": [weight], "lr": 0.0}], betas=(0.9, 0.999), eps=1e-8)
    optimiser.find_state(weight)["exp_avg_sq"].fill_(1.0)
    weight.grad = torch.zeros_like(weight)
    for _ in range(100):
        optimiser.step()
    assert float(optimiser.state[weight]["exp_avg_sq"].float().mean()) == pytest.approx(0.999**100, rel=5e-4)
    assert torch.tensor(0.999).bfloat16() == 1


def test_moments_take_half_of_the_memory_and_parameters_draw_different_bits() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1_001)) for _ in range(2)]
    optimiser = Bfloat16AdamW([{"params": weights, "lr": 0.1}], betas=(0.9, 0.999), eps=1e-8)
    for weight in weights:
        weight.grad = torch.full_like(weight, 1.003)
    optimiser.step()
    assert sum(v.nbytes for state in optimiser.state.values() for v in state.values()) == 2 * (2 * 2 * 1_001 + 4)
    one, other = (optimiser.state[weight]["exp_avg"] for weight in weights)
    assert not torch.equal(one, other)
    assert list(optimiser.first_draws.values()) == [0, 251]


def test_small_model_learns_as_with_float32(tmp_path: Path) -> None:
    ends = []
    for states in ("float32", "bfloat16"):
        model, stream = make_learner(tmp_path, count=24)
        settings = TrainingSettings(epochs=5, batch=8, lr=4e-3, optimizer_states=states)
        position = fit(model, stream, settings, Execution(ONE, 1, tmp_path / states))
        losses = [entry["loss"] for entry in position.history]
        assert losses[-1] < 0.9 * losses[0]
        ends.append(losses[-1])
    assert ends[0] != ends[1] and ends[1] == pytest.approx(ends[0], rel=0.02)


def test_seed_of_a_run_is_that_of_its_rounding(tmp_path: Path) -> None:
    model, _ = make_learner(tmp_path, count=2)
    settings = TrainingSettings(optimizer_states="bfloat16")
    assert drop_unused(settings.model_dump(mode="json"))["optimizer_states"] == "bfloat16"
    optimiser = build_optimiser(model, settings, ONE.device, seed=7)
    assert isinstance(optimiser, Bfloat16AdamW) and optimiser.seed == 7
    assert not FusedAdamW.suits(optimiser), "on a CPU the rate is no tensor"
    for group in optimiser.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    assert FusedAdamW.suits(optimiser)


def test_update_waits_for_nothing_on_the_device() -> None:
    """A CUDA graph can hold what runs on fake tensors, which have no values: nothing is read back."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        weight = torch.nn.Parameter(torch.empty(100, 300))
        weight.grad = torch.empty(100, 300)
        group = {"params": [weight], "lr": torch.empty(()), "weight_decay": 0.1}
        optimiser = Bfloat16AdamW([group], betas=(0.9, 0.99), eps=1e-8)
        optimiser.grad_scale = torch.empty(())
        optimiser.step()
