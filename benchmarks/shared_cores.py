"""Two trainings on the same CPU cores at once, whose waiting threads sleep soon, beside libgomp's own active waiting.

python benchmarks/run.py --device cpu --only shared-cores
GOMP_SPINCOUNT=3000 python benchmarks/shared_cores.py 20     # one process of it: its seconds for so many steps
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _rows import Row
from _speed import Scale, build_run, choose_scale, workspace
from _synthetic import WORDS, make_rows, write_rows
from finetune import build_task

COMES = "libgomp as it comes"


def measure_sharing(scale: Scale) -> Iterator[Row]:
    """Examples a second of both trainings together, in turns; and of one alone."""
    from crossling.processes import SPINS

    steps, rounds, batch = (1, 1, 4) if scale.quick else (5, 2, 32)
    waits = {"ours": SPINS, COMES: None}
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for name, spins in waits.items():
            for processes in (1, 2):
                found.setdefault((name, processes), []).append(time_processes(processes, spins, steps, scale.quick))
    speed = {key: key[1] * steps * batch / statistics.median(seconds) for key, seconds in found.items()}
    yield Row(
        "shared cores",
        f"fine-tuning of two taggers at once on {os.cpu_count()} cores, as many threads each, batch {batch}",
        "examples/s",
        speed["ours", 2],
        {COMES: speed[COMES, 2], "one alone": speed["ours", 1], "one alone, libgomp as it comes": speed[COMES, 1]},
        notes={"timed steps of each": steps * rounds},
    )


def time_processes(count: int, spins: str | None, steps: int, quick: bool) -> float:
    """The seconds of the slowest of some processes that train at once."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    if spins is not None:
        environment["GOMP_SPINCOUNT"] = spins
    command = [sys.executable, __file__, str(steps), *(["--quick"] if quick else [])]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    outputs = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise RuntimeError("a process that trains failed: see its error above")
    return max(map(float, outputs))


def train(steps: int, *, quick: bool) -> float:
    """Seconds of some steps, after one epoch that is not timed."""
    scale = choose_scale("cpu", quick=quick)
    batch = 4 if quick else 32
    with workspace() as folder:
        rows = make_rows(WORDS, steps * batch, scale.size.drawn, batch=batch)
        model, stream = build_task(WORDS, scale, write_rows(WORDS, rows, folder / "examples.arrow"))
        run = build_run(model, stream, scale, folder / "run", batch=batch)
        run.train_epoch()
        began = time.perf_counter()
        run.train_epoch()
        return time.perf_counter() - began


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    print(train(int(sys.argv[1]), quick="--quick" in sys.argv))
