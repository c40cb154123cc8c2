"""How many workers a study gets, and how many threads each: by cores, by GPUs and by the memory that runs need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crossling.encoders.loading import load_encoder
from crossling.errors import UserError
from crossling.files import read_json
from crossling.study.folder import PLAN
from crossling.study.grid import Study
from crossling.study.memory import forecast_gpu_bytes
from crossling.training.distributed import setup_distributed

if TYPE_CHECKING:
    from crossling.study.recipe_run import RecipeRun

GPU_SHARE = 0.9
"""Of a GPU's memory, what runs may fill."""
CORES_PER_GPU_WORKER = 2
"""One feeds the GPU, one prepares batches."""


@dataclass(frozen=True)
class Size:
    """The shape of a run."""

    device: str
    workers: int
    threads: int
    cores: int
    gpus: int = 0
    is_given: bool = False
    """Whether the user named the number of workers."""
    note: str = ""
    gpu_bytes: float = 0.0
    """Memory of each GPU."""
    machines: int = 0
    """Of a cluster; none where all is done on this machine."""

    def with_workers(self, workers: int) -> Size:
        """The same with another number of workers; threads stay, since they count in identities."""
        return replace(self, workers=workers)

    def fit(self, runs: Mapping[str, RecipeRun]) -> Size:
        """On GPUs, as many workers as their memory and the cores hold, unless the user said how many."""
        if self.device == "cpu" or self.is_given:
            return self
        need = _most_bytes(runs)
        fitting = max(1, int(GPU_SHARE * self.gpu_bytes / need))
        workers = max(self.gpus, min(self.gpus * fitting, self.cores // CORES_PER_GPU_WORKER))
        note = f"{need / 1e9:.1f} GB each of {self.gpu_bytes / 1e9:.0f}"
        return replace(self, workers=workers, threads=max(1, self.cores // workers), note=note)

    def describe(self) -> str:
        """One line for the reader."""
        what = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        if self.machines:
            what += " on 1 machine" if self.machines == 1 else f" on {self.machines} machines"
        on = " of a Ray cluster:" if self.machines else " on"
        if self.device == "cpu":
            noun = "thread" if self.threads == 1 else "threads"
            return f"{what}{on} {self.cores} CPU cores, {self.threads} {noun} each{self.note}"
        gpus = "1 GPU" if self.gpus == 1 else f"{self.gpus} GPUs"
        return f"{what}{on} {gpus}" + (f": {self.note}" if self.note else "")


def choose_size(study: Study, out: Path, *, workers: int | None) -> Size:
    """Workers and threads, as asked for, or as fits."""
    refuse_no_workers(workers)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    gpus = _count_gpus(study)
    if gpus:
        count = workers or gpus
        import torch

        memory = torch.cuda.get_device_properties(0).total_memory
        threads = max(1, cores // count)
        return Size("cuda", count, threads, cores, gpus, is_given=workers is not None, gpu_bytes=memory)
    count = workers or 1
    threads, note = settle_threads(out, max(1, cores // count))
    return Size("cpu", count, threads, cores, is_given=workers is not None, note=note)


def refuse_no_workers(workers: int | None) -> None:
    """A study cannot be run by nobody."""
    if workers is not None and workers < 1:
        raise UserError(f"--workers {workers}: at least 1")


def settle_threads(out: Path, fitting: int) -> tuple[int, str]:
    """Threads of each worker on CPUs, and a word on why they are not as many as would fit."""
    earlier = _earlier_threads(out) or fitting
    return earlier, "" if earlier == fitting else ", as in the earlier run of this study"


def _count_gpus(study: Study) -> int:
    """GPUs that the study would use; a study is on GPUs as soon as one of its recipes is."""
    import torch

    devices = {setup_distributed(variant.recipe.run).device.type for variant in study.variants}
    return torch.cuda.device_count() if "cuda" in devices else 0


def _earlier_threads(out: Path) -> int | None:
    """Threads that an earlier run settled on: with another number, all that it finished would be other work."""
    facts = read_json(out / PLAN)
    return facts.get("threads") if isinstance(facts, dict) and facts.get("device") == "cpu" else None


def _most_bytes(runs: Mapping[str, RecipeRun]) -> float:
    """GPU memory of the largest run; each encoder is read once."""
    needs = []
    for settings in {run.recipe.encoder for run in runs.values()}:
        encoder = load_encoder(settings.name, revision=settings.revision)
        of_encoder = [run.recipe for run in runs.values() if run.recipe.encoder == settings]
        needs += [forecast_gpu_bytes(recipe, encoder) for recipe in of_encoder]
    return max(needs)
