"""How time and memory grow: rows read, encoded and batched; cells planned and listed.

    python benchmarks/growth.py rows [ROWS ...]      default: 10000 100000 1000000
    python benchmarks/growth.py short-rows [ROWS ...]  the same with texts of four words
    python benchmarks/growth.py tags [ROWS ...]      tagged sentences of eight words
    python benchmarks/growth.py cells [CELLS ...]    default: 10 100 1000 10000
    python benchmarks/growth.py report [CELLS ...]   default: 10 100 1000
    python benchmarks/growth.py training [ROWS ...]  default: 10000 100000 392702 (XNLI's); on a GPU

Rows: pairs of texts, or tagged sentences, are read, encoded with the tokenizer of multilingual-e5-small and put into
batches, and WikiMatrix pairs are read and cleaned, each number in a process of its own. CPU time is without its start.
The memory is the process's peak, less what it held before it read and as a whole, the pages of mapped files included.

Cells: a study of tiny cells is planned, its folder laid out, its job graph made and its status read, with every cell's
marker in place; nothing is trained. The last column is the whole command ``crossling study status``, in CPU seconds of
its process: other programs change them less than wall time.

Report: the whole command ``crossling study report`` on a made-up study, 120 sentences a cell, in CPU seconds.

Training: one epoch of pairs of texts with an encoder of mBERT's size, the capturing of graphs included. Subwords are as
many as one language has.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from _rows import Row, clock

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "study", "data")]
PAIRED = ("tsv", "wikimatrix")


def grow_rows(counts: list[int], kinds: Sequence[str] = PAIRED, *, short: bool = False) -> None:
    print("format\trows\tread s\tencode s\tbatches s\tCPU us a row\tgrown MB\tpeak MB\tload")
    for count in counts:
        for kind in kinds:
            found = measure_rows(kind, count, short=short)
            seconds = found.get("seconds", ["", "", ""])
            figures = (f"{found['work'] / count * 1e6:.1f}", found["grown"], found["peak"], f"{os.getloadavg()[0]:.1f}")
            print(kind, count, *seconds, *figures, sep="\t", flush=True)


def measure_rows(kind: str, count: int, *, short: bool = False) -> dict[str, Any]:
    """CPU seconds and megabytes of rows in a process of its own; where a task reads them, encoded and batched."""
    from test_memory import CASES, ENCODE, READ, run

    with tempfile.TemporaryDirectory() as name:
        folder, case = Path(name), CASES[kind]
        write = {"tsv": write_short_pairs, "wikimatrix": write_short_translations}[kind] if short else case.write
        write(folder / "rows", count)
        write(folder / "rows.small", 100)
        found = run(ENCODE, case, folder, case.task) if case.task else run(READ, case, folder)
    assert found["rows"] == count
    return {**found, "grown": found["peak"] - found["before"]}


def measure_growth(count: int) -> Iterator[Row]:
    """Rows of the benchmark: pairs of texts and parallel text."""
    whats = {
        "tsv": ("pairs of texts", "read, encoded and batched"),
        "wikimatrix": ("parallel text", "read and cleaned"),
    }
    for kind, (name, done) in whats.items():
        wall, found = clock(partial(measure_rows, kind, count))
        yield Row(
            f"growth, {name}",
            f"{count:,} rows {done}, CPU time of each; the process takes {found['peak']:,} MB at most",
            "µs",
            found["work"] / count * 1e6,
            better="lower",
            notes={
                "peak of the process, MB": found["peak"],
                "of that beyond libraries and tokenizer, MB": found["grown"],
                "seconds, with the making of the file": round(wall, 1),
            },
        )


def write_short_pairs(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(f"sentence {i} and so\tanother {i} of it\tL{i % 3}\n" for i in range(rows))


def write_short_translations(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.writelines(f"1.1\tsentence {i} and so\tlauseke {i} ja niin\n" for i in range(rows))


def count_cpu_seconds() -> float:
    """Of the processes that ended: other programs on the machine do not change it much."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def grow_cells(counts: list[int]) -> None:
    print("cells\tload s\tplan s\twrite s\tgraph s\tfinished s\tstatus s\tplan MB\tstatus, CPU s")
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            out, seconds = lay_out_study(Path(name), count)
            times = [f"{value:.2f}" for value in seconds.values()]
            plan = f"{(out / 'study.json').stat().st_size / 1e6:.2f}"
            print(count, *times, plan, f"{time_command('status', out)[1]:.2f}", sep="\t", flush=True)


