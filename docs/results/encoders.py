"""Tables of adapters.md and gemma.md, from the scores of every seed.

python docs/results/encoders.py --gather RESULTS    # scores of the studies adapters and gemma, and memory.json
python docs/results/encoders.py                     # the tables, from tables/adapters.csv, gemma.csv and memory.csv
python docs/results/encoders.py --write             # into the pages
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import seed_tables
from seed_tables import DEV, FOLDER, TABLES, BySeed, SeedScores, is_english, is_zero_shot

TASKS = ("pos", "ner", "nli", "paraphrase", "sentiment", "qa")
FASTER = "-3x"
"""Ends the name of a system that is trained at three times its rate."""
MEMORY = ("encoder", "subwords", "case", "measured", "forecast", "speed")
"""Columns of tables/memory.csv, as the benchmark names them."""


def average(scores: SeedScores, task: str, system: str) -> BySeed:
    """The mean of all languages but English."""
    return scores.average(task, system, scores.list_sets(task)[0], is_zero_shot)


def choose_rate(scores: SeedScores, task: str, system: str) -> str:
    """The name of a system at the one of its rates with the better mean on the English dev set."""
    rates = [name for name in (system, system + FASTER) if name in scores.list_systems(task)]
    means = {name: scores.average(task, name, DEV) for name in rates}
    return max(rates, key=lambda name: sum(means[name].values()) / len(means[name]))


def build_scores(scores: SeedScores, baseline: str) -> list[str]:
    """Every system beside the baseline, each at its better rate; one that has a single rate is compared at that."""
    chosen, references, gains = {}, {}, []
    for task in (task for task in TASKS if scores.list_systems(task)):
        systems = [name for name in scores.list_systems(task) if not name.endswith(FASTER)]
        for system in sorted(systems, key=lambda name: (name != baseline, name)):
            chosen[task, system] = choose_rate(scores, task, system)
            single = system + FASTER not in scores.list_systems(task)
            references[task, system] = baseline if single else choose_rate(scores, task, baseline)
            if system != baseline:
                one, other = chosen[task, system], references[task, system]
                gains.append(seed_tables.measure_gain(average(scores, task, one), average(scores, task, other)))
    rated = any(name.endswith(FASTER) for name in chosen.values())
    corrected, rows = iter(zip(gains, seed_tables.correct(gains), strict=True)), []
    for (task, system), name in chosen.items():
        rate = ["3x" if name.endswith(FASTER) else "1x"] if rated else []
        [data, *_] = scores.list_sets(task)
        means = [scores.average(task, name, DEV), scores.average(task, name, data, is_english)]
        shown = [seed_tables.show_mean(one) for one in (*means, average(scores, task, name))]
        gain = seed_tables.format_gain(*next(corrected)) if system != baseline else ""
        rows.append([task, system, *rate, *shown, gain])
    names = ["task", "system", *(["rate"] if rated else []), "en dev", "en", "other languages", "difference"]
    return seed_tables.format_table(names, rows)


def build_languages(scores: SeedScores) -> list[str]:
    """The mean over seeds in every language."""
    tasks = [task for task in TASKS if scores.list_systems(task)]
    sets = {task: scores.list_sets(task)[0] for task in tasks}
    languages = sorted({name for task in tasks for name in scores.list_languages(task, sets[task])} - {"en"})
    rows = []
    for task in tasks:
        for system in scores.list_systems(task):
            found = scores.values[task, system, sets[task]]
            shown = [seed_tables.show_mean(found[name]) if name in found else "" for name in ("en", *languages)]
            rows.append([task, system, *shown])
    return seed_tables.format_table(["task", "system", "en", *languages], rows)


def build_memory() -> list[str]:
    """Memory and speed of every size and setting."""
    rows, plain = [], 1.0
    with (TABLES / "memory.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            held, expected, speed = (float(row[name] or 0) for name in ("measured", "forecast", "speed"))
            plain = speed if row["case"] == "plain" else plain
            timed = [f"{speed:,.0f}", f"{speed / plain:.2f}"] if speed else ["", ""]
            about = [row[name] for name in ("encoder", "subwords", "case")]
            rows.append([*about, f"{held / 1e9:.2f}", f"{expected / held - 1:+.0%}", *timed])
    names = ["encoder", "subwords", "settings", "GB held", "forecast", "examples/s", "times plain"]
    return seed_tables.format_table(names, rows)


def gather(results: Path) -> None:
    for study in ("adapters", "gemma"):
        seed_tables.gather_scores(results, (study,), TABLES / f"{study}.csv")
    found = json.loads((results / "memory.json").read_text(encoding="utf-8"))
    with (TABLES / "memory.csv").open("w", encoding="utf-8", newline="") as stream:
        lines = [[row[name] or "all" for name in MEMORY] for row in found if "error" not in row]
        csv.writer(stream, lineterminator="\n").writerows([MEMORY, *lines])


def list_pages() -> seed_tables.Pages:
    """The tables of both pages, from the archived scores."""
    adapters, gemma = (seed_tables.read_scores(TABLES / f"{name}.csv") for name in ("adapters", "gemma"))
    return {
        FOLDER / "adapters.md": {"adapters": lambda: build_scores(adapters, "plain"), "memory": build_memory},
        FOLDER / "gemma.md": {"gemma": lambda: [*build_scores(gemma, "e5"), *build_languages(gemma)]},
    }


if __name__ == "__main__":
    seed_tables.main(list_pages, gather=gather)
