"""The one training loop: every stage calls :func:`fit`.

A step is one or more batches, each of one objective. Their gradients add up to that of the loss in ``loss.py``, and
one update follows. Steps of auxiliary streams are mixed into those of the main stream, and a replayed stream adds a
batch to every step (see ``mixture.py``). Order, dropout and learning rate are functions of seed and step alone, so a
run that was killed and continued ends with the same weights as one that was not.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from crossling.data.batching import Batch, Examples
from crossling.errors import UserError
from crossling.models.model import load_weights, to_device, update_mean, weights_of
from crossling.objectives import Terms
from crossling.progress import NoProgress, Progress
from crossling.training.checkpoint import Checkpoints, Position
from crossling.training.distributed import Distributed
from crossling.training.fast.converted_weights import ConvertedWeights
from crossling.training.loss import name_terms, weigh_terms
from crossling.training.mixture import Mixture, Step, Stream
from crossling.training.out_of_memory import Halving, explain_full_memory
from crossling.training.settings import OptimiserSettings
from crossling.training.steps import PlainSteps, StepLosses, build_optimiser
from crossling.training.trained_parts import TrainedParts

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.objectives import Extractor, Objective

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[Any]]
VERSION, GPU_VERSION = 2, 3
"""Raised whenever the same seed would give other weights, so that stored results of older code are not used; on GPUs
also when batches are padded to other lengths, which changes dropout masks there."""
REPORT_EVERY = 10
"""Steps between reports of the loss: reading it makes a GPU wait."""


@dataclass
class PreparedStep:
    """A step's batches in main memory."""

    batches: list[tuple[Objective, dict[str, Tensor]]] = field(default_factory=list)
    targets: dict[str, Terms[float]] = field(default_factory=dict)
    """By objective: the number of targets of each term, over all of its batches and all processes."""
    subwords: int = 0
    alike: bool = True
    """Whether all processes have batches of the same shapes."""


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
    main: Stream | Mixture,
    settings: OptimiserSettings,
    execution: Execution,
    *,
    evaluate: Callable[[], float] | None = None,
    average: bool = False,
) -> Position:
    """Train a model on a stream or a mixture of streams; with ``evaluate``, end with the best epoch's weights.

    ``average``: end with the mean of the weights after every epoch instead, which is evaluated once.
    Continues from the last checkpoint in the execution's folder, if there is one.
    """
    mixture = main if isinstance(main, Mixture) else Mixture(main)
    if any(not len(stream.examples) for stream in mixture.streams()):
        raise UserError(f"{execution.what}: no examples to train on")
    trainer = Trainer(model, mixture, settings, execution)
    with trainer.parts.training():
        trainer.position = trainer.checkpoints.restore(model, trainer.optimiser)
        execution.progress.begin(execution.what, trainer.total_steps, trainer.position.step)
        while trainer.position.step < trainer.total_steps:
            with explain_full_memory(execution.what, settings):
                trainer.train_epoch()
            if average:
                trainer.add_to_mean()
            elif evaluate is not None:
                trainer.keep_if_best(evaluate())
            if trainer.is_time_to_save():
                trainer.save_checkpoint()
    execution.progress.end()
    if average or evaluate is not None:
        trainer.load_best()
    if average and evaluate is not None:
        trainer.position.best_score = trainer.report_score(evaluate(), "mean of all epochs")
    return trainer.position


