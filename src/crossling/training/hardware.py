"""What a result was made with: recorded beside it, since another machine or version may differ in the last bits."""

from __future__ import annotations

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
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(torch.get_num_threads()),
        "device": distributed.device.type,
        "precision": str(distributed.precision).removeprefix("torch."),
        "processes": str(distributed.size),
    }
    if (
        distributed.device.type == "cuda" and torch.cuda.is_available()
    ):  # a cluster may be steered from a machine without
        facts["gpu"] = torch.cuda.get_device_name(distributed.device)
    return facts


def reset_peak(device: torch.device) -> None:
    """Let the most memory of a GPU be counted anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def measure_peak(device: torch.device) -> dict[str, int]:
    """The most bytes that this process had allocated on a GPU since then; nothing for a CPU."""
    return {"gpu_bytes": torch.cuda.max_memory_allocated(device)} if device.type == "cuda" else {}


@cache
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "?"


@cache
def _processor() -> str:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(
                (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
                platform.machine(),
            )
    except OSError:
        return platform.processor() or platform.machine()
