"""Runs a function in two processes that reduce over gloo, for tests of what is computed over a whole batch."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import distributed, multiprocessing


def run_in_two_processes(work: Callable[[int, Path], None], folder: Path) -> None:
    """Calls `work(rank, folder)` in both; an exception in either is raised here."""
    multiprocessing.spawn(_run, args=(work, folder), nprocs=2)


def _run(rank: int, work: Callable[[int, Path], None], folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    work(rank, folder)
    distributed.barrier()
    # Not by returning: a thread of gloo or of autograd that wants the GIL while Python shuts down aborts the process.
    os._exit(0)
