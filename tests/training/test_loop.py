"""The training loop: what an update is, the order of a run, and going on after a stop."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.batching import Batch
from crossling.errors import UserError
from crossling.models.model import Model, build_model
from crossling.progress import NoProgress
from crossling.recipe.recipe import RunSettings
from crossling.training.checkpoint import Checkpoints, Position
from crossling.training.distributed import Distributed, setup_distributed
from crossling.training.loop import (
    Execution,
    delay_by_one,
    fit,
    learning_rate_at,
    predict_examples,
    step_seed,
    trim_padding,
)
from crossling.training.mixture import Mixture
from crossling.training.settings import TrainingSettings
from crossling.training.steps import PlainSteps, build_optimiser
from learner import make_learner
from tiny import tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
LAST_TWO = ("step-00000020", "step-00000021")
"""The checkpoints that a run of 21 steps leaves, where every step is saved."""


def _settings(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{"epochs": 2, "batch": 8, "lr": 1e-3, **changes})


def _weights(model: Model) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("clip", [0.0, 0.05, 100.0])
def test_step_follows_clipped_gradient_of_mean_loss(tmp_path: Path, clip: float) -> None:
    """One update against AdamW on the loss of all the batch's words written out. With an eps as large as this, the step
    grows with the gradient, so that clipping shows."""
    model, stream = make_learner(tmp_path, count=8, dropout=False)
    reference, _ = make_learner(tmp_path, count=8)
    settings = _settings(epochs=1, warmup=0.0, clip=clip, batch=8, eps=1.0, lr=0.5)
    before = _weights(model)
    fit(model, stream, settings, Execution(ONE, 1, tmp_path / "work"))
    optimiser = torch.optim.AdamW(reference.parameters(), lr=0.5, weight_decay=0.0, eps=1.0, foreach=False)
    objective = stream.objective
    arrays = objective.collate(stream.examples, Batch(np.arange(8), 64), size=8)
    loss = objective.sum_loss(reference.eval(), reference.prepare(arrays, ONE.device)).task
    loss = loss / objective.count_targets(arrays).task
    loss.backward()
    if clip:
        norm = torch.nn.utils.clip_grad_norm_(reference.parameters(), clip)
        assert 0.1 < norm < 100
    optimiser.step()
    torch.testing.assert_close(_weights(model) - before, _weights(reference) - before, atol=2e-6, rtol=1e-3)


def test_accumulated_batches_equal_one_large_batch(tmp_path: Path) -> None:
    """The mean is over all labels of the update, not a mean of means."""
    results = []
    for number, changes in enumerate(({"batch": 16}, {"batch": 4, "accumulate": 4})):
        model, stream = make_learner(tmp_path, count=16, dropout=False)
        fit(model, stream, _settings(epochs=1, warmup=0.0, **changes), Execution(ONE, 1, tmp_path / str(number)))
        results.append(_weights(model))
    assert torch.allclose(results[0], results[1], atol=1e-5)


def test_same_seed_gives_same_bits_and_another_seed_does_not(tmp_path: Path) -> None:
    finals = []
    for number, seed in enumerate((1, 1, 2)):
        model, stream = make_learner(tmp_path, count=50)
        fit(model, stream, _settings(), Execution(ONE, seed, tmp_path / str(number)))
        finals.append(_weights(model))
    assert torch.equal(finals[0], finals[1])
    assert not torch.equal(finals[0], finals[2])


def _run(folder: Path, *, trim: bool, average: bool, stop: int | None = None) -> tuple[Model, Position]:
    """Two epochs whose scores fall, with a checkpoint at every step; a stopped run continues."""
    model, stream = make_learner(folder, encoder=tiny_encoder("bert", layers=1), count=50, trim=trim)
    progress = NoProgress() if stop is None else _StopAfter(stop)
    scores = iter(range(100))
    execution = Execution(ONE, 3, folder / "work", checkpoint_seconds=0.0, progress=progress)
    evaluate = lambda: 1.0 / (1 + next(scores))  # noqa: E731
    return model, fit(model, stream, _settings(), execution, evaluate=evaluate, average=average)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Model, Position]]:
    """A run that nothing stopped, made once for each of its settings."""
    return cache(lambda **settings: _run(tmp_path_factory.mktemp("undisturbed"), **settings))


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("stop_at", [1, 5, 7, 8, 11])
@pytest.mark.parametrize("trim", [False, True])
def test_continued_run_ends_with_same_bits(
    tmp_path: Path, undisturbed: Callable[..., tuple[Model, Position]], stop_at: int, trim: bool, average: bool
) -> None:
    whole, expected = undisturbed(trim=trim, average=average)
    with pytest.raises(KeyboardInterrupt):
        _run(tmp_path, trim=trim, average=average, stop=stop_at)
    model, position = _run(tmp_path, trim=trim, average=average)
    assert torch.equal(_weights(model), _weights(whole))
    assert position.step == expected.step == 14
    assert position.best_step == (14 if average else 7)


@pytest.mark.parametrize(("seconds", "trim"), [(0.0, True), (1e9, False)])
def test_mean_of_epochs_is_the_mean_of_the_weights_after_each(tmp_path: Path, seconds: float, trim: bool) -> None:
    """Batch statistics and heads included; it is evaluated once, when it is in the model."""
    fusion = {"kind": "dlfa", "layer": 1}
    plain, stream = make_learner(tmp_path, count=50, trim=trim, fusion=fusion)
    seen: list[dict[str, torch.Tensor]] = []

    def keep(model: Model) -> float:
        seen.append({name: weight.clone() for name, weight in model.state_dict().items()})
        return 0.5

    fit(plain, stream, _settings(epochs=3), Execution(ONE, 1, tmp_path / "plain"), evaluate=lambda: keep(plain))
    *epochs, last = list(seen)
    by_hand = {name: torch.stack([one[name].double() for one in (*epochs, last)]).mean(0) for name in last}
    seen.clear()
    model, stream = make_learner(tmp_path, count=50, trim=trim, fusion=fusion)
    execution = Execution(ONE, 1, tmp_path / "work", checkpoint_seconds=seconds)
    position = fit(model, stream, _settings(epochs=3), execution, evaluate=lambda: keep(model), average=True)
    assert len(seen) == 1
    assert (position.best_step, position.best_score) == (position.step, 0.5)
    assert [entry["step"] for entry in position.history if "dev" in entry] == [21]
    assert any("running_var" in name for name in by_hand), "batch statistics are among the weights"
    for name, weight in model.state_dict().items():
        if weight.is_floating_point():
            torch.testing.assert_close(weight.double(), by_hand[name], atol=1e-7, rtol=1e-6, msg=name)
            assert torch.equal(weight, seen[0][name]), "what was evaluated"
        else:
            assert torch.equal(weight, last[name]), "counters are the last epoch's"
    names = {path.name for path in (tmp_path / "work").glob("*")}
    means = {"best-00000014.safetensors", "best-00000021.safetensors"}
    assert names == (set() if seconds else {*means, *LAST_TWO})


def test_half_written_checkpoints_are_ignored(tmp_path: Path) -> None:
    model, _ = make_learner(tmp_path, count=50)
    optimiser = build_optimiser(model, _settings(), ONE.device)
    checkpoints = Checkpoints(tmp_path / "work")
    checkpoints.save(model, optimiser, Position(step=3))
    half = tmp_path / "work" / "step-00000009"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    assert checkpoints.restore(model, optimiser).step == 3


def _train_three_epochs(folder: Path, *, average: bool, stop: int | None = None) -> Model:
    """With a checkpoint at every step; the second epoch is the best."""
    model, stream = make_learner(folder, encoder=tiny_encoder("bert", layers=1), count=50)
    scores = {7: 0.5, 14: 0.9, 21: 0.7}
    execution = Execution(ONE, 1, folder / "work", checkpoint_seconds=0.0)
    reported = [0]
    execution.track = lambda values, step: reported.append(step)
    if stop is not None:
        execution.progress = _StopAfter(stop)
    evaluate = None if average else lambda: scores[reported[-1]]
    fit(model, stream, _settings(epochs=3), execution, evaluate=evaluate, average=average)
    return model


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bool], tuple[torch.Tensor, Path]]:
    """The weights that a run ends with, and the folder of the same run, interrupted; made once, with an average and
    without."""

    @cache
    def get(average: bool) -> tuple[torch.Tensor, Path]:
        whole, cut = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("cut")
        with pytest.raises(KeyboardInterrupt):
            _train_three_epochs(cut, average=average, stop=17)
        return _weights(_train_three_epochs(whole, average=average)), cut

    return get


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("name", ["model.safetensors", "optimiser.safetensors", "position.json", "complete", "best"])
def test_damaged_checkpoint_costs_a_few_steps_and_changes_nothing(
    tmp_path: Path,
    interrupted: Callable[[bool], tuple[torch.Tensor, Path]],
    name: str,
    average: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One bit of a file of the newest checkpoint is wrong: training continues from the one before."""
    expected, cut = interrupted(average)
    folder = shutil.copytree(cut, tmp_path / "hurt")
    newest = max((folder / "work").glob("step-*"))
    path = max((folder / "work").glob("best-*")) if name == "best" else newest / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    assert torch.equal(_weights(_train_three_epochs(folder, average=average)), expected)
    assert "damaged" in caplog.text


