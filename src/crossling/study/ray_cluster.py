"""A Ray cluster as the site of a study: connected to, looked at, filled with workers."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossling.errors import UserError
from crossling.progress import Progress
from crossling.recipe.recipe import RunSettings
from crossling.store.artefacts import Store
from crossling.study.crew import Crew
from crossling.study.grid import Study
from crossling.study.ray_crew import RayCrew, list_machines
from crossling.study.ray_seat import FarPlace
from crossling.study.sizing import Size, refuse_no_workers, settle_threads
from crossling.training.distributed import Distributed, setup_distributed

CONNECT_SECONDS = 10.0
LOOK_SECONDS = 120.0
"""How long a machine with room is waited for, to look what it has."""


@dataclass(frozen=True)
class Found:
    """What a run finds on a machine of the cluster."""

    worlds: Mapping[tuple[str, str], Distributed]
    """By device and precision as a recipe asks for them."""
    gpu_bytes: float


@dataclass
class RayCluster:
    """The cluster that this process is connected to."""

    address: str
    found: Found = field(default_factory=lambda: Found({}, 0.0))

    @classmethod
    @contextmanager
    def connect(cls, address: str) -> Iterator[RayCluster]:
        """Join a cluster until the end of the work."""
        try:
            import ray
        except ImportError:
            raise UserError("--ray needs Ray, which is not installed: pip install 'crossling[distributed]'") from None
        _refuse_unreachable(address)
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", include_dashboard=False)
        except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
            told = " ".join(str(error).split()) or type(error).__name__
            raise UserError(
                f"--ray {address}: no cluster there that could be joined: {told}. Start one with: ray start --head"
            ) from None
        try:
            yield cls(address)
        finally:
            ray.shutdown()

    def choose_size(self, study: Study, out: Path, *, workers: int | None) -> Size:
        """One worker for each machine, or as many as are asked for; on GPUs as many as fit, once that is known."""
        refuse_no_workers(workers)
        settings = [variant.recipe.run for variant in study.variants]
        machines = list_machines()
        gpus = int(sum(machine.gpus for machine in machines))
        self.found = self._look(settings, on_gpu=bool(gpus) and any(one.device != "cpu" for one in settings))
        is_given = workers is not None
        if any(distributed.device.type == "cuda" for distributed in self.found.worlds.values()):
            cores = int(sum(machine.cores for machine in machines if machine.gpus))
            count = workers or gpus
            memory, threads = self.found.gpu_bytes, max(1, cores // count)
            return Size("cuda", count, threads, cores, gpus, is_given, gpu_bytes=memory, machines=len(machines))
        useful = [int(machine.cores) for machine in machines if machine.cores >= 1]
        if not useful:
            raise UserError(f"--ray {self.address}: no machine of the cluster offers a CPU")
        count = workers or len(useful)
        threads, note = settle_threads(out, max(1, min(min(useful), sum(useful) // count)))
        return Size("cpu", count, threads, sum(useful), is_given=is_given, note=note, machines=len(machines))

    def join(self, settings: RunSettings) -> Distributed:
        if settings.threads:
            import torch

            torch.set_num_threads(settings.threads)
        return self.found.worlds[settings.device, settings.precision]

    def gather(self, study: Study, out: Path, store: Store, *, size: Size, progress: Progress) -> Crew:
        address = store.archive.address if store.archive is not None else None
        named = [variant.recipe.run.threads or size.threads for variant in study.variants]
        return RayCrew(FarPlace.of_runner(out, store.root.resolve(), address), max(named), progress)

    def _look(self, settings: Iterable[RunSettings], *, on_gpu: bool) -> Found:
        """Ask a machine of the kind that will do the work what a run finds there."""
        import ray

        distinct = {(one.device, one.precision): one for one in settings}
        task = ray.remote(look_around).options(num_cpus=0, num_gpus=0.01 if on_gpu else 0, max_retries=3)
        try:
            found: Found = ray.get(task.remote(distinct), timeout=LOOK_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise UserError(f"--ray {self.address}: no machine had room within {LOOK_SECONDS:.0f} seconds") from None
        except ray.exceptions.RayTaskError as error:
            raise UserError(f"a machine of the cluster: {error.cause}") from None
        except ray.exceptions.RayError as error:
            raise UserError(f"--ray {self.address}: {' '.join(str(error).split())}") from None
        return found


def _refuse_unreachable(address: str) -> None:
    """Tell of a wrong address within seconds: Ray itself goes on trying for minutes."""
    if address.startswith("ray://"):
        raise UserError(f"--ray {address}: run the study on a machine of the cluster, with --ray auto")
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise UserError(
            f"--ray {address}: no cluster answers there ({error}). Write HOST:PORT of its head, as ray start told it, "
            "or auto on a machine of the cluster."
        ) from None


def look_around(settings: Mapping[tuple[str, str], Any]) -> Found:
    """On a machine of the cluster: the device and precision of each kind of run, and the memory of its GPU."""
    import torch

    memory = torch.cuda.get_device_properties(0).total_memory if torch.cuda.is_available() else 0.0
    return Found({key: setup_distributed(one) for key, one in settings.items()}, memory)
