"""What a result was made with: recorded beside it, since another machine or version may differ in the last bits."""

from __future__ import annotations

import gc
import os
import platform
from functools import cache
from importlib import metadata
from pathlib import Path

import torch

from crossling import __version__
from crossling.training.distributed import Distributed


def describe_hardware(distributed: Distributed) -> dict[str, str]:
    """Hardware and versions, as text."""
    versions = {name: _version(name) for name in ("torch", "transformers", "tokenizers", "numpy")}
    facts = {
        "crossling": __version__,
        "python": platform.python_version(),
        **versions,
        "processor": _name_cpu(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "device": distributed.device.type,
        "precision": str(distributed.precision).removeprefix("torch."),
        "processes": str(distributed.size),
    }
    if (
        distributed.device.type == "cuda" and torch.cuda.is_available()
    ):  # a cluster may be controlled from a machine without
        facts["gpu"] = torch.cuda.get_device_name(distributed.device)
    return facts


def release_memory(device: torch.device) -> None:
    """Free what earlier work left on a GPU, and count the most memory anew.

    A worker trains many stages. Each has streams of its own, and the work space of matrix products stays with its
    stream: 70 MB for every stage, up to gigabytes, unless it is freed once the graphs that use it are gone.
    """
    if device.type == "cuda":
        gc.collect()
        torch.cuda.synchronize(device)
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def measure_peak(device: torch.device) -> dict[str, int]:
    """The most bytes that this process held on a GPU since then, without the CUDA context; nothing for a CPU.

    Held, not in use: the memory of captured steps stays theirs when they are not run.
    """
    return {"gpu_bytes": torch.cuda.max_memory_reserved(device)} if device.type == "cuda" else {}


@cache
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


@cache
def _name_cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(
                (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
                platform.machine(),
            )
    except OSError:
        return platform.processor() or platform.machine()
