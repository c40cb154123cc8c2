"""The tables of adapters.md and gemma.md, from the scores of every seed: python docs/results/encoders.py [--write]

Scores are in tables/adapters.csv and tables/gemma.csv, memory and speed in tables/memory.csv. With --write, the tables
in the pages are replaced. Differences are paired by seed: mean and 95 % interval by Student's t over seeds, which is
about the next seed. Holm's correction is over all rows of a table that are compared.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import fmean

from teaching import measure_gain

from crossling.scores.significance.holm import correct_holm

FOLDER = Path(__file__).parent
TASKS = ("pos", "ner", "nli", "paraphrase", "sentiment", "qa")
FASTER = "-3x"
"""Ends the name of a system that is trained at three times its rate."""

Seeds = dict[tuple[str, str], dict[str, list[float]]]
"""By task and system: the score on the English dev set, in English, the mean of the other languages, and in each
language, a value for each seed."""


def read_scores(path: Path) -> Seeds:
    """The scores of a study."""
    found: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            name = "dev" if row["measure"] == "dev" else row["language"]
            of_system = found.setdefault((row["task"], row["system"]), {})
            of_system.setdefault(name, {})[int(row["seed"])] = float(row["score"])
    seeds: Seeds = {}
    for key, by_name in found.items():
        seeds[key] = {name: [by_seed[seed] for seed in sorted(by_seed)] for name, by_seed in sorted(by_name.items())}
        others = [values for name, values in seeds[key].items() if name not in ("dev", "en")]
        seeds[key]["others"] = [fmean(values) for values in zip(*others, strict=True)]
    return {key: seeds[key] for task in TASKS for key in seeds if key[0] == task}


def choose_rates(seeds: Seeds) -> Seeds:
    """Of each system, the one of its two rates with the better mean on the English dev set."""
    chosen: Seeds = {}
    for (task, system), values in seeds.items():
        if system.endswith(FASTER):
            continue
        faster = seeds.get((task, system + FASTER))
        better = faster is not None and fmean(faster["dev"]) > fmean(values["dev"])
        chosen[task, system] = {**(faster if faster is not None and better else values), "faster": [float(better)]}
        if faster is None:  # it has one rate: compared at that
            chosen[task, system]["reference"] = seeds[task, "plain"]["others"]
    return chosen


def build_scores(seeds: Seeds, baseline: str, *, rates: bool) -> list[str]:
    """Every system beside the baseline."""
    compared = [key for key in seeds if key[1] != baseline]
    references = {key: seeds[key].get("reference", seeds[key[0], baseline]["others"]) for key in compared}
    gains = {key: measure_gain(seeds[key]["others"], references[key]) for key in compared}
    corrected = dict(zip(compared, correct_holm([gain[3] for gain in gains.values()]), strict=True))
    names = ["task", "system", *(["rate"] if rates else []), "en dev", "en", "other languages"]
    lines = [f"| {' | '.join(names)} | difference | p, Holm |", "| --- | --- |" + " --: |" * len(names)]
    for key, values in seeds.items():
        rate = ["3x" if values["faster"][0] else "1x"] if rates else []
        cells = [*key, *rate, *(f"{fmean(values[name]):.1f}" for name in ("dev", "en", "others"))]
        if key in gains:
            mean, low, high, _ = gains[key]
            cells += [f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]", f"{corrected[key]:.3f}"]
        else:
            cells += ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def build_languages(seeds: Seeds) -> list[str]:
    """The mean over seeds in every language."""
    languages = sorted({name for values in seeds.values() for name in values} - {"dev", "others", "en"})
    lines = [f"| task | system | en | {' | '.join(languages)} |", "| --- | --- |" + " --: |" * (1 + len(languages))]
    for key, values in seeds.items():
        means = [f"{fmean(values[name]):.1f}" if name in values else "" for name in ("en", *languages)]
        lines.append(f"| {' | '.join([*key, *means])} |")
    return lines


def build_memory(path: Path) -> list[str]:
    """Memory and speed of every size and setting, with the whole vocabulary and with one language's subwords."""
    lines = [
        "| encoder | subwords | settings | GB held | forecast | examples/s | times plain |",
        "| --- | --: | --- | --: | --: | --: | --: |",
    ]
    plain = 1.0
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            held, expected = float(row["held"]), float(row["forecast"])
            cells = [
                row["encoder"],
                row["subwords"],
                row["settings"],
                f"{held / 1e9:.2f}",
                f"{expected / held - 1:+.0%}",
            ]
            if row["speed"]:
                speed = float(row["speed"])
                plain = speed if row["settings"] == "plain" else plain
                cells += [f"{speed:,.0f}", f"{speed / plain:.2f}"]
            else:
                cells += ["", ""]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def main() -> None:
    tables = FOLDER / "tables"
    gemma = read_scores(tables / "gemma.csv")
    adapters = read_scores(tables / "adapters.csv")
    pages = {
        "gemma.md": {"scores": build_scores(gemma, "e5", rates=False), "languages": build_languages(gemma)},
        "adapters.md": {
            "scores": build_scores(choose_rates(adapters), "plain", rates=True),
            "memory": build_memory(tables / "memory.csv"),
        },
    }
    for name, parts in pages.items():
        page = (FOLDER / name).read_text(encoding="utf-8")
        for part, lines in parts.items():
            sys.stdout.write("\n".join([f"{name}: {part}", *lines, ""]) + "\n")
            text = f"<!-- {part} -->\n\n" + "\n".join(lines) + f"\n\n<!-- end of {part} -->"
            before, start, rest = page.partition(f"<!-- {part} -->")
            _, end, after = rest.partition(f"<!-- end of {part} -->")
            if not start or not end:
                raise SystemExit(f"{name}: has no place for {part}")
            page = before + text + after
        if "--write" in sys.argv:
            (FOLDER / name).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
