"""A device whose memory is full: prediction goes on with smaller batches, training says what to set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import torch

from crossling.data.batching import Batch
from crossling.errors import OutOfMemoryError
from crossling.training.settings import OptimiserSettings, TrainingSettings

T = TypeVar("T")
CPU_MESSAGES = ("can't allocate memory", "not enough memory")
"""How torch says it of main memory, without a class of its own."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory is full, of a GPU or of the machine."""
    on_cpu = isinstance(error, RuntimeError) and any(text in str(error) for text in CPU_MESSAGES)
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or on_cpu


class Halving:
    """Runs batches, and in halves those for which memory is full; later ones of that size are halved at once."""

    def __init__(self) -> None:
        self.full: int | None = None
        """Subwords of the smallest batch that did not fit."""

    def run(self, batch: Batch, work: Callable[[Batch], T]) -> Iterator[T]:
        """What ``work`` gives for a batch, or for its halves, and so on."""
        size = len(batch.rows) * batch.length
        if self.full is None or size < self.full or len(batch.rows) == 1:
            if result := _try(batch, work):
                yield result[0]
                return
            self.full = size
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        if len(batch.rows) == 1:
            raise OutOfMemoryError(
                f"memory is full with a single example of {batch.length} subwords; use a device with more memory, or "
                "set a smaller length of the task's examples"
            )
        middle = len(batch.rows) // 2
        for rows in (batch.rows[:middle], batch.rows[middle:]):
            yield from self.run(replace(batch, rows=rows), work)


def _try(batch: Batch, work: Callable[[Batch], T]) -> tuple[T] | None:
    """The result, or nothing where memory is full; the error, which holds tensors, is gone on return."""
    try:
        return (work(batch),)
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return None


@contextmanager
def explain_full_memory(what: str, settings: OptimiserSettings) -> Iterator[None]:
    """Turn an error of full memory in training into one that says what to set: other batches are other results, so that
    nothing is changed unasked."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        half = max(1, settings.batch // 2)
        advice = [f"batch = {half} with accumulate = {2 * settings.accumulate} (the same examples in an update)"]
        advice = advice if settings.batch > 1 else ["a smaller length of the task's examples"]
        if not settings.gradient_checkpointing:
            advice.append("gradient_checkpointing = true (a third to two thirds more time)")
        if isinstance(settings, TrainingSettings) and settings.lora is None:
            advice.append("lora = { rank = 16 } with ten times the lr (other weights are trained)")
        raise OutOfMemoryError(
            f"{what}: memory is full with batches of {settings.batch} examples. Set {', or '.join(advice)}; or use an "
            "encoder with fewer weights. crossling check shows what a recipe needs."
        ) from error
