"""The one training loop: every stage calls :func:`fit`.

A step is a list of turns (an objective and a batch of fixed shape); its gradients add up and one update follows. Steps
of auxiliary streams stand among the main one's; a replayed stream has a turn in every step (see ``program.py``).
Order, dropout and learning rate are functions of seed and step alone, so a run that was killed and continued ends in
the same weights as one that was not.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from crossling.data.batching import Batch, Examples
from crossling.errors import UserError
from crossling.models.model import load_weights, to_device, weights_of
from crossling.objectives import list_terms, weigh_terms
from crossling.progress import NoProgress, Progress
from crossling.training.checkpoint import Checkpoints, Position
from crossling.training.distributed import Distributed
from crossling.training.fast.cpu_operations import replace_operations
from crossling.training.mixture import Program, Stream, Turn
from crossling.training.settings import TrainingSettings
from crossling.training.steps import Losses, PlainSteps, build_optimiser

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.objectives import Objective, Reading

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
VERSION = 2
"""Raised whenever the same seed would train to other weights, so that nothing stored is taken for what it is not."""
REPORT_EVERY = 10
"""Steps between looks at the loss: reading it makes a GPU wait."""


@dataclass
class Prepared:
    """A step's batches in main memory, ready to go."""

    batches: list[tuple[Objective, dict[str, Tensor]]] = field(default_factory=list)
    targets: dict[str, Array] = field(default_factory=dict)
    """By objective: the labels of each term of its loss, in all of its batches here."""
    subwords: int = 0


@dataclass
class Execution:
    """Where and how a stage trains."""

    distributed: Distributed
    seed: int
    folder: Path
    checkpoint_seconds: float = 120.0
    progress: Progress = field(default_factory=NoProgress)
    track: Callable[[dict[str, float], int], None] = lambda values, step: None
    what: str = "training"
    capture: bool = True
    """On a GPU, launch whole steps as CUDA graphs."""


def fit(
    model: Model,
    main: Stream | Program,
    settings: TrainingSettings,
    execution: Execution,
    *,
    evaluate: Callable[[], float] | None = None,
) -> Position:
    """Train a model on its main stream and what goes with it; with ``evaluate``, end with the best epoch's weights.

    Continues from the last checkpoint in the execution's folder, if there is one.
    """
    program = main if isinstance(main, Program) else Program(main)
    if any(not len(stream.examples) for stream in program.streams()):
        raise UserError(f"{execution.what}: no examples to train on")
    run = _Run(model, program, settings, execution)
    run.position = run.checkpoints.restore(model, run.optimiser)
    execution.progress.begin(execution.what, run.total_steps, run.position.step)
    while run.position.step < run.total_steps:
        run.train_epoch()
        if evaluate is not None:
            run.consider(evaluate())
        if run.is_time_to_save():
            run.save_checkpoint()
    execution.progress.end()
    if evaluate is not None:
        run.take_best()
    return run.position


