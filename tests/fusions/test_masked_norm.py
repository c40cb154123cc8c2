"""Masked batch normalisation: torch's own on the real tokens alone, whatever surrounds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode

from crossling.fusions.dlfa import DLFA, Settings, Statistics
from crossling.fusions.masked_norm import MaskedBatchNorm, RealPositions
from two_processes import run_in_two_processes

CHANNELS = 5


def _values(*shape: int, seed: int = 0) -> Tensor:
    """Channels of unlike means and spreads."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.linspace(0.1, 3.0, shape[-1])
    return torch.randn(*shape, generator=generator) * spread + torch.linspace(-4.0, 4.0, shape[-1])


def _mask(lengths: list[int], size: int) -> Tensor:
    return torch.arange(size) < torch.tensor(lengths)[:, None]


def _pair() -> tuple[MaskedBatchNorm, nn.BatchNorm1d]:
    ours, theirs = MaskedBatchNorm(CHANNELS), nn.BatchNorm1d(CHANNELS)
    with torch.no_grad():
        for norm in (ours, theirs):
            norm.weight.copy_(torch.linspace(0.5, 2.0, CHANNELS))
            norm.bias.copy_(torch.linspace(-1.0, 1.0, CHANNELS))
    return ours, theirs


def test_equals_torch_batch_norm_of_real_tokens() -> None:
    """Outputs, gradients and running statistics over several steps, then in evaluation."""
    ours, theirs = _pair()
    for step, lengths in enumerate(([4, 2, 3], [1, 1, 4], [4, 4, 4])):
        real = _mask(lengths, 4)
        x = _values(3, 4, CHANNELS, seed=step).requires_grad_()
        y = x.detach().clone().requires_grad_()
        direction = _values(3, 4, CHANNELS, seed=100 + step)
        a, b = ours(x, RealPositions(real))[real], theirs(y[real])
        (a * direction[real]).sum().backward()
        (b * direction[real]).sum().backward()
        assert torch.allclose(a, b, atol=1e-5)
        assert torch.allclose(x.grad, y.grad, atol=1e-5)
        assert torch.allclose(ours.weight.grad, theirs.weight.grad, atol=1e-4)
        assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)
        assert torch.allclose(ours.running_var, theirs.running_var, rtol=1e-5)
    x, real = _values(2, 4, CHANNELS, seed=9), _mask([4, 3], 4)
    assert torch.allclose(ours.eval()(x, RealPositions(real))[real], theirs.eval()(x[real]), atol=1e-5)


def test_gradients_equal_formula_even_for_losses_on_padding() -> None:
    norm, reference = _pair()[0], _pair()[0]
    real = _mask([4, 2, 3], 4)
    x, y = (_values(3, 4, CHANNELS).requires_grad_() for _ in range(2))
    direction = _values(3, 4, CHANNELS, seed=5)
    (norm(x, RealPositions(real)) * direction).sum().backward()
    mean, variance = y[real].mean(0), y[real].var(0, correction=0)
    expected = (y - mean) / torch.sqrt(variance + norm.eps) * reference.weight + reference.bias
    (expected * direction).sum().backward()
    assert torch.allclose(x.grad, y.grad, rtol=1e-4, atol=1e-4)
    assert torch.allclose(norm.weight.grad, reference.weight.grad, rtol=1e-4)
    assert torch.allclose(norm.bias.grad, reference.bias.grad, rtol=1e-4)


def test_padding_changes_nothing() -> None:
    real = _mask([4, 2, 1], 4)
    results = []
    for filler in (0.0, 1e4):
        norm, _ = _pair()
        x = _values(3, 4, CHANNELS).masked_fill(~real.unsqueeze(-1), filler).requires_grad_()
        out = norm(x, RealPositions(real))[real]
        out.square().sum().backward()
        assert not x.grad[~real].any()
        results.append((out, x.grad[real], norm.running_mean, norm.running_var))
    for with_zeros, with_thousands in zip(*results, strict=True):
        assert torch.equal(with_zeros, with_thousands)


def test_single_value_uses_and_updates_running_statistics() -> None:
    norm, _ = _pair()
    with torch.no_grad():
        norm.running_mean.fill_(0.5)
        norm.running_var.fill_(4.0)
    x = _values(3, CHANNELS).requires_grad_()
    only = torch.tensor([False, True, False])
    expected = (x[1] - 0.5) / (4.0 + norm.eps) ** 0.5 * norm.weight + norm.bias
    out = norm(x, RealPositions(only))
    assert torch.allclose(out[1], expected, atol=1e-6)
    out[1].sum().backward()
    assert torch.isfinite(x.grad).all()
    assert torch.allclose(x.grad[1], norm.weight / (4.0 + norm.eps) ** 0.5)
    assert torch.allclose(norm.running_mean, 0.9 * 0.5 + 0.1 * x[1].detach())
    assert torch.allclose(norm.running_var, 0.9 * 4.0 + 0.1 * (x[1].detach() - 0.5) ** 2)


