"""Whether a recipe's stages fit into main memory, and in how many parts batches must be read where they do not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from crossling.recipe.recipe import Recipe
from crossling.study.memory import MemoryForecast

SHARE = 0.9
"""Of main memory that a stage may take; the rest is the system's."""
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container's limit is written."""


def find_main_memory() -> int:
    """Bytes of main memory that this process may use: the machine's, or less where a container has a limit."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in LIMITS:
        with suppress(OSError, ValueError):  # there is none, or no limit is set ("max")
            found.append(int(path.read_text(encoding="ascii")))
    return min(found)


def split_batches(recipe: Recipe, forecasts: Sequence[MemoryForecast], memory: float) -> dict[int, int]:
    """By number of each stage that does not fit: in how many parts its batches must be read.

    Activations grow with the batch, and nothing else does. Gradients of the parts are added up (``accumulate``), so
    that an update reads as many examples as before.
    """
    parts: dict[int, int] = {}
    for number, (settings, forecast) in enumerate(zip(recipe.stage, forecasts, strict=True)):
        if settings.kind == "average":  # nothing is trained
            continue
        batch: Any = getattr(settings, "batch", 1)
        room = SHARE * memory - forecast.weights - forecast.rest
        divisors = [count for count in range(1, batch + 1) if batch % count == 0]
        count = next((count for count in divisors if forecast.activations / count <= room), batch)
        if count > 1:
            parts[number] = count
    return parts


def suggest_batches(recipe: Recipe, forecasts: Sequence[MemoryForecast], memory: float) -> list[str]:
    """What to set for each stage that does not fit into memory."""
    lines = []
    for number, count in split_batches(recipe, forecasts, memory).items():
        settings: Any = recipe.stage[number]
        changes = {"batch": settings.batch // count, "accumulate": settings.accumulate * count}
        options = " ".join(f"--set stage.{number}.{name}={value}" for name, value in changes.items())
        lines.append(
            f"stage.{number} takes more than this machine's {memory / 1e9:.1f} GB on a CPU. The same updates in less "
            f"memory: {options}"
        )
    return lines
