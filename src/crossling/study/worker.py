"""A process that does one job of a study after the other: it pays for its imports once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from crossling.errors import UserError
from crossling.store.leases import Lease, LeaseLostError, identify_machine
from crossling.study.folder import CellMarker, Event, append_event, prediction_path
from crossling.study.status import JobProgress

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from crossling.encoders.cache import EncoderCache
    from crossling.study.recipe_run import RecipeRun

WATCH_SECONDS = 1.0
REPORT_SECONDS = 0.25
VARIANTS_KEPT = 32
"""Variants whose opened data a worker remembers."""


@dataclass(frozen=True)
class Order:
    """A job as a worker gets it."""

    key: str
    cell: str
    folder: str
    """The variant's, below the study's."""
    seed: int
    stage: int | None
    identity: str
    """Of the stage or the predictions: it must still be this, or data changed since the plan."""
    lease: Lease | None
    """The runner's; none where the worker's machine does not see it."""
    threads: int


@dataclass(frozen=True)
class Place:
    """Where a worker works."""

    out: Path
    store: Path
    parent: int = 0
    gpu: int | None = None


class Voice(Protocol):
    """What a worker tells its runner through."""

    def send(self, message: Any, /) -> None: ...


def serve(place: Place, connection: Connection) -> None:
    """Do what the runner sends until it says no more, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the runner's to handle
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _die_with(place.parent)
    if place.gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(place.gpu)
    import_all()

    worker = Worker(place, connection)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while (order := connection.recv()) is not None:
            worker.do(order)


def import_all() -> None:
    """Pay for all imports at once, while the runner plans, and not in the first cell."""
    from transformers import AutoModel, AutoTokenizer  # noqa: F401

    from crossling.study import recipe_run  # noqa: F401


def _die_with(parent: int) -> None:
    """An orphan must not go on working: the kernel kills it, and where there is no such service it looks itself."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="watch for the runner", daemon=True).start()


@dataclass
class Worker:
    """One worker's memory."""

    place: Place
    connection: Voice
    report_seconds: float = REPORT_SECONDS
    runners: dict[str, RecipeRun] = field(default_factory=dict)
    _encoders: EncoderCache | None = None

    def do(self, order: Order) -> None:
        """Do a job and tell how it ended; an error is told, too, and the worker goes on."""
        began = time.monotonic()
        self._note("begin", order)
        try:
            self._carry_out(order)
        except LeaseLostError as error:
            self._tell(order, "lost", error=str(error))
        except UserError as error:
            self._tell(order, "failed", error=str(error), trace=traceback.format_exc())
        except Exception as error:
            outcome = "memory" if type(error).__name__ == "OutOfMemoryError" else "failed"
            self._tell(order, outcome, error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        else:
            self._note("end", order)
            self._tell(order, "done", seconds=round(time.monotonic() - began, 3))

    def _carry_out(self, order: Order) -> None:
        from crossling.training.tracking import open_trackers

        runner = self._open(order)
        if order.stage is not None:
            self._check(runner.identify_stages(order.seed)[order.stage], order)
            with open_trackers(runner.recipe, runner.out, runner.distributed) as runner.track:
                self._train(runner, order, order.stage)
        else:
            self._check(runner.identify_predictions(order.seed), order)
            self._predict(runner, order)
        self._free_memory(runner)

    def _train(self, runner: RecipeRun, order: Order, stage: int) -> None:
        if order.lease is not None:
            runner.train(stage, order.seed, still_held=order.lease.check)
            return
        # The runner's leases are not seen here, and checkpoints are this machine's own: only its own processes, such
        # as one that its runner believes dead, could be in the way.
        with runner.store.leases.hold(f"here-{order.key}") as lease:
            if not runner.store.is_complete(order.key):
                runner.train(stage, order.seed, still_held=lease.check)

    def _open(self, order: Order) -> RecipeRun:
        import torch

        from crossling.recipe.recipe import load_recipe
        from crossling.store.artefacts import Store
        from crossling.study.recipe_run import RecipeRun
        from crossling.training.distributed import setup_distributed

        torch.set_num_threads(order.threads)
        runner = self.runners.pop(order.folder, None)
        if runner is None:
            folder = self.place.out / order.folder
            recipe = load_recipe(folder / "recipe.toml")
            runner = RecipeRun(
                recipe, Store(self.place.store), folder, setup_distributed(recipe.run), encoders=self.encoders
            )
        runner.distributed = setup_distributed(runner.recipe.run)
        runner.progress = Reporter(self.connection, order, self.report_seconds)
        self.runners[order.folder] = runner
        while len(self.runners) > VARIANTS_KEPT:
            del self.runners[next(iter(self.runners))]
        return runner

    @property
    def encoders(self) -> EncoderCache:
        """What all variants share: an encoder is read once."""
        from crossling.encoders.cache import EncoderCache

        self._encoders = self._encoders or EncoderCache(keep=True)
        return self._encoders

    def _check(self, identity: str, order: Order) -> None:
        if identity != order.identity:
            raise UserError(f"{order.cell}: data or settings changed since the study was planned; start it again")

    def _predict(self, runner: RecipeRun, order: Order) -> None:
        """Predictions into the cell's folder, then its marker."""
        from crossling.study.folder import mark_finished, send_results
        from crossling.training.hardware import describe_hardware

        began = time.monotonic()
        runner.predict(order.seed)
        stages = runner.identify_stages(order.seed)
        trained = runner.store.record(stages[-1]).get("work", {}).get("seconds", 0.0)
        folder = self.place.out / order.cell
        seconds = round(trained + time.monotonic() - began, 3)
        machine = describe_hardware(runner.distributed)
        marker = CellMarker(order.identity, stages, seconds, time.time(), machine)
        files = [prediction_path(runner.out, order.seed, entry, language) for entry, language, _ in runner.targets]
        send_results(runner.store, folder, files, marker)
        mark_finished(folder, marker)

    def _free_memory(self, runner: RecipeRun) -> None:
        """Leave room for the others on a GPU."""
        if runner.distributed.device.type == "cuda":
            import gc

            import torch

            gc.collect()
            torch.cuda.empty_cache()

    def _note(self, event: str, order: Order) -> None:
        append_event(self.place.out, describe_event(event, order))

    def _tell(self, order: Order, outcome: str, **facts: Any) -> None:
        self.connection.send({"outcome": outcome, "key": order.key, **facts})


@dataclass
class Reporter:
    """Progress of a job, told to the runner now and then."""

    connection: Voice
    order: Order
    every: float
    """Seconds between two messages."""
    what: str = ""
    done: int = 0
    total: int = 0
    told: float = 0.0

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.what, self.total, self.done = what, total, done
        self._tell({})

    def advance(self, steps: int = 1, **facts: str) -> None:
        self.done += steps
        if time.monotonic() - self.told > self.every:
            self._tell(facts)

    def end(self) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def _tell(self, facts: dict[str, str]) -> None:
        self.told = time.monotonic()
        progress = JobProgress(self.what, self.done, self.total, facts)
        self.connection.send({"outcome": "progress", "key": self.order.key, "progress": progress})


def describe_event(event: str, order: Order) -> Event:
    """An event of a job on this machine."""
    return Event(round(time.time(), 3), event, order.key, order.cell, os.getpid(), identify_machine())
