"""A worker runs one job of a study after the other: it imports and loads an encoder once.

A job is the training of one stage, or the predictions of one cell.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from crossling.errors import OutOfMemoryError, StorageError, UserError
from crossling.files import describe_failure
from crossling.processes import identify_machine
from crossling.store.leases import Lease, LeaseLostError
from crossling.study.folder import RECIPE, CellMarker, Event, append_event, mark_finished, prediction_path, send_results
from crossling.study.status import JobProgress

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from crossling.encoders.cache import EncoderCache
    from crossling.study.recipe_run import RecipeRun

WATCH_SECONDS = 1.0
END_SECONDS = 2.0
"""Until a process whose scheduler is gone ends, whatever it does."""
REPORT_SECONDS = 0.25
VARIANTS_KEPT = 32
"""Variants whose opened data a worker keeps in memory."""


@dataclass(frozen=True)
class Assignment:
    """A job as a worker gets it."""

    key: str
    cell: str
    folder: str
    """The variant's, below the study's."""
    seed: int
    stage: int | None
    """The number of the stage to train; none for predictions."""
    identity: str
    """Of the stage or the predictions: it must still be this, or data changed since the plan."""
    lease: Lease | None
    """The scheduler's; none where the worker's machine does not see it."""
    threads: int


@dataclass(frozen=True)
class Message:
    """What a worker, or its pool, reports about a job."""

    kind: Literal[
        "started",
        "progress",
        "event",
        "warning",
        "done",
        "failed",
        "lease_lost",
        "out_of_memory",
        "device_lost",
        "no_room",
        "died",
        "not_started",
    ]
    key: str
    error: str = ""
    """Why the job failed; of a warning its text."""
    trace: str = ""
    seconds: float = 0.0
    process: int | None = None
    progress: JobProgress = field(default_factory=JobProgress)
    event: Event | None = None


UNDER_WAY = frozenset({"started", "progress", "event", "warning"})
"""Kinds of messages after which a job goes on."""

Channel = Callable[[Message], None]
"""Sends a message to the scheduler."""


class WarningSender(logging.Handler):
    """Sends warnings to the scheduler, which shows each once; the workers of a study read the same data."""

    def __init__(self, send: Channel) -> None:
        super().__init__(logging.WARNING)
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(OSError):  # the scheduler is gone, and so is who would read it
            self._send(Message("warning", "", error=self.format(record)))


@dataclass(frozen=True)
class WorkerPaths:
    """The folders of the study and of the store, on the worker's machine."""

    out: Path
    store: Path


def serve_jobs(paths: WorkerPaths, connection: Connection, parent: int, gpu: str | None) -> None:
    """The main function of a local worker process: run what the scheduler sends until it sends none, or is gone.

    ``gpu``: the one that it uses, of several.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the scheduler's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _exit_with(parent)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    import_all()
    _end_without_cutting_off_kernels()

    lock = threading.Lock()

    def send(message: Message) -> None:
        with lock:  # a thread that reads data may warn while another one reports
            connection.send(message)

    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[WarningSender(send)], force=True)
    worker = Worker(paths, send, partial(append_event, paths.out))
    with contextlib.suppress(EOFError, BrokenPipeError):
        while (assignment := connection.recv()) is not None:
            worker.run(assignment)


def import_all() -> None:
    """Import everything at once, while the scheduler plans, and not in the first cell."""
    from crossling.encoders.loading import exempt_libraries, import_transformers
    from crossling.study import recipe_run  # noqa: F401

    import_transformers()
    exempt_libraries()


def _exit_with(parent: int) -> None:
    """End with the parent process: the kernel sends a signal, and where it cannot, a thread watches."""
    _set_parent_death_signal(signal.SIGKILL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(END_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="watch the scheduler", daemon=True).start()


def _end_without_cutting_off_kernels() -> None:
    """On a GPU, end after what runs there: with MPS, a process killed in a kernel can break all others on the card."""
    import torch

    if not torch.cuda.is_available():
        return
    signal.signal(signal.SIGTERM, end_after_kernels)
    _set_parent_death_signal(signal.SIGTERM)


def end_after_kernels(number: int, frame: object) -> None:
    """Handle a signal: wait for the GPU, then end."""
    import torch

    with contextlib.suppress(Exception):  # a stream that is being captured cannot be waited for
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
    os._exit(128 + number)


def _set_parent_death_signal(number: signal.Signals) -> None:
    """Ask the kernel for a signal when the parent process ends."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, number)  # PR_SET_PDEATHSIG