class Trainer:
    """The state of one call of :func:`fit`."""

    def __init__(self, model: Model, mixture: Mixture, settings: OptimiserSettings, execution: Execution) -> None:
        self.model, self.mixture, self.settings, self.execution = model, mixture, settings, execution
        self.distributed = execution.distributed
        self.parts = TrainedParts(model, settings, seed=execution.seed)
        model.to(self.distributed.device)
        self.optimiser = build_optimiser(model, settings, self.distributed.device, seed=execution.seed)
        self.steps = self._choose_steps()
        self.checkpoints = Checkpoints(execution.folder)
        self.position = Position()
        self.steps_per_epoch = mixture.count_steps(settings)
        self.total_steps = settings.epochs * self.steps_per_epoch
        self._saved_at = time.monotonic()
        self._best: dict[str, Tensor] | None = None
        """The best epoch's weights, or the mean of all epochs', in main memory and without adapters; they are on disk
        only where a checkpoint refers to them."""
        self._losses: list[StepLosses] = []
        self._subwords = 0

    def _choose_steps(self) -> PlainSteps:
        """Captured steps on GPUs, plain ones elsewhere."""
        parts = (self.model, self.optimiser, self.settings, self.distributed)
        if not self.execution.capture or self.distributed.device.type != "cuda":
            return PlainSteps(*parts)
        from crossling.training.fast.cuda_graph import CapturedSteps

        return CapturedSteps(*parts)

    def train_epoch(self) -> None:
        """The rest of the epoch that the position is in."""
        epoch, done = divmod(self.position.step, self.steps_per_epoch)
        steps = self.mixture.plan_steps(self.settings, seed=self.execution.seed, epoch=epoch)
        self.model.train()
        began = self._reported_at = time.monotonic()
        for prepared in prefetch(map(self._prepare, steps[done:])):
            self._losses.append(self._step(prepared))
            self.position.step += 1
            due = self.position.step % REPORT_EVERY == 0 or self.position.step % self.steps_per_epoch == 0
            if due:
                self._report()
            # Several GPUs are asked only when they were waited for: they agree on whether it is time.
            # The epoch's last step is saved after its evaluation, which a checkpoint of that step must hold.
            asked = due or self.distributed.size == 1 or self.distributed.device.type == "cpu"
            if asked and self.position.step % self.steps_per_epoch and self.is_time_to_save():
                self.position.seconds += time.monotonic() - began
                began = time.monotonic()
                self.save_checkpoint()
        self.position.seconds += time.monotonic() - began

    def _step(self, prepared: PreparedStep) -> StepLosses:
        """One update, whose dropout depends on seed, step and process alone."""
        seed = step_seed(self.execution.seed, self.position.step, self.distributed.rank)
        # torch.manual_seed would format the call stack for every kind of device that this process does not use.
        on_cpu = self.distributed.device.type == "cpu"
        (torch.default_generator.manual_seed if on_cpu else torch.manual_seed)(seed)
        self._subwords += prepared.subwords
        by_name = {objective.name: objective.weights for objective, _ in prepared.batches}
        weights = {name: weigh_terms(w, prepared.targets[name]) for name, w in by_name.items()}
        rate = learning_rate_at(self.position.step, self.total_steps, self.settings)
        return self.steps.update(prepared.batches, weights=weights, rate=rate, alike=prepared.alike)

    def _prepare(self, step: Step) -> PreparedStep:
        """This process's share of a step's batches, with the number of their targets and subwords."""
        distributed, prepared = self.distributed, PreparedStep()
        for part in step:
            objective, examples = part.stream.objective, part.stream.examples
            share = replace(part.batch, rows=part.batch.rows[distributed.rank :: distributed.size])
            share = trim_padding(share, examples, distributed.device)
            arrays = objective.collate(examples, share, size=-(-part.size // distributed.size))
            prepared.batches.append((objective, self.model.prepare(arrays, distributed.device)))
            before = prepared.targets.get(objective.name, Terms())
            counts = zip(before, objective.count_targets(arrays), strict=True)
            prepared.targets[objective.name] = Terms(*(n if m is None else m + (n or 0) for m, n in counts))
            prepared.subwords += int(arrays["mask"].sum())
        self._compare(prepared)
        return prepared

    def _compare(self, prepared: PreparedStep) -> None:
        """Add up the targets of all processes, and find out whether their shapes are the same: in one message, ahead of
        the step."""
        shapes = [[tuple(tensor.shape) for tensor in batch.values()] for _, batch in prepared.batches]
        number = zlib.crc32(repr(shapes).encode()) % (1 << 24)
        counts = [n for terms in prepared.targets.values() for n in terms if n is not None]
        *sums, first, second = self.distributed.sum_numbers([*counts, number, number**2])
        # A variance of 0, which is exact: all sums are whole numbers that a float64 holds.
        prepared.alike = first**2 == self.distributed.size * second
        left = iter(sums)
        for name, terms in prepared.targets.items():
            prepared.targets[name] = Terms(*(None if n is None else next(left) for n in terms))

    def _report(self) -> None:
        loss, parts = self._mean_losses()
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
        """The mean loss since the last report, and each term's in the steps that have it."""
        batches = [batch for step in self._losses for batch in step]
        # Read once, which waits for the device. What is summed outside of a graph ends this process if another one does
        # not answer; what waits in a graph would wait for ever.
        values = self.distributed.sum(torch.stack([terms for _, terms in batches])).tolist()
        steps = Counter(name for step in self._losses for name in {objective.name for objective, _ in step})
        means: dict[str, float] = {}
        for (objective, _), terms in zip(batches, values, strict=True):
            for place, name in name_terms(objective).items():
                means[name] = means.get(name, 0.0) + terms[place] / steps[objective.name]
        return sum(value for terms in values for value in terms) / len(self._losses), means

    def keep_if_best(self, score: float) -> None:
        """Keep this epoch's weights if no earlier one had a higher dev score."""
        position = self.position
        agreed = self.report_score(score, f"epoch {position.step // self.steps_per_epoch}")
        if position.best_score is None or agreed > position.best_score:
            position.best_score, position.best_step = agreed, position.step
            weights, is_last = self._merge_weights(), position.step == self.total_steps
            # After the last epoch weights change no more, so that no copy is needed.
            self._best = weights if is_last else {name: weight.clone() for name, weight in weights.items()}

    def report_score(self, score: float, what: str) -> float:
        """Report a dev score; gives that of the first process, which all use."""
        agreed = float(
            self.distributed.broadcast(torch.tensor(score, dtype=torch.float64, device=self.distributed.device))
        )
        self.position.history.append({"step": self.position.step, "dev": agreed})
        self.execution.track({"dev": agreed}, self.position.step)
        self.execution.progress.say(f"{what}: dev {100 * agreed:.2f}")
        return agreed

    def add_to_mean(self) -> None:
        """Let this epoch's weights count in the mean of all epochs', which is kept as the best epoch's would be."""
        epochs = self.position.step // self.steps_per_epoch
        mean = self._read_best() if epochs > 1 else None
        self._best = update_mean(mean, self._merge_weights(), epochs)
        self.position.best_step = self.position.step

    def _merge_weights(self) -> dict[str, Tensor]:
        """The weights as they are now, each adapter added to its own."""
        return self.parts.merge_weights(weights_of(self.model))

    def load_best(self) -> None:
        """Load the best epoch's weights, or the mean of all epochs', into the model without adapters."""
        load_weights(self.model, self._read_best())

    def _read_best(self) -> dict[str, Tensor]:
        """What was kept: from memory, or from disk if that was before the run was continued."""
        return self._best if self._best is not None else self.checkpoints.read_best(self.position.best_step)

    def save_checkpoint(self) -> None:
        """Save, by the main process, while the others wait."""
        if self._losses:
            self._report()
        if self.distributed.is_main:
            self.checkpoints.save(self.model, self.optimiser, self.position, best=self._best)
        self.distributed.wait()
        self._saved_at = time.monotonic()

    def is_time_to_save(self) -> bool:
        """Whether it is ``checkpoint_seconds`` since the last checkpoint, by the clock of the main process."""
        due = time.monotonic() - self._saved_at >= self.execution.checkpoint_seconds
        if self.distributed.size == 1:
            return due
        return bool(self.distributed.broadcast(torch.tensor(int(due), device=self.distributed.device)))


def trim_padding(batch: Batch, examples: Examples, device: torch.device) -> Batch:
    """On a CPU, a batch no longer than its longest example; a GPU is faster with few different shapes."""
    if device.type == "cuda" or not len(batch.rows):
        return batch
    return replace(batch, length=int(examples.lengths[batch.rows].max()))


def prefetch(items: Iterator[T], depth: int = 2) -> Iterator[T]:
    """The same items, made by a thread that is ``depth`` ahead of the caller."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        waiting = deque(thread.submit(next, items, None) for _ in range(depth))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(thread.submit(next, items, None))
            yield item


def delay_by_one(items: Iterable[T]) -> Iterator[T]:
    """The same items, each given when the next one has been made."""
    held: deque[T] = deque()
    for item in items:
        held.append(item)
        if len(held) > 1:
            yield held.popleft()
    yield from held


def learning_rate_at(step: int, total: int, settings: OptimiserSettings) -> float:
    """The learning rate of a step: linear warm-up, then linear decay to 0, or none."""
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
    extractor: Extractor,
    examples: Examples,
    *,
    distributed: Distributed,
    plan: Sequence[Batch],
    progress: Progress,
    convert: bool = False,
) -> Iterator[tuple[Batch, dict[str, Any]]]:
    """Each planned batch with what ``extractor`` reads from the model for it, as arrays; no gradients.

    A batch that does not fit into memory is given in halves. ``convert``: on a GPU in a lower precision, the encoder's
    weights are converted to it before the first batch, and states of layers are rounded to it.
    """
    model.eval()
    reduced = distributed.precision != torch.float32
    convert = convert and reduced and distributed.device.type == "cuda"
    weights = ConvertedWeights(model.encoder, distributed.precision) if convert else None

    def prepare(batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        batch = trim_padding(batch, examples, distributed.device)
        arrays = extractor.collate(examples, batch, size=len(batch.rows))
        return batch, model.prepare(arrays, distributed.device)

    def read(item: tuple[Batch, dict[str, Tensor]]) -> tuple[Batch, dict[str, Tensor], torch.cuda.Event | None]:
        batch, tensors = item
        with (
            nullcontext() if weights is None else weights.in_place(),
            torch.inference_mode(),
            torch.autocast(distributed.device.type, dtype=distributed.precision, enabled=reduced),
        ):
            outputs = extractor.predict(model, to_device(tensors, distributed.device))
            copies = {name: values.to("cpu", non_blocking=True) for name, values in outputs.items()}
        copied = torch.cuda.Event() if distributed.device.type == "cuda" else None  # type: ignore[no-untyped-call]
        if copied is not None:
            copied.record()
        return batch, copies, copied

    def read_all(items: Iterable[tuple[Batch, dict[str, Tensor]]]) -> Iterator[Any]:
        halving = Halving()
        for item in items:
            # What was prepared ahead is read whole; halves of it are prepared when memory turns out to be full.
            yield from halving.run(item[0], partial(read_part, item))

    def read_part(item: tuple[Batch, dict[str, Tensor]], part: Batch) -> Any:
        return read(item if part is item[0] else prepare(part))

    # The outputs of a GPU are read when the next batch has been launched.
    for batch, copies, copied in delay_by_one(read_all(prefetch(map(prepare, plan)))):
        if copied is not None:
            copied.synchronize()
        progress.advance(len(batch.rows))
        yield batch, {name: values.numpy() for name, values in copies.items()}
