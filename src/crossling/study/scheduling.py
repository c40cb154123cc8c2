"""Run a study: jobs are leased, given to workers, tried again when a worker dies, and recorded.

How a killed study continues: nothing is kept in this process alone. Started again, it plans anew, finds finished cells
by their markers and trained stages by their artefacts, and takes the leases of what was being done, since their process
is dead (or, on another machine, silent for a minute). A stage then continues from its last checkpoint (``recipe_run``).
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from crossling.addresses import mask_credentials
from crossling.errors import StorageError, UserError
from crossling.files import explain_failures, make_folder, write_atomic
from crossling.processes import identify_machine
from crossling.progress import NoProgress, Progress
from crossling.store.artefacts import Store
from crossling.store.leases import Lease
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
from crossling.study.local import LocalPool
from crossling.study.memory import fit_gpu_memory
from crossling.study.plan import Job, JobGraph, find_finished, fix_threads, plan_study, write_plan
from crossling.study.pool import WorkerPool
from crossling.study.status import RunningJob, find_schedulers, remove_scheduler, write_scheduler
from crossling.study.worker import Assignment, Message

logger = logging.getLogger(__name__)

RETRIES = 2
"""Times that a job is tried again after its worker died."""
POLL_SECONDS = 0.2
STATUS_SECONDS = 1.0
"""Between two writes of this process's state, from which ``crossling study status`` reads."""


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
    pool: WorkerPool | None = None,
) -> Outcome:
    """Run a study: what is finished is left alone, all else is done, here or by other processes on the store.

    ``pool`` is where jobs run: on this machine by default, or on a Ray cluster.
    """
    progress, pool = progress or NoProgress(), pool or LocalPool()
    if store.archive is not None and store.archive.is_private:
        raise UserError(f"{store.archive.shown}: one process alone would see it; name a store that all workers see")
    out = out.resolve()
    with explain_failures(out):
        make_folder(out)
    pool.measure(study, out, workers=workers)
    study = fix_threads(study, pool.resources.threads) if pool.resources.device == "cpu" else study
    refuse_other_study(study, out)
    try:
        pool.open(study, out, store, progress=progress)
        with explain_failures(out):
            return Scheduler(study, out, store, pool, progress).run(command)
    finally:
        pool.close()
        remove_scheduler(out)


@contextmanager
def open_pool(ray: str | None) -> Iterator[WorkerPool]:
    """The Ray cluster at an address, until the end of the work; this machine where no address is given."""
    if ray is None:
        yield LocalPool()
        return
    from crossling.study.ray import RayPool

    with RayPool.connect(ray) as pool:
        yield pool


def refuse_other_study(study: Study, out: Path) -> None:
    """Two processes may share a folder only for the same study."""
    for other in find_schedulers(out):
        if other.study != study.identity and other.process != os.getpid():
            raise UserError(
                f"{out}: process {other.process} on {other.host} is running another version of this study "
                "there; wait for it, or name another folder with --out"
            )