@dataclass
class Worker:
    """Runs jobs, and keeps what the next one may need: opened data and the encoder."""

    paths: WorkerPaths
    send: Channel
    log_event: Callable[[Event], None]
    report_seconds: float = REPORT_SECONDS
    runs: dict[str, RecipeRun] = field(default_factory=dict)
    _encoders: EncoderCache | None = None

    def run(self, assignment: Assignment) -> None:
        """Run a job and report how it ended; the worker survives an error."""
        began = time.monotonic()
        report = partial(Message, key=assignment.key)
        try:
            self.log_event(describe_event("begin", assignment))
            self._run(assignment)
            self.log_event(describe_event("end", assignment))
        except LeaseLostError as error:
            self.send(report("lease_lost", error=str(error)))
        except StorageError as error:
            self.send(report("no_room", error=str(error)))
        except UserError as error:
            is_full = isinstance(error, OutOfMemoryError)
            self.send(report("out_of_memory" if is_full else "failed", error=str(error), trace=traceback.format_exc()))
        except Exception as error:
            if message := describe_failure(error, self.paths.out):
                self.send(report("no_room", error=message))
                return
            text, trace = f"{type(error).__name__}: {error}", traceback.format_exc()
            self.send(report(_classify_error(error), error=text, trace=trace))
        else:
            self.send(report("done", seconds=round(time.monotonic() - began, 3)))

    def _run(self, assignment: Assignment) -> None:
        from crossling.training.tracking import open_trackers

        run = self._open(assignment)
        if assignment.stage is not None:
            self._check(run.identify_stages(assignment.seed)[assignment.stage], assignment)
            with open_trackers(run.recipe, run.out, run.distributed) as run.track:
                self._train(run, assignment, assignment.stage)
        else:
            self._check(run.identify_predictions(assignment.seed), assignment)
            self._predict(run, assignment)
        self._free_memory(run)

    def _train(self, run: RecipeRun, assignment: Assignment, stage: int) -> None:
        if assignment.lease is not None:
            run.train(stage, assignment.seed, check_lease=assignment.lease.check)
            return
        # The scheduler's leases are not seen here, and checkpoints are on this machine's disk: only a process of this
        # machine, such as one that its scheduler takes for dead, could be writing them.
        with run.store.leases.hold(f"here-{assignment.key}") as lease:
            if not run.store.is_complete(assignment.key):
                run.train(stage, assignment.seed, check_lease=lease.check)

    def _open(self, assignment: Assignment) -> RecipeRun:
        import torch

        from crossling.recipe.recipe import load_recipe
        from crossling.store.artefacts import Store
        from crossling.study.recipe_run import RecipeRun
        from crossling.training.distributed import setup_distributed

        torch.set_num_threads(assignment.threads)
        run = self.runs.pop(assignment.folder, None)
        if run is None:
            folder = self.paths.out / assignment.folder
            recipe = load_recipe(folder / RECIPE)
            run = RecipeRun(
                recipe, Store(self.paths.store), folder, setup_distributed(recipe.run), encoders=self.encoders
            )
        run.distributed = setup_distributed(run.recipe.run)
        run.progress = ProgressReporter(self.send, assignment.key, self.report_seconds)
        self.runs[assignment.folder] = run
        while len(self.runs) > VARIANTS_KEPT:
            del self.runs[next(iter(self.runs))]
        return run

    @property
    def encoders(self) -> EncoderCache:
        """Shared by all variants: an encoder is read once."""
        from crossling.encoders.cache import EncoderCache

        self._encoders = self._encoders or EncoderCache(keep=True)
        return self._encoders

    def _check(self, identity: str, assignment: Assignment) -> None:
        if identity != assignment.identity:
            raise UserError(f"{assignment.cell}: data or settings changed since the study was planned; start it again")

    def _predict(self, run: RecipeRun, assignment: Assignment) -> None:
        """Predictions into the cell's folder, then its marker."""
        from crossling.training.hardware import describe_hardware

        began = time.monotonic()
        run.predict(assignment.seed)
        stages = run.identify_stages(assignment.seed)
        trained = run.store.record(stages[-1]).get("work", {}).get("seconds", 0.0)
        folder = self.paths.out / assignment.cell
        seconds = round(trained + time.monotonic() - began, 3)
        marker = CellMarker(assignment.identity, stages, seconds, time.time(), describe_hardware(run.distributed))
        files = [prediction_path(run.out, assignment.seed, entry, language) for entry, language, _ in run.targets]
        send_results(run.store, folder, files, marker)
        mark_finished(folder, marker)

    def _free_memory(self, run: RecipeRun) -> None:
        """Leave room for the others on a GPU."""
        if run.distributed.device.type == "cuda":
            import torch

            gc.collect()
            torch.cuda.empty_cache()


def _classify_error(error: Exception) -> Literal["out_of_memory", "device_lost", "failed"]:
    """What becomes of a job: after an error of the GPU, such as an illegal access, this process cannot use it."""
    name = type(error).__name__
    if name == "OutOfMemoryError" or (name == "AcceleratorError" and "out of memory" in str(error)):
        return "out_of_memory"
    return "device_lost" if name == "AcceleratorError" else "failed"


@dataclass
class ProgressReporter:
    """Sends the progress of a job to the scheduler, now and then."""

    send: Channel
    key: str
    every: float
    """Seconds between two messages."""
    what: str = ""
    done: int = 0
    total: int = 0
    sent: float = 0.0

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.done = what, total, done
        self._send({})

    def advance(self, steps: int = 1, **facts: str) -> None:
        self.done += steps
        if time.monotonic() - self.sent > self.every:
            self._send(facts)

    def end(self) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def _send(self, facts: dict[str, str]) -> None:
        self.sent = time.monotonic()
        self.send(Message("progress", self.key, progress=JobProgress(self.what, self.done, self.total, facts)))


def describe_event(event: str, assignment: Assignment) -> Event:
    """An event of a job, with the time, this process and this machine."""
    now = round(time.time(), 3)
    return Event(now, event, assignment.key, assignment.cell, os.getpid(), identify_machine())
