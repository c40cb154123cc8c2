"""A study carried out: jobs are leased, handed to workers, tried again when a worker dies, and written down."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError, UserError
from crossling.files import write_atomic
from crossling.progress import NoProgress, Progress
from crossling.store.artefacts import Store
from crossling.store.leases import Lease, identify_machine
from crossling.study.crew import Crew, Worker
from crossling.study.folder import (
    FAILED,
    LOGS,
    CellFailure,
    Event,
    PlannedCell,
    append_event,
    fetch_results,
    is_finished,
    write_failure,
)
from crossling.study.grid import Study
from crossling.study.plan import Job, JobGraph, find_finished, fix_threads, plan_study, write_plan
from crossling.study.sites import Here, Site
from crossling.study.sizing import Size
from crossling.study.status import RunningJob, find_schedulers, remove_scheduler, write_scheduler
from crossling.study.worker import Order

MORE_TRIES = 2
"""Times that a job is tried again after its worker died."""
LISTEN_SECONDS = 0.2
ANNOUNCE_SECONDS = 1.0


@dataclass(frozen=True)
class Outcome:
    """How a study ended."""

    cells: int
    done: int
    failed: Mapping[str, str]
    """Cells without results, and why."""


def run_study(
    study: Study,
    *,
    out: Path,
    store: Store,
    workers: int | None = None,
    progress: Progress | None = None,
    command: str = "",
    site: Site | None = None,
) -> Outcome:
    """Carry a study out: what is finished is left alone, all else is done, here or by other runners on the store.

    ``site`` is where workers are: on this machine, unless it is a cluster.
    """
    progress, site = progress or NoProgress(), site or Here()
    if store.archive is not None and store.archive.is_private:
        raise UserError(f"{store.archive.address}: one process alone would see it; name a store that all workers see")
    out = out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    size = site.choose_size(study, out, workers=workers)
    study = fix_threads(study, size.threads) if size.device == "cpu" else study
    refuse_other_study(study, out)
    crew = site.gather(study, out, store, size=size, progress=progress)
    try:
        return _Run(study, out, store, site, crew, size, progress).run(command)
    except OSError as error:
        raise ArtefactError(
            f"{error.filename or out}: {error.strerror or error}. Mend that (often the disk is full) and start the "
            "study again: it goes on from where it was."
        ) from error
    finally:
        crew.dismiss_all()
        remove_scheduler(out)


def refuse_other_study(study: Study, out: Path) -> None:
    """Two runners may share a folder only for the same study."""
    for other in find_schedulers(out):
        if other.study != study.identity and other.process != os.getpid():
            raise UserError(
                f"{out}: process {other.process} on {other.host} is running another version of this study "
                "there; wait for it, or name another folder with --out"
            )


@dataclass
class _Run:
    """One call of :func:`run_study`."""

    study: Study
    out: Path
    store: Store
    site: Site
    crew: Crew
    size: Size
    progress: Progress
    graph: JobGraph = field(default_factory=JobGraph)
    cells: dict[str, PlannedCell] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    announced: float = 0.0

    def run(self, command: str) -> Outcome:
        """Plan, work, tell."""
        self._announce()
        self._plan(command)
        self.progress.say(self.size.describe())
        self.progress.begin(f"study {self.study.name}", len(self.cells))
        self.progress.advance(self.graph.count()["done"])
        try:
            while not self.graph.is_finished():
                self._hire()
                self._hand_out()
                for worker, message in self.crew.listen(LISTEN_SECONDS):
                    self._handle(worker, message)
                self._announce()
        finally:
            for lease in self.leases.values():
                self.store.leases.release(lease, finished=False)
        self.progress.end()
        return Outcome(len(self.cells), self.graph.count()["done"], self.failed)

    def _plan(self, command: str) -> None:
        planned, runs = plan_study(self.study, self.store, self.out, join=self.site.join)
        self.size = self.crew.resize(self.size.fit(runs))
        self.cells = {cell.name: cell for cell in planned}
        write_plan(
            self.study,
            planned,
            self.out,
            store=self.store,
            runs=runs,
            command=command,
            device=self.size.device,
            threads=self.size.threads,
        )
        finished = find_finished(planned, runs, self.out)
        for cell in planned:
            (self.out / cell.name / FAILED).unlink(missing_ok=True)
        self.graph = JobGraph.from_cells(planned, finished=finished, is_trained=self.store.is_complete)

    def _hire(self) -> None:
        """As many workers as are wanted and have something to do; the others' places go back."""
        useful = sum(job.state in ("waiting", "running") for job in self.graph.jobs.values())
        self.size = self.crew.resize(self.size)
        while len(self.crew.workers) < min(self.size.workers, useful):
            self.crew.hire()
        ready = set(self.crew.idle())
        resting = sorted((w for w in self.crew.workers if w.job is None), key=lambda worker: worker in ready)
        for worker in resting[: max(0, len(self.crew.workers) - useful)]:  # first those that have not begun yet
            self.crew.dismiss(worker)

    def _hand_out(self) -> None:
        """Give every idle worker the next job that nobody else has."""
        idle = self.crew.idle()
        while idle:
            job = next(self.graph.ready(), None)
            if job is None:
                return
            if self._is_there(job):
                self._finish(job)
                continue
            lease = self.store.leases.try_acquire(job.lease)
            if lease is None:
                self.graph.postpone(job)
            elif self._is_there(job):  # finished by another runner just before
                self.store.leases.release(lease, finished=True)
                self._finish(job)
            else:
                self.leases[job.key] = lease
                idle.pop().give(job, self._order(job, lease))

    def _order(self, job: Job, lease: Lease) -> Order:
        identity = job.key if job.stage is not None else self.cells[job.cell].identity
        return Order(job.key, job.cell, job.folder, job.seed, job.stage, identity, lease, self.size.threads)

    def _is_there(self, job: Job) -> bool:
        if job.stage is not None:
            return self.store.is_complete(job.key)
        cell = self.cells[job.cell]
        return is_finished(self.out, cell) or fetch_results(self.store, self.out / cell.name, cell.identity)

    def _handle(self, worker: Worker, message: dict[str, Any] | None) -> None:
        if message is not None and message["outcome"] == "progress":
            worker.progress = message["progress"]
        elif message is not None and message["outcome"] == "note":
            append_event(self.out, message["event"])
        elif worker.job is None:
            return
        elif message is None:
            self._retry(worker, worker.describe_end(), trace="")
        else:
            _HANDLERS[message["outcome"]](self, worker, message)

    def _handle_done(self, worker: Worker, message: dict[str, Any]) -> None:
        job, _ = worker.rest()
        self._release(job, finished=True)
        if self.store.archive is not None:
            self.store.archive.look_again()
            if not self._is_there(job):
                self._give_up(job, f"{self.store.archive.address}: has no {job.key}, though it was sent there", "")
                return
        self._finish(job, seconds=message["seconds"])

    def _handle_failed(self, worker: Worker, message: dict[str, Any]) -> None:
        job, _ = worker.rest()
        self._give_up(job, message["error"], message["trace"])

    def _handle_lost(self, worker: Worker, message: dict[str, Any]) -> None:
        """Another runner took the work over: it is looked at again like any other's."""
        job, _ = worker.rest()
        self._release(job, finished=False)
        self.graph.postpone(job)

    def _handle_memory(self, worker: Worker, message: dict[str, Any]) -> None:
        """A GPU was too full: from now on fewer workers, so that the rest has room."""
        if self.size.workers > 1:
            self.size = self.crew.relieve(self.size)
            self.progress.say(f"a GPU's memory was full; going on with {self.size.describe()}")
        self._retry(worker, message["error"], trace=message["trace"])
        self.crew.dismiss(worker)

    def _retry(self, worker: Worker, reason: str, *, trace: str) -> None:
        job, _ = worker.rest()
        job.attempts += 1
        self._note("died", job, reason)
        if job.attempts > MORE_TRIES:
            self._give_up(job, f"{reason} ({job.attempts} times)", trace or reason)
            return
        self._release(job, finished=False)
        job.state = "waiting"
        self.progress.say(f"{job.cell}: {reason}; tried again")

    def _give_up(self, job: Job, error: str, trace: str) -> None:
        self._release(job, finished=False)
        log = self.out / LOGS / f"{job.cell.replace('/', '-')}.log"
        write_atomic(log, f"{job.cell}, job {job.key}, after {job.attempts + 1} tries\n\n{trace}\n")
        line = " ".join(error.split())
        for cell in self.graph.fail(job, line):
            self.failed[cell] = line
            write_failure(self.out, cell, CellFailure(line, str(log.relative_to(self.out)), time.time()))
            self.progress.advance(1)
            self.progress.say(f"failed  {cell}: {line}")
        self._note("failed", job, line)

    def _finish(self, job: Job, *, seconds: float | None = None) -> None:
        job.state = "done"
        if job.stage is None:
            self.progress.advance(1)
            took = f" ({seconds:.1f} s to predict)" if seconds is not None else " (by another runner)"
            self.progress.say(f"done    {job.cell}{took}")

    def _release(self, job: Job, *, finished: bool) -> None:
        lease = self.leases.pop(job.key, None)
        if lease is not None:
            self.store.leases.release(lease, finished=finished)

    def _note(self, event: str, job: Job, reason: str) -> None:
        now, machine = round(time.time(), 3), identify_machine()
        append_event(self.out, Event(now, event, job.key, job.cell, os.getpid(), machine, reason))

    def _announce(self) -> None:
        """Renew this runner's file, from which status is read."""
        if time.monotonic() - self.announced < ANNOUNCE_SECONDS:
            return
        self.announced = time.monotonic()
        working = [
            RunningJob(worker.number, worker.job.cell, worker.job.key, worker.job.stage, worker.since, worker.progress)
            for worker in self.crew.workers
            if worker.job is not None
        ]
        with contextlib.suppress(OSError):
            write_scheduler(self.out, self.study.identity, workers=self.size.workers, working=working)


_HANDLERS = {
    "done": _Run._handle_done,
    "failed": _Run._handle_failed,
    "lost": _Run._handle_lost,
    "memory": _Run._handle_memory,
}
