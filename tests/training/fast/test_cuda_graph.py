"""Captured steps against plain ones: the same losses, whatever is trained."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from packaging.version import Version

from crossling.inference.evaluate import predict_rows
from crossling.models.model import build_model, update_mean
from crossling.registry import list_kinds, load_kind
from crossling.tasks import build_task
from crossling.training.checkpoint import Checkpoints
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit, step_seed
from crossling.training.settings import TrainingSettings
from crossling.training.steps import PlainSteps
from examples import make_rows
from learner import make_learner
from tiny import tiny_encoder
from tiny_families import CASES, make_family

pytestmark = pytest.mark.gpu
STEPS = 50
LEARNER: dict[str, Any] = {"count": 8 * STEPS // 2, "dropout": False}


def _distributed(precision: torch.dtype = torch.float32) -> Distributed:
    return Distributed(0, 1, torch.device("cuda"), precision)


def _settings(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{"epochs": 2, "batch": 8, "lr": 1e-3, **changes})


def _losses(
    folder: Path,
    *,
    capture: bool,
    distributed: Distributed,
    seed: int = 1,
    settings: dict[str, Any] | None = None,
    **what: Any,
) -> torch.Tensor:
    """The loss of every step, as the tracker gets it every ten."""
    model, stream = make_learner(folder, **{**LEARNER, **what})
    heard: list[float] = []
    execution = Execution(
        distributed,
        seed,
        folder / f"work-{capture}-{seed}-{(settings or {}).get('kernels')}",
        capture=capture,
        track=lambda values, step: heard.append(values["loss"]),
    )
    fit(model, stream, _settings(**settings or {}), execution)
    weights = torch.cat([p.detach().flatten().float().cpu() for p in model.parameters()])
    return torch.cat([torch.tensor(heard), weights.norm().reshape(1)])


@pytest.mark.parametrize("kind", list_kinds("tasks"))
def test_captured_losses_equal_plain_losses(tmp_path: Path, kind: str) -> None:
    plain = _losses(tmp_path, capture=False, distributed=_distributed(), kind=kind)
    captured = _losses(tmp_path, capture=True, distributed=_distributed(), kind=kind)
    assert len(plain) >= STEPS // 10
    torch.testing.assert_close(captured, plain, rtol=1e-4, atol=0)


@pytest.mark.parametrize("fusion", [{"kind": "dlfa", "layer": 1}, {"kind": "scalar_mix"}, {"kind": "mean", "layer": 1}])
def test_fusions_are_captured_with_their_statistics(tmp_path: Path, fusion: dict[str, Any]) -> None:
    plain = _losses(tmp_path, capture=False, distributed=_distributed(), fusion=fusion)
    captured = _losses(tmp_path, capture=True, distributed=_distributed(), fusion=fusion)
    torch.testing.assert_close(captured, plain, rtol=1e-4, atol=0)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_accumulated_batches_of_one_shape_replay_one_graph(tmp_path: Path, precision: torch.dtype) -> None:
    how: dict[str, Any] = {"distributed": _distributed(precision), "settings": {"accumulate": 3}}
    plain = _losses(tmp_path, capture=False, **how)
    captured = _losses(tmp_path, capture=True, **how)
    torch.testing.assert_close(captured, plain, rtol=1e-4 if precision == torch.float32 else 0.02, atol=0)


LORA = {"rank": 4, "targets": "all"}


@pytest.mark.parametrize(
    "settings",
    [
        {"lora": LORA},
        {"lora": LORA | {"embeddings": True}},
        {"lora": LORA, "freeze": 1},
        {"freeze": 1},
        {"freeze": "embeddings"},
        {"optimizer_states": "8bit"},
        {"optimizer_states": "8bit", "lora": LORA},
        {"optimizer_states": "8bit", "weight_decay": 0.01},
        {"optimizer_states": "bfloat16", "weight_decay": 0.01},
    ],
    ids=str,
)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_trained_parts_and_rounded_moments_are_captured(
    tmp_path: Path, precision: torch.dtype, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"distributed": _distributed(precision), "settings": settings}
    plain = _losses(tmp_path, capture=False, **how)
    captured = _losses(tmp_path, capture=True, **how)
    assert "without CUDA graphs" not in caplog.text
    # A difference in the last bit can move a moment to the next of its values.
    exact = precision == torch.float32 and "optimizer_states" not in settings
    torch.testing.assert_close(captured, plain, rtol=1e-4 if exact else 0.02, atol=0)


@pytest.mark.parametrize("label", CASES)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_every_family_has_the_same_losses_in_captured_steps(
    tmp_path: Path, label: str, precision: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"distributed": _distributed(precision), "count": 40}
    plain = _losses(tmp_path, capture=False, encoder=make_family(label), **how)
    captured = _losses(tmp_path, capture=True, encoder=make_family(label), **how)
    assert torch.isfinite(captured).all()
    torch.testing.assert_close(captured, plain, rtol=1e-3 if precision == torch.float32 else 0.05, atol=0)
    if label != "mpnet" or Version(transformers.__version__) >= Version("5.22"):  # it made positions in main memory
        assert "without CUDA graphs" not in caplog.text


@pytest.mark.parametrize("label", ["bert", "deberta-v2", "t5", "gemma3_text"])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_recomputed_layers_are_captured_with_the_same_losses(
    tmp_path: Path, label: str, precision: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    how: dict[str, Any] = {"distributed": _distributed(precision), "count": 80, "settings": {"accumulate": 2}}
    plain = _losses(tmp_path, capture=False, encoder=make_family(label), **how)
    how["settings"]["gradient_checkpointing"] = True
    recomputed = _losses(tmp_path, capture=True, encoder=make_family(label), **how)
    assert "without CUDA graphs" not in caplog.text
    torch.testing.assert_close(recomputed, plain, rtol=1e-3 if precision == torch.float32 else 0.05, atol=0)


def test_recomputed_layers_have_the_dropout_masks_of_their_forward_pass(tmp_path: Path) -> None:
    """Gradients of launched and of replayed passes equal those of layers that keep what they compute, whose masks are
    drawn from the same random states."""
    from crossling.data.batching import plan_epoch
    from crossling.training.fast.cuda_graph import CapturedSteps
    from crossling.training.fast.recomputed_random import RecomputedRandom
    from crossling.training.steps import build_optimiser

    def compute(kind: type[PlainSteps], settings: TrainingSettings, seeds: list[int]) -> list[torch.Tensor]:
        model, stream = make_learner(tmp_path, count=40, dropout=True)
        model.to("cuda").train()
        steps = kind(model, build_optimiser(model, settings, torch.device("cuda")), settings, _distributed())
        if not settings.gradient_checkpointing:
            random = RecomputedRandom(torch.device("cuda"))
            steps.begin_pass = random.begin  # type: ignore[method-assign]
            for layer in model.encoder.get_layers():
                layer.forward = partial(_run_in, random, layer.forward)
        plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
        batch = model.prepare(stream.objective.collate(stream.examples, plan, size=8), torch.device("cuda"))
        found = []
        for seed in seeds:
            torch.manual_seed(seed)
            before = [p.detach().clone() for p in model.parameters()]
            steps.update([(stream.objective, batch)] * 2, weights={"main": (1.0, 0.0, 0.0, 0.0)}, rate=1e-2)
            found.append(torch.cat([(p - q).flatten() for p, q in zip(model.parameters(), before, strict=True)]))
            with torch.no_grad():
                for parameter, saved in zip(model.parameters(), before, strict=True):
                    parameter.copy_(saved)
            for state in steps.optimiser.state.values():
                for value in state.values():
                    value.zero_()
        assert getattr(steps, "can_capture", True)
        return found

    kept = compute(PlainSteps, _settings(clip=0), [1, 2, 3, 2])
    recomputed = compute(CapturedSteps, _settings(clip=0, gradient_checkpointing=True), [1, 2, 3, 2])
    for one, other in zip(recomputed, kept, strict=True):
        # A first update of AdamW is about the sign of the gradient: it differs where that is almost 0.
        assert (one - other).abs().mean() < 0.01 * other.abs().mean()
    assert (recomputed[1] - recomputed[3]).abs().mean() < 0.01 * recomputed[1].abs().mean()
    assert (kept[0] - kept[1]).abs().mean() > 0.1 * kept[0].abs().mean()


def _run_in(random: Any, forward: Any, *inputs: Any, **named: Any) -> Any:
    with random.contexts()[0]:
        return forward(*inputs, **named)


@pytest.mark.parametrize("states", ["float32", "bfloat16", "8bit"])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (8, 9, 8, 8, 8)], ids=["passes captured", "only the end captured"])
def test_a_head_that_is_reached_later_starts_without_updates(
    tmp_path: Path, states: str, sizes: tuple[int, ...]
) -> None:
    """Captured before: a pass and the end of a step, or, after batches of two sizes, only the latter. A step does not
    count for the head that it does not reach."""
    from crossling.data.batching import plan_epoch
    from crossling.objectives import label_words
    from crossling.training.fast.cuda_graph import CapturedSteps
    from crossling.training.steps import build_optimiser

    model, stream = make_learner(tmp_path, **LEARNER)
    classes = model.heads["main"].linear.out_features
    later = label_words.Objective("later", classes=classes)
    model.heads["later"] = later.build_head(model.encoder.width)
    distributed, settings = _distributed(), _settings(optimizer_states=states)
    model.to(distributed.device).train()
    steps = CapturedSteps(model, build_optimiser(model, settings, distributed.device), settings, distributed)
    plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
    for number, size in enumerate(sizes):
        objective = later if number == 2 else stream.objective
        batch = model.prepare(objective.collate(stream.examples, plan, size=size), distributed.device)
        steps.update([(objective, batch)], weights={objective.name: (1.0, 0.0, 0.0, 0.0)}, rate=1e-3)
        assert steps.can_capture, number
    made = {name: steps.optimiser.state[model.heads[name].linear.weight] for name in ("main", "later")}
    assert {name: float(state["step"]) for name, state in made.items()} == {
        "main": float(len(sizes) - 1),
        "later": 1.0,
    }


def test_moments_in_8_bits_have_the_same_codes_on_both_devices() -> None:
    from crossling.training.eight_bit import dequantise, quantise

    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    codes, scales = quantise(values, signed=True)
    there, scales_there = quantise(values.cuda(), signed=True)
    assert torch.equal(there.cpu(), codes) and torch.equal(scales_there.cpu(), scales)
    assert torch.equal(dequantise(there, scales_there, signed=True).cpu(), dequantise(codes, scales, signed=True))


def test_dropout_stays_random_and_unbiased(tmp_path: Path) -> None:
    """With dropout and bfloat16 the mean loss over five seeds lies within two standard errors of the plain loop's."""
    distributed = _distributed(torch.bfloat16)
    runs = {
        capture: torch.stack(
            [
                _losses(tmp_path, capture=capture, distributed=distributed, seed=seed, dropout=True)[:-1]
                for seed in range(5)
            ]
        ).mean(1)
        for capture in (False, True)
    }
    error = torch.sqrt(sum(r.var() / len(r) for r in runs.values()))
    assert (runs[True].mean() - runs[False].mean()).abs() <= 2 * error
    assert runs[True].std() > 0


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_fused_kernels_give_the_losses_of_torch(
    tmp_path: Path,
    precision: torch.dtype,
    accumulate: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Passes are fused where they read copies of the weights: in float32 in this test alone."""
    if precision == torch.float32:
        monkeypatch.setattr(PlainSteps, "backward", lambda self, *inputs: self.bf16_weights().backward(*inputs))
    attention_kernels = pytest.importorskip("crossling.training.fast.attention_kernels")
    used: list[tuple[int, ...]] = []
    attend = attention_kernels.attend
    monkeypatch.setattr(attention_kernels, "attend", lambda *a, **b: (used.append(a[0].shape), attend(*a, **b))[1])
    how: dict[str, Any] = {"capture": True, "distributed": _distributed(precision), "encoder": tiny_encoder(width=32)}
    plain = _losses(tmp_path, **how, settings={"accumulate": accumulate})
    assert not used
    for kernels in ("normalisation", "optimiser", "fused"):
        settings = {"accumulate": accumulate, "kernels": kernels}
        fused = _losses(tmp_path, **how | {"encoder": tiny_encoder(width=32)}, settings=settings)
        assert bool(used) == (kernels == "fused")
        torch.testing.assert_close(fused, plain, rtol=1e-4 if precision == torch.float32 else 0.02, atol=0)
    assert "without CUDA graphs" not in caplog.text and "torch's own" not in caplog.text


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_fused_kernels_round_moments_as_torch_does(
    tmp_path: Path, precision: torch.dtype, caplog: pytest.LogCaptureFixture
) -> None:
    """Losses of both, which draw the same bits."""
    how: dict[str, Any] = {"capture": True, "distributed": _distributed(precision)}
    settings = {"optimizer_states": "bfloat16", "weight_decay": 0.01}
    plain = _losses(tmp_path, **how, settings=settings)
    fused = _losses(tmp_path, **how, settings={**settings, "kernels": "optimiser"})
    torch.testing.assert_close(fused, plain, rtol=5e-3 if precision == torch.float32 else 0.02, atol=0)
    assert "without CUDA graphs" not in caplog.text and "torch's own" not in caplog.text


def test_dropout_of_fused_kernels_is_unbiased(tmp_path: Path) -> None:
    """The mean loss over five seeds lies within two standard errors of that of torch's kernels."""
    how: dict[str, Any] = {"capture": True, "distributed": _distributed(torch.bfloat16), "dropout": True}
    runs = []
    for kernels in ("torch", "fused"):
        losses = [_losses(tmp_path, seed=seed, settings={"kernels": kernels}, **how)[:-1] for seed in range(5)]
        runs.append(torch.stack(losses).mean(1))
    error = torch.sqrt(sum(run.var() / len(run) for run in runs))
    assert (runs[1].mean() - runs[0].mean()).abs() <= 2 * error and runs[1].std() > 0


def test_replayed_kernel_draws_the_mask_of_its_step() -> None:
    pytest.importorskip("triton")
    from crossling.training.fast.kernels import normalise

    z, residual = torch.randn(33, 768, device="cuda"), torch.zeros(33, 768, device="cuda")
    gamma, beta = torch.ones(768, device="cuda"), torch.zeros(768, device="cuda")

    def work() -> torch.Tensor:
        seed = torch.empty(1, dtype=torch.int64, device="cuda").random_()
        return normalise(z, residual, gamma, beta, seed, rate=0.1, eps=1e-5)[0]

    work()
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        output = work()
    seen = []
    for step in (1, 2, 1):
        torch.manual_seed(step_seed(1, step, 0))
        graph.replay()
        seen.append(output.clone())
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])


