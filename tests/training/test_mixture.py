"""Steps of several streams: how many, in what order, and the same after a stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from crossling.data.batching import Examples, write_examples
from crossling.models.model import Model, build_model
from crossling.objectives.label_texts import Objective
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit
from crossling.training.mixture import AuxiliaryStream, Mixture, ReplayStream, Stream, share_steps
from crossling.training.settings import TrainingSettings
from crossling.training.steps import PlainSteps, build_optimiser
from tiny import tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)


def _examples(path: Path, count: int, *, start: int = 0) -> Examples:
    generator = np.random.default_rng(start)
    ids = [generator.integers(5, 40, n).astype(np.int32) for n in generator.integers(4, 30, count)]
    return write_examples(path, [{"ids": ids, "gold": (np.arange(count) % 2).astype(np.int32)}])


def _streams(folder: Path, *counts: int) -> list[Stream]:
    return [
        Stream(Objective(f"task{i}", classes=2), _examples(folder / f"{i}.arrow", count, start=i))
        for i, count in enumerate(counts)
    ]


def _model(streams: list[Stream]) -> Model:
    torch.manual_seed(0)
    model = build_model(tiny_encoder("bert"), {"kind": "last"})
    for stream in streams:
        model.heads[stream.objective.name] = stream.objective.build_head(model.encoder.width)
    return model


def test_epoch_has_every_main_example_once_with_auxiliary_steps_mixed_in(tmp_path: Path) -> None:
    main, other = _streams(tmp_path, 50, 100)
    mixture = Mixture(main, (AuxiliaryStream(other, share_steps(100, 50, 1.0)),))
    settings = TrainingSettings(batch=8)
    steps = mixture.plan_steps(settings, seed=1, epoch=0)
    owners = [turns[0].stream for turns in steps]
    assert len(steps) == mixture.count_steps(settings) == 7 + 14
    assert sum(owner is main for owner in owners) == 7
    seen = np.sort(np.concatenate([t.batch.rows for turns in steps for t in turns if t.stream is main]))
    assert np.array_equal(seen, np.arange(50))
    first = owners.index(other)
    assert main in owners[first:], "auxiliary steps stand among the main ones, not after them"


def test_auxiliary_stream_continues_across_epochs(tmp_path: Path) -> None:
    """Over two epochs of the main task, a set twice as long is seen once, whole."""
    main, other = _streams(tmp_path, 32, 64)
    mixture = Mixture(main, (AuxiliaryStream(other, 1.0),))
    rows = [
        turn.batch.rows
        for epoch in (0, 1)
        for turns in mixture.plan_steps(TrainingSettings(batch=8), seed=1, epoch=epoch)
        for turn in turns
        if turn.stream is other
    ]
    assert np.array_equal(np.sort(np.concatenate(rows)), np.arange(64))


@pytest.mark.parametrize(("temperature", "expected"), [(1.0, 4.0), (2.0, 2.0), (1e9, 1.0)])
def test_temperature_moves_shares_towards_equal(temperature: float, expected: float) -> None:
    assert share_steps(400, 100, temperature) == pytest.approx(expected)


def test_replay_is_part_of_every_step_and_drawn_with_replacement(tmp_path: Path) -> None:
    main, other, replayed = _streams(tmp_path, 40, 40, 3)
    mixture = Mixture(main, (AuxiliaryStream(other, 1.0),), ReplayStream(replayed, 16))
    epochs = [mixture.plan_steps(TrainingSettings(batch=8), seed=1, epoch=epoch) for epoch in (0, 1, 0)]
    for turns in epochs[0]:
        assert turns[-1].stream is replayed and len(turns[-1].batch.rows) == turns[-1].size == 16
    drawn = [np.stack([turns[-1].batch.rows for turns in steps]) for steps in epochs]
    assert not np.array_equal(drawn[0], drawn[1]) and np.array_equal(drawn[0], drawn[2])
    assert set(drawn[0].flatten().tolist()) == {0, 1, 2}


def test_replayed_examples_are_alike_in_length_within_a_batch_and_equally_likely(tmp_path: Path) -> None:
    main, replayed = _streams(tmp_path, 4_000, 50)
    steps = Mixture(main, (), ReplayStream(replayed, 16)).plan_steps(TrainingSettings(batch=8), seed=1, epoch=0)
    batches = [turns[-1].batch for turns in steps]
    lengths = replayed.examples.lengths
    computed = sum(len(batch.rows) * batch.length for batch in batches)
    assert computed < 1.4 * sum(lengths[batch.rows].sum() for batch in batches), (
        "drawn step by step it is twice as much"
    )
    times = np.bincount(np.concatenate([batch.rows for batch in batches]), minlength=50)
    assert times.sum() == 500 * 16 and times.min() > 100 and times.max() < 220, "160 each, more or less"


def test_gradient_of_step_is_sum_over_streams(tmp_path: Path) -> None:
    """Several objectives in one update, each its own mean, against each by itself."""
    streams = _streams(tmp_path, 8, 8)
    model = _model(streams).eval()
    settings = TrainingSettings(batch=8, clip=0.0)
    batches, apart = [], {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for stream in streams:
        turn = Mixture(stream).plan_steps(settings, seed=1, epoch=0)[0][0]
        arrays = stream.objective.collate(stream.examples, turn.batch, size=8)
        batch = model.prepare(arrays, ONE.device)
        batches.append((stream.objective, batch))
        model.zero_grad()
        (stream.objective.sum_loss(model, batch).task / stream.objective.count_targets(arrays).task).backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                apart[name] += parameter.grad
    steps = PlainSteps(model, build_optimiser(model, settings, ONE.device), settings, ONE)
    steps.update(batches, weights={s.objective.name: (1 / 8, 0.0, 0.0, 0.0) for s in streams}, rate=0.0)
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(parameter.grad, apart[name])


def test_continued_run_of_several_streams_ends_with_same_bits(tmp_path: Path) -> None:
    finals = []
    for name, stop in (("whole", None), ("stopped", 13)):
        streams = _streams(tmp_path, 40, 30, 20)
        mixture = Mixture(streams[0], (AuxiliaryStream(streams[1], 0.75),), ReplayStream(streams[2], 4))
        settings = TrainingSettings(epochs=2, batch=8, lr=1e-3)

        def track(values: dict[str, float], step: int, stop: int | None = stop) -> None:
            if stop and step >= stop:
                raise KeyboardInterrupt

        if stop:
            with pytest.raises(KeyboardInterrupt):
                execution = Execution(ONE, 1, tmp_path / name, checkpoint_seconds=0.0, track=track)
                fit(_model(streams), mixture, settings, execution)
        model = _model(streams)
        fit(model, mixture, settings, Execution(ONE, 1, tmp_path / name))
        finals.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(finals[0], finals[1])


def test_losses_are_reported_for_each_stream(tmp_path: Path) -> None:
    streams = _streams(tmp_path, 40, 40)
    reported: dict[str, float] = {}
    mixture = Mixture(streams[0], (AuxiliaryStream(streams[1], 1.0),))
    execution = Execution(ONE, 1, tmp_path / "work", track=lambda values, step: reported.update(values))
    fit(_model(streams), mixture, TrainingSettings(epochs=1, batch=8), execution)
    assert {"loss", "task0", "task1"} <= set(reported)
