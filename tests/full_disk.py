"""A disk that fails at the n-th write, for every n: the message of it, and the result of the next run.

    python tests/full_disk.py SCENARIO [--samples N] [--error ENOSPC] [--once]

A small library, compiled from ``full_disk.c`` and preloaded, makes the calls of libc fail through which everything
writes. One process does all trials, each in a folder of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import errno
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHOWN = 5
"""Faults that are reported in full."""


def run_trials(scenario: str, *arguments: str) -> dict[str, Any]:
    """The counts of trials that a new process made with the library preloaded."""
    command = [sys.executable, str(Path(__file__)), scenario, *arguments]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "full_disk.so"
        source = str(HERE / "full_disk.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), source, "-ldl", "-lpthread"], check=True)
        paths = os.pathsep.join(str(path) for path in (HERE.parent / "src", HERE))
        more = {"LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1", "PYTHONPATH": paths, "TOKENIZERS_PARALLELISM": "0"}
        done = subprocess.run(command, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    counts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return counts


def run_and_export(inputs: Path, folder: Path) -> list[list[str]]:
    """Train, predict and write the page, then export the model."""
    out = ["--out", str(folder / "out")]
    store = ["--store", str(folder / "store")]
    return [
        ["run", str(inputs / "ner.toml"), *out, *store],
        ["export", str(folder / "out"), str(folder / "exported")],
    ]


def analyse(inputs: Path, folder: Path) -> list[list[str]]:
    """Probe an encoder, which keeps features on disk."""
    os.environ["CROSSLING_STORE"] = str(folder / "store")
    train, test = (f'{{format="bio", path="{inputs / role}.tsv", language="en"}}' for role in ("train", "test"))
    task = f'{{ner={{task="tag", train={train}, on={test}}}}}'
    return [["analyse", "probe", str(inputs / "encoder"), "--tasks", task, "--out", str(folder / "probe.csv")]]


def run_study(inputs: Path, folder: Path) -> list[list[str]]:
    """Run a study of two systems, compare them and write the report."""
    out = ["--out", str(folder / "out")]
    return [
        ["study", "run", str(inputs / "study.toml"), *out, "--store", str(folder / "store"), "--workers", "1"],
        ["study", "report", str(folder / "out")],
    ]


SCENARIOS: dict[str, Callable[[Path, Path], list[list[str]]]] = {
    "run": run_and_export,
    "study": run_study,
    "analyse": analyse,
}


def crossling(arguments: list[str]) -> tuple[int, str]:
    """Exit code and messages of a command, in this process."""
    from crossling import files
    from crossling.cli.main import main

    files._cleaned.clear()
    files._intact.clear()
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logging.getLogger("crossling").addHandler(handler)
    sys.argv = ["crossling", *arguments]
    code: Any = 0
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
    logging.getLogger("crossling").removeHandler(handler)
    return int(code), said.getvalue()


def run_all(commands: list[list[str]]) -> tuple[int, str]:
    """The commands one after another, up to the first that fails."""
    code, said = 0, ""
    for command in commands:
        code, more = crossling(command)
        said += more
        if code:
            break
    return code, said


def describe_results(folder: Path) -> dict[str, Any]:
    """Weights, predictions and tables, by content."""
    from small_study import predictions_of, weights_of

    found: dict[str, Any] = {"weights": weights_of(folder / "store")}
    if (folder / "out").is_dir():
        found["predictions"] = predictions_of(folder / "out")
    if (folder / "probe.csv").is_file():
        found["table"] = (folder / "probe.csv").read_text(encoding="utf-8")
    if (folder / "exported").is_dir():
        found["exported"] = sorted(path.name for path in (folder / "exported").iterdir())
    return found


def find_fault(code: int, said: str, failed: str) -> str:
    """What is wrong with how a failing write was reported; empty where nothing is."""
    flat = " ".join(said.replace("│", " ").split())
    if "Traceback" in said:
        return f"a traceback: {said[-1500:]}"
    if code == 0 and not ("/store/work/" in failed and "No checkpoint is written" in flat):
        return "a write failed, and no error was reported"
    if code not in (0, 2):
        return f"exit code {code}: {flat[-800:]}"
    if (
        code == 2
        and len(re.findall(r"the disk (?:is full|quota is used up|reports an)|the file system is read-only", flat)) < 1
    ):
        return f"no message on the disk: {flat[-800:]}"
    return ""


def main() -> None:
    """Try one scenario with failures at all writes, or at some; prints the counts as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("--samples", type=int, default=0, help="Failures at this number of writes; default: at all.")
    parser.add_argument("--error", default="ENOSPC")
    parser.add_argument("--once", action="store_true", help="One write fails, and those after it succeed.")
    given = parser.parse_args()
    library = ctypes.CDLL(None)
    library.full_disk_failed.restype = ctypes.c_char_p

    if given.scenario == "study":  # in this process, where writes fail
        from crossling.study import scheduling
        from inline_pool import InlinePool

        scheduling.LocalPool = InlinePool  # type: ignore[misc]
    from small_study import write_study
    from tiny import save_tiny

    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        inputs = root / "inputs"
        write_study(inputs, save_tiny(inputs / "encoder", family="xlm-r", layers=1))
        plan = SCENARIOS[given.scenario]

        def attempt(write: int) -> tuple[int, str, int, str]:
            """Exit code, messages, number of writes, and the file of the write that failed."""
            folder = root / "trial"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            library.full_disk_arm(str(folder).encode(), ctypes.c_long(write), not given.once, _number(given.error))
            code, said = run_all(plan(inputs, folder))
            writes = library.full_disk_disarm()
            return code, said, writes, library.full_disk_failed().decode()

        code, said, total, _ = attempt(0)
        assert code == 0, said
        expected = describe_results(root / "trial")
        chosen = range(1, total + 1)
        if given.samples:
            chosen = range(
                1, total + 1, max(1, total // given.samples)
            )  # the first write, and others at equal distance
        counts: Counter[str] = Counter()
        faults = []
        for write in chosen:
            code, said, _, failed = attempt(write)
            if not failed:
                counts["not reached"] += 1
                continue
            counts[f"exit code {code}"] += 1
            fault = find_fault(code, said, failed)
            again, said = run_all(plan(inputs, root / "trial")) if code else (0, "")
            if again:
                fault += f" / run again: exit code {again}: {said[-1500:]}"
            elif describe_results(root / "trial") != expected:
                fault += " / another result"
            left = [str(path) for path in (root / "trial").rglob("*.partial")]
            if left:
                fault += f" / left over: {left[0]}"
            if fault:
                faults.append(f"write {write}, {failed.removeprefix(str(root))}: {fault}")
        found = {"writes": total, "tried": len(chosen), **counts, "faults": len(faults), "first faults": faults[:SHOWN]}
    sys.stdout.write(json.dumps(found) + "\n")


def _number(name: str) -> int:
    return int(getattr(errno, name))


if __name__ == "__main__":
    main()
