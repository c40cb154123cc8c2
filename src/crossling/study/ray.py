"""Workers on a Ray cluster: each job is one Ray task with its CPUs, or with its share of a GPU.

Ray decides which machine runs a task. A task is tried once (``max_retries=0``): when its machine is lost, the scheduler
starts the job again under the next generation of its lease, so a machine that was only cut off finds its work taken
over and writes nothing more. On CPUs a worker process runs one task after the other and keeps its encoder. On GPUs
each task has a fresh process, since Ray may give the next one another GPU.

The messages of a job are the values that its task yields. ``ray_task`` holds what runs on the machines.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crossling.errors import UserError
from crossling.progress import NoProgress, Progress
from crossling.recipe.recipe import RunSettings
from crossling.store.artefacts import Store
from crossling.study.folder import RECIPE
from crossling.study.grid import Study
from crossling.study.pool import Machine, Resources, check_workers, choose_threads
from crossling.study.ray_task import ProbedMachine, RemotePaths, TaskStart, probe_machine, run_job
from crossling.study.worker import UNDER_WAY, Assignment, Message
from crossling.training.distributed import Distributed

CONNECT_TIMEOUT = 10.0
PROBE_TIMEOUT = 120.0
"""Seconds until some machine has room to say what a run finds there."""
REFRESH_SECONDS = 5.0
"""How often machines that came or went are noticed."""
WAIT_SECONDS = 30.0
"""Without a single running task, until a message says what is being waited for."""
FAILED_STARTS = 3
"""Tasks that may fail to start before the first one does."""


def list_machines() -> list[Machine]:
    """The machines of the cluster that are alive."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    return [
        Machine(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0), node["NodeID"]) for node in alive
    ]


@dataclass(eq=False)
class Task:
    """A job that was submitted."""

    key: str
    stream: Any
    """Of what the task yields."""
    is_started: bool = False


