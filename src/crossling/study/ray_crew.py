"""Workers on the machines of a Ray cluster: actors, each with its CPUs and its share of a GPU.

An actor does one job after the other, so that it pays for imports and for the GPU's start once. A job is one call of
it, whose messages stream back. Ray itself restarts nothing: when an actor or its machine is lost, the board tries the
job again under the next generation of its lease, so that a machine that was only cut off finds its work taken over.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crossling.errors import UserError
from crossling.progress import Progress
from crossling.study.crew import Message, Worker
from crossling.study.ray_seat import FarPlace, Seat
from crossling.study.sizing import CORES_PER_GPU_WORKER, Size
from crossling.study.worker import Order

LOOK_SECONDS = 5.0
"""How often machines that came or went are noticed."""
PATIENCE = 30.0
"""Seconds without a single worker after which the user is told what is being waited for."""
REFUSALS = 3
"""Workers that may fail to start before the first one does."""


@dataclass(frozen=True)
class Machine:
    """What a machine of the cluster offers."""

    cores: float
    gpus: float


@dataclass(frozen=True)
class Shape:
    """What of a machine one worker takes."""

    cores: float
    gpus: float = 0.0

    @classmethod
    def share(cls, size: Size, *, threads: int) -> Shape:
        """On CPUs a core for each thread; on GPUs what is left of them for each of so many workers."""
        if size.device == "cpu":
            return cls(threads)
        each = size.cores / size.workers
        cores = min(CORES_PER_GPU_WORKER, math.floor(each)) if each >= 1 else math.floor(100 * each) / 100
        return cls(cores, 1 / max(1, math.ceil(size.workers / max(1, size.gpus))))

    @property
    def resources(self) -> dict[str, float]:
        """As Ray wants it; parts of a GPU are counted in ten-thousandths."""
        return {"num_cpus": self.cores, "num_gpus": math.floor(self.gpus * 10_000) / 10_000}

    def count_room(self, machines: Sequence[Machine]) -> int:
        """Workers of this shape that fit."""
        return sum(self._count_fitting(machine) for machine in machines)

    def _count_fitting(self, machine: Machine) -> int:
        limits = []
        if self.cores:
            limits.append(math.floor(machine.cores / self.cores))
        if self.gpus:
            limits.append(math.floor(machine.gpus) * round(1 / self.gpus))
        return min(limits, default=0)

    def with_one_fewer(self) -> Shape:
        """The share of a GPU that is left to each when one has gone."""
        return replace(self, gpus=1 / max(1, round(1 / self.gpus) - 1)) if self.gpus else self


def list_machines() -> list[Machine]:
    """The machines of the cluster that live."""
    import ray

    found = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Machine(resources.get("CPU", 0.0), resources.get("GPU", 0.0)) for resources in found]


@dataclass(eq=False, kw_only=True)
class RayWorker(Worker):
    """An actor somewhere in the cluster."""

    actor: Any
    greeting: Any
    """Its first answer, as long as it has not come."""
    recipes: Path
    """Where a variant's recipe lies, for machines that do not see it."""
    shares_folder: bool
    is_ready: bool = False
    process: int | None = None
    stream: Any = None
    """The messages of its job."""
    end: str = ""

    def send(self, order: Order) -> None:
        recipe = (self.recipes / order.folder / "recipe.toml").read_text(encoding="utf-8")
        seen = order if self.shares_folder else replace(order, lease=None)
        self.stream = self.actor.do.options(num_returns="streaming").remote(seen, recipe)

    def describe_end(self) -> str:
        return f"its worker, or its machine, was lost: {self.end}"

    @property
    def number(self) -> int | None:
        return self.process


