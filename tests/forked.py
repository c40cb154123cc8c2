"""Processes that are forked from the one that runs the tests, which has imported by then what they would import again.

Only servers are: each forks once more for every process that a test asks for, which starts as they did before any test.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable


def can_fork() -> bool:
    """Whether a fork can do what a new process can: not with a GPU, which a process must be the first to use."""
    if sys.platform != "linux":
        return False
    torch = sys.modules.get("torch")
    return torch is None or not torch.cuda.is_available()


def fork(work: Callable[[], None], *, keep: Iterable[int]) -> int:
    """A process that does this and has these files open; its number."""
    child = os.fork()
    if not child:
        try:
            _forget_tests(sorted(keep))
            work()
        finally:
            os._exit(0)
    return child


def _forget_tests(keep: list[int]) -> None:
    """Undo what pytest did to the process: it captures what is written, and writes to files of its own."""
    faulthandler.disable()
    logging.getLogger().handlers.clear()
    sys.unraisablehook, threading.excepthook = sys.__unraisablehook__, threading.__excepthook__
    for before, after in zip([2, *keep], [*keep, os.sysconf("SC_OPEN_MAX")], strict=True):
        os.closerange(before + 1, after)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in range(3):  # as what a test's process prints before it has files of its own is not shown either
        os.dup2(nowhere, number)
    os.close(nowhere)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    gc.freeze()
    gc.enable()