def test_capturing_changes_no_state(tmp_path: Path) -> None:
    """After a capture weights, gradients, the optimiser and the batch statistics are as before it."""
    from crossling.data.batching import plan_epoch
    from crossling.training.fast.cuda_graph import CapturedSteps
    from crossling.training.steps import build_optimiser

    model, stream = make_learner(tmp_path, **LEARNER, fusion={"kind": "dlfa", "layer": 1})
    distributed = _distributed()
    model.to(distributed.device).train()
    settings = _settings()
    steps = CapturedSteps(model, build_optimiser(model, settings, distributed.device), settings, distributed)
    plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
    batch = model.prepare(stream.objective.collate(stream.examples, plan, size=8), distributed.device)
    steps.update([(stream.objective, batch)], weights={stream.objective.name: (1.0, 0.0, 0.0, 0.0)}, rate=1e-3)
    assert not steps.passes and not steps.finishes, "what runs once is not captured"
    held = [*model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]
    held += [value for state in steps.optimiser.state.values() for value in state.values()]
    before, random_state = [value.clone() for value in held], torch.cuda.get_rng_state()
    captured = (
        steps._capture_pass(stream.objective, batch),
        steps._capture_finish((frozenset((stream.objective.name,)), False)),
    )
    assert all(captured) and all(torch.equal(value, saved) for value, saved in zip(held, before, strict=True))
    assert torch.equal(torch.cuda.get_rng_state(), random_state)


