"""The figures of `crossling start` (study/start.toml), from the archived scores of every seed.

python docs/results/start_choices.py            # which of them would change
python docs/results/start_choices.py --write    # into start.toml

Of every ingredient that names a study and a system: points from plain fine-tuning, [mean, low, high] of the 95 %
interval by Student's t over seeds, over the languages without text and over those with, and in each of them.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import seed_tables
import teaching
from seed_tables import TABLES, BySeed

CHOICES = Path(__file__).parents[2] / "src" / "crossling" / "study" / "start.toml"
REPLAYS = TABLES / "adjustment-replay-news.csv"
REPLAY = ("replay-news", "pos", "ud")
"""Study, task and data set of replay; its text is in all languages that are scored but Arabic."""
WITHOUT_REPLAY = ("ar",)

Groups = Mapping[str, BySeed]
"""By group of languages (``none``, ``text``), or by language: the mean score, by seed."""
Systems = dict[tuple[str, str], tuple[Groups, Groups]]
"""By study and system: groups, and languages."""


def read_systems(scores: Path = teaching.SCORES, replays: Path = REPLAYS) -> Systems:
    """All that was measured."""
    groups = teaching.read_means(scores)
    languages = teaching.read_means(scores, lambda _, language: language)
    return {**{key: (groups[key], languages[key]) for key in groups}, **read_replays(replays)}


def read_replays(path: Path) -> Systems:
    """The systems of the study of replay in a longer training."""
    study, task, data = REPLAY
    scores = seed_tables.read_scores(path)
    found: Systems = {}
    for system in scores.list_systems(task):
        languages = scores.values[task, system, data]
        text = [code for code in languages if seed_tables.is_zero_shot(code) and code not in WITHOUT_REPLAY]
        found[study, system] = {"text": scores.average(task, system, data, text.__contains__)}, languages
    return found


def find_text_group(study: str, language: str) -> str:
    """``none`` or ``text``; ``en`` for English."""
    if study == REPLAY[0]:
        return "en" if seed_tables.is_english(language) else "none" if language in WITHOUT_REPLAY else "text"
    return teaching.find_group(study, language)


def list_figures(systems: Systems, key: tuple[str, str]) -> dict[str, str]:
    """The values of the ingredient's keys, as TOML."""
    plain = systems.get((key[0], "plain"))
    if key not in systems or plain is None:
        return {"none": "[]", "text": "[]", "none_in": "{}", "text_in": "{}"}
    groups, languages = systems[key]
    values = {name: format_gain(groups.get(name, {}), plain[0].get(name, {})) for name in ("none", "text")}
    for name in ("none", "text"):
        cells = {
            code: format_gain(by_seed, plain[1].get(code, {}))
            for code, by_seed in languages.items()
            if find_text_group(key[0], code) == name
        }
        shown = ", ".join(f"{code} = {cell}" for code, cell in cells.items() if cell != "[]")
        values[f"{name}_in"] = f"{{ {shown} }}" if shown else "{}"
    return values


def format_gain(one: BySeed, other: BySeed) -> str:
    """[mean, low, high]; nothing where one of the two was not run."""
    gain = seed_tables.measure_gain(one, other)
    return str([round(value, 1) for value in (gain.mean, gain.low, gain.high)]) if gain else "[]"


def update_choices(text: str, systems: Systems) -> str:
    """The table with the figures of every ingredient that names a study and a system."""
    lines, named = [], {"study": "", "system": ""}
    for line in text.split("\n"):
        if line.startswith("["):
            named = {"study": "", "system": ""}
        match = re.fullmatch(r"(\w+) = (.*)", line)
        if match and match[1] in named:
            named[match[1]] = match[2].strip('"')
        elif match and match[1] in ("none", "text", "none_in", "text_in") and all(named.values()):
            line = f"{match[1]} = {list_figures(systems, (named['study'], named['system']))[match[1]]}"
        lines.append(line)
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    if arguments not in ([], ["--write"]):
        sys.exit("usage: start_choices.py [--write]")
    written = CHOICES.read_text(encoding="utf-8")
    current = update_choices(written, read_systems())
    if arguments:
        CHOICES.write_text(current, encoding="utf-8")
        sys.stdout.write("README.md shows the output of crossling start ner: are its figures still these?\n")
    else:
        sys.stdout.writelines(difflib.unified_diff(written.splitlines(True), current.splitlines(True), n=0))


if __name__ == "__main__":
    main(sys.argv[1:])
