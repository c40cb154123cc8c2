"""Where a study's jobs run: a pool of workers, on this machine (``local``) or on a Ray cluster (``ray``).

The scheduler hands jobs to a pool and polls it for messages. It does not know where the workers are.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from crossling.errors import UserError
from crossling.files import read_json
from crossling.study.folder import PLAN

if TYPE_CHECKING:
    from crossling.progress import Progress
    from crossling.recipe.recipe import RunSettings
    from crossling.store.artefacts import Store
    from crossling.study.grid import Study
    from crossling.study.worker import Assignment, Message
    from crossling.training.distributed import Distributed

GPU_SHARE = 0.9
"""Of a GPU's memory, what runs may fill."""
CORES_PER_GPU_WORKER = 2
"""One feeds the GPU, one prepares batches."""


@dataclass(frozen=True)
class Machine:
    """What a machine of a cluster offers."""

    cores: float
    gpus: float = 0.0
    node: str = ""
    """Its identity in the cluster."""


@dataclass(frozen=True)
class Resources:
    """What a pool has, and how its workers share it."""

    device: str
    workers: int
    threads: int
    """Of each worker; on CPUs part of what results are known by."""
    cores: int
    gpus: int = 0
    is_fixed: bool = False
    """Whether the user named the number of workers."""
    note: str = ""
    gpu_bytes: float = 0.0
    """Memory of each GPU."""
    machines: int = 0
    """Of a cluster; 0 where all runs on this machine."""
    worker_cores: float = 0.0
    """Of a cluster: what one worker takes of its machine."""
    worker_gpus: float = 0.0

    def fit_gpu_memory(self, need: float) -> Resources:
        """As many workers on each GPU as its memory and the cores hold, where each needs this many bytes."""
        fitting = max(1, int(GPU_SHARE * self.gpu_bytes / need))
        workers = max(self.gpus, min(self.gpus * fitting, self.cores // CORES_PER_GPU_WORKER))
        note = f"{need / 1e9:.1f} GB each of {self.gpu_bytes / 1e9:.0f}"
        threads = max(1, self.cores // workers)
        return replace(
            self, workers=workers, threads=threads if self.machines else limit_threads(threads)[0], note=note
        )

    def divide(self, *, threads: int) -> Resources:
        """With what each worker takes: a core for each thread on CPUs, an equal share of a GPU on GPUs."""
        if self.device == "cpu":
            return replace(self, worker_cores=threads)
        each = self.cores / self.workers
        cores = min(CORES_PER_GPU_WORKER, math.floor(each)) if each >= 1 else math.floor(100 * each) / 100
        share = 1 / max(1, math.ceil(self.workers / max(1, self.gpus)))
        return replace(self, worker_cores=cores, worker_gpus=share)

    def enlarge_gpu_share(self) -> Resources:
        """The share of a GPU that each worker gets when one fewer runs there."""
        return replace(self, worker_gpus=1 / max(1, round(1 / self.worker_gpus) - 1)) if self.worker_gpus else self

    def count_fitting(self, machines: Sequence[Machine]) -> int:
        """Workers for which these machines have room."""
        return sum(self._count_on(machine) for machine in machines)

    def _count_on(self, machine: Machine) -> int:
        limits = []
        if self.worker_cores:
            limits.append(math.floor(machine.cores / self.worker_cores))
        if self.worker_gpus:
            limits.append(math.floor(machine.gpus) * round(1 / self.worker_gpus))
        return min(limits, default=0)

    def describe(self) -> str:
        """One line for the user."""
        what = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        if self.machines:
            what += " on 1 machine" if self.machines == 1 else f" on {self.machines} machines"
        on = " of a Ray cluster:" if self.machines else " on"
        if self.device == "cpu":
            cores, threads = ("" if count == 1 else "s" for count in (self.cores, self.threads))
            return f"{what}{on} {self.cores} CPU core{cores}, {self.threads} thread{threads} each{self.note}"
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{what}{on} {gpus}" + (f": {self.note}" if self.note else "")


class WorkerPool(Protocol):
    """Workers, wherever they are."""

    resources: Resources

    def measure(self, study: Study, out: Path, *, workers: int | None) -> None:
        """Find out which resources a study gets: as many workers as asked for, or as fit."""

    def setup_distributed(self, settings: RunSettings) -> Distributed:
        """Device and precision of a run there: both count in identities."""

    def open(self, study: Study, out: Path, store: Store, *, progress: Progress) -> None:
        """Get ready; workers may begin their imports while the study is planned."""

    def scale(self, jobs: int) -> int:
        """Adjust the number of workers to the jobs that are left; returns how many jobs could start now."""

    def start(self, assignment: Assignment) -> int | None:
        """Start a job on a free worker; returns the worker's process, where it is known."""

    def poll(self, seconds: float) -> Iterator[Message]:
        """What workers report within a time; a dead worker's job is reported as ``died``."""

    def reduce(self) -> None:
        """A GPU's memory was full: fewer workers on each GPU from now on."""

    def close(self) -> None:
        """Stop all workers now; checkpoints keep what they did."""


def check_workers(workers: int | None) -> None:
    """Refuse a study without workers."""
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: at least 1")


def limit_threads(fitting: int) -> tuple[int, str]:
    """Threads of each worker of this machine, with a note where OMP_NUM_THREADS allows fewer than would fit."""
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if limit.isdecimal() and 1 <= int(limit) < fitting:
        return int(limit), ", as OMP_NUM_THREADS says"
    return fitting, ""


def choose_threads(out: Path, fitting: int) -> tuple[int, str]:
    """Threads of each worker on CPUs, with a note where they are those of the study's earlier run.

    With another number, all that the earlier run finished would be other work.
    """
    facts = read_json(out / PLAN)
    earlier = facts.get("threads") if isinstance(facts, dict) and facts.get("device") == "cpu" else None
    if not earlier or earlier == fitting:
        return fitting, ""
    return earlier, ", as in the earlier run of this study"
