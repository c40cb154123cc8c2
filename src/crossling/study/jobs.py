"""Which work of a study is to be done, in what order, and what has become of it.

A job is one stage, by identity, or the predictions of one cell. A stage that several cells share is one job: it runs
once, and all that need it wait for it while other work goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

State = Literal["waiting", "running", "done", "failed"]
PAUSE = 0.5
"""Seconds before a job that another runner holds is looked at again."""


class CellLike(Protocol):
    """What of a planned cell jobs are made from."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def stages(self) -> tuple[str, ...]: ...
    @property
    def identity(self) -> str: ...


@dataclass
class Job:
    """One stage to train, or one cell to predict."""

    key: str
    """The stage's identity, or the cell's name."""
    lease: str
    """What it is known by among all runners."""
    cell: str
    """The first cell that needs it."""
    folder: str
    seed: int
    stage: int | None
    """The number of the stage; none for predictions."""
    needs: str | None
    place: int
    state: State = "waiting"
    attempts: int = 0
    error: str = ""
    not_before: float = 0.0

    @property
    def rank(self) -> tuple[int, int]:
        """Finish cells first, then what is nearest to finishing one, then the order of the study."""
        return (-1_000 if self.stage is None else -self.stage, self.place)


@dataclass
class Board:
    """All jobs of a study."""

    jobs: dict[str, Job] = field(default_factory=dict)
    cells: dict[str, list[str]] = field(default_factory=dict)
    """The jobs that each cell still needs, its predictions last."""

    @classmethod
    def lay_out(
        cls, cells: Sequence[CellLike], *, finished: Collection[str], is_trained: Callable[[str], bool]
    ) -> Board:
        """Jobs for all that is neither finished nor trained."""
        board = cls()
        for place, cell in enumerate(cells):
            board.cells[cell.name] = [] if cell.name in finished else board._add(cell, place, is_trained)
        return board

    def _add(self, cell: CellLike, place: int, is_trained: Callable[[str], bool]) -> list[str]:
        missing: list[int] = []
        for number in reversed(range(len(cell.stages))):
            if is_trained(cell.stages[number]):
                break
            missing.insert(0, number)
        keys: list[str] = []
        for number in missing:
            key = cell.stages[number]
            before = keys[-1] if keys else None
            self.jobs.setdefault(key, Job(key, key, cell.name, cell.folder, cell.seed, number, before, place))
            keys.append(key)
        before = keys[-1] if keys else None
        lease = f"predict-{cell.identity}"
        self.jobs[cell.name] = Job(cell.name, lease, cell.name, cell.folder, cell.seed, None, before, place)
        return [*keys, cell.name]

    def ready(self) -> Iterator[Job]:
        """Jobs that could begin now, the most useful first."""
        now = time.monotonic()
        waiting = (job for job in self.jobs.values() if job.state == "waiting" and job.not_before <= now)
        yield from sorted((job for job in waiting if self._has_what_it_needs(job)), key=lambda job: job.rank)

    def _has_what_it_needs(self, job: Job) -> bool:
        return job.needs is None or self.jobs[job.needs].state == "done"

    def put_off(self, job: Job) -> None:
        """Another runner has it: look again later."""
        job.state, job.not_before = "waiting", time.monotonic() + PAUSE

    def fail(self, job: Job, error: str) -> list[str]:
        """Give a job up, with all that needs it; the names of the cells that this costs."""
        lost = [name for name, keys in self.cells.items() if job.key in keys and self.state_of(name) != "failed"]
        job.state, job.error = "failed", error
        for other in self.jobs.values():
            if other.needs == job.key and other.state != "failed":
                self.fail(other, error)
        return lost

    def state_of(self, cell: str) -> State:
        """How a cell stands."""
        states = [self.jobs[key].state for key in self.cells[cell]]
        if not states or states[-1] == "done":
            return "done"
        if "failed" in states:
            return "failed"
        return "running" if "running" in states else "waiting"

    def is_over(self) -> bool:
        """Whether every job is done or given up."""
        return all(job.state in ("done", "failed") for job in self.jobs.values())

    def count(self) -> dict[State, int]:
        """Cells in each state."""
        states = [self.state_of(cell) for cell in self.cells]
        return {state: states.count(state) for state in ("done", "running", "waiting", "failed")}
