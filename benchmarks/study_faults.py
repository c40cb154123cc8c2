"""Faults injected into studies and results lost: kill -9 of workers and of schedulers at random moments.

    python benchmarks/study_faults.py [ROUNDS]

Each round runs a study of 6 tiny cells with two workers, kills up to 5 workers and 3 schedulers, starts it again
until it ends, and compares weights and predictions with those of a study left in peace.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "study")]

from chaos import Chaos  # noqa: E402
from small_study import finish, predictions_of, redone, start, weights_of, write_study  # noqa: E402
from tiny import save_tiny  # noqa: E402


def main(rounds: int) -> None:
    totals = dict.fromkeys(("workers killed", "schedulers killed", "results", "lost", "different", "done twice"), 0)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = save_tiny(folder / "encoder", family="xlm-r")
        path = write_study(folder, encoder, epochs=20)
        text = path.read_text(encoding="utf-8").replace("[1, 2]", "[1, 2, 3]")
        path.write_text(text, encoding="utf-8")
        finish(start(path, "--out", folder / "calm", "--store", folder / "calm-store"))
        weights, predictions = weights_of(folder / "calm-store"), predictions_of(folder / "calm")
        for number in range(rounds):
            out, store = folder / f"out-{number}", folder / f"store-{number}"
            chaos = Chaos(path, out, store, random.Random(number))
            chaos.run(workers=5, schedulers=3)
            totals["workers killed"] += chaos.workers_killed
            totals["schedulers killed"] += chaos.schedulers_killed
            for expected, found in ((weights, weights_of(store)), (predictions, predictions_of(out))):
                totals["results"] += len(expected)
                totals["lost"] += len(expected.keys() - found.keys())
                totals["different"] += sum(found[key] != expected[key] for key in expected.keys() & found.keys())
            totals["done twice"] += len(redone(out))
            print(f"round {number + 1}: {totals}", flush=True)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10)
