"""The state of a study: read from the small files of its folder, at once and without any heavy import.

A process that runs a study (a scheduler) writes its own state every second; see ``scheduling``.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crossling.files import read_json, write_atomic
from crossling.processes import identify_machine, is_running
from crossling.study.folder import RUNNERS, PlannedCell, read_failure, read_marker, read_plan

FRESH_SECONDS = 60.0
"""A scheduler on another machine counts as running for this long after it last wrote its state."""
STATES = ("done", "running", "waiting", "failed")


@dataclass(frozen=True)
class JobProgress:
    """How far a job is."""

    what: str = ""
    done: int = 0
    total: int = 0
    facts: Mapping[str, str] = field(default_factory=dict)
    """Such as the loss."""

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.done / self.total if self.total else 0.0


@dataclass(frozen=True)
class RunningJob:
    """A job that a worker has."""

    process: int | None
    """The worker's; none while it has not started."""
    cell: str
    job: str
    stage: int | None
    """The number of the stage; none for predictions."""
    since: float
    progress: JobProgress = JobProgress()


@dataclass(frozen=True)
class SchedulerStatus:
    """A process that runs a study, and what its workers do."""

    study: str
    """The identity of what it runs."""
    host: str
    machine: str
    process: int
    updated: float
    workers: int
    working: tuple[RunningJob, ...] = ()

    @property
    def is_alive(self) -> bool:
        """By its process on this machine, by a fresh file on another."""
        if self.machine == identify_machine():
            return is_running(self.process)
        return time.time() - self.updated < FRESH_SECONDS


@dataclass(frozen=True)
class CellStatus:
    """The state of one cell."""

    name: str
    task: str
    label: str
    seed: int
    state: str
    seconds: float | None = None
    """Time that it took, its own stage and predictions."""
    share: float = 0.0
    """Of a running one, how much is done."""
    doing: str = ""
    error: str = ""
    log: str = ""


@dataclass(frozen=True)
class StudyStatus:
    """The state of a study."""

    name: str
    out: Path
    cells: tuple[CellStatus, ...]
    schedulers: tuple[SchedulerStatus, ...] = ()
    seconds_left: float | None = None
    """None where nothing is known yet, or no process runs the study."""

    def count(self, state: str, cells: Sequence[CellStatus] | None = None) -> int:
        """Cells in a state."""
        return sum(cell.state == state for cell in (self.cells if cells is None else cells))

    @property
    def groups(self) -> dict[tuple[str, str], list[CellStatus]]:
        """Cells by task and system."""
        found: dict[tuple[str, str], list[CellStatus]] = {}
        for cell in self.cells:
            found.setdefault((cell.task, cell.label), []).append(cell)
        return found

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return all(cell.state in ("done", "failed") for cell in self.cells)


def read_status(out: Path) -> StudyStatus:
    """The state of every cell, the schedulers that run and the time left."""
    plan = read_plan(out)
    schedulers = find_schedulers(out)
    working = {job.cell: job for scheduler in schedulers for job in scheduler.working}
    cells = tuple(_read_cell(out, cell, working.get(cell.name)) for cell in plan.cells)
    workers = sum(max(1, scheduler.workers) for scheduler in schedulers)
    return StudyStatus(plan.name, out, cells, tuple(schedulers), _estimate(cells, working, workers))


def _read_cell(out: Path, cell: PlannedCell, job: RunningJob | None) -> CellStatus:
    known = (cell.name, cell.task, cell.label, cell.seed)
    marker = read_marker(out, cell)
    if marker is not None:
        return CellStatus(*known, "done", seconds=marker.seconds)
    if job is not None:
        return CellStatus(*known, "running", share=job.progress.share, doing=_describe_job(job, len(cell.stages)))
    failure = read_failure(out, cell)
    if failure is not None:
        return CellStatus(*known, "failed", error=failure.error, log=failure.log)
    return CellStatus(*known, "waiting")


def _describe_job(job: RunningJob, stages: int) -> str:
    progress = job.progress
    place = f"stage {job.stage + 1} of {stages}, " if job.stage is not None and stages > 1 else ""
    facts = "  ".join(f"{name} {value}" for name, value in progress.facts.items())
    steps = f" {progress.done}/{progress.total}" if progress.total else ""
    return f"{place}{progress.what or 'starting'}{steps}  {facts}".rstrip()


def _estimate(cells: Sequence[CellStatus], working: Mapping[str, RunningJob], workers: int) -> float | None:
    """Time left: what finished cells of the same kind took on average, shared among the workers."""
    left = [cell for cell in cells if cell.state in ("running", "waiting")]
    if not left:
        return 0.0
    if not workers:
        return None
    known = [cell for cell in cells if cell.seconds is not None]
    known += [pace for cell in cells if (pace := _pace(cell, working.get(cell.name))) is not None]
    if not known:
        return None
    return sum(_mean_seconds(cell, known) * (1 - cell.share) for cell in left) / min(workers, len(left))


def _pace(cell: CellStatus, job: RunningJob | None) -> CellStatus | None:
    """A running cell with the seconds that it will have taken, by its progress so far."""
    if job is None or cell.share < 0.02 or job.stage is None:
        return None
    return CellStatus(cell.name, cell.task, cell.label, cell.seed, "", seconds=(time.time() - job.since) / cell.share)


def _mean_seconds(cell: CellStatus, known: Sequence[CellStatus]) -> float:
    """Of the cells nearest in kind: same system, else same task, else any."""
    for alike in (
        [other for other in known if (other.task, other.label) == (cell.task, cell.label)],
        [other for other in known if other.task == cell.task],
        known,
    ):
        if alike:
            return sum(other.seconds or 0.0 for other in alike) / len(alike)
    return 0.0


def write_scheduler(out: Path, study: str, *, workers: int, working: Sequence[RunningJob]) -> None:
    """Write the state of this process, which runs the study."""
    status = SchedulerStatus(
        study, platform.node(), identify_machine(), os.getpid(), time.time(), workers, tuple(working)
    )
    write_atomic(_scheduler_path(out), json.dumps(asdict(status), ensure_ascii=False))


def remove_scheduler(out: Path) -> None:
    """Delete the state of this process, which runs the study no more."""
    _scheduler_path(out).unlink(missing_ok=True)


def _scheduler_path(out: Path) -> Path:
    host = "".join(c if c.isalnum() else "-" for c in platform.node())
    return out / RUNNERS / f"{host}-{os.getpid()}.json"


def find_schedulers(out: Path) -> list[SchedulerStatus]:
    """The processes that run a study now."""
    found = []
    for path in sorted((out / RUNNERS).glob("*.json")):
        scheduler = _read_scheduler(read_json(path))
        if scheduler is not None and scheduler.is_alive:
            found.append(scheduler)
    return found


def _read_scheduler(facts: Any) -> SchedulerStatus | None:
    """The state of a process that runs a study; none where its file is damaged."""
    try:
        working = [RunningJob(**{**job, "progress": _read_progress(job["progress"])}) for job in facts["working"]]
        return SchedulerStatus(**{**facts, "working": tuple(working)})
    except (AttributeError, KeyError, TypeError):
        return None


def _read_progress(facts: Mapping[str, object]) -> JobProgress:
    """A job that has not reported anything yet has no progress."""
    return JobProgress(**{name: value for name, value in facts.items() if value is not None})  # type: ignore[arg-type]