def lay_out_study(folder: Path, count: int) -> tuple[Path, dict[str, float]]:
    """The folder of a study with every cell's marker in place, and the seconds of each step towards it."""
    from crossling.store.artefacts import Store
    from crossling.study.folder import CellMarker, mark_finished
    from crossling.study.grid import load_study
    from crossling.study.plan import JobGraph, find_finished, plan_study, write_plan
    from crossling.study.status import read_status
    from small_study import write_study
    from tiny import save_tiny

    seconds: dict[str, float] = {}
    path = write_study(
        folder, save_tiny(folder / "encoder", family="xlm-r"), describe(count, 10 if count >= 100 else 5)
    )
    store, out = Store(folder / "store"), folder / "out"
    seconds["load"], study = clock(lambda: load_study(path))
    seconds["plan"], (cells, runs) = clock(lambda: plan_study(study, store, out))
    assert len(cells) == count
    seconds["write"], _ = clock(lambda: write_plan(study, cells, out, store=store, runs=runs))
    seconds["graph"], _ = clock(lambda: JobGraph.from_cells(cells, finished=(), is_trained=store.is_complete).count())
    for cell in cells:
        mark_finished(out / cell.name, CellMarker(cell.identity, seconds=1.0))
    seconds["finished"], _ = clock(lambda: find_finished(cells, runs, out, clean=False))
    seconds["status"], status = clock(lambda: read_status(out))
    assert status.count("done") == count
    return out, seconds


def measure_status(count: int) -> Iterator[Row]:
    """A row of the benchmark: the status of a large study."""
    with tempfile.TemporaryDirectory() as name:
        out, seconds = lay_out_study(Path(name), count)
        wall, cpu = time_command("status", out)
    notes = {"CPU s": round(cpu, 2), "planning the study, s": round(seconds["plan"], 1)}
    notes["writing its folder, s"] = round(seconds["write"], 1)
    what = f"crossling study status of {count:,} cells, the whole command, median"
    yield Row("study status", what, "s", wall, better="lower", notes=notes)


def grow_report(counts: list[int]) -> None:
    from finished_study import finish_study
    from tiny import save_tiny

    print("cells\treport, CPU s")
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            seeds = 10 if count >= 100 else 5
            out = finish_study(folder, save_tiny(folder / "encoder", family="xlm-r"), describe(count, seeds))
            print(count, f"{time_command('report', out)[1]:.2f}", sep="\t", flush=True)


def time_command(verb: str, out: Path) -> tuple[float, float]:
    """Seconds and CPU seconds of a command on a study's folder: medians of five, after one that fills the caches."""
    command = [sys.executable, "-m", "crossling", "study", verb, str(out)]
    spent = []
    for _ in range(6):
        began, before = time.monotonic(), count_cpu_seconds()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        spent.append((time.monotonic() - began, count_cpu_seconds() - before))
    wall, cpu = zip(*spent[1:], strict=True)
    return median(wall), median(cpu)


def grow_training(counts: list[int]) -> None:
    import torch

    from _speed import build_run, choose_scale, wait, workspace
    from _synthetic import LANGUAGE, TEXTS, make_rows, write_rows
    from finetune import build_task, measure_padding

    scale = choose_scale("cuda" if torch.cuda.is_available() else "cpu")
    print("rows\tseconds\texamples/s\tshapes\tpadding\tRSS MB\tGPU MB")
    for count in counts:
        with workspace() as folder:
            examples = write_rows(TEXTS, make_rows(TEXTS, count, LANGUAGE), folder / "examples.arrow")
            model, stream = build_task(TEXTS, scale, examples)
            run = build_run(model, stream, scale, folder / "work", batch=scale.batch, epochs=1)
            seconds, _ = clock(lambda r=run: (r.train_epoch(), wait(scale.device)))
            held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            on_gpu = torch.cuda.max_memory_allocated() >> 20 if scale.on_gpu else 0
            shapes = len(getattr(run.steps, "passes", ()))
            padding = measure_padding(examples, scale.batch, scale.device)
            print(
                count, f"{seconds:.1f}", f"{count / seconds:.0f}", shapes, padding, held, on_gpu, sep="\t", flush=True
            )


def describe(cells: int, seeds: int) -> str:
    """A study with this number of cells: plain fine-tuning at several learning rates."""
    rates = [round(1.3e-4 * (1 + number), 6) for number in range(cells // seeds - 1)]
    first = f'seeds = {json.dumps(list(range(1, seeds + 1)))}\nbaseline = "plain"\n'
    others = f'[systems.rates.axes]\n"stage.0.lr" = {rates}\n' if rates else ""
    return f'{first}[tasks.ner]\nrecipe = "ner.toml"\n[systems.plain]\n{others}'


if __name__ == "__main__":
    what, *numbers = sys.argv[1:] or ["cells"]
    counts = [int(number) for number in numbers]
    if what in ("rows", "short-rows"):
        grow_rows(counts or [10_000, 100_000, 1_000_000], short=what == "short-rows")
    elif what == "tags":
        grow_rows(counts or [10_000, 100_000, 1_000_000], ["bio"])
    elif what == "training":
        grow_training(counts or [10_000, 100_000, 392_702])
    elif what == "report":
        grow_report(counts or [10, 100, 1_000])
    else:
        grow_cells(counts or [10, 100, 1_000, 10_000])
