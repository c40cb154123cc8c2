"""Which machine this is, whether one of its processes still runs, and how a process shares its cores."""

from __future__ import annotations

import contextlib
import os
import platform
from functools import cache
from pathlib import Path

SPINS = "3000"
"""How often a thread looks before it sleeps: a few hundredths of a millisecond, as long as between two operations."""


def share_cores() -> None:
    """Let threads that wait for each other sleep soon, so that other programs on the same cores can run.

    Threads of libgomp, which torch computes with on a CPU, else wait actively for milliseconds: two trainings on the
    same two cores then take not twice but several times as long. It is read when torch is imported; what the user sets
    stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)


@cache
def identify_machine() -> str:
    """This machine since its last start, and the space that its process numbers are valid in."""
    parts = [platform.node()]
    for path in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid"):
        with contextlib.suppress(OSError):
            where = Path(path)
            parts.append(str(where.readlink()) if where.is_symlink() else where.read_text(encoding="utf-8").strip())
    return " ".join(parts)


def is_running(process: int, started: str = "") -> bool:
    """Whether a process of this machine lives, and is the one that began then: numbers are used again."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    now = find_start(process)
    return now != "dead" and (not started or not now or now == started)


def find_start(process: int) -> str:
    """When a process began, in the kernel's count; empty where the kernel does not say."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    state, *rest = text.rpartition(")")[2].split()
    return "dead" if state in "ZX" else rest[18]
