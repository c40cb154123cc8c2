"""A GPU's context, made in a thread while Python imports: the driver takes seconds for it and needs no interpreter.

torch would make the same one, the device's primary context, when it is first asked about a GPU, and Python would wait.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from functools import cache
from pathlib import Path
from threading import Thread

DRIVER = "libcuda.so.1"


def begin_context(device: str) -> Thread | None:
    """Begin to make the context of the GPU that this process will use; the thread that does so, if there is one.

    ``device``: of a recipe's run, which may be the CPU. Only for a process that is about to use it: a context takes
    memory of the GPU.
    """
    return _begin(int(os.environ.get("LOCAL_RANK", "0"))) if device != "cpu" and _has_gpu_version() else None


def _has_gpu_version() -> bool:
    """Whether torch is the version for GPUs; it is not imported for that."""
    if sys.platform != "linux":
        return False
    found = importlib.util.find_spec("torch")
    places = (found.submodule_search_locations or ()) if found is not None else ()
    return any((Path(place) / "lib" / "libtorch_cuda.so").exists() for place in places)


@cache
def _begin(number: int) -> Thread | None:
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return None
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")  # read when the driver is initialised; torch would set it then
    thread = Thread(target=_make_context, args=(driver, number), name="GPU context", daemon=True)
    thread.start()
    return thread


def _make_context(driver: ctypes.CDLL, number: int) -> None:
    """What fails here fails again, with a message, when torch does it."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), number) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
