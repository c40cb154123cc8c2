"""The context of a GPU is begun before torch is imported, and only where torch will use it."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossling import gpu_context


class Driver:
    """Stands for the driver's library: notes what it is asked."""

    def __init__(self, devices: int) -> None:
        self.devices = devices
        self.asked: list[str] = []

        self.cuInit, self.cuDeviceGet, self.cuDevicePrimaryCtxRetain = self._start, self._find, self._retain

    def _start(self, flags: int) -> int:
        self.asked.append("init")
        return 0 if self.devices else 100

    def _find(self, device: Any, number: int) -> int:
        self.asked.append(f"device {number}")
        return 0 if number < self.devices else 101

    def _retain(self, context: Any, device: ctypes.c_int) -> int:
        self.asked.append("context")
        return 0


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_cuda.so").touch()
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(gpu_context.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(gpu_context.sys, "platform", "linux")

    def ask(devices: int, wanted: str = "auto", times: int = 1) -> list[str]:
        gpu_context._begin.cache_clear()
        driver = Driver(devices)
        monkeypatch.setattr(gpu_context.ctypes, "CDLL", lambda name: driver)
        for _ in range(times):
            if thread := gpu_context.begin_context(wanted):
                thread.join()
        gpu_context._begin.cache_clear()
        return driver.asked

    return ask


def test_the_context_is_made_once(ask: Any) -> None:
    assert ask(1, times=2) == ["init", "device 0", "context"]


def test_each_process_makes_that_of_its_own_gpu(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert ask(2) == ["init", "device 1", "context"]
    assert ask(1) == ["init", "device 1"]


def test_nothing_is_made_for_a_run_on_the_cpu_or_without_a_gpu(ask: Any) -> None:
    assert ask(1, "cpu") == []
    assert ask(0) == ["init"]


def test_nothing_is_asked_where_torch_is_the_version_for_the_cpu(
    tmp_path: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib" / "libtorch_cuda.so").unlink()
    assert ask(1) == []


def test_a_machine_without_a_driver_is_no_error(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> Any:
        raise OSError(name)

    gpu_context._begin.cache_clear()
    monkeypatch.setattr(gpu_context.ctypes, "CDLL", fail)
    assert gpu_context.begin_context("auto") is None
    gpu_context._begin.cache_clear()


def test_a_run_begins_its_context_before_torch_is_imported(tmp_path: Path) -> None:
    recipe = Path(__file__).parent.parent / "recipes" / "ner.toml"
    code = f"""
import sys
from crossling import gpu_context
from crossling.cli.entry import main

def begin(device):
    sys.exit(f"{{device}}, torch is imported: {{'torch' in sys.modules}}")

gpu_context.begin_context = begin
sys.argv = ["crossling", "run", {str(recipe)!r}, "--set", "run.device=cuda"]
main()
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == "cuda, torch is imported: False\n"