@dataclass
class Scheduler:
    """One call of :func:`run_study`."""

    study: Study
    out: Path
    store: Store
    pool: WorkerPool
    progress: Progress
    graph: JobGraph = field(default_factory=JobGraph)
    cells: dict[str, PlannedCell] = field(default_factory=dict)
    leases: dict[str, Lease] = field(default_factory=dict)
    running: dict[str, RunningJob] = field(default_factory=dict)
    """By key, the jobs that workers have."""
    failed: dict[str, str] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    """What workers warned of."""
    _written: float = 0.0

    def run(self, command: str) -> Outcome:
        """Plan the study, then start jobs and handle what workers report until all are done or failed."""
        self._write_status()
        self._plan(command)
        self.progress.say(self.pool.resources.describe())
        self.progress.begin(f"study {self.study.name}", len(self.cells))
        self.progress.advance(self.graph.count()["done"])
        try:
            while not self.graph.is_finished():
                self._start_jobs()
                for message in self.pool.poll(POLL_SECONDS):
                    self._handle(message)
                self._write_status()
        finally:
            for lease in self.leases.values():
                self.store.leases.release(lease, finished=False)
        self.progress.end()
        return Outcome(len(self.cells), self.graph.count()["done"], self.failed)

    def _plan(self, command: str) -> None:
        planned, runs = plan_study(
            self.study, self.store, self.out, setup=self.pool.setup_distributed, progress=self.progress
        )
        self.pool.resources = fit_gpu_memory(self.pool.resources, runs)
        self.pool.scale(1)
        self.cells = {cell.name: cell for cell in planned}
        write_plan(
            self.study,
            planned,
            self.out,
            store=self.store,
            runs=runs,
            command=command,
            device=self.pool.resources.device,
            threads=self.pool.resources.threads,
        )
        finished = find_finished(planned, runs, self.out)
        for cell in planned:
            (self.out / cell.name / FAILED).unlink(missing_ok=True)
        trained = {one.identity for cell in planned for one in cell.list_trainings()}
        trained = {identity for identity in trained if self.store.is_complete(identity)}
        whole = {identity for identity in trained if self.store.is_whole(identity)}
        self.graph = JobGraph.from_cells(
            planned, finished=finished, is_trained=whole.__contains__, damaged=trained - whole
        )

    def _start_jobs(self) -> None:
        """Give every free worker the next job that no other process has."""
        left = sum(job.state in ("waiting", "running") for job in self.graph.jobs.values())
        free = self.pool.scale(left)
        while free and (job := next(self.graph.ready(), None)) is not None:
            if self._has_results(job) and not job.attempts:
                self._finish(job)
                continue
            lease = self.store.leases.try_acquire(job.lease)
            if lease is None:
                self.graph.postpone(job)
                continue
            if job.stage is not None:
                self.store.heal(job.key, self.progress.say)
            if self._has_results(job):  # finished by another process just before, or by a worker that then died
                self.store.leases.release(lease, finished=True)
                self._finish(job)
            else:
                self._start(job, lease)
                free -= 1

    def _start(self, job: Job, lease: Lease) -> None:
        identity = job.key if job.stage is not None else self.cells[job.cell].identity
        threads = self.pool.resources.threads
        self.leases[job.key], job.state = lease, "running"
        assignment = Assignment(job.key, job.cell, job.folder, job.seed, job.stage, identity, lease, threads)
        process = self.pool.start(assignment)
        self.running[job.key] = RunningJob(process, job.cell, job.key, job.stage, time.time())

    def _has_results(self, job: Job) -> bool:
        if job.stage is not None:
            return self.store.is_whole(job.key)
        cell = self.cells[job.cell]
        return is_finished(self.out, cell) or fetch_results(self.store, self.out / cell.name, cell.identity)

    def _handle(self, message: Message) -> None:
        if message.event is not None:
            append_event(self.out, message.event)
            return
        if message.kind == "warning":
            self._warn(message.error)
            return
        if message.key not in self.running:
            return  # of a job that was taken from its worker
        if message.kind == "progress":
            self.running[message.key] = replace(self.running[message.key], progress=message.progress)
        elif message.kind == "started":
            self.running[message.key] = replace(self.running[message.key], process=message.process)
        else:
            self._handle_end(self.graph.jobs[message.key], message)

    def _warn(self, text: str) -> None:
        """Show what a worker warns of, once for all of them."""
        if text not in self.warned:
            self.warned.add(text)
            logger.warning("%s", mask_credentials(text))

    def _handle_end(self, job: Job, message: Message) -> None:
        """A worker has the job no more."""
        del self.running[job.key]
        message = replace(message, error=mask_credentials(message.error), trace=mask_credentials(message.trace))
        if message.kind == "done":
            self._handle_done(job, message.seconds)
        elif message.kind == "no_room":  # what comes next would fail, too; started again, the study goes on from here
            raise StorageError(message.error)
        elif message.kind == "failed":
            self._give_up(job, message.error, message.trace)
        elif message.kind in ("lease_lost", "not_started"):  # another process took it over; a machine cannot run it
            self._release(job, finished=False)
            self.graph.postpone(job)
        else:
            if message.kind == "out_of_memory" and self.pool.resources.workers > 1:
                self.pool.reduce()
                self.progress.say(f"a GPU's memory was full; going on with {self.pool.resources.describe()}")
            self._retry(job, message.error, message.trace)

    def _handle_done(self, job: Job, seconds: float) -> None:
        self._release(job, finished=True)
        if self.store.archive is not None:
            self.store.archive.refresh()
            if not self._has_results(job):
                self._give_up(job, f"{self.store.archive.shown}: has no {job.key}, though it was sent there", "")
                return
        self._finish(job, seconds=seconds)

    def _retry(self, job: Job, reason: str, trace: str) -> None:
        job.attempts += 1
        self._log("died", job, reason)
        if job.attempts > RETRIES:
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
        for cell in self.graph.fail(job):
            self.failed[cell] = line
            write_failure(self.out, cell, CellFailure(line, str(log.relative_to(self.out)), time.time()))
            self.progress.advance(1)
            self.progress.say(f"failed  {cell}: {line}")
        self._log("failed", job, line)

    def _finish(self, job: Job, *, seconds: float | None = None) -> None:
        job.state = "done"
        if job.stage is None:
            self.progress.advance(1)
            took = f" (predicted in {seconds:.1f} s)" if seconds is not None else " (by another process)"
            self.progress.say(f"done    {job.cell}{took}")

    def _release(self, job: Job, *, finished: bool) -> None:
        lease = self.leases.pop(job.key, None)
        if lease is not None:
            self.store.leases.release(lease, finished=finished)

    def _log(self, event: str, job: Job, reason: str) -> None:
        now = round(time.time(), 3)
        append_event(self.out, Event(now, event, job.key, job.cell, os.getpid(), identify_machine(), reason))

    def _write_status(self) -> None:
        if time.monotonic() - self._written < STATUS_SECONDS:
            return
        self._written = time.monotonic()
        with contextlib.suppress(OSError, StorageError):
            workers, jobs = self.pool.resources.workers, tuple(self.running.values())
            write_scheduler(self.out, self.study.identity, workers=workers, working=jobs)
