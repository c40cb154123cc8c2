"""A worker's own side of a Ray cluster: where it sits, what it sees of the runner's folders, and how it tells."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from crossling import __version__
from crossling.errors import UserError
from crossling.files import write_atomic
from crossling.study.worker import Order, Place, Worker, describe_event, import_all

REPORT_SECONDS = 2.0
"""Between two messages of a worker: hundreds of them talk to one runner."""
SIGHT_SECONDS = 15.0
"""How long a network folder may take to show a new file."""
PASSED_ON = ("CROSSLING_DATA", "HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables that a machine of the cluster gets from the runner's, unless it has them."""


@dataclass(frozen=True)
class FarPlace:
    """Where workers on other machines find the study: in folders that all share, or at the store's address."""

    out: Path
    store: Path
    address: str | None = None
    """Of the store; none where its folder is shared."""
    folder: Path = field(default_factory=Path.cwd)
    """That relative paths start from."""
    environment: Mapping[str, str] = field(default_factory=dict)
    version: str = __version__
    sign: str = field(default_factory=lambda: f".sign-{uuid.uuid4().hex}")
    """The name of a file by which a shared folder is recognised."""

    @classmethod
    def of_runner(cls, out: Path, store: Path, address: str | None) -> FarPlace:
        """As seen from the machine of the runner, which leaves its signs."""
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        place = cls(out, store, address, environment=passed)
        for path in place.signs:
            write_atomic(path, "")
        return place

    @property
    def signs(self) -> tuple[Path, ...]:
        return () if self.address is not None else (self.out / self.sign, self.store / self.sign)

    def withdraw_signs(self) -> None:
        for path in self.signs:
            path.unlink(missing_ok=True)

    def take(self) -> Place:
        """The folders of a worker on its own machine."""
        if self.address is None:
            return Place(self.out, self.store)
        from crossling.store.artefacts import find_store

        mirror = find_store(self.address)
        return Place(mirror / "scratch" / uuid.uuid4().hex, mirror)


class Seat:
    """A worker on some machine of the cluster: the class of the Ray actors."""

    def __init__(self, place: FarPlace) -> None:
        self.far = place
        for name, value in place.environment.items():
            os.environ.setdefault(name, value)
        with contextlib.suppress(OSError):
            os.chdir(place.folder)
        self.messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self.worker: FarWorker | None = None

    def greet(self) -> dict[str, Any]:
        """Get ready; tells who this is, and why it cannot work, if so."""
        problem = self._find_problem()
        if not problem:
            try:
                self.worker = FarWorker(self.far.take(), _Mouth(self.messages), REPORT_SECONDS)
            except UserError as error:
                problem = str(error)
            import_all()
        return {"host": platform.node(), "process": os.getpid(), "problem": problem}

    def _find_problem(self) -> str:
        if self.far.version != __version__:
            return f"has crossling {__version__}, the runner has {self.far.version}; install the same everywhere"
        deadline = time.monotonic() + SIGHT_SECONDS
        for path in self.far.signs:
            while not path.exists():
                if time.monotonic() > deadline:
                    return (
                        f"does not see {path.parent}. Put --out and --store into a folder that all machines share, or "
                        "name an address that all can reach: --store s3://BUCKET/NAME"
                    )
                time.sleep(0.2)
        return ""

    def do(self, order: Order, recipe: str) -> Iterator[dict[str, Any]]:
        """Do a job: its messages as they come, of which the last ends it."""
        assert self.worker is not None
        if self.far.address is not None:
            write_atomic(self.worker.place.out / order.folder / "recipe.toml", recipe)
        threading.Thread(target=self.worker.do, args=(order,), name=order.cell, daemon=True).start()
        while True:
            message = self.messages.get()
            yield message
            if message["outcome"] not in ("progress", "note"):
                return


class FarWorker(Worker):
    """A worker that lets the runner write down what began and ended: appending is not safe on network folders."""

    def _note(self, event: str, order: Order) -> None:
        self._tell(order, "note", event=describe_event(event, order))


@dataclass
class _Mouth:
    messages: SimpleQueue[dict[str, Any]]

    def send(self, message: dict[str, Any]) -> None:
        self.messages.put(message)
