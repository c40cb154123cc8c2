"""The workers of a runner: started, listened to, replaced when they die. Here they are processes of this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, Protocol

from crossling.study.plan import Job
from crossling.study.sizing import Size
from crossling.study.status import JobProgress
from crossling.study.worker import Order, Place, serve

PATIENCE = 3.0
"""Seconds that a worker is given to end by itself."""


@dataclass(eq=False, kw_only=True)
class Worker:
    """A worker, wherever it is, and what it is doing."""

    job: Job | None = None
    order: Order | None = None
    since: float = 0.0
    progress: JobProgress = field(default_factory=JobProgress)

    def give(self, job: Job, order: Order) -> None:
        """Hand a job over."""
        self.job, self.order, self.since, self.progress = job, order, time.time(), JobProgress()
        job.state = "running"
        self.send(order)

    def rest(self) -> tuple[Job, Order]:
        """Take the job back."""
        assert self.job is not None and self.order is not None
        job, order = self.job, self.order
        self.job = self.order = None
        return job, order

    def send(self, order: Order) -> None:
        """Let an order reach the worker."""
        raise NotImplementedError

    def describe_end(self) -> str:
        """Why the worker is no more."""
        raise NotImplementedError

    @property
    def number(self) -> int | None:
        """Its process, on its machine; none while it has none."""
        raise NotImplementedError


Message = dict[str, Any]


class Crew(Protocol):
    """All workers of a runner."""

    @property
    def workers(self) -> Sequence[Worker]:
        """Those at work and those without a job."""

    def hire(self) -> object:
        """Get one more worker, which may need a while to begin."""

    def idle(self) -> list[Worker]:
        """Workers that could begin a job now."""

    def listen(self, seconds: float) -> Iterator[tuple[Worker, Message | None]]:
        """Messages that came within a time; none in place of a message means that the worker died."""

    def dismiss(self, worker: Worker) -> None:
        """End one worker now."""

    def dismiss_all(self) -> None:
        """End all."""

    def resize(self, size: Size) -> Size:
        """The size that fits what there is now: machines may come and go."""

    def relieve(self, size: Size) -> Size:
        """The size to go on with after a GPU's memory was full."""


@dataclass(eq=False, kw_only=True)
class ProcessWorker(Worker):
    """A process of this machine."""

    process: SpawnProcess
    connection: Connection
    gpu: int | None

    def send(self, order: Order) -> None:
        with contextlib.suppress(OSError):  # a worker that just died is noticed by its end
            self.connection.send(order)

    def describe_end(self) -> str:
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"its worker process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = ": by kill -9, or by the system for lack of memory" if -code == signal.SIGKILL else ""
        return f"its worker process was killed by {name}{hint}"

    @property
    def number(self) -> int | None:
        return self.process.pid


@dataclass
class ProcessCrew:
    """Processes of this machine."""

    out: Path
    store: Path
    gpus: int = 0
    workers: list[ProcessWorker] = field(default_factory=list)

    def hire(self) -> ProcessWorker:
        """Start one more process, on the GPU with the fewest."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        taken = [worker.gpu for worker in self.workers]
        gpu = min(range(self.gpus), key=taken.count) if self.gpus > 1 else None
        place = Place(self.out, self.store, os.getpid(), gpu)
        process = context.Process(target=serve, args=(place, theirs), daemon=True)
        process.start()
        theirs.close()
        worker = ProcessWorker(process=process, connection=ours, gpu=gpu)
        self.workers.append(worker)
        return worker

    def idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.job is None]

    def listen(self, seconds: float) -> Iterator[tuple[Worker, Message | None]]:
        sources: dict[Any, ProcessWorker] = {}
        for worker in self.workers:
            sources[worker.connection] = sources[worker.process.sentinel] = worker
        if not sources:
            time.sleep(seconds)
            return
        for worker in dict.fromkeys(sources[source] for source in wait(list(sources), seconds)):
            is_over = not worker.process.is_alive()
            yield from ((worker, message) for message in _drain(worker.connection))
            if is_over:
                self._forget(worker)
                yield worker, None

    def dismiss(self, worker: Worker) -> None:
        assert isinstance(worker, ProcessWorker)
        worker.process.kill()
        self._forget(worker)

    def dismiss_all(self) -> None:
        """End all: those without a job by themselves, the others at once; checkpoints keep what they did."""
        for worker in self.workers:
            with contextlib.suppress(OSError):
                worker.connection.send(None)
            if worker.job is not None:
                worker.process.kill()
        deadline = time.monotonic() + PATIENCE
        for worker in list(self.workers):
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
            self._forget(worker)

    def resize(self, size: Size) -> Size:
        return size

    def relieve(self, size: Size) -> Size:
        """One worker fewer, so that the rest has room."""
        return size.with_workers(max(1, size.workers - 1))

    def _forget(self, worker: ProcessWorker) -> None:
        worker.process.join()
        worker.connection.close()
        self.workers.remove(worker)


def _drain(connection: Connection) -> Iterator[dict[str, Any]]:
    """What lies in a pipe; a message that a killed worker left unfinished ends it."""
    try:
        while connection.poll():
            yield connection.recv()
    except (EOFError, OSError):
        return
