"""numba compilation, cached on disk; the wrappers keep the functions' types for the type checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

# Its own threads: with OpenMP's it would change how many torch uses, and a run is known by that number.
numba.config.THREADING_LAYER = "workqueue"

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function for one thread."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def compiled_parallel(function: Function) -> Function:
    """Compile a function whose ``prange`` loops run on all cores."""
    return cast(Function, numba.njit(cache=True, nogil=True, parallel=True)(function))


def compiled_reordered(function: Function) -> Function:
    """Compile a function for one thread whose sums may be taken in another order, as vector instructions need.

    The order is the same in every run on the same kind of CPU.
    """
    return cast(Function, numba.njit(cache=True, nogil=True, fastmath={"contract", "reassoc", "nsz"})(function))
