"""The table of teaching.md, from the scores of every seed in tables/teaching.csv: python docs/results/teaching.py

With the names of a study and two of its systems, the difference of these two instead, in each group of languages and in
each language:
python docs/results/teaching.py teach-gemma best-gemma best

With --write, the table in teaching.md is replaced, too (and `start_choices.py --write` updates `crossling start`). With
--gather and a folder of studies, what `crossling study compare` wrote there goes into tables/teaching.csv first:
python docs/results/teaching.py --gather studies --write

Differences are paired by seed: mean and 95 % interval by Student's t over seeds, which is about the next seed. Holm's
correction is over all systems of all tasks but plain fine-tuning, however long, for the differences from plain and for
those from the control apart.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

from seed_tables import FOLDER, TABLES, BySeed, Gain, correct, locate_csv
from seed_tables import measure_gain as measure_known_gain

SCORES = TABLES / "teaching.csv"
COLUMNS = ("study", "system", "seed", "language", "measure", "score")
MEASURES = {"ner": "span_f1", "sentiment": "macro_f1", "qa": "qa_f1"}
"""By task; the others have accuracy."""
TEXT = {
    "ner": ("de", "es", "fr", "hi", "ru", "vi"),
    "nli": ("de", "es", "ru", "zh"),
    "pos": ("de", "es", "hi", "ja", "ru", "zh"),
    "sentiment": ("de", "es"),
    "best-nli": ("de", "es", "ru", "zh"),
    "teach-gemma": ("de", "es", "ru", "zh"),
    "best-paraphrase": ("de", "es", "ja", "ru"),
    "best-pos": ("de", "es", "hi", "ja", "ru", "zh"),
    "best-qa": ("de", "es", "ru"),
    "best-sentiment": (),
}
"""Languages with unlabelled text, by study; all others but English have none."""
UNTAUGHT = ("plain", "control", "control-wide", "longer")
"""Plain fine-tuning, however long: no system that was tried."""
CONTROLS = {("best-sentiment", "wide"): "control-wide"}
"""Systems that make more updates than the control of their study, and the one that makes as many."""
HEAD = (
    "| study | system | seeds | en | with text | without text | from plain, without text | p, Holm "
    "| from control, without text | p, Holm |"
)

Means = dict[tuple[str, str], dict[str, dict[int, float]]]


def find_group(study: str, language: str) -> str:
    """``en``, ``text`` or ``none``."""
    return "en" if language == "en" else "text" if language in TEXT[study] else "none"


def read_means(path: Path, group_of: Callable[[str, str], str] = find_group) -> Means:
    """By study, system and group of languages: the mean over the languages, by seed."""
    scores: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            seeds = scores.setdefault((row["study"], row["system"]), {})
            seeds.setdefault(int(row["seed"]), {})[row["language"]] = float(row["score"])
    means: Means = {}
    for key, seeds in scores.items():
        groups = {group_of(key[0], language) for by in seeds.values() for language in by}
        means[key] = {
            group: {
                seed: fmean(score for language, score in by.items() if group_of(key[0], language) == group)
                for seed, by in sorted(seeds.items())
            }
            for group in sorted(groups)
        }
    return means


def measure_gain(first: BySeed, second: BySeed) -> Gain:
    """The difference of two systems that have seeds in common."""
    gain = measure_known_gain(first, second)
    assert gain is not None
    return gain


def gather_scores(results: Path, path: Path) -> int:
    """Put what studies below a folder scored into the table; scores that it has of the same seeds are replaced."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = {tuple(row[name] for name in COLUMNS[:4]): row for row in csv.DictReader(stream)}
    found = 0
    for study in TEXT:
        name = study if "-" in study else f"teach-{study}"
        scores = locate_csv(results, name, "seed-scores.csv")
        if scores is None:
            continue
        measure = MEASURES.get(name.partition("-")[2], "accuracy")
        with scores.open(encoding="utf-8", newline="") as stream:
            measured = [row for row in csv.DictReader(stream) if row["score"] == measure]
        for row in measured:
            key = (study, row["system"], row["seed"], row["language"])
            rows[key] = dict(zip(COLUMNS, (*key, measure, f"{float(row['percent']):.3f}"), strict=True))
        found += len(measured)
    order = {key: number for number, key in enumerate(dict.fromkeys(key[:2] for key in rows))}
    names = list(TEXT)
    keys = sorted(rows, key=lambda key: (names.index(key[0]), order[key[:2]], int(key[2]), key[3]))
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in keys)
    return found


def find_control(means: Means, key: tuple[str, str]) -> tuple[str, str]:
    """The system with at least as many updates: plain itself, where a study has no other."""
    control = (key[0], CONTROLS.get(key, "control"))
    return control if control in means else (key[0], "plain")


def show_gain(gain: Gain) -> str:
    return f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"


def find_plain(_: Means, key: tuple[str, str]) -> tuple[str, str]:
    """Plain fine-tuning of the same study."""
    return key[0], "plain"


def measure_tried(
    means: Means, find: Callable[[Means, tuple[str, str]], tuple[str, str]]
) -> dict[tuple[str, str], Gain]:
    """All systems but plain fine-tuning, less another one of their study, in languages without text."""
    return {
        key: measure_gain(means[key]["none"], means[find(means, key)]["none"])
        for key in means
        if key[1] not in UNTAUGHT
    }


def build_table(means: Means) -> list[str]:
    """The lines of the table; p after Holm's correction over all systems that were tried."""
    lines = [HEAD, "| --- | --- |" + " --: |" * 8]
    corrected = []
    for find in (find_plain, find_control):
        tried = measure_tried(means, find)
        corrected.append((find, dict(zip(tried, correct(list(tried.values())), strict=True))))
    for key, groups in means.items():
        cells = [f"{fmean(groups[group].values()):.1f}" if group in groups else "" for group in ("en", "text", "none")]
        for find, ps in corrected:
            other, p = find(means, key), ps.get(key)
            known = key[1] not in ("plain", other[1])
            cells.append(show_gain(measure_gain(groups["none"], means[other]["none"])) if known else "")
            cells.append("" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}")
        lines.append(f"| {key[0]} | {key[1]} | {len(groups['en'])} | {' | '.join(cells)} |")
    return lines


def list_differences(means: Means, study: str, first: str, second: str) -> list[str]:
    """How two systems of a study differ in each group of languages, not corrected for others that were tried."""
    lines = []
    for group, values in means[study, first].items():
        gain = measure_gain(values, means[study, second][group])
        lines.append(f"{study}: {first} - {second}, {group}: {show_gain(gain)}, p {gain.p:.3f}")
    return lines


def main() -> None:
    if "--gather" in sys.argv:
        place = sys.argv.index("--gather")
        found = gather_scores(Path(sys.argv[place + 1]), SCORES)
        sys.stdout.write(f"{found} scores gathered\n")
        del sys.argv[place : place + 2]
    means = read_means(SCORES)
    if len(sys.argv) == 4:
        by_language = read_means(SCORES, lambda _, language: language)
        lines = [line for some in (means, by_language) for line in list_differences(some, *sys.argv[1:])]
        sys.stdout.write("\n".join(dict.fromkeys(lines)) + "\n")
        return
    table = build_table(means)
    sys.stdout.write("\n".join(table) + "\n")
    if "--write" not in sys.argv:
        return
    page = (FOLDER / "teaching.md").read_text(encoding="utf-8")
    page = re.sub(rf"{re.escape(HEAD)}\n(?:\|.*\n)+", lambda _: "\n".join(table) + "\n", page)
    (FOLDER / "teaching.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
