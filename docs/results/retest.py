"""Older studies tested again for new seeds: python docs/results/retest.py [--write]

The tables of these studies have the mean and the standard deviation of each system over its seeds, and the bootstrap
intervals of that time, which cover less than 95 % with three seeds. Scores of single seeds were not kept, so that
systems cannot be paired by seed: this is Welch's form of Student's t, from means and standard deviations alone, which
asks for more than a paired test would. Holm's correction is over the systems that a study tried, line by line.

With --write, the result is written to tables/retested.csv.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

from scipy import stats

from crossling.scores.significance.holm import correct_holm

TABLES = Path(__file__).parent / "tables"
RETESTED = TABLES / "retested.csv"
HEAD = ("study", "line", "system", "tried", "difference", "low", "high", "p", "holm_p")

Row = dict[str, str]


def read_lines(path: Path) -> dict[str, list[Row]]:
    """Systems with several seeds, by line: averages where the table has some, else single languages."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row.get("sd") and "baseline_delta" in row]
    averages = [row for row in rows if row["language"].startswith("mean of")]
    found: dict[str, list[Row]] = defaultdict(list)
    for row in averages or rows:
        found[" ".join(filter(None, (row.get("task", ""), row["language"])))].append(row)
    return found


def welch(one: Row, other: Row) -> tuple[float, float, float, float]:
    """The difference of two means with its 95 % interval and p."""
    # The exact difference where it is on record: means may be rounded.
    difference = float(one["baseline_delta"])
    parts = [float(row["sd"]) ** 2 / int(row["seeds"]) for row in (one, other)]
    variance = sum(parts)
    freedom = variance**2 / sum(
        part**2 / (int(row["seeds"]) - 1) for part, row in zip(parts, (one, other), strict=True)
    )
    half = float(stats.t.ppf(0.975, freedom)) * variance**0.5
    p = 2 * float(stats.t.sf(abs(difference) / variance**0.5, freedom))
    return difference, difference - half, difference + half, p


def retest() -> list[tuple[str, ...]]:
    """Every system of every older study against its baseline."""
    lines = []
    for path in sorted(TABLES.glob("*.csv")):
        if path == RETESTED:
            continue
        for line, rows in read_lines(path).items():
            baseline = next((row for row in rows if not row["baseline_delta"]), None)
            systems = [row for row in rows if row["baseline_delta"]]
            if baseline is None or not systems:
                continue
            found = [welch(row, baseline) for row in systems]
            corrected = correct_holm([p for *_, p in found])
            for row, (difference, low, high, p), holm in zip(systems, found, corrected, strict=True):
                figures = (f"{difference:+.3f}", f"{low:+.3f}", f"{high:+.3f}", f"{p:.4f}", f"{holm:.4f}")
                lines.append((path.stem, line, row["system"], str(len(systems)), *figures))
    return lines


def main(*, write: bool) -> None:
    """Print the table, or write it."""
    lines = retest()
    if not write:
        sys.stdout.writelines("  ".join(line) + "\n" for line in (HEAD, *lines))
        return
    with RETESTED.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([HEAD, *lines])


if __name__ == "__main__":
    main(write="--write" in sys.argv[1:])
