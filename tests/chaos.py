"""A study that is run while its processes are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from crossling.processes import is_running
from faults import Command
from small_study import list_paths, live_workers, wait_for


def start_study(path: Path, out: Path, store: Path, *more: object) -> Command:
    """``crossling study run`` in a process of its own, whose workers are forked; what it prints is beside ``out``."""
    arguments = ("study", "run", path, "--out", out, "--store", store, *more)
    return Command.start(*arguments, output=out.with_suffix(".txt"), inside=(out, store), home=out.with_suffix(".home"))


@dataclass
class Chaos:
    """A study that is run while processes are killed."""

    path: Path
    out: Path
    store: Path
    dice: random.Random
    workers_killed: int = 0
    schedulers_killed: int = 0

    def run(self, *, workers: int, schedulers: int) -> None:
        """Kill workers and schedulers at random moments, these many of each, then let the study end."""
        while True:
            process = start_study(self.path, self.out, self.store, "--workers", 2)
            deadly = self.schedulers_killed < schedulers
            for _ in range(self.dice.randint(0, 3) if deadly else workers - self.workers_killed):
                if self.workers_killed < workers and self._strike(process, self._choose_worker):
                    self.workers_killed += 1
            orphans = live_workers(self.out)
            if deadly and self._strike(process, lambda pid=process.process.pid: pid):  # type: ignore[misc]
                self.schedulers_killed += 1
                process.wait()
                wait_until_gone(orphans)
                continue
            process.finish()
            if self.workers_killed + self.schedulers_killed:
                return
            for folder in (self.out, self.store):  # this process was stopped for so long that the study was over first
                shutil.rmtree(folder)

    def _choose_worker(self) -> int | None:
        found = [worker for worker in live_workers(self.out) if is_running(worker)]
        return self.dice.choice(found) if found else None

    def _strike(self, process: Command, choose: Callable[[], int | None]) -> bool:
        """Kill one process: half of the time just when something was written, else at any moment of the work."""
        if not wait_for(self._choose_worker, process):
            return False
        if self.dice.random() < 0.5:
            before = list_paths(self.store)
            wait_for(lambda: list_paths(self.store) != before, process)
        else:
            time.sleep(self.dice.random() * 0.4)
        victim = choose()
        if victim is None or process.poll() is not None:
            return False
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True


def wait_until_gone(processes: list[int]) -> None:
    """Workers must not outlive their scheduler."""
    deadline = time.monotonic() + 120
    while any(is_running(process) for process in processes):
        assert time.monotonic() < deadline, "a worker outlived its scheduler"
        time.sleep(0.02)