class _Run:
    """The moving parts of one call of :func:`fit`."""

    def __init__(self, model: Model, program: Program, settings: TrainingSettings, execution: Execution) -> None:
        self.model, self.program, self.settings, self.execution = model, program, settings, execution
        self.distributed = execution.distributed
        model.to(self.distributed.device)
        if settings.gradient_checkpointing:
            model.encoder.checkpoint_gradients(partial(replace_operations, self.distributed.device))
        self.optimiser = build_optimiser(model, settings, self.distributed.device)
        self.steps = self._choose_steps()
        self.checkpoints = Checkpoints(execution.folder)
        self.position = Position()
        self.steps_per_epoch = program.count_steps(settings)
        self.total_steps = settings.epochs * self.steps_per_epoch
        self._saved_at = time.monotonic()
        self._best: dict[str, Tensor] | None = None
        """The best epoch's weights, in main memory; they are on disk only where a checkpoint refers to them."""
        self._losses: list[Losses] = []
        self._subwords = 0

    def _choose_steps(self) -> PlainSteps:
        """Captured steps on one GPU, plain ones elsewhere: graphs do not reach across processes."""
        parts = (self.model, self.optimiser, self.settings, self.distributed)
        suits = self.distributed.device.type == "cuda" and self.distributed.size == 1
        if not self.execution.capture or not suits or self.settings.gradient_checkpointing:
            return PlainSteps(*parts)
        from crossling.training.fast.cuda_graph import CapturedSteps

        return CapturedSteps(*parts)

    def train_epoch(self) -> None:
        """The rest of the epoch that the position is in."""
        epoch, done = divmod(self.position.step, self.steps_per_epoch)
        steps = self.program.plan_steps(self.settings, seed=self.execution.seed, epoch=epoch)
        self.model.train()
        began = self._reported_at = time.monotonic()
        for prepared in prefetch(map(self._prepare, steps[done:])):
            self._losses.append(self._step(prepared))
            self.position.step += 1
            if self.position.step % REPORT_EVERY == 0 or self.position.step % self.steps_per_epoch == 0:
                self._report()
            # The epoch's last step is saved after its evaluation, which a checkpoint of that step must hold.
            if self.position.step % self.steps_per_epoch and self.is_time_to_save():
                self.position.seconds += time.monotonic() - began
                began = time.monotonic()
                self.save_checkpoint()
        self.position.seconds += time.monotonic() - began

    def _step(self, prepared: Prepared) -> Losses:
        """One update, whose dropout depends on seed, step and process alone."""
        torch.manual_seed(step_seed(self.execution.seed, self.position.step, self.distributed.rank))
        self._subwords += prepared.subwords
        targets = {
            name: [self.distributed.sum_number(float(n)) for n in counts] for name, counts in prepared.targets.items()
        }
        scales = {objective.name: weigh_terms(objective, targets[objective.name]) for objective, _ in prepared.batches}
        rate = rate_at(self.position.step, self.total_steps, self.settings)
        return self.steps.update(prepared.batches, scales=scales, rate=rate)

    def _prepare(self, turns: Sequence[Turn]) -> Prepared:
        """This process's share of a step's batches, with how many labels and subwords they hold."""
        distributed, prepared = self.distributed, Prepared()
        for turn in turns:
            objective = turn.stream.objective
            share = replace(turn.batch, rows=turn.batch.rows[distributed.rank :: distributed.size])
            share = tighten(share, turn.stream.examples, distributed.device)
            arrays = objective.collate(turn.stream.examples, share, size=-(-turn.size // distributed.size))
            prepared.batches.append((objective, self.model.prepare(arrays, distributed.device)))
            counts = np.atleast_1d(objective.count_targets(arrays)).astype(np.float64)
            prepared.targets[objective.name] = prepared.targets.get(objective.name, 0) + counts
            prepared.subwords += int(arrays["mask"].sum())
        return prepared

    def _report(self) -> None:
        total, parts = self._mean_losses()
        loss = self.distributed.sum_number(total)
        if loss != loss or loss == float("inf"):
            raise UserError(
                f"{self.execution.what}: the loss is not a number at step {self.position.step}. Lower lr "
                f"(now {self.settings.lr:g}), or set run.precision to 'float32'."
            )
        elapsed = max(time.monotonic() - self._reported_at, 1e-9)
        speed = self._subwords * self.distributed.size / elapsed
        several = {name: round(value, 6) for name, value in parts.items()} if len(parts) > 1 else {}
        self.position.history.append({"step": self.position.step, "loss": round(loss, 6), **several})
        self.execution.track({"loss": loss, **several, "subwords_per_second": speed}, self.position.step)
        shown = {name: f"{value:.4f}" for name, value in several.items()}
        self.execution.progress.advance(
            len(self._losses), loss=f"{loss:.4f}", **shown, speed=f"{speed:,.0f} subwords/s"
        )
        self._losses, self._subwords, self._reported_at = [], 0, time.monotonic()

    def _mean_losses(self) -> tuple[float, dict[str, float]]:
        """This process's part of the mean loss since the last report, and of each term's in the steps that have it."""
        batches = [batch for step in self._losses for batch in step]
        flat = torch.cat([terms for _, terms in batches]).tolist()  # one look at the device
        names = [name_term(objective, term) for objective, _ in batches for term in list_terms(objective)]
        steps = Counter(name for step in self._losses for name in {objective.name for objective, _ in step})
        owners = {name_term(o, term): o.name for o, _ in batches for term in list_terms(o)}
        parts = dict.fromkeys(names, 0.0)
        for name, value in zip(names, flat, strict=True):
            parts[name] += value / steps[owners[name]]
        return sum(flat) / len(self._losses), parts

    def consider(self, score: float) -> None:
        """Keep this epoch's weights if none was better on the source language's dev set; all processes agree."""
        agreed = float(
            self.distributed.broadcast(torch.tensor(score, dtype=torch.float64, device=self.distributed.device))
        )
        position = self.position
        position.history.append({"step": position.step, "dev": agreed})
        self.execution.track({"dev": agreed}, position.step)
        self.execution.progress.say(f"epoch {position.step // self.steps_per_epoch}: dev {100 * agreed:.2f}")
        if position.best_score is None or agreed > position.best_score:
            position.best_score, position.best_step = agreed, position.step
            self._best = {name: weight.clone() for name, weight in weights_of(self.model).items()}

    def take_best(self) -> None:
        """Put the best epoch's weights into the model; of an epoch before a continued run's start, from the disk."""
        if self._best is not None:
            load_weights(self.model, self._best)
        else:
            self.checkpoints.load_best(self.model, self.position.best_step)

    def save_checkpoint(self) -> None:
        """Save, by the leading process; nobody runs ahead meanwhile."""
        if self._losses:
            self._report()
        if self.distributed.is_main:
            self.checkpoints.save(self.model, self.optimiser, self.position, best=self._best)
        self.distributed.wait()
        self._saved_at = time.monotonic()

    def is_time_to_save(self) -> bool:
        """Whether more than the given seconds have gone since the last checkpoint; all processes agree."""
        due = time.monotonic() - self._saved_at >= self.execution.checkpoint_seconds
        if self.distributed.size == 1:
            return due
        return bool(self.distributed.broadcast(torch.tensor(int(due), device=self.distributed.device)))


def tighten(batch: Batch, examples: Examples, device: torch.device) -> Batch:
    """A batch no longer than its longest example, on a processor; a GPU is better off with few different shapes."""
    if device.type == "cuda" or not len(batch.rows):
        return batch
    return replace(batch, length=int(examples.lengths[batch.rows].max()))


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made by a thread that is a few ahead of whoever uses them."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        waiting = deque(thread.submit(next, items, None) for _ in range(depth))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(next, items, None))
            yield item


def lag(items: Iterable[T]) -> Iterator[T]:
    """The same items, each given when the next one has been made."""
    held: deque[T] = deque()
    for item in items:
        held.append(item)
        if len(held) > 1:
            yield held.popleft()
    yield from held


def name_term(objective: Objective, term: str) -> str:
    """A term of a loss as it is told: by its objective's name, and its own where there are several."""
    return objective.name if len(list_terms(objective)) == 1 else f"{objective.name}_{term}"


def rate_at(step: int, total: int, settings: TrainingSettings) -> float:
    """The learning rate of a step: a linear rise, then a linear fall to 0 or none."""
    warm = round(settings.warmup * total)
    if step < warm:
        return settings.lr * (step + 1) / (warm + 1)
    if settings.schedule == "constant":
        return settings.lr
    return settings.lr * (total - step) / max(1, total - warm)


def step_seed(seed: int, step: int, rank: int) -> int:
    """A seed for one step of one process: dropout is a function of it, so nothing random needs storing."""
    return (seed * 1_000_003 + step) * 1_009 + rank


def predict_examples(
    model: Model,
    reading: Reading,
    examples: Examples,
    *,
    distributed: Distributed,
    plan: Sequence[Batch],
    progress: Progress,
) -> Iterator[tuple[Batch, dict[str, Any]]]:
    """Each planned batch with what is read from the model for it, as arrays; no gradients."""
    model.eval()
    reduced = distributed.precision != torch.float32

    def prepare(batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        batch = tighten(batch, examples, distributed.device)
        arrays = reading.collate(examples, batch, size=len(batch.rows))
        return batch, model.prepare(arrays, distributed.device)

    def read(item: tuple[Batch, dict[str, Tensor]]) -> tuple[Batch, dict[str, Tensor], torch.cuda.Event | None]:
        batch, tensors = item
        with (
            torch.inference_mode(),
            torch.autocast(distributed.device.type, dtype=distributed.precision, enabled=reduced),
        ):
            outputs = reading.predict(model, to_device(tensors, distributed.device))
            copies = {name: values.to("cpu", non_blocking=True) for name, values in outputs.items()}
        copied = torch.cuda.Event() if distributed.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if copied is not None:
            copied.record()
        return batch, copies, copied

    # What a GPU has found is looked at when the next batch is already under way there.
    for batch, copies, copied in lag(map(read, prefetch(map(prepare, plan)))):
        if copied is not None:
            copied.synchronize()
        progress.advance(len(batch.rows))
        yield batch, {name: values.numpy() for name, values in copies.items()}