@dataclass
class RayPool:
    """The cluster that this process is connected to."""

    address: str
    resources: Resources = field(default_factory=lambda: Resources("cpu", 1, 1, 1))
    probed: ProbedMachine = field(default_factory=lambda: ProbedMachine({}, 0.0))
    progress: Progress = field(default_factory=NoProgress)
    paths: RemotePaths | None = None
    threads: int = 1
    """The most threads that a recipe asks for."""
    tasks: dict[str, Task] = field(default_factory=dict)
    excluded: set[str] = field(default_factory=set)
    """Machines that cannot run tasks."""
    _function: Any = None
    """The task's function as Ray has it, sent to the cluster once."""
    _has_started: bool = False
    _failed_starts: int = 0
    _refreshed: float = float("-inf")
    _busy: float = field(default_factory=time.monotonic)
    """When a task last ran, or a message said that none does."""

    @classmethod
    @contextmanager
    def connect(cls, address: str) -> Iterator[RayPool]:
        """Join a cluster until the end of the work."""
        try:
            import ray
        except ImportError:
            raise UserError("--ray needs Ray, which is not installed: pip install 'crossling[distributed]'") from None
        _check_reachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"--ray {address}: no cluster there that could be joined: {reason}. Start one with: ray start --head"
            ) from None
        try:
            yield cls(address)
        finally:
            ray.shutdown()

    def measure(self, study: Study, out: Path, *, workers: int | None) -> None:
        """One worker for each machine, or as many as are asked for; on GPUs as many as fit, once that is known."""
        check_workers(workers)
        settings = [variant.recipe.run for variant in study.variants]
        machines = list_machines()
        gpus = int(sum(machine.gpus for machine in machines))
        self.probed = self._probe(settings, on_gpu=bool(gpus) and any(one.device != "cpu" for one in settings))
        if any(distributed.device.type == "cuda" for distributed in self.probed.distributed.values()):
            cores = int(sum(machine.cores for machine in machines if machine.gpus))
            count = workers or gpus
            threads, memory = max(1, cores // count), self.probed.gpu_bytes
            self.resources = Resources("cuda", count, threads, cores, gpus, gpu_bytes=memory)
        else:
            useful = [int(machine.cores) for machine in machines if machine.cores >= 1]
            if not useful:
                raise UserError(f"--ray {self.address}: no machine of the cluster offers a CPU")
            count = workers or len(useful)
            threads, note = choose_threads(out, max(1, min(min(useful), sum(useful) // count)))
            self.resources = Resources("cpu", count, threads, sum(useful), note=note)
        self.resources = replace(self.resources, is_fixed=workers is not None, machines=len(machines))
        self.threads = max(one.threads or self.resources.threads for one in settings)

    def setup_distributed(self, settings: RunSettings) -> Distributed:
        if settings.threads:
            import torch

            torch.set_num_threads(settings.threads)
        return self.probed.distributed[settings.device, settings.precision]

    def open(self, study: Study, out: Path, store: Store, *, progress: Progress) -> None:
        address = store.archive.address if store.archive is not None else None
        self.paths, self.progress = RemotePaths.create(out, store.root.resolve(), address), progress

    def scale(self, jobs: int) -> int:
        """As many tasks as the machines that are there now have room for, unless the user said how many."""
        if not (self.resources.worker_cores or self.resources.worker_gpus):
            self.resources = self.resources.divide(threads=self.threads)
        if time.monotonic() - self._refreshed > REFRESH_SECONDS:
            self._refreshed = time.monotonic()
            machines = [machine for machine in list_machines() if machine.node not in self.excluded]
            fitting = max(1, self.resources.count_fitting(machines))
            workers = self.resources.workers if self.resources.is_fixed else fitting
            self.resources = replace(self.resources, workers=workers, machines=len(machines))
        return max(0, self.resources.workers - len(self.tasks))

    def start(self, assignment: Assignment) -> int | None:
        import ray

        assert self.paths is not None
        recipe = (self.paths.out / assignment.folder / RECIPE).read_text(encoding="utf-8")
        seen = assignment if self.paths.address is None else replace(assignment, lease=None)
        if self._function is None:
            self._function = ray.remote(max_calls=1 if self.resources.worker_gpus else 0, max_retries=0)(run_job)
        options: dict[str, Any] = {
            "num_cpus": self.resources.worker_cores,
            "num_gpus": int(self.resources.worker_gpus * 10_000) / 10_000,  # Ray counts in ten-thousandths
            "num_returns": "streaming",
            "scheduling_strategy": "SPREAD",
        }
        if self.excluded:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(sorted(self.excluded))})"}
        stream = self._function.options(**options).remote(self.paths, seen, recipe)
        self.tasks[assignment.key] = Task(assignment.key, stream)
        return None

    def poll(self, seconds: float) -> Iterator[Message]:
        import ray

        self._report_waiting()
        streams = {task.stream: task for task in self.tasks.values()}
        if not streams:
            time.sleep(seconds)
            return
        ready, _ = ray.wait(list(streams), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = ray.wait(list(streams), num_returns=len(streams), timeout=0)
        for stream in ready:
            yield from self._drain(streams[stream])

    def _drain(self, task: Task) -> Iterator[Message]:
        """What a task has yielded; it ends after the message that ends its job."""
        import ray

        try:
            while ray.wait([task.stream], timeout=0)[0]:
                value = ray.get(next(task.stream))
                if isinstance(value, TaskStart):
                    yield self._handle_start(task, value)
                else:
                    if value.kind not in UNDER_WAY:
                        self.tasks.pop(task.key, None)
                    yield value
        except StopIteration:
            self.tasks.pop(task.key, None)
        except ray.exceptions.RayError as error:
            self.tasks.pop(task.key, None)
            yield self._handle_lost_task(task, _first_line(error))

    def _handle_start(self, task: Task, start: TaskStart) -> Message:
        """A machine that cannot run tasks is left out, unless it is the first: then nothing can be right."""
        if not start.problem:
            task.is_started = self._has_started = True
            return Message("started", task.key, process=start.process)
        problem = f"machine {start.host} of the cluster: {start.problem}"
        if not self._has_started:
            raise UserError(problem)
        if start.node not in self.excluded:
            self.progress.say(f"{problem}. It is left out.")
        self.excluded.add(start.node)
        self.tasks.pop(task.key, None)
        return Message("not_started", task.key, error=problem)

    def _handle_lost_task(self, task: Task, reason: str) -> Message:
        if task.is_started or self._has_started:
            return Message("died", task.key, error=f"its worker, or its machine, was lost: {reason}")
        self._failed_starts += 1
        if self._failed_starts >= FAILED_STARTS:
            raise UserError(f"no worker can start on the cluster: {reason}")
        return Message("not_started", task.key, error=reason)

    def _report_waiting(self) -> None:
        now = time.monotonic()
        if not self.tasks or any(task.is_started for task in self.tasks.values()):
            self._busy = now
        elif now - self._busy > WAIT_SECONDS:
            self._busy = now
            one = self.resources
            wanted = f"{one.worker_cores:g} CPUs" + (f" and {one.worker_gpus:.2g} of a GPU" if one.worker_gpus else "")
            self.progress.say(f"waiting for a machine of the cluster with {wanted} to spare")

    def reduce(self) -> None:
        """New tasks take a larger share of a GPU, so that fewer meet on one."""
        self.resources, self._refreshed = self.resources.enlarge_gpu_share(), float("-inf")
        self.scale(0)

    def close(self) -> None:
        """Cancel all tasks; one that is out of reach is stopped by its lease."""
        import ray

        for task in self.tasks.values():
            with contextlib.suppress(Exception):
                ray.cancel(task.stream, force=True)
        self.tasks.clear()
        if self.paths is not None:
            self.paths.remove_probes()

    def _probe(self, settings: Iterable[RunSettings], *, on_gpu: bool) -> ProbedMachine:
        """Ask a machine of the kind that will do the work what a run finds there."""
        import ray

        distinct = {(one.device, one.precision): one for one in settings}
        task = ray.remote(num_cpus=0, num_gpus=0.01 if on_gpu else 0, max_retries=3)(probe_machine)
        try:
            probed: ProbedMachine = ray.get(task.remote(distinct), timeout=PROBE_TIMEOUT)
        except ray.exceptions.GetTimeoutError:
            raise UserError(f"--ray {self.address}: no machine had room within {PROBE_TIMEOUT:.0f} seconds") from None
        except ray.exceptions.RayTaskError as error:
            raise UserError(f"a machine of the cluster: {error.cause}") from None
        except ray.exceptions.RayError as error:
            raise UserError(f"--ray {self.address}: {' '.join(str(error).split())}") from None
        return probed


def _check_reachable(address: str) -> None:
    """Report a wrong address within seconds: Ray itself tries for minutes."""
    if address.startswith("ray://"):
        raise UserError(f"--ray {address}: run the study on a machine of the cluster, with --ray auto")
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_TIMEOUT).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"--ray {address}: no cluster answers there ({error}). Write HOST:PORT of its head, as ray start shows it, "
            "or auto on a machine of the cluster."
        ) from None


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