def test_continued_captured_run_ends_with_same_weights(tmp_path: Path) -> None:
    """Continued from a checkpoint, a captured run ends where an undisturbed one does."""
    finals = []
    for name, stop in (("whole", None), ("stopped", 13)):
        model, stream = make_learner(tmp_path, **LEARNER)
        settings = _settings()
        if stop:
            heard = 0

            def track(values: dict[str, float], step: int) -> None:
                nonlocal heard
                heard = step
                if step >= 20:
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                fit(
                    model,
                    stream,
                    settings,
                    Execution(_distributed(), 1, tmp_path / name, checkpoint_seconds=0, track=track),
                )
            assert heard == 20 and Checkpoints(tmp_path / name).folder.exists()
            model, stream = make_learner(tmp_path, **LEARNER)
        fit(model, stream, settings, Execution(_distributed(), 1, tmp_path / name))
        finals.append(torch.cat([p.detach().flatten().cpu() for p in model.parameters()]))
    torch.testing.assert_close(finals[1], finals[0], rtol=1e-4, atol=1e-6)


def test_steps_with_dropout_are_plain_after_a_capture_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading a number cannot be captured; the generator then draws outside of graphs again."""
    from crossling.training.fast.cuda_graph import CapturedSteps
    from crossling.training.steps import PlainSteps

    def read(steps: PlainSteps, *arguments: Any) -> torch.Tensor:
        terms = PlainSteps.backward(steps, *arguments)
        assert terms.sum().item() > 0
        return terms

    monkeypatch.setattr(CapturedSteps, "backward", read)
    assert torch.isfinite(_losses(tmp_path, capture=True, distributed=_distributed(), dropout=True)).all()
    assert "without CUDA graphs" in caplog.text


def test_replayed_graph_uses_the_seed_of_its_step() -> None:
    """Randomness inside a graph follows the seed set before its replay."""
    torch.cuda.manual_seed(0)
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.graph(graph, stream=stream):
        drawn = torch.rand(8, device="cuda")
    seen = []
    for step in (1, 2, 1):
        torch.manual_seed(step_seed(1, step, 0))
        graph.replay()
        seen.append(drawn.clone())
    assert torch.equal(seen[0], seen[2]) and not torch.equal(seen[0], seen[1])


@pytest.mark.parametrize("kind", list_kinds("tasks"))
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_predictions_on_gpu_equal_those_on_cpu(tmp_path: Path, kind: str, precision: torch.dtype) -> None:
    module = load_kind("tasks", kind)
    rows = make_rows(module.Task.record, 30)
    task = build_task(module.Settings(), module.Task.collect_labels([rows]))
    torch.manual_seed(0)
    model = build_model(tiny_encoder("bert"), {"kind": "dlfa", "layer": 1})
    model.heads["main"] = task.build_objective("main").build_head(model.encoder.width)
    here = Distributed(0, 1, torch.device("cpu"), torch.float32)
    found = [
        predict_rows(model.to(distributed.device), task, rows, head="main", distributed=distributed, cache=tmp_path)
        for distributed in (here, _distributed(precision))
    ]
    assert len(found[0].table) == len(found[1].table) > 0
    difference = np.abs(found[0].column("confidence") - found[1].column("confidence"))
    assert difference.max() < (1e-4 if precision == torch.float32 else 0.05)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_mean_of_epochs_is_that_of_captured_steps(
    tmp_path: Path, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model's own weights after each epoch are read, outside of graphs, and their mean is put into the model."""
    model, stream = make_learner(tmp_path, fusion={"kind": "dlfa", "layer": 1}, **LEARNER)
    seen: list[dict[str, torch.Tensor]] = []

    def keep(*arguments: Any) -> Any:
        seen.append({name: weight.double().cpu() for name, weight in model.state_dict().items()})
        return update_mean(*arguments)

    monkeypatch.setattr("crossling.training.loop.update_mean", keep)
    execution = Execution(_distributed(precision), 1, tmp_path / "work")
    fit(model, stream, _settings(epochs=3), execution, average=True)
    assert len(seen) == 3 and not torch.equal(seen[0]["heads.main.linear.weight"], seen[1]["heads.main.linear.weight"])
    for name, weight in model.state_dict().items():
        if weight.is_floating_point():
            by_hand = torch.stack([one[name] for one in seen]).mean(0)
            torch.testing.assert_close(weight.double().cpu(), by_hand, atol=1e-7, rtol=1e-6, msg=name)
