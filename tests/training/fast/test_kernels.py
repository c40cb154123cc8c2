"""Triton's kernels against torch: on a GPU, or interpreted on a CPU with TRITON_INTERPRET=1."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from interpreted import DEVICE
from torch import Tensor
from torch.nn import functional

from crossling.data.batching import Batch
from crossling.training.bf16_states import Bfloat16AdamW, draw_bits, round_stochastically
from crossling.training.fast import attention_kernels, fused_linear, kernels
from crossling.training.fast.bf16_weights import Bf16Weights
from crossling.training.fast.fused_adamw import FusedAdamW
from learner import make_learner
from tiny import tiny_encoder

TOLERANCE = {torch.float32: {"atol": 2e-5, "rtol": 1e-5}, torch.bfloat16: {"atol": 3e-2, "rtol": 2e-2}}
WIDTHS = [384, 640, 768, 1024]
PRECISIONS = [torch.float32, torch.bfloat16]


def _draw(*shape: int, seed: int = 0, precision: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, precision)


def _close(found: Tensor, expected: Tensor, precision: torch.dtype, what: str) -> None:
    torch.testing.assert_close(
        found.float(), expected.detach(), **TOLERANCE[precision], msg=lambda text: f"{what}: {text}"
    )


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("rate", [0.0, 0.1])
def test_normalisation_equals_torch(
    monkeypatch: pytest.MonkeyPatch, width: int, precision: torch.dtype, rate: float
) -> None:
    """With dropout, torch gets the mask that the kernels drew: the forward and the backward pass draw the same."""
    monkeypatch.setattr(kernels, "MOST_BLOCKS", 2)  # so that blocks read more than one row
    rows = 7
    z, residual, grad_output = (_draw(rows, width, seed=n, precision=precision) for n in range(3))
    gamma, beta = (_draw(width, seed=n, precision=precision) for n in (3, 4))
    seed = torch.tensor([(1 << 62) + 12345], device=DEVICE)
    output, means, rstds = kernels.normalise(z, residual, gamma, beta, seed, rate=rate, eps=1e-5)
    grad_z, grad_residual, sums = kernels.normalise_backward(
        grad_output, z, residual, gamma, seed, means, rstds, rate=rate
    )
    gradients = [_draw(width, seed=n) for n in (5, 6, 7)]
    before = [gradient.clone() for gradient in gradients]
    kernels.add_sums(sums, gradients)

    threshold, factor = kernels.find_dropout_threshold(rate)
    mask = (grad_z != 0).float() if threshold else torch.ones_like(grad_z, dtype=torch.float32)
    inputs = [t.float().requires_grad_() for t in (z, residual, gamma, beta, torch.zeros(width, device=DEVICE))]
    x, r, g, b, bias = inputs
    expected = functional.layer_norm((x + bias) * mask * factor + r, (width,), g, b, 1e-5)
    expected.backward(grad_output.float())
    _close(output, expected, precision, "output")
    _close(grad_z, x.grad, precision, "z")
    _close(grad_residual, r.grad, precision, "residual")
    for name, found, start, one in zip(("gamma", "beta", "bias"), gradients, before, (g, b, bias), strict=True):
        _close(found - start, one.grad, precision, name)


def test_dropout_mask_has_the_requested_rate_and_depends_on_the_seed() -> None:
    ones, zeros = torch.ones(64, 96, device=DEVICE), torch.zeros(64, 96, device=DEVICE)
    masks = []
    for seed in (1, 2, 1 << 40, 1):
        where = torch.tensor([seed], device=DEVICE)
        grad_z, *_ = kernels.normalise_backward(
            _draw(64, 96), ones, zeros, ones[0], where, zeros[:, 0].contiguous(), ones[:, 0].contiguous(), rate=0.3
        )
        masks.append(grad_z != 0)
    assert torch.equal(masks[0], masks[3])
    for mask in masks[:3]:
        assert abs(float(mask.float().mean()) - 0.7) < 0.03
        assert float(mask.float().mean(0).min()) > 0.5 and float(mask.float().mean(1).min()) > 0.5
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(float((masks[one] == masks[other]).float().mean()) - 0.58) < 0.03, "independent of each other"


def test_sums_skip_frozen_vectors_and_are_deterministic() -> None:
    sums = _draw(300, 3, 70)
    some = [torch.zeros(70, device=DEVICE), None, torch.zeros(70, device=DEVICE)]
    kernels.add_sums(sums, some)
    for place in (0, 2):
        _close(some[place], sums[:, place].sum(0), torch.float32, "sums")
    again = [torch.zeros(70, device=DEVICE), None, torch.zeros(70, device=DEVICE)]
    kernels.add_sums(sums, again)
    assert torch.equal(some[0], again[0]) and torch.equal(some[2], again[2])


SIZES = ((40, 48), (kernels.CHUNK // 2 + 50, 2), (48,), (3,), (5, 7), (9,))
LATE, NEVER = 3, 5
"""Tensors that get a gradient from the third step on, and none at all."""


def _build_optimiser() -> tuple[list[Tensor], torch.optim.AdamW]:
    tensors = [_draw(*shape, seed=n).requires_grad_() for n, shape in enumerate(SIZES)]
    rates = [torch.tensor(1e-2, device=DEVICE) for _ in range(2)]
    groups = [
        {"params": [t for t in tensors if t.ndim == ndim], "weight_decay": decay, "lr": rate}
        for ndim, decay, rate in zip((2, 1), (0.1, 0.0), rates, strict=True)
    ]
    return tensors, torch.optim.AdamW(groups, lr=rates[0], fused=True, capturable=DEVICE.type == "cuda")


@pytest.mark.parametrize("clip", [1.0, 0.0, 1e6])
def test_update_equals_torch(clip: float) -> None:
    """Weights, moments, steps and copies of four steps; a checkpoint of either can be continued by the other."""
    (ours, fused), (theirs, plain) = _build_optimiser(), _build_optimiser()
    copies = {p: p.detach().bfloat16() for p in ours[:3]}
    update = FusedAdamW(fused, clip=clip, copies=copies)
    assert FusedAdamW.suits(fused)
    for step in range(4):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if place == NEVER or (place == LATE and step < 2):
                continue
            other.grad = _draw(*other.shape, seed=100 * step + place)
            if place == 1:  # a chunk without gradients, later with those whose squares are 0 in float32
                other.grad.view(-1)[: kernels.CHUNK] *= (1.0, 0.0, 1.0, 1e-30)[step]
            one.grad = other.grad.clone() if one.grad is None else one.grad.copy_(other.grad)
        for optimiser in (fused, plain):
            for group in optimiser.param_groups:
                group["lr"].fill_(1e-2 * (step + 1))
        if clip:
            norm = torch.nn.utils.get_total_norm([p.grad for p in theirs if p.grad is not None])
            plain.grad_scale = ((norm + 1e-6) / clip).clamp(min=1.0)
        plain.step()
        update.step()
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)
        if place == NEVER:
            assert not fused.state[one]
            continue
        assert not one.grad.any() and set(fused.state[one]) == set(plain.state[other])
        for key, value in plain.state[other].items():
            torch.testing.assert_close(fused.state[one][key], value, atol=1e-7, rtol=1e-5)
    for parameter, copy in copies.items():
        # The interpreter cuts digits off where hardware rounds.
        torch.testing.assert_close(copy.float(), parameter.detach(), atol=0, rtol=2**-7)


def _build_rounding() -> tuple[list[Tensor], Bfloat16AdamW]:
    """The same weights and groups, with moments in bfloat16."""
    tensors, plain = _build_optimiser()
    groups = [{name: group[name] for name in ("params", "weight_decay", "lr")} for group in plain.param_groups]
    return tensors, Bfloat16AdamW(groups, betas=(0.9, 0.999), eps=1e-8, seed=(5 << 32) + 7)


@pytest.mark.parametrize("clip", [1.0, 0.0])
def test_update_rounds_moments_with_the_bits_of_torch(clip: float) -> None:
    """Four steps, of which some tensors miss one: weights and moments; either can continue what the other began."""
    (ours, fused), (theirs, plain) = _build_rounding(), _build_rounding()
    copies = {p: p.detach().bfloat16() for p in ours[:3]}
    update = FusedAdamW(fused, clip=clip, copies=copies)
    assert FusedAdamW.suits(fused)
    for step in range(4):
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            one.grad = other.grad = None
            if place != NEVER and (place != LATE or step >= 2):
                other.grad = _draw(*other.shape, seed=100 * step + place)
                one.grad = other.grad.clone()
        if clip:
            norm = torch.nn.utils.get_total_norm([p.grad for p in theirs if p.grad is not None])
            plain.grad_scale = ((norm + 1e-6) / clip).clamp(min=1.0)
            fused.grad_scale = plain.grad_scale
        plain.step()
        (fused if step == 2 else update).step()
        if step == 2:
            for parameter, copy in copies.items():
                copy.copy_(parameter)
    for place, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-4)
        if place == NEVER:
            assert not fused.state[one]
            continue
        assert float(fused.state[one]["step"]) == float(plain.state[other]["step"]) == (2 if place == LATE else 4)
        for key in ("exp_avg", "exp_avg_sq"):
            found, expected = fused.state[one][key], plain.state[other][key]
            assert found.dtype == expected.dtype == torch.bfloat16
            # A difference in the last bit of float32 can carry over, once in thousands of numbers.
            assert (found != expected).sum() <= 1 + 0.002 * found.numel()
            torch.testing.assert_close(found, expected, atol=0, rtol=2**-6)
    for parameter, copy in copies.items():
        torch.testing.assert_close(copy.float(), parameter.detach(), atol=0, rtol=2**-7)


def test_kernel_draws_anew_at_every_step_and_keeps_what_bfloat16_represents() -> None:
    """With betas of 0 the moments are the gradient and its square, rounded."""
    count = 3 * kernels.CHUNK + 16
    weight = torch.zeros(count, device=DEVICE, requires_grad=True)
    groups = [{"params": [weight], "lr": torch.tensor(0.0, device=DEVICE)}]
    optimiser = Bfloat16AdamW(groups, betas=(0.0, 0.0), eps=1e-8, seed=3)
    update = FusedAdamW(optimiser, clip=0.0, copies={})
    value = 1 + 2**-7 / 4  # a quarter of the way from 1 to the next number
    seen = []
    for step in range(1, 4):
        weight.grad = torch.full((count,), value, device=DEVICE)
        weight.grad[:100] = torch.linspace(-8, 8, 100, device=DEVICE).bfloat16().float()
        exact = weight.grad.clone()
        update.step()
        moments = [optimiser.state[weight][name].float() for name in ("exp_avg", "exp_avg_sq")]
        assert torch.equal(moments[0][:100], exact[:100])
        bits = draw_bits(3, torch.tensor(float(step), device=DEVICE), 0, count)
        for moment, number, drawn in zip(moments, (exact, exact * exact), bits, strict=True):
            assert torch.equal(moment, round_stochastically(number, drawn).float())
        assert float(moments[0][100:].mean()) == pytest.approx(value, abs=5 * 2**-7 * 0.433 / count**0.5)
        seen.append(moments[0] > 1)
    for one, other in ((0, 1), (1, 2)):
        assert float((seen[one] == seen[other])[100:].float().mean()) == pytest.approx(0.625, abs=0.02)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_kernel_keeps_nan_and_infinity(value: float) -> None:
    weight = torch.zeros(64, device=DEVICE, requires_grad=True)
    groups = [{"params": [weight], "lr": torch.tensor(0.1, device=DEVICE)}]
    optimiser = Bfloat16AdamW(groups, betas=(0.9, 0.999), eps=1e-8)
    weight.grad = torch.full((64,), value, device=DEVICE)
    FusedAdamW(optimiser, clip=0.0, copies={}).step()
    expected = torch.full((64,), value)
    for name in ("exp_avg", "exp_avg_sq"):
        found = optimiser.state[weight][name].float().cpu()
        assert torch.equal(found.isnan(), expected.isnan()) and torch.equal(found.isinf(), expected.isinf())


@pytest.mark.skipif(DEVICE.type == "cpu", reason="graphs need a GPU")
def test_replayed_update_rounds_with_the_bits_of_its_step() -> None:
    """With betas of 0 the first moment is the gradient, rounded."""
    value = torch.full((40_000,), 1.003, device=DEVICE)
    weight = torch.zeros(40_000, device=DEVICE, requires_grad=True)
    weight.grad = value.clone()
    groups = [{"params": [weight], "lr": torch.zeros((), device=DEVICE)}]
    optimiser = Bfloat16AdamW(groups, betas=(0.0, 0.0), eps=1e-8, seed=3)
    update = FusedAdamW(optimiser, clip=0.0, copies={})
    update.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update.step()
    for step in (2.0, 3.0, 4.0):
        weight.grad.copy_(value)
        graph.replay()
        bits, _ = draw_bits(3, torch.tensor(step, device=DEVICE), 0, 40_000)
        assert torch.equal(optimiser.state[weight]["exp_avg"], round_stochastically(value, bits)), step


@pytest.mark.parametrize("states", ["float32", "bfloat16"])
def test_update_reads_gradients_in_bfloat16_where_they_were_written(states: str) -> None:
    """Beside others in float32: the same as from those gradients in float32; only the latter are cleared."""
    build = _build_optimiser if states == "float32" else _build_rounding
    (ours, fused), (theirs, other) = build(), build()
    updates = [FusedAdamW(optimiser, clip=1.0, copies={}) for optimiser in (fused, other)]
    for step in range(3):
        gradients = [_draw(*shape, seed=10 * step + place).bfloat16() for place, shape in enumerate(SIZES)]
        written = {p: gradient for p, gradient in zip(ours, gradients, strict=True) if p.ndim > 1}
        for one, two, gradient in zip(ours, theirs, gradients, strict=True):
            one.grad = None if one in written else gradient.float()
            two.grad = gradient.float()
        updates[0].step(written)
        updates[1].step()
        assert all(torch.equal(written[p], g) for p, g in zip(ours, gradients, strict=True) if p in written)
        assert not any(p.grad.any() for p in ours if p.grad is not None)
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-5)


def _count_calls(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, into: list[str]) -> None:
    function = getattr(module, name)

    def call(*arguments: Any, **named: Any) -> Any:
        into.append(name)
        return function(*arguments, **named)

    monkeypatch.setattr(module, name, call)


@pytest.mark.parametrize("only", [False, True])
def test_gradients_of_a_model_equal_autograd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, only: bool) -> None:
    """The kernels of normalisation and attention, and residuals whose gradients are added by matrix products."""
    model, stream = make_learner(tmp_path, count=2, encoder=tiny_encoder(width=32))
    model.to(DEVICE).eval()
    examples, objective = stream.examples, stream.objective
    plan = Batch(torch.arange(2).numpy(), 8)
    batch = {n: t.to(DEVICE) for n, t in model.prepare(objective.collate(examples, plan, size=2), DEVICE).items()}
    objective.sum_loss(model, batch).task.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    weights = Bf16Weights(model, torch.float32, fuse_norms=True, fuse_attention=True)
    used: list[str] = []
    for module, name in (
        (attention_kernels, "attend_backward"),
        (kernels, "normalise_backward"),
        (fused_linear, "get_ones"),
    ):
        _count_calls(monkeypatch, module, name, used)
    for _ in range(2):  # the second pass adds to the gradients of the first, or writes over them
        weights.backward(objective, batch, torch.ones(4, device=DEVICE), only=only)
    written = weights.written[objective.name] if only else {}
    times = Counter(used)
    layers = 2 * model.encoder.layers
    assert times == {"attend_backward": layers, "normalise_backward": 2 * layers, "get_ones": layers}, (
        "ones: for GELU's"
    )
    linear = [m.weight for m in model.encoder.get_layers().modules() if isinstance(m, torch.nn.Linear)]
    assert {id(p) for p in written} == ({id(p) for p in linear} if only else set())
    found = {n: written.get(p, p.grad) for n, p in model.named_parameters() if p in written or p.grad is not None}
    assert set(found) == set(expected)
    for name, parameter in model.named_parameters():
        if name in expected:
            total = expected[name] * (1 if parameter in written else 2)
            torch.testing.assert_close(found[name], total, atol=1e-3, rtol=1e-2, msg=lambda m, n=name: f"{n}: {m}")
    assert not any("forward" in vars(module) for module in model.modules()), "the model is as it was"
