"""Studies carried out in the test's own process: nothing is started, so that a run takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossling.progress import Progress
from crossling.store.artefacts import Store
from crossling.study.crew import Message, Worker
from crossling.study.grid import Study
from crossling.study.sites import Here
from crossling.study.sizing import Size
from crossling.study.worker import Order, Place
from crossling.study.worker import Worker as Hand


class InlineSite(Here):
    """This process, as a runner sees it."""

    def gather(self, study: Study, out: Path, store: Store, *, size: Size, progress: Progress) -> Any:
        return _Crew(_Worker(Place(out, store.root.resolve())))


@dataclass(eq=False)
class _Worker(Worker):
    place: Place
    messages: list[Message] = field(default_factory=list)

    def send(self, order: Order) -> None:
        hand = self.__dict__.setdefault("hand", Hand(self.place, self))
        if order is not None and not isinstance(order, dict):
            hand.do(order)
        else:
            self.messages.append(order)

    def describe_end(self) -> str:
        return "it cannot end"

    @property
    def number(self) -> int | None:
        return None


@dataclass
class _Crew:
    worker: _Worker

    @property
    def workers(self) -> list[_Worker]:
        return [self.worker]

    def hire(self) -> object:
        raise AssertionError("one is enough")

    def idle(self) -> list[Worker]:
        return [self.worker] if self.worker.job is None else []

    def listen(self, seconds: float) -> Iterator[tuple[Worker, Message | None]]:
        while self.worker.messages:
            yield self.worker, self.worker.messages.pop(0)

    def dismiss(self, worker: Worker) -> None:
        pass

    def dismiss_all(self) -> None:
        pass

    def resize(self, size: Size) -> Size:
        return size

    def relieve(self, size: Size) -> Size:
        return size
