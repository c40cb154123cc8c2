"""What lower precisions cost a tagger: python docs/results/precisions.py RUN --rows 1500 [--minutes 20]

Span F1 of one model on the first rows of WikiANN's dev set in 16 languages: in float32 and in 8 bits with ONNX Runtime,
and in bfloat16 with torch where the CPU has it. All languages get on by the same number of rows at a time, and the
table docs/results/tables/precisions.csv is written anew after each, so that a run can be ended at any time. The
interval of the mean loss is a bootstrap over sentences. The figures are in docs/onnx.md and docs/performance.md.
"""

from __future__ import annotations

import argparse
import csv
import io
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.catalogue import open_data
from crossling.files import write_atomic
from crossling.inference.engines import load_engine
from crossling.inference.evaluate import Engine, predict_with
from crossling.inference.onnx.export import export_onnx
from crossling.models.model import load_model
from crossling.report.terminal import print_message
from crossling.scores.significance.counts import find_measure
from crossling.store.artefacts import find_store
from crossling.study.run_record import find_model
from crossling.tasks import restore_task
from crossling.training.distributed import has_bf16_products

LANGUAGES = ("en", "ar", "de", "es", "fi", "fr", "hi", "it", "ja", "ko", "nl", "ru", "sw", "tr", "vi", "zh")
TABLE = Path(__file__).parent / "tables" / "precisions.csv"
BLOCK = 100
"""Rows of a language that are predicted at a time."""
ROUNDS = 2_000
"""Samples of the bootstrap."""
Counts = dict[str, dict[str, np.ndarray[Any, Any]]]
"""By precision and language: twice the correct spans of each sentence, and its predicted and gold ones together."""


def load_engines(run: Path, folder: Path, *, threads: int) -> tuple[dict[str, Engine], Any, str]:
    """Engines by precision, the task and its head's name."""
    saved = find_model(run)
    model, card = load_model(saved)
    for precision in {"float32", "int8"} - {path.name for path in folder.iterdir()}:
        export_onnx(model, card, folder / precision, precision=precision)  # type: ignore[arg-type]
    engines = {name: load_engine(folder / name, threads=threads)[0] for name in ("float32", "int8")}
    if has_bf16_products():
        engines["bfloat16"] = load_engine(saved, threads=threads, precision="bfloat16")[0]
    head, stored = next(iter(card.tasks.items()))
    return engines, restore_task(stored), head


def count_spans(engine: Engine, task: Any, head: str, spec: str) -> np.ndarray[Any, Any]:
    """What F1 of spans is computed from, for each sentence of a set."""
    rows = open_data(spec, store=find_store(None))
    [found] = predict_with(engine, task, [rows], head=head, cache=None)
    values = find_measure(found, "span_f1").count(found).values
    return values.reshape(len(values), 2)


def score(counts: np.ndarray[Any, Any]) -> float:
    """F1 in points of 100."""
    correct, all_spans = counts.sum(axis=0)
    return float(100 * correct / all_spans)


def bootstrap_loss(counts: Counts, precision: str) -> tuple[float, float]:
    """The interval of 95 % of the mean loss over languages."""
    random, losses = np.random.default_rng(1), np.zeros(ROUNDS)
    for language in LANGUAGES:
        before, after = counts["float32"][language], counts[precision][language]
        for number in range(ROUNDS):
            chosen = random.integers(len(before), size=len(before))
            losses[number] += (score(before[chosen]) - score(after[chosen])) / len(LANGUAGES)
    low, high = np.percentile(losses, [2.5, 97.5])
    return float(low), float(high)


def write_table(counts: Counts) -> None:
    """A row for each language and the mean."""
    names = list(counts)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["language", "rows", *names])
    table = {one: [score(counts[name][one]) for name in names] for one in LANGUAGES}
    for language, values in table.items():
        writer.writerow([language, len(counts["float32"][language]), *(f"{value:.3f}" for value in values)])
    total = sum(len(found) for found in counts["float32"].values())
    writer.writerow(["mean", total, *(f"{value:.3f}" for value in np.mean(list(table.values()), axis=0))])
    write_atomic(TABLE, text.getvalue())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=int, default=10_000, help="Of each language, where it has as many.")
    parser.add_argument("--minutes", type=float, default=1e9, help="No block begins later than this.")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--work", type=Path, help="A folder that keeps the exported models for another try.")
    options = parser.parse_args()
    sizes = {one: len(open_data(f"panx:{one}:dev", store=find_store(None))) for one in LANGUAGES}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        engines, task, head = load_engines(options.run, options.work or Path(folder), threads=options.threads)
        empty = np.zeros((0, 2))
        counts: Counts = {name: dict.fromkeys(LANGUAGES, empty) for name in engines}
        for start in range(0, options.rows, BLOCK):
            if time.monotonic() - began > 60 * options.minutes:
                break
            for language in LANGUAGES:
                stop = min(start + BLOCK, sizes[language], options.rows)
                for name, engine in engines.items() if start < stop else ():
                    found = count_spans(engine, task, head, f"panx:{language}:dev[{start}:{stop}]")
                    counts[name][language] = np.concatenate([counts[name][language], found])
            write_table(counts)
            print_message(TABLE.read_text(encoding="utf-8").splitlines()[-1])
    for name in list(engines)[1:]:
        low, high = bootstrap_loss(counts, name)
        print_message(f"mean loss of {name}: {low:.2f} to {high:.2f}")


if __name__ == "__main__":
    main()
