"""How long the report of a large study takes: all comparisons, tests, tables and the page.

    python benchmarks/report.py [CELLS]     default: 1000

The study is made up: predictions right to a known share in every cell, as if all had been trained.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _rows import clock
from growth import describe

SEEDS = 10


def measure_report(cells: int) -> dict[str, float]:
    """Seconds of the report, and what it has to read and writes."""
    from crossling.study.report import report_study
    from finished_study import ROWS, finish_study
    from tiny import save_tiny

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        out = finish_study(folder, save_tiny(folder / "encoder", family="xlm-r"), describe(cells, SEEDS))
        seconds, report = clock(lambda: report_study(out))
        written = sum(path.stat().st_size for path in report.files)
    return {"seconds": seconds, "sentences": cells * ROWS, "megabytes written": round(written / 1e6, 2)}


if __name__ == "__main__":
    cells = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    print(", ".join(f"{name} {value:,.2f}" for name, value in measure_report(cells).items()))
