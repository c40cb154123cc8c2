"""A mixture of streams: a main stream, auxiliary ones among its steps, and one that is replayed in every step.

An epoch counts the main stream's examples, so that a run with auxiliary tasks or replay makes as many updates on its
main task as one without. Everything is a function of seed, epoch and step: nothing of it needs storing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crossling.data.batching import Batch, Examples, batch_by_length, choose_lengths, plan_epoch
from crossling.training.settings import OptimiserSettings

if TYPE_CHECKING:
    from crossling.objectives import Objective

ORDER, REPLAY, OTHER = 101, 102, 103
"""What random numbers are for, so that no two uses draw the same."""


@dataclass(frozen=True)
class Stream:
    """An objective and the encoded examples that it learns from."""

    objective: Objective
    examples: Examples


@dataclass(frozen=True)
class AuxiliaryStream:
    """A stream with its own steps among those of the main stream."""

    stream: Stream
    share: float
    """Its steps for each one of the main stream."""


@dataclass(frozen=True)
class ReplayStream:
    """Experience replay: a stream that adds a few examples, drawn with replacement, to every step."""

    stream: Stream
    batch: int


@dataclass(frozen=True)
class StepBatch:
    """One batch of a step, and the stream that it is from."""

    stream: Stream
    batch: Batch
    size: int
    """Rows of the batch's arrays, whether the last ones are filled or not."""


Step = tuple[StepBatch, ...]
"""The batches of one update."""


@dataclass(frozen=True)
class Mixture:
    """The streams of one training run."""

    main: Stream
    auxiliary: tuple[AuxiliaryStream, ...] = ()
    replay: ReplayStream | None = None

    def streams(self) -> list[Stream]:
        """All of them, the main one first."""
        replayed = [self.replay.stream] if self.replay else []
        return [self.main, *(one.stream for one in self.auxiliary), *replayed]

    def count_steps(self, settings: OptimiserSettings) -> int:
        """Updates in an epoch."""
        main = self._count_main(settings)
        return main + sum(_count_auxiliary(one, main) for one in self.auxiliary)

    def _count_main(self, settings: OptimiserSettings) -> int:
        batches = -(-len(self.main.examples) // settings.batch)
        return -(-batches // settings.accumulate)

    def plan_steps(self, settings: OptimiserSettings, *, seed: int, epoch: int) -> list[Step]:
        """The steps of an epoch."""
        main = self._count_main(settings)
        parts = [self._plan_main(settings, seed=seed, epoch=epoch)]
        for place, one in enumerate(self.auxiliary):
            parts.append(_plan_auxiliary(one, place, settings, seed=seed, epoch=epoch, main=main))
        steps = _interleave(parts, seed=seed, epoch=epoch)
        if self.replay is None:
            return steps
        replayed = _plan_replay(self.replay, len(steps), seed=seed, epoch=epoch, epochs=settings.epochs)
        return [(*step, batch) for step, batch in zip(steps, replayed, strict=True)]

    def _plan_main(self, settings: OptimiserSettings, *, seed: int, epoch: int) -> list[Step]:
        lengths = self.main.examples.lengths
        plan = plan_epoch(lengths, settings.batch, seed=seed, epoch=epoch, epochs=settings.epochs)
        batches = [StepBatch(self.main, batch, settings.batch) for batch in plan]
        return [tuple(batches[i : i + settings.accumulate]) for i in range(0, len(batches), settings.accumulate)]


def share_steps(examples: int, main_examples: int, temperature: float) -> float:
    """Auxiliary steps for each main one: as sizes are to each other at temperature 1, as many at an infinite one."""
    return float((examples / main_examples) ** (1.0 / temperature))


def _count_auxiliary(one: AuxiliaryStream, main: int) -> int:
    return max(1, round(one.share * main))


def _plan_auxiliary(
    one: AuxiliaryStream, place: int, settings: OptimiserSettings, *, seed: int, epoch: int, main: int
) -> list[Step]:
    """An auxiliary stream's steps in an epoch of the main one: its own epochs may be longer or shorter."""
    wanted = _count_auxiliary(one, main)
    first = epoch * wanted * settings.accumulate
    batches = _endless(one.stream.examples, settings, seed=seed, place=place, skip=first)
    return [
        tuple(StepBatch(one.stream, next(batches), settings.batch) for _ in range(settings.accumulate))
        for _ in range(wanted)
    ]


def _endless(examples: Examples, settings: OptimiserSettings, *, seed: int, place: int, skip: int) -> Iterator[Batch]:
    """Batches of one epoch after the other, without the first ``skip``."""
    epoch, rest = divmod(skip, -(-len(examples) // settings.batch))
    own_seed = int(np.random.default_rng([seed, OTHER, place]).integers(2**31))
    while True:
        plan = plan_epoch(examples.lengths, settings.batch, seed=own_seed, epoch=epoch, epochs=settings.epochs)
        yield from plan[rest:]
        epoch, rest = epoch + 1, 0


def _interleave(parts: list[list[Step]], *, seed: int, epoch: int) -> list[Step]:
    """The steps of all streams in random order; the order within each stream is kept."""
    if len(parts) == 1:
        return parts[0]
    owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    order = np.random.default_rng([seed, ORDER, epoch]).permutation(owners)
    waiting = [iter(part) for part in parts]
    return [next(waiting[owner]) for owner in order]


def _plan_replay(replay: ReplayStream, steps: int, *, seed: int, epoch: int, epochs: int) -> list[StepBatch]:
    """A batch for each step of an epoch. Examples are drawn for many steps at once, and those of a batch are alike in
    length: drawn for each step alone, nearly half of what is computed would be padding."""
    lengths = replay.stream.examples.lengths
    generator = np.random.default_rng([seed, REPLAY, epoch])
    rows = generator.integers(len(lengths), size=steps * replay.batch)
    often = max(1, round(len(rows) / len(lengths)))
    allowed = choose_lengths(np.repeat(lengths, often), replay.batch, epochs=epochs)
    plan = batch_by_length(rows, lengths, replay.batch, allowed, epoch=epoch, generator=generator)
    return [StepBatch(replay.stream, batch, replay.batch) for batch in plan]
