"""The tables of teaching.md, from the scores of every seed in tables/teaching.csv: python docs/results/teaching.py

Differences are paired by seed: mean and 95 % interval by Student's t over seeds, which is about the next seed. Holm's
correction is over all taught systems of all tasks.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import fmean

from scipy import stats

from crossling.scores.significance.holm import correct_holm

TEXT = {
    "ner": ("de", "es", "fr", "hi", "ru", "vi"),
    "nli": ("de", "es", "ru", "zh"),
    "pos": ("de", "es", "hi", "ja", "ru", "zh"),
    "sentiment": ("de", "es"),
}
"""Languages that gave text, by study; all others but English gave none."""
UNTAUGHT = ("plain", "control")

Means = dict[tuple[str, str], dict[str, list[float]]]


def read_means(path: Path) -> Means:
    """By study and system: the mean over each group of languages, a value for each seed."""
    scores: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            seeds = scores.setdefault((row["study"], row["system"]), {})
            seeds.setdefault(int(row["seed"]), {})[row["language"]] = float(row["score"])
    return {
        key: {
            group: [
                fmean(v for language, v in by.items() if find_group(key[0], language) == group)
                for _, by in sorted(seeds.items())
            ]
            for group in ("en", "text", "none")
        }
        for key, seeds in scores.items()
    }


def find_group(study: str, language: str) -> str:
    """``en``, ``text`` or ``none``."""
    return "en" if language == "en" else "text" if language in TEXT[study] else "none"


def compare(first: list[float], second: list[float]) -> tuple[str, float]:
    """The mean difference with its interval, and the p-value of the paired t-test."""
    differences = [a - b for a, b in zip(first, second, strict=True)]
    test = stats.ttest_1samp(differences, 0)
    low, high = test.confidence_interval(0.95)
    return f"{fmean(differences):+.1f} [{low:+.1f}, {high:+.1f}]", float(test.pvalue)


def main() -> None:
    means = read_means(Path(__file__).parent / "tables" / "teaching.csv")
    taught = [key for key in means if key[1] not in UNTAUGHT]
    tests = [compare(means[key]["none"], means[key[0], "control"]["none"])[1] for key in taught]
    corrected = dict(zip(taught, correct_holm(tests), strict=True))
    write = sys.stdout.write
    write(
        "| task | system | en | gave text | gave none | from plain, gave none | from control, gave none | p, Holm |\n"
    )
    write("| --- | --- | --: | --: | --: | --: | --: | --: |\n")
    for key, groups in means.items():
        values = " | ".join(f"{fmean(groups[group]):.1f}" for group in ("en", "text", "none"))
        others = [
            compare(groups["none"], means[key[0], other]["none"])[0] if key[1] not in ("plain", other) else ""
            for other in UNTAUGHT
        ]
        p = f"{corrected[key]:.3f}" if key in corrected else ""
        write(f"| {key[0]} | {key[1]} | {values} | {' | '.join(others)} | {p} |\n")


if __name__ == "__main__":
    main()
