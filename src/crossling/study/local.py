"""Workers that are processes of this machine: started when they are needed, replaced when they die."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from crossling.progress import Progress
from crossling.recipe.recipe import RunSettings
from crossling.store.artefacts import Store
from crossling.study.grid import Study
from crossling.study.pool import Resources, check_workers, choose_threads, limit_threads
from crossling.study.worker import Assignment, Message, WorkerPaths, serve_jobs
from crossling.training.distributed import Distributed, setup_distributed

STOP_TIMEOUT = 3.0
"""Seconds that a worker is given to end by itself."""


@dataclass(eq=False)
class WorkerProcess:
    """A process, and the job that it has."""

    process: SpawnProcess
    connection: Connection
    gpu: int | None
    key: str | None = None
    """Of its job; none while it is idle."""

    def describe_end(self) -> str:
        """Why the process ended."""
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"its worker process ended with exit code {code}"
        name = signal.Signals(-code).name
        hint = ": by kill -9, or by the system for lack of memory" if -code == signal.SIGKILL else ""
        return f"its worker process was killed by {name}{hint}"


@dataclass
class LocalPool:
    """Worker processes of this machine."""

    resources: Resources = field(default_factory=lambda: Resources("cpu", 1, 1, 1))
    paths: WorkerPaths | None = None
    processes: list[WorkerProcess] = field(default_factory=list)

    def measure(self, study: Study, out: Path, *, workers: int | None) -> None:
        check_workers(workers)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        gpus = _count_gpus(study)
        is_fixed = workers is not None
        if gpus:
            import torch

            memory = min(torch.cuda.get_device_properties(gpu).total_memory for gpu in range(gpus))
            count = workers or gpus
            threads, _ = limit_threads(max(1, cores // count))
            self.resources = Resources("cuda", count, threads, cores, gpus, is_fixed=is_fixed, gpu_bytes=memory)
        else:
            count = workers or 1
            fitting, limited = limit_threads(max(1, cores // count))
            threads, earlier = choose_threads(out, fitting)
            self.resources = Resources("cpu", count, threads, cores, is_fixed=is_fixed, note=earlier or limited)

    def setup_distributed(self, settings: RunSettings) -> Distributed:
        return setup_distributed(settings)

    def open(self, study: Study, out: Path, store: Store, *, progress: Progress) -> None:
        self.paths = WorkerPaths(out, store.root.resolve())
        self._add_process()  # it imports while the study is being planned

    def scale(self, jobs: int) -> int:
        while len(self.processes) < min(self.resources.workers, jobs):
            self._add_process()
        idle = [one for one in self.processes if one.key is None]
        surplus = max(0, len(self.processes) - jobs)
        for one in idle[:surplus]:
            self._kill(one)
        return len(idle) - min(len(idle), surplus)

    def start(self, assignment: Assignment) -> int | None:
        one = next(one for one in reversed(self.processes) if one.key is None)
        one.key = assignment.key
        with contextlib.suppress(OSError):  # a process that just died is noticed by its end
            one.connection.send(assignment)
        return one.process.pid

    def poll(self, seconds: float) -> Iterator[Message]:
        sources: dict[Any, WorkerProcess] = {}
        for one in self.processes:
            sources[one.connection] = sources[one.process.sentinel] = one
        if not sources:
            time.sleep(seconds)
            return
        for one in dict.fromkeys(sources[source] for source in wait(list(sources), seconds)):
            is_over = not one.process.is_alive()
            for message in _drain(one.connection):
                if message.kind in ("done", "failed", "lease_lost", "out_of_memory", "device_lost", "no_room"):
                    one.key = None
                if message.kind in ("out_of_memory", "device_lost"):
                    self._kill(one)  # what it still holds of the GPU is free at once; a broken context stays broken
                    is_over = False
                yield message
            if is_over:
                self._forget(one)
                if one.key is not None:
                    yield Message("died", one.key, error=one.describe_end())

    def reduce(self) -> None:
        self.resources = replace(self.resources, workers=max(1, self.resources.workers - 1))

    def close(self) -> None:
        """End all: idle processes by themselves, the others at once, on a GPU after the kernels that run there."""
        for one in self.processes:
            with contextlib.suppress(OSError):
                one.connection.send(None)
            if one.key is not None and self.resources.device == "cuda":
                one.process.terminate()
            elif one.key is not None:
                one.process.kill()
        deadline = time.monotonic() + STOP_TIMEOUT
        for one in list(self.processes):
            one.process.join(max(0.0, deadline - time.monotonic()))
            self._kill(one)

    def _add_process(self) -> None:
        """Start one more process, on the GPU with the fewest."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        taken = [one.gpu for one in self.processes]
        gpus = self.resources.gpus
        gpu = min(range(gpus), key=taken.count) if gpus > 1 else None
        name = None if gpu is None else name_gpu(gpu)
        process = context.Process(target=serve_jobs, args=(self.paths, theirs, os.getpid(), name), daemon=True)
        process.start()
        theirs.close()
        self.processes.append(WorkerProcess(process, ours, gpu))

    def _kill(self, one: WorkerProcess) -> None:
        if one.process.is_alive():
            one.process.kill()
        self._forget(one)

    def _forget(self, one: WorkerProcess) -> None:
        one.process.join()
        one.connection.close()
        self.processes.remove(one)


def _count_gpus(study: Study) -> int:
    """GPUs that the study would use; a study is on GPUs as soon as one of its recipes is."""
    import torch

    devices = {setup_distributed(variant.recipe.run).device.type for variant in study.variants}
    return torch.cuda.device_count() if "cuda" in devices else 0


def name_gpu(number: int) -> str:
    """A GPU that this process sees, as ``CUDA_VISIBLE_DEVICES`` names it: a cluster may give it some of many."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",")[number].strip() if visible else str(number)


def _drain(connection: Connection) -> Iterator[Message]:
    """What lies in a pipe; a message that a killed worker left unfinished ends it."""
    try:
        while connection.poll():
            yield connection.recv()
    except (EOFError, OSError):
        return
