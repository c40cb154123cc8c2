"""Runs a function or a command in two processes that reduce over gloo, for tests of what they compute together."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import distributed, multiprocessing

from faults import Command, get_fork_server, run_crossling


def run_in_two_processes(work: Callable[[int, Path], None], folder: Path) -> None:
    """Calls `work(rank, folder)` in both; an exception in either is raised here."""
    get_fork_server()
    multiprocessing.start_processes(_run, args=(work, folder), nprocs=2, start_method="forkserver")


def _run(rank: int, work: Callable[[int, Path], None], folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    work(rank, folder)
    distributed.barrier()
    # Not by returning: a thread of gloo or of autograd that wants the GIL while Python shuts down aborts the process.
    os._exit(0)


def run_command_in_two_processes(*arguments: object, folder: Path) -> list[str]:
    """What ``crossling`` prints in each of two processes, which find each other as those that torchrun starts do."""
    meeting = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    commands = [
        Command.start(
            *arguments,
            output=folder / f"rank-{rank}.txt",
            inside=(folder,),
            home=folder / "home",
            function=partial(_join, rank, meeting.port),
        )
        for rank in range(2)
    ]
    return [command.finish() for command in commands]


def _join(rank: int, port: int, *arguments: str) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    run_crossling(*arguments)
