"""The worker's side of a Ray cluster: the task that runs a job, and what it sees of the scheduler's folders."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from queue import SimpleQueue

from crossling import __version__
from crossling.errors import UserError
from crossling.files import write_atomic
from crossling.recipe.recipe import RunSettings
from crossling.store.artefacts import find_store
from crossling.study.folder import RECIPE
from crossling.study.worker import UNDER_WAY, Assignment, Message, WarningSender, Worker, WorkerPaths, import_all
from crossling.training.distributed import Distributed, setup_distributed

VISIBLE_TIMEOUT = 15.0
"""How long a network folder may take to show a new file."""
REPORT_SECONDS = 2.0
"""Between two messages of a worker: one scheduler reads those of hundreds."""
PASSED_ON = ("CROSSLING_DATA", "HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE")
"""Variables that a machine of the cluster gets from the scheduler's, unless it has them."""


@dataclass(frozen=True)
class RemotePaths:
    """Where tasks on other machines find the study: in folders that all share, or at the store's address."""

    out: Path
    store: Path
    address: str | None = field(default=None, repr=False)
    """Of the store; none where its folder is shared."""
    folder: Path = field(default_factory=Path.cwd)
    """That relative paths start from."""
    environment: tuple[tuple[str, str], ...] = ()
    version: str = __version__
    probe: str = field(default_factory=lambda: f".probe-{uuid.uuid4().hex}")
    """The name of an empty file by which a shared folder is recognised."""

    @classmethod
    def create(cls, out: Path, store: Path, address: str | None) -> RemotePaths:
        """As the scheduler's machine sees them; writes the probes."""
        passed = tuple((name, os.environ[name]) for name in PASSED_ON if name in os.environ)
        paths = cls(out, store, address, environment=passed)
        for path in paths.probes:
            write_atomic(path, "")
        return paths

    @property
    def probes(self) -> tuple[Path, ...]:
        return () if self.address is not None else (self.out / self.probe, self.store / self.probe)

    def remove_probes(self) -> None:
        for path in self.probes:
            path.unlink(missing_ok=True)

    def find_problem(self) -> str:
        """Why this machine cannot run tasks; empty if it can."""
        if self.version != __version__:
            return f"has crossling {__version__}, the scheduler has {self.version}; install the same everywhere"
        deadline = time.monotonic() + VISIBLE_TIMEOUT
        for path in self.probes:
            while not path.exists():
                if time.monotonic() > deadline:
                    return (
                        f"does not see {path.parent}. Put --out and --store into a folder that all machines share, or "
                        "name an address that all can reach: --store s3://BUCKET/NAME"
                    )
                time.sleep(0.2)
        return ""

    def resolve(self) -> WorkerPaths:
        """The folders of a worker on this machine."""
        if self.address is None:
            return WorkerPaths(self.out, self.store)
        mirror = find_store(self.address)
        return WorkerPaths(mirror / "scratch" / uuid.uuid4().hex, mirror)


@dataclass(frozen=True)
class TaskStart:
    """The first value that a task yields: where it runs, and why it cannot, if so."""

    host: str
    node: str
    process: int
    problem: str = ""


def run_job(paths: RemotePaths, assignment: Assignment, recipe: str) -> Iterator[TaskStart | Message]:
    """The Ray task: run one job and yield its messages as they come."""
    import ray

    yield from stream_job(paths, assignment, recipe, node=ray.get_runtime_context().get_node_id())


def stream_job(paths: RemotePaths, assignment: Assignment, recipe: str, *, node: str) -> Iterator[TaskStart | Message]:
    """Run a job in a thread; yields where it runs, then its messages, of which the last ends it."""
    start = TaskStart(platform.node(), node, os.getpid())
    try:
        worker, messages = _open_worker(paths)
    except UserError as error:
        yield replace(start, problem=str(error))
        return
    yield start
    import_all()
    if paths.address is not None:
        write_atomic(worker.paths.out / assignment.folder / RECIPE, recipe)
    threading.Thread(target=worker.run, args=(assignment,), name=assignment.cell, daemon=True).start()
    message = None
    while message is None or message.kind in UNDER_WAY:
        message = messages.get()
        yield message


@cache
def _open_worker(paths: RemotePaths) -> tuple[Worker, SimpleQueue[Message]]:
    """This process's worker, opened by its first task; the next ones find encoder and data loaded."""
    for name, value in paths.environment:
        os.environ.setdefault(name, value)
    with contextlib.suppress(OSError):
        os.chdir(paths.folder)
    if problem := paths.find_problem():
        raise UserError(problem)
    messages: SimpleQueue[Message] = SimpleQueue()
    logging.getLogger().addHandler(WarningSender(messages.put))
    # The scheduler writes events down: appending to a file is not safe on network folders.
    worker = Worker(
        paths.resolve(),
        messages.put,
        lambda event: messages.put(Message("event", event.job, event=event)),
        REPORT_SECONDS,
    )
    return worker, messages


@dataclass(frozen=True)
class ProbedMachine:
    """What a run finds on a machine of the cluster."""

    distributed: Mapping[tuple[str, str], Distributed]
    """By device and precision as a recipe asks for them."""
    gpu_bytes: float


def probe_machine(settings: Mapping[tuple[str, str], RunSettings]) -> ProbedMachine:
    """On a machine of the cluster: the device and precision of each kind of run, and the memory of its GPU."""
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0.0
    return ProbedMachine({key: setup_distributed(one) for key, one in settings.items()}, memory)
