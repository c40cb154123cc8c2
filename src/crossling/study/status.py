"""The state of a study: read from the small files of its folder, at once and without any heavy import.

A process that runs a study (a scheduler) writes its own state every second; see ``scheduling``.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from crossling.files import read_json, write_atomic
from crossling.processes import identify_machine, is_running
from crossling.study.folder import RUNNERS, ListedCell, list_cells, read_failure, read_marker_facts

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


class CellStatus(NamedTuple):
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

    def count(self, state: str) -> int:
        """Cells in a state."""
        return sum(cell.state == state for cell in self.cells)

    @property
    def groups(self) -> dict[tuple[str, str], Counter[str]]:
        """The number of cells in each state, by task and system."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for cell in self.cells:
            key = cell.task, cell.label
            if key not in found:
                found[key] = Counter()
            found[key][cell.state] += 1
        return found

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return all(cell.state in ("done", "failed") for cell in self.cells)


def read_status(out: Path) -> StudyStatus:
    """The state of every cell, the schedulers that run and the time left."""
    name, listed = list_cells(out)
    schedulers = find_schedulers(out)
    working = {job.cell: job for scheduler in schedulers for job in scheduler.working}
    folders: dict[str, set[str]] = {}
    cells = tuple(_read_cell(out, cell, working.get(cell.name), folders) for cell in listed)
    workers = sum(max(1, scheduler.workers) for scheduler in schedulers)
    return StudyStatus(name, out, cells, tuple(schedulers), _estimate(cells, working, workers))


def _read_cell(out: Path, cell: ListedCell, job: RunningJob | None, folders: dict[str, set[str]]) -> CellStatus:
    """The state of a cell; ``folders`` holds the names in the folders of variants that have unfinished cells.

    One listing for each such variant, so that no file of a cell that waits is looked for.
    """
    known = cell[:4]
    variant, _, name = cell.name.rpartition("/")
    marker = read_marker_facts(out, cell) if variant not in folders or name in folders[variant] else None
    if marker is not None:
        return CellStatus(*known, "done", seconds=marker.get("seconds"))
    if job is not None:
        return CellStatus(*known, "running", share=job.progress.share, doing=_describe_job(job, cell.stages))
    if variant not in folders:
        folders[variant] = _list_names(out / variant)
    failure = read_failure(out, cell) if name in folders[variant] else None
    if failure is not None:
        return CellStatus(*known, "failed", error=failure.error, log=failure.log)
    return CellStatus(*known, "waiting")


def _list_names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder)}
    except OSError:
        return set()


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
    means = _mean_seconds(
        (cell, seconds)
        for cell in cells
        for seconds in (cell.seconds, _pace(cell, working.get(cell.name)))
        if seconds is not None
    )
    if not means:
        return None
    return sum(_find_mean(means, cell) * (1 - cell.share) for cell in left) / min(workers, len(left))


def _pace(cell: CellStatus, job: RunningJob | None) -> float | None:
    """The seconds that a running cell will have taken, by its progress so far."""
    if job is None or cell.share < 0.02 or job.stage is None:
        return None
    return (time.time() - job.since) / cell.share


def _mean_seconds(known: Iterable[tuple[CellStatus, float]]) -> dict[tuple[str, ...], float]:
    """Of the cells of each system, of each task, and of all."""
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    counts: Counter[tuple[str, ...]] = Counter()
    for cell, seconds in known:
        for kind in _list_kinds(cell):
            sums[kind] += seconds
            counts[kind] += 1
    return {kind: total / counts[kind] for kind, total in sums.items()}


def _find_mean(means: Mapping[tuple[str, ...], float], cell: CellStatus) -> float:
    """Of the cells nearest in kind: same system, else same task, else any."""
    return next(means[kind] for kind in _list_kinds(cell) if kind in means)


def _list_kinds(cell: CellStatus) -> tuple[tuple[str, ...], ...]:
    return (cell.task, cell.label), (cell.task,), ()


def write_scheduler(out: Path, study: str, *, workers: int, working: Sequence[RunningJob]) -> None:
    """Write the state of this process, which runs the study."""
    status = SchedulerStatus(
        study, platform.node(), identify_machine(), os.getpid(), time.time(), workers, tuple(working)
    )
    write_atomic(_scheduler_path(out), json.dumps(asdict(status), ensure_ascii=False))


def remove_scheduler(out: Path) -> None:
    """Delete the state of this process, which runs the study no more."""
    path = _scheduler_path(out)
    path.unlink(missing_ok=True)
    for partial in path.parent.glob(f".{path.name}.*.partial"):  # Ctrl-C may come while it is being written
        shutil.rmtree(partial, ignore_errors=True)


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
