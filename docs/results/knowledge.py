"""Tables of knowledge.md, from the scores of every seed: python docs/results/knowledge.py

python docs/results/knowledge.py --gather RESULTS   # scores of the four studies, heads and perplexities
python docs/results/knowledge.py                    # the tables, from tables/knowledge-seeds*.csv
python docs/results/knowledge.py --write            # into knowledge.md
"""

from __future__ import annotations

import csv
import math
import sys
from pathlib import Path
from statistics import fmean

import seed_tables
from seed_tables import FOLDER, TABLES, BySeed, SeedScores, is_english, is_zero_shot

SCORES = TABLES / "knowledge-seeds.csv"
HEADS = TABLES / "knowledge-seeds-heads.csv"
STUDIES = ("knowledge-pos", "knowledge-ner-5000", "knowledge-sentiment", "knowledge-paraphrase")
TASKS = {"pos": "parts of speech", "ner": "entities", "sentiment": "sentiment", "paraphrase": "paraphrase"}
METHODS = {"multi": "labels in those languages", "+DA": "their unlabelled text, first", "+FA": "other tasks beside"}
"""Systems of the README's table of what helped."""
PUBLISHED = {
    "pos": {"multi": 14.7, "+DA": 0.2},
    "ner": {"multi": 13.8, "+FA": 3.0, "+DA": 9.8, "+FA+DA": 13.0},
    "sentiment": {"multi": 13.9, "+FA": 0.2, "+DA": 11.0, "+FA+DA": 11.9},
    "paraphrase": {"multi": 4.3, "+FA": -0.0, "+DA": -9.0, "+FA+DA": 0.4},
}
"""The paper's points from its cross-lingual model, mean of de, es, fr (tables 2 and 6)."""
INTRO = """## Five seeds

    crossling study run recipes/studies/knowledge-ner-5000.toml    # and -pos, -sentiment, -paraphrase

Three epochs of tagging; entities are scored on the first 2,000 dev rows of each language. Percent ± standard deviation
over seeds; points from cross are paired by seed, with a 95 % interval by Student's t over seeds, and p after Holm's
correction over the systems of a task. Where p is 0.05 or more, the difference is inconclusive. Scores of every seed:
[tables/knowledge-seeds.csv](tables/knowledge-seeds.csv).
"""
TOP = "60"


def name_perplexities(task: str) -> Path:
    return TABLES / f"knowledge-seeds-perplexity-{task}.csv"


def build_scores(scores: SeedScores, task: str) -> list[str]:
    """All systems of a task; Holm's correction over those that are not the baseline."""
    [data, *_] = scores.list_sets(task)
    systems = scores.list_systems(task)
    cross = scores.average(task, "cross", data, is_zero_shot)
    gains = [seed_tables.measure_gain(scores.average(task, system, data, is_zero_shot), cross) for system in systems]
    tried = [None if system == "cross" else gain for system, gain in zip(systems, gains, strict=True)]
    rows = []
    for system, gain, p in zip(systems, tried, seed_tables.correct(tried), strict=True):
        means = [seed_tables.show_mean(scores.average(task, system, data, keep)) for keep in (is_english, is_zero_shot)]
        paper = PUBLISHED[task].get(system)
        verdict = "" if system == "cross" else seed_tables.decide(gain, p)
        printed = "" if paper is None else f"{paper:+.1f}"
        seeds = str(len(scores.average(task, system, data, is_zero_shot)))
        rows.append((system, seeds, *means, seed_tables.format_gain(gain, p), verdict, printed))
    head = ("system", "seeds", "English", "mean of de, es, fr", "from cross", "", "paper")
    return [f"{TASKS[task].capitalize()}, macro F1:", "", *seed_tables.format_table(head, rows)]


def build_methods(scores: SeedScores) -> list[str]:
    """Rows of the README's table: differences without a correction, as its text says."""
    rows = []
    for system, title in METHODS.items():
        cells = []
        for task in TASKS:
            means = [
                scores.average(task, one, data, is_zero_shot)
                for data in scores.list_sets(task)[:1]
                for one in (system, "cross")
            ]
            gain = seed_tables.measure_gain(*means) if means else None
            cells.append("" if gain is None else f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]")
        rows.append((title, *cells))
    return seed_tables.format_table(("method", *TASKS.values()), rows)


