"""How a study stands: read from the small files of its folder, at once and without any heavy import."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crossling.files import read_json, write_atomic
from crossling.store.leases import identify_machine, is_running
from crossling.study.folder import COMPLETE, FAILED, RUNNERS, read_plan

FRESH_SECONDS = 60.0
"""A runner on another machine counts as at work for this long after its last sign."""
STATES = ("done", "running", "waiting", "failed")


@dataclass(frozen=True)
class CellStatus:
    """How one cell stands."""

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
    """How a study stands."""

    name: str
    out: Path
    cells: tuple[CellStatus, ...]
    runners: tuple[dict[str, Any], ...] = ()
    seconds_left: float | None = None
    """None where nothing is known yet, or nobody is at work."""

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
    """The state of every cell, the runners at work and the time left."""
    plan = read_plan(out)
    runners = find_runners(out)
    working = {work["cell"]: work for runner in runners for work in runner["working"]}
    cells = tuple(_read_cell(out, cell, working.get(cell["name"])) for cell in plan["cells"])
    workers = sum(max(1, runner["workers"]) for runner in runners)
    return StudyStatus(plan["name"], out, cells, tuple(runners), _estimate(cells, working, workers))


def _read_cell(out: Path, cell: dict[str, Any], work: dict[str, Any] | None) -> CellStatus:
    known = (cell["name"], cell["task"], cell["label"], cell["seed"])
    folder = out / cell["name"]
    marker = read_json(folder / COMPLETE)
    if isinstance(marker, dict) and marker.get("identity") == cell["identity"]:
        return CellStatus(*known, "done", seconds=marker.get("seconds"))
    if work is not None:
        progress = work["progress"]
        share = (progress["done"] or 0) / progress["total"] if progress.get("total") else 0.0
        return CellStatus(*known, "running", share=share, doing=_describe_work(work, len(cell["stages"])))
    failure = read_json(folder / FAILED)
    if isinstance(failure, dict):
        return CellStatus(*known, "failed", error=failure.get("error", "?"), log=failure.get("log", ""))
    return CellStatus(*known, "waiting")


def _describe_work(work: dict[str, Any], stages: int) -> str:
    progress = work["progress"]
    what = progress.get("what") or "starting"
    place = f"stage {work['stage'] + 1} of {stages}, " if work["stage"] is not None and stages > 1 else ""
    facts = "  ".join(f"{name} {value}" for name, value in (progress.get("facts") or {}).items())
    steps = f" {progress['done']}/{progress['total']}" if progress.get("total") else ""
    return f"{place}{what}{steps}  {facts}".rstrip()


def _estimate(cells: Sequence[CellStatus], working: dict[str, Any], workers: int) -> float | None:
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


def _pace(cell: CellStatus, work: dict[str, Any] | None) -> CellStatus | None:
    """A running cell as far as its own progress tells how long it will have taken."""
    if work is None or cell.share < 0.02 or work["stage"] is None:
        return None
    return CellStatus(
        cell.name, cell.task, cell.label, cell.seed, "", seconds=(time.time() - work["since"]) / cell.share
    )


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


def announce_runner(out: Path, study: str, *, workers: int, working: list[dict[str, Any]]) -> None:
    """Say that this process is at work on a study, and on what."""
    facts = {
        "study": study,
        "host": platform.node(),
        "machine": identify_machine(),
        "process": os.getpid(),
        "updated": time.time(),
        "workers": workers,
        "working": working,
    }
    write_atomic(_runner_path(out), json.dumps(facts, ensure_ascii=False))


def withdraw_runner(out: Path) -> None:
    """Say that this process is at work no more."""
    _runner_path(out).unlink(missing_ok=True)


def _runner_path(out: Path) -> Path:
    host = "".join(c if c.isalnum() else "-" for c in platform.node())
    return out / RUNNERS / f"{host}-{os.getpid()}.json"


def find_runners(out: Path) -> list[dict[str, Any]]:
    """Runners at work: by their process on this machine, by a fresh sign of life on another."""
    found = []
    for path in sorted((out / RUNNERS).glob("*.json")):
        facts = read_json(path)
        if not isinstance(facts, dict):
            continue
        if facts["machine"] == identify_machine():
            is_there = is_running(facts["process"])
        else:
            is_there = time.time() - facts["updated"] < FRESH_SECONDS
        if is_there:
            found.append(facts)
    return found
