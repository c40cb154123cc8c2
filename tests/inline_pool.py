"""A pool that runs a study's jobs in the test's own process: nothing is started, so that a run takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crossling.progress import Progress
from crossling.store.artefacts import Store
from crossling.study.folder import append_event
from crossling.study.grid import Study
from crossling.study.local import LocalPool
from crossling.study.worker import Assignment, Message, Worker, WorkerPaths


@dataclass
class InlinePool(LocalPool):
    """This process, which runs a job as soon as it is started."""

    messages: list[Message] = field(default_factory=list)
    worker: Worker | None = None

    def open(self, study: Study, out: Path, store: Store, *, progress: Progress) -> None:
        paths = WorkerPaths(out, store.root.resolve())
        self.worker = Worker(paths, self.messages.append, partial(append_event, out))

    def scale(self, jobs: int) -> int:
        return 0 if self.messages else 1

    def start(self, assignment: Assignment) -> int | None:
        assert self.worker is not None
        self.worker.run(assignment)
        return None

    def poll(self, seconds: float) -> Iterator[Message]:
        while self.messages:
            yield self.messages.pop(0)

    def close(self) -> None:
        pass