def test_running_statistics_are_learnt_from_single_sentences() -> None:
    norm = MaskedBatchNorm(CHANNELS, momentum=0.01)
    values = _values(4000, CHANNELS)
    for value in values:
        norm(value[None], RealPositions(torch.tensor([True])))
    assert torch.allclose(norm.running_mean, values.mean(0), atol=0.6)
    assert torch.allclose(norm.running_var, values.var(0), rtol=0.4)


def test_batch_without_real_positions_updates_nothing() -> None:
    norm, _ = _pair()
    before = {name: value.clone() for name, value in norm.state_dict().items()}
    out = norm(_values(2, 3, CHANNELS), RealPositions(torch.zeros(2, 3, dtype=torch.bool)))
    assert torch.isfinite(out).all()
    assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())


def test_evaluation_updates_nothing_and_ignores_the_batch() -> None:
    norm, _ = _pair()
    for seed in range(5):
        norm(_values(4, 3, CHANNELS, seed=seed), RealPositions(_mask([3, 2, 1, 3], 3)))
    before = {name: value.clone() for name, value in norm.eval().state_dict().items()}
    x = _values(4, 3, CHANNELS, seed=7)
    together = norm(x, RealPositions(_mask([3, 3, 3, 3], 3)))
    assert torch.allclose(together, torch.cat([norm(row[None], RealPositions(_mask([3], 3))) for row in x]), atol=1e-6)
    assert all(torch.equal(before[name], value) for name, value in norm.state_dict().items())


def test_statistics_are_precise_where_the_mean_is_large() -> None:
    norm = MaskedBatchNorm(1)
    x = torch.tensor([[10_000.0], [10_001.0], [10_002.0], [10_003.0]])
    out = norm(x, RealPositions(torch.ones(4, dtype=torch.bool)))
    assert torch.allclose(out[:, 0], torch.tensor([-1.3416, -0.4472, 0.4472, 1.3416]), atol=1e-3)


def test_autocast_computes_in_float32() -> None:
    norm, reference = _pair()[0], _pair()[0]
    x = (_values(64, 32, CHANNELS) + 30).bfloat16()
    real = _mask([32] * 64, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = norm(x, RealPositions(real))
    assert out.dtype == torch.bfloat16
    assert norm.running_mean.dtype == torch.float32
    assert torch.equal(out, reference(x.float(), RealPositions(real)).bfloat16())
    assert torch.equal(norm.running_var, reference.running_var)


def _fusion(statistics: Statistics = "running") -> DLFA:
    torch.manual_seed(3)
    module = DLFA(Settings(layer=1, r=4, start="random", statistics=statistics), layers=(1, 2), width=8)
    with torch.no_grad():  # a signal that padding or a neighbour would change
        for parameter in module.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape))
    return module


@pytest.mark.parametrize("statistics", ["running", "debiased"])
def test_no_operation_reads_a_value_on_the_cpu(statistics: Statistics) -> None:
    """Fake tensors have none: what asks for one (a branch, a nonzero) fails, as it would in a CUDA graph."""
    with FakeTensorMode():
        module = DLFA(Settings(layer=1, r=4, start="identity", statistics=statistics), layers=(1, 2), width=8)
        hidden = {layer: torch.randn(3, 4, 8, requires_grad=True) for layer in (1, 2)}
        module(hidden, torch.ones(3, 4, dtype=torch.long)).sum().backward()
        assert all(parameter.grad is not None for parameter in module.parameters())


SHARES = {
    "several": [[4, 3, 2], [3, 4, 1]],  # a row of one visible position fills a batch up
    "one sentence in all": [[4, 1], [1, 1]],
    "nothing for the second": [[4, 2], [1, 1]],
}


def _train_share(hidden: dict[int, Tensor], mask: Tensor, rows: slice) -> dict[str, Tensor]:
    """Loss and gradients of two steps on some rows of a batch; the loss counts real tokens only."""
    module, results = _fusion("debiased"), {}
    for step in range(2):
        own = {layer: (x[rows] * (1 + step)).clone().requires_grad_() for layer, x in hidden.items()}
        real = mask[rows].bool() & (mask[rows].sum(1) > 1)[:, None]
        module.zero_grad()
        loss = (module(own, mask[rows]).pow(3) * real[:, :, None]).sum()
        loss.backward()
        results[f"{step} sum loss"] = loss.detach().reshape(1)
        results |= {f"{step} sum {name}": p.grad.clone() for name, p in module.named_parameters()}
        results |= {f"{step} join {layer}": x.grad.clone() for layer, x in own.items()}
        results |= {f"{step} same {name}": buffer.clone() for name, buffer in module.named_buffers()}
    return results


