"""How time and memory grow: rows read, encoded and batched; cells planned and listed.

    python benchmarks/growth.py rows [ROWS ...]      default: 10000 100000 1000000
    python benchmarks/growth.py short-rows [ROWS ...]  the same with texts of four words
    python benchmarks/growth.py cells [CELLS ...]    default: 10 100 1000 10000
    python benchmarks/growth.py report [CELLS ...]   default: 10 100 1000
    python benchmarks/growth.py training [ROWS ...]  default: 10000 100000 392702 (XNLI's); on a GPU

Rows: pairs of texts are read, encoded with the tokenizer of multilingual-e5-small and put into batches, and WikiMatrix
pairs are read and cleaned, each number in a process of its own. CPU time is without its start. The memory is the
process's peak less what it held before it read, the pages of mapped files included.

Cells: a study of tiny cells is planned, its folder laid out, its job graph made and its status read, with every cell's
marker in place; nothing is trained. The last column is the whole command ``crossling study status``, in CPU seconds of
its process: other programs change them less than wall time.

Report: the whole command ``crossling study report`` on a made-up study, 120 sentences a cell, in CPU seconds.

Training: one epoch of pairs of texts with an encoder of mBERT's size, the capturing of graphs included. Subwords are as
many as one language has.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from _rows import clock

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests" / part) for part in ("", "study", "data")]


def grow_rows(counts: list[int], *, short: bool = False) -> None:
    from test_memory import CASES, ENCODE, READ, run

    texts = {"tsv": write_short_pairs, "wikimatrix": write_short_translations}
    print("format\trows\tread s\tencode s\tbatches s\tCPU us a row\tgrown MB")
    for count in counts:
        for kind, script in (("tsv", ENCODE), ("wikimatrix", READ)):
            with tempfile.TemporaryDirectory() as name:
                folder, case = Path(name), CASES[kind]
                write = texts[kind] if short else case.write
                write(folder / "rows", count)
                write(folder / "rows.small", 100)
                found = run(script, case, folder, case.task)
                assert found["rows"] == count
                seconds = found.get("seconds", ["", "", ""])
                grown = found["grown"] if "grown" in found else found["peak"] - found["before"]
                print(kind, count, *seconds, f"{found['work'] / count * 1e6:.1f}", grown, sep="\t", flush=True)


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
    from crossling.store.artefacts import Store
    from crossling.study.folder import CellMarker, mark_finished
    from crossling.study.grid import load_study
    from crossling.study.plan import JobGraph, find_finished, plan_study, write_plan
    from crossling.study.status import read_status
    from small_study import write_study
    from tiny import save_tiny

    print("cells\tload s\tplan s\twrite s\tgraph s\tfinished s\tstatus s\tplan MB\tstatus, CPU s")
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            seeds = 10 if count >= 100 else 5
            path = write_study(folder, save_tiny(folder / "encoder", family="xlm-r"), describe(count, seeds))
            store, out = Store(folder / "store"), folder / "out"
            loading, study = clock(lambda path=path: load_study(path))
            planning, (cells, runs) = clock(lambda s=study, t=store, o=out: plan_study(s, t, o))
            assert len(cells) == count
            laying, _ = clock(lambda s=study, c=cells, t=store, o=out, r=runs: write_plan(s, c, o, store=t, runs=r))
            graphing, _ = clock(
                lambda c=cells, t=store: JobGraph.from_cells(c, finished=(), is_trained=t.is_complete).count()
            )
            for cell in cells:
                mark_finished(out / cell.name, CellMarker(cell.identity, seconds=1.0))
            finding, _ = clock(lambda c=cells, r=runs, o=out: find_finished(c, r, o, clean=False))
            looking, status = clock(lambda o=out: read_status(o))
            assert status.count("done") == count
            times = [f"{value:.2f}" for value in (loading, planning, laying, graphing, finding, looking)]
            plan = f"{(out / 'study.json').stat().st_size / 1e6:.2f}"
            print(count, *times, plan, f"{run_command('status', out):.2f}", sep="\t", flush=True)


def grow_report(counts: list[int]) -> None:
    from finished_study import finish_study
    from tiny import save_tiny

    print("cells\treport, CPU s")
    for count in counts:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            seeds = 10 if count >= 100 else 5
            out = finish_study(folder, save_tiny(folder / "encoder", family="xlm-r"), describe(count, seeds))
            print(count, f"{run_command('report', out):.2f}", sep="\t", flush=True)


def run_command(verb: str, out: Path) -> float:
    """CPU seconds of a command on a study's folder: the median of five runs, after one that fills the caches."""
    command = [sys.executable, "-m", "crossling", "study", verb, str(out)]
    spent = []
    for _ in range(6):
        before = count_cpu_seconds()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        spent.append(count_cpu_seconds() - before)
    return median(spent[1:])


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
    elif what == "training":
        grow_training(counts or [10_000, 100_000, 392_702])
    elif what == "report":
        grow_report(counts or [10, 100, 1_000])
    else:
        grow_cells(counts or [10, 100, 1_000, 10_000])