@dataclass
class RayCrew:
    """Actors of a Ray cluster."""

    place: FarPlace
    threads: int
    progress: Progress
    workers: list[RayWorker] = field(default_factory=list)
    shape: Shape | None = None
    _looked: float = float("-inf")
    _refusals: int = 0
    _met: float = field(default_factory=time.monotonic)
    """When there last was a worker, or this was told."""

    def hire(self) -> RayWorker:
        import ray

        assert self.shape is not None
        options = {**self.shape.resources, "max_restarts": 0, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
        actor = ray.remote(Seat).options(**options).remote(self.place)
        worker = RayWorker(
            actor=actor,
            greeting=actor.greet.remote(),
            recipes=self.place.out,
            shares_folder=self.place.address is None,
        )
        self.workers.append(worker)
        return worker

    def idle(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_ready and worker.job is None]

    def listen(self, seconds: float) -> Iterator[tuple[Worker, Message | None]]:
        import ray

        self._tell_of_waiting()
        sources = {source: w for w in self.workers if (source := w.greeting or w.stream) is not None}
        if not sources:
            time.sleep(seconds)
            return
        ready, _ = ray.wait(list(sources), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = ray.wait(list(sources), num_returns=len(sources), timeout=0)
        for source in ready:
            worker = sources[source]
            if worker.greeting is not None:
                self._welcome(worker)
            else:
                yield from self._drain(worker)

    def _welcome(self, worker: RayWorker) -> None:
        """Hear a worker's first answer. On a machine that cannot take part, it keeps its seat, lest others get it."""
        import ray

        try:
            greeting = ray.get(worker.greeting)
        except ray.exceptions.RayError as error:
            self._forget(worker)
            self._refusals += 1
            if self._refusals >= REFUSALS and not self._has_begun():
                raise UserError(f"no worker can start on the cluster: {_first_line(error)}") from None
            return
        worker.greeting, worker.process, worker.is_ready = None, greeting["process"], not greeting["problem"]
        if greeting["problem"]:
            problem = f"machine {greeting['host']} of the cluster: {greeting['problem']}"
            if not self._has_begun():
                raise UserError(problem)
            self.progress.say(f"{problem}. It is left out.")

    def _has_begun(self) -> bool:
        return any(worker.is_ready for worker in self.workers)

    def _drain(self, worker: RayWorker) -> Iterator[tuple[Worker, Message | None]]:
        """What a worker has told; its stream ends after the message that ends its job."""
        import ray

        stream = worker.stream
        try:
            while ray.wait([stream], timeout=0)[0]:
                yield worker, ray.get(next(stream))
        except StopIteration:
            if worker.stream is stream:
                worker.stream = None
        except ray.exceptions.RayError as error:
            worker.end = _first_line(error)
            self._forget(worker)
            yield worker, None

    def _tell_of_waiting(self) -> None:
        now = time.monotonic()
        if self._has_begun() or not self.workers:
            self._met = now
        elif now - self._met > PATIENCE and self.shape is not None:
            self._met = now
            wanted = f"{self.shape.cores:g} CPUs" + (f" and {self.shape.gpus:.2g} of a GPU" if self.shape.gpus else "")
            self.progress.say(f"waiting for a machine of the cluster with {wanted} to spare")

    def dismiss(self, worker: Worker) -> None:
        assert isinstance(worker, RayWorker)
        self._forget(worker)

    def dismiss_all(self) -> None:
        for worker in list(self.workers):
            self._forget(worker)
        self.place.withdraw_signs()

    def _forget(self, worker: RayWorker) -> None:
        """Let an actor go; if it is out of reach, its lease stops it."""
        import ray

        with contextlib.suppress(Exception):
            ray.kill(worker.actor, no_restart=True)
        if worker in self.workers:
            self.workers.remove(worker)

    def resize(self, size: Size) -> Size:
        """As many workers as the machines that are there now have room for, unless the user said how many."""
        if self.shape is None:
            self.shape = Shape.share(size, threads=self.threads)
        elif time.monotonic() - self._looked < LOOK_SECONDS:
            return size
        self._looked = time.monotonic()
        machines = list_machines()
        workers = size.workers if size.is_given else max(1, self.shape.count_room(machines))
        return replace(size, workers=workers, machines=len(machines))

    def relieve(self, size: Size) -> Size:
        """New workers take a larger share of a GPU, so that fewer meet on one."""
        assert self.shape is not None
        self.shape, self._looked = self.shape.with_one_fewer(), float("-inf")
        return self.resize(size)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
