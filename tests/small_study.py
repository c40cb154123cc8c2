"""Small studies on tiny encoders and made-up files, and what tests look for in their folders."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from crossling.data.records import TaggedSentence
from crossling.files import write_once
from crossling.recipe.overrides import to_toml
from crossling.scores.predictions import read_predictions
from crossling.study.folder import append_event
from crossling.study.worker import Assignment, Message, Worker, WorkerPaths, serve_jobs
from examples import make_rows

SIZES = {"train": 40, "dev": 8, "test": 12}


def write_bio(path: Path, count: int, *, shift: int = 0) -> Path:
    """A file of made-up tagged sentences."""
    blocks = []
    for record in make_rows(TaggedSentence, count, shift=shift):
        assert isinstance(record, TaggedSentence)
        blocks.append("".join(f"{w}\t{t}\n" for w, t in zip(record.words, record.tags, strict=True)))
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


def write_recipe(folder: Path, encoder: Path, name: str = "ner", **stage: Any) -> Path:
    """A recipe for a tiny encoder; quick, on one thread."""
    data = {}
    for shift, (role, count) in enumerate(SIZES.items()):
        path = write_bio(folder / f"{role}.tsv", count, shift=shift)
        data[role] = {"format": "bio", "path": str(path), "language": "en"}
    table = {"kind": "finetune", "task": name, "train": data["train"], "dev": data["dev"], "epochs": 1, "batch": 8}
    tables = {
        "encoder": {"name": str(encoder)},
        "stage": [{**table, "lr": 1e-3, **stage}],
        "evaluate": [{"on": {**data["test"], "language": "hi"}}],
        "run": {"threads": 1, "device": "cpu", "checkpoint_seconds": 0.0},
    }
    path = folder / f"{name}.toml"
    path.write_text(to_toml(tables), encoding="utf-8")
    return path


def write_study(folder: Path, encoder: Path, text: str = "", **stage: Any) -> Path:
    """A study file beside the recipe that it names; without a text: two systems, two seeds."""
    folder.mkdir(parents=True, exist_ok=True)
    write_recipe(folder, encoder, **stage)
    path = folder / "study.toml"
    path.write_text(text or TWO_SYSTEMS, encoding="utf-8")
    return path


TWO_SYSTEMS = """
seeds = [1, 2]
baseline = "plain"
[systems.plain]
recipe = "ner.toml"
[systems.mean]
recipe = "ner.toml"
set = { "stage.0.fusion" = { kind = "mean", layer = 1 } }
"""


def study_command(verb: str, *arguments: Any) -> list[str]:
    return [sys.executable, "-m", "crossling", "study", verb, *map(str, arguments)]


def start(*arguments: Any) -> subprocess.Popen[str]:
    """``crossling study run`` in a new process."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CROSSLING_STORE": ""}
    return subprocess.Popen(
        study_command("run", *arguments),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Tests that a shell runs in the background were started with Ctrl-C ignored, which processes inherit.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process: subprocess.Popen[str], *, code: int = 0) -> str:
    """Wait for a process; what it wrote."""
    output, _ = process.communicate(timeout=600)
    assert process.returncode == code, output
    return output


def weights_of(store: Path) -> dict[str, str]:
    """Each artefact's weights, by content."""
    files = sorted(store.glob("artefacts/*/model.safetensors"))
    return {path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def predictions_of(out: Path) -> dict[str, list[Any]]:
    """All predictions of a study."""
    files = sorted(out.rglob("*.parquet"))
    return {str(path.relative_to(out)): read_predictions(path).table.to_pylist() for path in files}


def events_of(out: Path) -> list[dict[str, Any]]:
    """What began and ended, in order."""
    text = (out / "events.jsonl").read_text(encoding="utf-8") if (out / "events.jsonl").exists() else ""
    return [json.loads(line) for line in text.splitlines()]


def redone(out: Path) -> list[str]:
    """Jobs that began again after they had ended."""
    ended: Counter[str] = Counter()
    found = []
    for event in events_of(out):
        if event["event"] == "begin" and ended[event["job"]]:
            found.append(event["job"])
        ended[event["job"]] += event["event"] == "end"
    return found


def markers_of(store: Path) -> dict[str, int]:
    """When each artefact was completed."""
    return {path.parent.name: path.stat().st_mtime_ns for path in store.glob("artefacts/*/complete.json")}


def live_workers(out: Path) -> list[int]:
    """Processes of workers that have something to do, from the files of the schedulers."""
    found = []
    for path in (out / "runners").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):
            found += [work["process"] for work in json.loads(path.read_text(encoding="utf-8"))["working"]]
    return found


def list_paths(folder: Path) -> set[str]:
    """All files and folders below one while others write there: what vanishes meanwhile is left out."""
    return {os.path.join(root, name) for root, folders, files in os.walk(folder) for name in (*folders, *files)}  # noqa: PTH118


class Pollable(Protocol):
    """A process that may be over."""

    def poll(self) -> int | None: ...


def wait_for(condition: Callable[[], Any], process: Pollable, *, seconds: float = 300.0) -> bool:
    """Until something holds; false if the process ended first."""
    deadline = time.monotonic() + seconds
    while process.poll() is None:
        if condition():
            return True
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.003)
    return False


def serve_below_fork_server(paths: WorkerPaths, connection: Any, parent: int, gpu: str | None) -> None:
    """A worker whose parent is the fork server, and not the scheduler."""
    serve_jobs(paths, connection, os.getppid(), gpu)


def serve_and_warn(paths: WorkerPaths, connection: Any, parent: int, gpu: str | None) -> None:
    """A worker that warns of the same rows in every job, as two of its threads that read data do."""
    run_job = Worker._run

    def warn_and_run(worker: Worker, assignment: Assignment) -> None:
        threads = [threading.Thread(target=logging.warning, args=("found %s rows", count)) for count in (7, 8)]
        for thread in threads:
            thread.start()
        run_job(worker, assignment)
        for thread in threads:
            thread.join()

    Worker._run = warn_and_run  # type: ignore[method-assign]
    serve_below_fork_server(paths, connection, parent, gpu)


def serve_and_die(paths: WorkerPaths, connection: Any, *_: Any) -> None:
    """A worker that the system kills whenever it gets a cell of the system ``mean``."""
    worker = Worker(paths, connection.send, partial(append_event, paths.out))
    while (assignment := connection.recv()) is not None:
        if assignment.folder == "mean":
            os.kill(os.getpid(), signal.SIGKILL)
        worker.run(assignment)


def serve_a_full_gpu(paths: WorkerPaths, connection: Any, *_: Any) -> None:
    """A worker whose GPU is full at the first job of the study, and free again for the second try."""
    worker = Worker(paths, connection.send, partial(append_event, paths.out))
    while (assignment := connection.recv()) is not None:
        if write_once(paths.out / "was-full", {}):
            connection.send(Message("out_of_memory", assignment.key, error="OutOfMemoryError: x", trace="x"))
        else:
            worker.run(assignment)


def serve_a_broken_gpu(paths: WorkerPaths, connection: Any, *_: Any) -> None:
    """A worker whose GPU fails at the first job of the study; the process cannot use it after that, a new one can."""
    worker = Worker(paths, connection.send, partial(append_event, paths.out))
    run_job, is_broken = worker._run, False

    def fail_or_run(assignment: Assignment) -> None:
        nonlocal is_broken
        is_broken = is_broken or write_once(paths.out / "was-broken", {})
        if is_broken:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        run_job(assignment)

    worker._run = fail_or_run  # type: ignore[method-assign]
    while (assignment := connection.recv()) is not None:
        worker.run(assignment)