def build_heads(path: Path) -> list[str]:
    """Shared heads of the best 60, beside chance and beside what two seeds of one model share."""
    with path.open(encoding="utf-8", newline="") as stream:
        found = [row for row in csv.DictReader(stream) if row["top"] == TOP]
    rows = [
        (
            row["probe"],
            row["model"],
            f"{float(row['shared']):.1f}",
            f"{float(row['expected']):.1f}",
            f"{float(row['p_corrected']):.3f}" if row["p_corrected"] else "",
            f"{float(row['ceiling']):.1f}" if row["ceiling"] else "",
            row["pairs_of_seeds"],
        )
        for row in found
        if row["shared"] and row["expected"]
    ]
    head = (
        "task",
        "model",
        f"shared of {TOP}",
        "by chance",
        "p, Holm",
        "two seeds of the task's model",
        "pairs of seeds",
    )
    return seed_tables.format_table(head, rows)


def read_losses(path: Path) -> dict[str, BySeed]:
    """By model and seed: the mean logarithm of the perplexity in de, es, fr."""
    values: dict[str, dict[int, list[float]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if is_zero_shot(row["language"]):
                seeds = values.setdefault(row["model"], {})
                seeds.setdefault(int(row["seed"] or 0), []).append(math.log(float(row["perplexity"])))
    return {model: {seed: fmean(found) for seed, found in seeds.items()} for model, seeds in values.items()}


def build_perplexities() -> list[str]:
    """Perplexity on each task's own test text: levels, and multi and +DA divided by cross."""
    rows = []
    for task, title in TASKS.items():
        if not name_perplexities(task).exists():
            continue
        losses = read_losses(name_perplexities(task))
        names = {"original": "original", "cross": task, "multi": f"{task}-multi", "+DA": f"{task}+DA"}
        levels = [f"{math.exp(fmean(losses[name].values())):,.0f}" if name in losses else "" for name in names.values()]
        ratios = []
        for name in ("multi", "+DA"):
            gain = seed_tables.measure_gain(losses.get(names[name], {}), losses.get(task, {}))
            factors = [math.exp(value) for value in (gain.mean, gain.low, gain.high)] if gain else []
            ratios.append("{:.2f} [{:.2f}, {:.2f}]".format(*factors) if factors else "")
        rows.append((title, *levels, *ratios))
    head = ("task, its own test text", "original", "cross", "multi", "+DA", "multi / cross", "+DA / cross")
    return seed_tables.format_table(head, rows)


def build_section() -> list[str]:
    """All tables, from the archived scores."""
    scores = seed_tables.read_scores(SCORES)
    lines = [
        *INTRO.split("\n"),
    ]
    for task in TASKS:
        if scores.list_sets(task):
            lines += build_scores(scores, task)
    missing = [title for task, title in TASKS.items() if not scores.list_sets(task)]
    if missing:
        lines += [f"Not run with five seeds yet: {', '.join(missing)}.", ""]
    lines += ["What helped, without a correction:", "", *build_methods(scores)]
    if HEADS.exists():
        lines += ["Attention heads that training helped most:", "", *build_heads(HEADS)]
    if any(name_perplexities(task).exists() for task in TASKS):
        note = [
            "Pseudo-perplexity on rows of each task's own test text, geometric mean of de, es, fr; ratios with a 95 %",
            "interval by Student's t over seeds:",
        ]
        lines += [*note, "", *build_perplexities()]
    return lines


def gather(results: Path) -> None:
    count = seed_tables.gather_scores(results, STUDIES, SCORES)
    sys.stdout.write(f"{SCORES}: {count} scores\n")
    places = {"head_probe-shared": HEADS, **{f"perplexity-{task}": name_perplexities(task) for task in TASKS}}
    for name, path in places.items():
        if (found := results / "analyses" / f"{name}.csv").exists():
            path.write_bytes(found.read_bytes())


if __name__ == "__main__":
    seed_tables.main(
        FOLDER / "knowledge.md",
        section="knowledge-seeds",
        before="## What was run",
        build=build_section,
        gather=gather,
    )