def _batch(lengths: list[list[int]]) -> tuple[dict[int, Tensor], Tensor]:
    flat = [length for share in lengths for length in share]
    return {layer: _values(len(flat), 4, 8, seed=layer) for layer in (1, 2)}, _mask(flat, 4).long()


def _work(rank: int, folder: Path) -> None:
    for name, lengths in SHARES.items():
        hidden, mask = _batch(lengths)
        half = len(mask) // 2
        results = _train_share(hidden, mask, slice(rank * half, (rank + 1) * half))
        save_file(results, folder / f"{name} {rank}")


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    run_in_two_processes(_work, folder)
    return folder


@pytest.mark.parametrize("name", SHARES)
def test_two_processes_equal_one(name: str, two_processes: Path) -> None:
    """Loss, gradients and running statistics, each process with half of the rows.

    A small gradient may be a sum of large ones that cancel: its rounding errors are relative to the largest.
    """
    hidden, mask = _batch(SHARES[name])
    whole = _train_share(hidden, mask, slice(None))
    largest = max(float(values.abs().max()) for key, values in whole.items() if " sum " in key and "loss" not in key)
    parts: list[dict[str, Any]] = [load_file(two_processes / f"{name} {rank}") for rank in (0, 1)]
    for key, expected in whole.items():
        first, second = (part[key] for part in parts)
        how = key.split()[1]
        if how == "same":
            assert torch.equal(first, second)
            found = first
        else:
            found = first + second if how == "sum" else torch.cat([first, second])
        error = 1e-5 * float(1 + expected.abs().max()) + (1e-7 * largest if how == "sum" else 0)
        assert torch.allclose(found, expected, rtol=1e-4, atol=error), key


def test_gradients_are_precise_under_autocast() -> None:
    norm, reference = _pair()[0], _pair()[0]
    x, y = (_values(64, CHANNELS).requires_grad_() for _ in range(2))
    real = RealPositions(torch.ones(64, dtype=torch.bool))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        norm(x, real).square().sum().backward()
    reference(y, real).square().sum().backward()
    assert torch.equal(norm.weight.grad, reference.weight.grad)
    assert torch.equal(x.grad, y.grad)


def test_debiased_statistics_are_the_weighted_mean_of_all_batches() -> None:
    """After every step, against the sum written out; batches without a real position do not count."""
    norm = MaskedBatchNorm(CHANNELS, debias=True)
    means: list[Tensor] = []
    variances: list[Tensor] = []
    for step in range(12):
        values = _values(3, 4, CHANNELS, seed=step) * (1 + step) + step
        mask = _mask([4, 2, 3] if step != 5 else [0, 0, 0], 4)
        norm(values, RealPositions(mask))
        if mask.any():
            means.append(values[mask].mean(0))
            variances.append(values[mask].var(0))
        weights = torch.tensor([0.1 * 0.9**age for age in reversed(range(len(means)))])
        shares = (weights / weights.sum())[:, None]
        assert torch.allclose(norm.running_mean, (shares * torch.stack(means)).sum(0), rtol=1e-4, atol=1e-5)
        assert torch.allclose(norm.running_var, (shares * torch.stack(variances)).sum(0), rtol=1e-4, atol=1e-5)


def test_debiased_statistics_are_exact_after_one_step_and_running_ones_are_not() -> None:
    """Of batches with the same statistics; the default needs dozens of steps to get there."""
    values, mask = 3 * _values(8, 5, CHANNELS) + 2, _mask([5] * 8, 5)
    exact = values[mask].mean(0), values[mask].var(0)
    for debias, steps, tolerance in ((True, 1, 1e-5), (True, 5, 1e-5), (False, 100, 1e-3)):
        norm = MaskedBatchNorm(CHANNELS, debias=debias)
        for _ in range(steps):
            norm(values, RealPositions(mask))
        assert torch.allclose(norm.running_mean, exact[0], rtol=tolerance)
        assert torch.allclose(norm.running_var, exact[1], rtol=tolerance)
    few = MaskedBatchNorm(CHANNELS)
    for _ in range(5):
        few(values, RealPositions(mask))
    assert not torch.allclose(few.running_mean, exact[0], rtol=0.3)


def test_debiasing_changes_no_training_step() -> None:
    """Training normalises by the batch: only what predictions are normalised with differs."""
    values, real = _values(3, 4, CHANNELS), RealPositions(_mask([4, 2, 3], 4))
    plain, debiased = MaskedBatchNorm(CHANNELS), MaskedBatchNorm(CHANNELS, debias=True)
    assert torch.equal(plain(values, real), debiased(values, real))
    assert not torch.equal(plain.eval()(values, real), debiased.eval()(values, real))
