"""A queue before a model: inputs of many callers are computed together, by one thread, in fair shares."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Condition, Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class QueueFullError(Exception):
    """Too many inputs wait, so that new ones are refused."""


class ClosedError(Exception):
    """The queue takes nothing more, since the server stops."""


class Job(Generic[Item, Result]):
    """The inputs of one caller, and the future that will hold their results in the same order."""

    def __init__(self, items: Sequence[Item]) -> None:
        self.items = items
        self.future: Future[list[Result]] = Future()
        self.arrived = time.monotonic()
        self.taken = 0
        self._results: dict[int, Result] = {}

    @property
    def waiting(self) -> int:
        """Inputs that no batch has taken yet."""
        return len(self.items) - self.taken

    def finish(self, place: int, result: Result) -> None:
        """Keep the result of one input; after the last one the caller has all."""
        self._results[place] = result
        if len(self._results) == len(self.items):
            with suppress(InvalidStateError):  # the caller stopped waiting
                self.future.set_result([self._results[i] for i in range(len(self.items))])

    def fail(self, error: BaseException) -> None:
        """Raise an error for the caller."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


class Batcher(Generic[Item, Result]):
    """Runs a function on batches of inputs in a thread of its own.

    A batch starts when it is full, or ``wait`` seconds after its oldest input came: a lone caller loses milliseconds,
    and many callers share a pass through the model. Callers share each batch evenly, so that a large request does not
    hold up small ones. A future that its caller cancels leaves the queue.
    """

    def __init__(
        self,
        run: Callable[[list[Item]], Sequence[Result]],
        *,
        name: str = "batcher",
        batch: int = 32,
        wait: float = 0.002,
        queue: int = 1_000,
        size: Callable[[Item], int] | None = None,
        volume: int | None = None,
        observe: Callable[[int, float], None] | None = None,
    ) -> None:
        """``size`` and ``volume`` bound a batch by the sum of its inputs' sizes, so that it takes a bounded time.

        ``observe`` gets the number of inputs and the seconds of every batch.
        """
        self._run, self._observe = run, observe
        self._batch, self._wait, self._queue = batch, wait, queue
        self._size, self._volume = size, volume
        self._jobs: deque[Job[Item, Result]] = deque()
        self._queued = 0
        self._closing = False
        self._changed = Condition()
        self._thread = Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @property
    def queued(self) -> int:
        """Inputs that wait for a batch."""
        return self._queued

    @property
    def alive(self) -> bool:
        """Whether inputs are still computed."""
        return self._thread.is_alive()

    def submit(self, items: Sequence[Item]) -> Future[list[Result]]:
        """Queue the inputs of one caller."""
        job: Job[Item, Result] = Job(items)
        if not items:
            job.future.set_result([])
            return job.future
        with self._changed:
            if self._closing:
                raise ClosedError
            if self._queued + len(items) > self._queue:
                self._drop_cancelled()
                if self._queued + len(items) > self._queue:
                    raise QueueFullError
            self._jobs.append(job)
            self._queued += len(items)
            self._changed.notify_all()
        return job.future

    def close(self, timeout: float | None = None) -> bool:
        """Take nothing more and compute what was accepted; says whether that ended within ``timeout`` seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _work(self) -> None:
        while batch := self._gather():
            self._compute(batch)

    def _gather(self) -> list[tuple[Job[Item, Result], int]]:
        """The next batch, as places in jobs; empty at the end."""
        with self._changed:
            while True:
                while not self._jobs and not self._closing:
                    self._changed.wait()
                if not self._jobs:
                    return []
                due = self._jobs[0].arrived + self._wait
                while self._queued < self._batch and not self._closing and (left := due - time.monotonic()) > 0:
                    self._changed.wait(left)
                self._drop_cancelled()
                if batch := self._take():
                    return batch

    def _drop_cancelled(self) -> None:
        self._jobs = deque(job for job in self._jobs if not job.future.cancelled())
        self._queued = sum(job.waiting for job in self._jobs)

    def _take(self) -> list[tuple[Job[Item, Result], int]]:
        """Inputs of all jobs in turn, at least one, until the batch is full."""
        batch: list[tuple[Job[Item, Result], int]] = []
        share = max(1, self._batch // max(1, len(self._jobs)))
        volume = 0
        while self._jobs and len(batch) < self._batch:
            job = self._jobs.popleft()
            for _ in range(min(share, job.waiting, self._batch - len(batch))):
                volume += self._size(job.items[job.taken]) if self._size else 0
                if batch and self._volume is not None and volume > self._volume:
                    self._jobs.appendleft(job)
                    self._queued -= len(batch)
                    return batch
                batch.append((job, job.taken))
                job.taken += 1
            if job.waiting:
                self._jobs.append(job)
        self._queued -= len(batch)
        return batch

    def _compute(self, batch: list[tuple[Job[Item, Result], int]]) -> None:
        """Results of a batch to its callers; where it fails, each caller's inputs alone, so that one fails alone."""
        began = time.monotonic()
        try:
            results = self._run([job.items[place] for job, place in batch])
            if len(results) != len(batch):
                raise RuntimeError(f"{len(results)} results for {len(batch)} inputs")
        except Exception as error:
            jobs = dict.fromkeys(job for job, _ in batch)
            if len(jobs) == 1:
                self._fail(batch[0][0], error)
                return
            for one in jobs:
                self._compute([(job, place) for job, place in batch if job is one])
            return
        if self._observe is not None:
            self._observe(len(batch), time.monotonic() - began)
        for (job, place), result in zip(batch, results, strict=True):
            job.finish(place, result)

    def _fail(self, job: Job[Item, Result], error: Exception) -> None:
        """Raise an error for a caller and drop the rest of the job."""
        job.fail(error)
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
                self._queued -= job.waiting
