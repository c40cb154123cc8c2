"""What a study costs beyond training: 200 tiny cells, one worker, and how long `status` takes meanwhile.

    python benchmarks/study_overhead.py [CELLS]

Prints, for each cell: all time beyond the training steps (loading the encoder, dev scores, saving, predictions, and
the scheduler), and of that the scheduler's own part (planning apart): leases, messages, markers. Target: under 0.2 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "study")]

from growth import describe  # noqa: E402
from small_study import events_of, finish, start, study_command, write_study  # noqa: E402
from tiny import save_tiny  # noqa: E402

SEEDS = 10


def main(cells: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = save_tiny(folder / "encoder", family="xlm-r")
        path = write_study(folder, encoder, describe(cells, SEEDS))
        began = time.perf_counter()
        common = (path, "--out", folder / "out", "--store", folder / "store", "--set", "run.checkpoint_seconds=120.0")
        process = start(*common)
        states = []
        while process.poll() is None:
            time.sleep(2)
            if (folder / "out" / "study.json").exists():
                states.append(time_status(folder / "out"))
        finish(process)
        wall = time.perf_counter() - began
        report(folder, cells, wall, states)
        began = time.perf_counter()
        finish(start(*common))
        print(f"started again with all done:   {time.perf_counter() - began:.1f} s")


def time_status(out: Path) -> float:
    began = time.perf_counter()
    subprocess.run(study_command("status", out), capture_output=True, check=True)
    return time.perf_counter() - began


def report(folder: Path, cells: int, wall: float, states: list[float]) -> None:
    records = [json.loads(path.read_text()) for path in (folder / "store").glob("artefacts/*/complete.json")]
    training = sum(record["training_seconds"] for record in records)
    events = events_of(folder / "out")
    first, last = events[0]["time"], events[-1]["time"]
    busy, open_since = 0.0, {}
    for event in events:
        if event["event"] == "begin":
            open_since[event["job"]] = event["time"]
        elif event["event"] == "end":
            busy += event["time"] - open_since.pop(event["job"])
    assert len(records) == cells
    print(f"cells:                         {cells}")
    print(f"whole study:                   {wall:.1f} s, of which start and plan {wall - (last - first):.1f} s")
    print(f"training steps, each cell:     {1000 * training / cells:.0f} ms")
    print(f"beyond training, each cell:    {1000 * (last - first - training) / cells:.0f} ms")
    print(f"of that the scheduler's own part: {1000 * (last - first - busy) / cells:.1f} ms")
    status = sorted(states)
    print(f"status while it runs:          median {status[len(status) // 2]:.2f} s of {len(status)}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