class _StopAfter(NoProgress):
    """Progress that is interrupted once this number of steps is done."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self, steps: int = 1, **facts: str) -> None:
        self.left -= steps
        if self.left <= 0:
            raise KeyboardInterrupt


def test_full_disk_loses_the_checkpoint_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("crossling.training.checkpoint.save_file", fail)
    model, stream = make_learner(tmp_path, count=50)
    execution = Execution(ONE, 1, tmp_path / "work", checkpoint_seconds=0.0)
    scores = iter((0.5, 0.4))
    position = fit(model, stream, _settings(), execution, evaluate=lambda: next(scores))
    assert (position.step, position.best_step) == (14, 7)
    assert "the disk is full" in caplog.text and "training continues" in caplog.text
    assert not list((tmp_path / "work").glob("step-*"))


@pytest.mark.parametrize("seconds", [0.0, 1e9])
def test_best_epoch_is_kept(tmp_path: Path, seconds: float) -> None:
    """Whether checkpoints are written all the time or never: then nothing at all goes to disk."""
    model, stream = make_learner(tmp_path, count=50)
    seen: list[torch.Tensor] = []
    scores = iter((0.5, 0.9, 0.7))

    def evaluate() -> float:
        seen.append(_weights(model).clone())
        return next(scores)

    execution = Execution(ONE, 1, tmp_path / "work", checkpoint_seconds=seconds)
    position = fit(model, stream, _settings(epochs=3), execution, evaluate=evaluate)
    assert (position.best_score, position.best_step) == (0.9, 14)
    names = {path.name for path in (tmp_path / "work").glob("*")}
    assert names == (set() if seconds else {"best-00000014.safetensors", *LAST_TWO})
    assert torch.equal(_weights(model), seen[1])
    assert not torch.equal(seen[1], seen[2])


def test_batch_on_cpu_is_as_long_as_its_longest_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, stream = make_learner(tmp_path, count=50)
    lengths, seen = stream.examples.lengths, []
    collate = type(stream.objective).collate

    def watch(self: Any, examples: Any, plan: Batch, *, size: int) -> Any:
        seen.append(plan.length == lengths[plan.rows].max())
        return collate(self, examples, plan, size=size)

    monkeypatch.setattr(type(stream.objective), "collate", watch)
    fit(model, stream, _settings(), Execution(ONE, 1, tmp_path / "work"))
    padded = Batch(np.arange(5), 64)
    list(
        predict_examples(
            model, stream.objective, stream.examples, distributed=ONE, plan=[padded], progress=NoProgress()
        )
    )
    assert len(seen) == 15 and all(seen)
    assert trim_padding(padded, stream.examples, torch.device("cuda")) is padded
    assert trim_padding(Batch(np.arange(0), 64), stream.examples, ONE.device).length == 64


def test_trimmed_training_equals_whole_training(tmp_path: Path) -> None:
    rows = {}
    for trim in (False, True):
        model, stream = make_learner(tmp_path, family="xlm-r", count=50, trim=trim)
        fit(model, stream, _settings(), Execution(ONE, 1, tmp_path / str(trim)))
        table = model.encoder.model.get_input_embeddings().weight.detach()
        rows[trim] = table if model.trimmed is None else (table, model.trimmed.rows)
    whole, (trained, kept) = rows[False], rows[True]
    assert len(kept) < len(whole)
    assert torch.allclose(whole[torch.from_numpy(kept)], trained, atol=1e-5)


def test_loss_that_is_not_a_number_raises(tmp_path: Path) -> None:
    model, stream = make_learner(tmp_path, count=50)
    with torch.no_grad():
        model.heads["main"].linear.bias.fill_(float("nan"))
    with pytest.raises(UserError, match="not a number at step"):
        fit(model, stream, _settings(), Execution(ONE, 1, tmp_path / "work"))


def test_gradient_checkpointing_changes_no_result(tmp_path: Path) -> None:
    finals = []
    for flag in (False, True):
        model, stream = make_learner(tmp_path, count=50)
        fit(model, stream, _settings(gradient_checkpointing=flag), Execution(ONE, 1, tmp_path / str(flag)))
        finals.append(_weights(model))
    assert torch.allclose(finals[0], finals[1], atol=1e-6)


def test_learning_rate_warms_up_and_decays_linearly() -> None:
    settings = _settings(lr=1.0, warmup=0.1)
    rates = [learning_rate_at(step, 100, settings) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 11)
    assert max(rates) == rates[10] == 1.0
    assert all(a < b for a, b in zip(rates[:10], rates[1:11], strict=True))
    assert all(a > b for a, b in zip(rates[10:], rates[11:], strict=False))
    assert rates[-1] == pytest.approx(1 / 90)
    constant = _settings(lr=1.0, warmup=0.1, schedule="constant")
    assert {learning_rate_at(step, 100, constant) for step in range(10, 100)} == {1.0}


def test_weight_decay_skips_biases_and_normalisation(tmp_path: Path) -> None:
    model, _ = make_learner(tmp_path, count=50)
    groups = build_optimiser(model, _settings(weight_decay=0.1), ONE.device).param_groups
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    for group in groups:
        assert {p.ndim > 1 for p in group["params"]} == {group["weight_decay"] == 0.1}


def test_fusion_uses_its_own_learning_rate() -> None:
    model = build_model(tiny_encoder("bert"), {"kind": "dlfa", "layer": 1, "lr": 3e-3})
    optimiser = build_optimiser(model, _settings(lr=1e-3), ONE.device)
    PlainSteps(model, optimiser, _settings(lr=1e-3), ONE).set_rate(5e-4)
    own = {id(p) for p in model.fusion.parameters()}
    rates = {group["lr"] for group in optimiser.param_groups if any(id(p) in own for p in group["params"])}
    others = {group["lr"] for group in optimiser.param_groups if not any(id(p) in own for p in group["params"])}
    assert [pytest.approx(1.5e-3)] * len(rates) == sorted(rates)
    assert others == {5e-4}


def test_steps_are_counted_as_planned(tmp_path: Path) -> None:
    _, stream = make_learner(tmp_path, count=50)
    for batch, accumulate in ((8, 1), (8, 3), (64, 1), (7, 2)):
        settings = _settings(batch=batch, accumulate=accumulate)
        mixture = Mixture(stream)
        assert len(mixture.plan_steps(settings, seed=1, epoch=0)) == mixture.count_steps(settings)


def test_every_step_has_its_own_seed() -> None:
    seeds = {step_seed(s, step, rank) for s in (1, 2) for step in range(500) for rank in range(4)}
    assert len(seeds) == 2 * 500 * 4


def test_delay_by_one_gives_items_one_behind() -> None:
    made: list[int] = []
    seen = [(item, len(made)) for item in delay_by_one(made.append(n) or n for n in range(3))]  # type: ignore[func-returns-value]
    assert seen == [(0, 2), (1, 3), (2, 3)]
    assert list(delay_by_one([])) == []


@pytest.mark.parametrize("product", ["avx512_bf16", "amx_bf16"])
def test_cpu_computes_in_bfloat16_only_when_asked_and_able(monkeypatch: pytest.MonkeyPatch, product: str) -> None:
    asked = RunSettings(device="cpu", precision="bfloat16")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, product: False})
    with pytest.raises(UserError, match="this CPU has no matrix products in bfloat16.*Leave it at 'auto'"):
        setup_distributed(asked)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_f": True, product: True})
    assert setup_distributed(asked).precision == torch.bfloat16
    assert setup_distributed(RunSettings(device="cpu")).precision == torch.float32


def test_freed_memory_is_kept_if_the_c_library_supports_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: asked.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    setup_distributed(RunSettings(device="cpu"))
    assert dict(asked) == {-3: 32 << 20, -1: 1 << 30}
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    setup_distributed(RunSettings(device="cpu"))
    assert len(asked) == 2, "without such a setting nothing happens"
