"""Passes in reduced precision: the gradients of the whole weights, to the precision that there is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from crossling.data.batching import plan_epoch
from crossling.models.model import Model, to_device
from crossling.training.distributed import Distributed
from crossling.training.fast.bf16_weights import Bf16Weights
from crossling.training.loop import Execution, Stream, fit
from crossling.training.settings import TrainingSettings
from crossling.training.steps import PlainSteps, build_optimiser
from learner import make_learner

WHOLE = Distributed(0, 1, torch.device("cpu"), torch.float32)
REDUCED = Distributed(0, 1, torch.device("cpu"), torch.bfloat16)


def _gradients(model: Model, stream: Stream, distributed: Distributed) -> dict[str, torch.Tensor]:
    settings = TrainingSettings(batch=8)
    model.to(distributed.device).eval()
    steps = PlainSteps(model, build_optimiser(model, settings, distributed.device), settings, distributed)
    plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
    arrays = stream.objective.collate(stream.examples, plan, size=8)
    batch = to_device(model.prepare(arrays, distributed.device), distributed.device)
    count = stream.objective.count_targets(arrays).task
    weights = torch.tensor([1.0 / count, 0.0, 0.0, 0.0], device=distributed.device)
    steps.backward(stream.objective, batch, weights)
    return {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", ["bert", "xlm-r", "distilbert", "modernbert"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_bf16_gradients_are_close_to_float32(tmp_path: Path, family: str, device: str) -> None:
    whole = _gradients(*make_learner(tmp_path, family=family), WHOLE)
    there = replace(REDUCED, device=torch.device(device))
    reduced = _gradients(*make_learner(tmp_path, family=family), there)
    assert set(whole) == set(reduced)
    flat, other = (torch.cat([g[name].flatten() for name in sorted(whole)]) for g in (whole, reduced))
    assert other.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(flat, other, dim=0) > 0.995
    assert float(other.norm() / flat.norm()) == pytest.approx(1.0, abs=0.05)


def test_gradients_of_several_batches_add_up(tmp_path: Path) -> None:
    model, stream = make_learner(tmp_path)
    weights = Bf16Weights(model.eval(), torch.bfloat16)
    plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
    batch = model.prepare(stream.objective.collate(stream.examples, plan, size=8), REDUCED.device)
    sums = []
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            weights.backward(stream.objective, batch, torch.ones(4))
        sums.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert sums[0].any()
    torch.testing.assert_close(sums[1], 2 * sums[0])


def test_copies_are_refreshed_and_frozen_weights_stay(tmp_path: Path) -> None:
    model, stream = make_learner(tmp_path, fusion={"kind": "dlfa", "layer": 1})
    frozen = next(model.encoder.parameters())
    frozen.requires_grad_(False)
    before = frozen.clone()
    settings = TrainingSettings(batch=8, lr=1e-2)
    steps = PlainSteps(model.train(), build_optimiser(model, settings, REDUCED.device), settings, REDUCED)
    plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
    batch = model.prepare(stream.objective.collate(stream.examples, plan, size=8), REDUCED.device)
    start = {name: p.clone() for name, p in model.named_parameters()}
    steps.update([(stream.objective, batch)], weights={"main": (1.0, 0.0, 0.0, 0.0)}, rate=1e-2)
    assert torch.equal(frozen, before)
    moved = [name for name, p in model.named_parameters() if not torch.equal(p, start[name])]
    assert any(name.startswith("encoder.") for name in moved) and any(name.startswith("fusion.") for name in moved)
    copies = steps.bf16_weights()._copies
    for name, parameter in model.named_parameters():
        if name.startswith("encoder."):
            assert torch.equal(copies[name], parameter.to(torch.bfloat16)), name


def test_training_in_bf16_learns_like_float32(tmp_path: Path) -> None:
    """After the same few epochs both precisions have brought the loss to about the same place."""
    ends = []
    for number, distributed in enumerate((WHOLE, REDUCED)):
        model, stream = make_learner(tmp_path)
        settings = TrainingSettings(epochs=6, batch=8, lr=2e-3)
        position = fit(model, stream, settings, Execution(distributed, 1, tmp_path / str(number)))
        losses = [entry["loss"] for entry in position.history]
        assert losses[-1] < 0.9 * losses[0]
        ends.append(losses[-1])
    assert ends[1] == pytest.approx(ends[0], rel=0.15)
