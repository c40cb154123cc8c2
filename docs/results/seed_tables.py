"""Scores of every seed of a study: gathered into one table, averaged over languages, tested for the next seed.

    python docs/results/layer_fusion.py --gather RESULTS    # seed-scores.csv of studies into tables/, dev scores beside
    python docs/results/layer_fusion.py                     # the page's tables, from tables/
    python docs/results/layer_fusion.py --write             # into the page, between the markers of their sections
    (likewise adjustment.py, baseline.py, encoders.py and knowledge.py; what_helped.py for the README)
    python docs/results/seed_tables.py tables/optimizer-states.csv bfloat16 float32    # one system less another

A difference is paired by seed: mean and 95 % interval by Student's t over seeds. Holm's correction is over what was
tried.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scipy import stats

from crossling.data.languages import name_of
from crossling.report.table import format_mean, neutralise, restore_cell
from crossling.scores.significance.holm import correct_holm
from crossling.study.cell_scores import CHANGES

FOLDER = Path(__file__).parent
TABLES = FOLDER / "tables"
HEAD = ("study", "task", "system", "seed", "data", "language", "score", "percent")
DEV = "source dev"
"""The name in the column of data sets for the score that selected the checkpoint."""

MARKS = {"better": " ▲", "worse": " ▼"}
"""By verdict."""

BySeed = dict[int, float]
Pages = Mapping[Path, Mapping[str, Callable[[], list[str]]]]
"""By page and the name of its markers: the tables between them."""


@dataclass(frozen=True)
class Gain:
    """A difference of two systems over the seeds that both have, in points."""

    mean: float
    low: float
    high: float
    p: float
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


class SeedScores:
    """Percent of the main score by task, system and data set, language and seed."""

    def __init__(self, rows: Iterable[Mapping[str, str]]) -> None:
        self.values: dict[tuple[str, str, str], dict[str, BySeed]] = {}
        for row in rows:
            key = (row["task"], restore_cell(row["system"]), row["data"])
            self.values.setdefault(key, {}).setdefault(row["language"], {})[int(row["seed"])] = float(row["percent"])

    def list_systems(self, task: str) -> list[str]:
        return list(dict.fromkeys(system for name, system, data in self.values if name == task and data != DEV))

    def list_sets(self, task: str) -> list[str]:
        return list(dict.fromkeys(data for name, _, data in self.values if name == task and data != DEV))

    def list_languages(self, task: str, data: str) -> list[str]:
        found = (languages for (name, _, one), languages in self.values.items() if (name, one) == (task, data))
        return list(dict.fromkeys(language for languages in found for language in languages))

    def average(self, task: str, system: str, data: str, keep: Callable[[str], bool] = lambda _: True) -> BySeed:
        """The mean over languages that ``keep`` accepts, for every seed that has all of them."""
        wanted = [language for language in self.list_languages(task, data) if keep(language)]
        found = self.values.get((task, system, data), {})
        columns = [found.get(language, {}) for language in wanted]
        seeds = set.intersection(*map(set, columns)) if columns else set()
        return {seed: fmean(column[seed] for column in columns) for seed in sorted(seeds)}


def show_mean(values: BySeed) -> str:
    """The mean over seeds with its standard deviation."""
    return format_mean(list(values.values()))


def is_zero_shot(language: str) -> bool:
    """One language, and not the one of the labels."""
    return "=" not in language and language.partition("_")[0] != "en"


def is_english(language: str) -> bool:
    return language.partition("_")[0] == "en"


def measure_gain(one: BySeed, other: BySeed) -> Gain | None:
    """Student's t over the seeds that both have; none for fewer than two."""
    differences = [one[seed] - other[seed] for seed in sorted(one.keys() & other.keys())]
    if len(differences) < 2:
        return None
    if len(set(differences)) == 1:  # equal to the last digit, so that t is not defined
        return Gain(differences[0], differences[0], differences[0], float(differences[0] == 0), len(differences))
    test = stats.ttest_1samp(differences, 0)
    low, high = test.confidence_interval(0.95)
    return Gain(fmean(differences), float(low), float(high), float(test.pvalue), len(differences))


def correct(gains: Sequence[Gain | None]) -> list[float | None]:
    """p-values after Holm's correction over these differences."""
    corrected = iter(correct_holm([gain.p for gain in gains if gain is not None]))
    return [None if gain is None else next(corrected) for gain in gains]


def decide(gain: Gain | None, p: float | None) -> str:
    """The verdict in a word."""
    if gain is None or p is None:
        return "not run"
    return "inconclusive" if p >= 0.05 else "better" if gain.mean > 0 else "worse"


def format_gain(gain: Gain | None, p: float | None = None) -> str:
    """The difference with its interval; after a correction also p and the number of seeds."""
    if gain is None:
        return ""
    if p is None:
        return str(gain)
    return f"{gain}, p {p:.3f}" if p >= 0.001 else f"{gain}, p < 0.001"


def compare_systems(path: Path, system: str, baseline: str) -> list[str]:
    """A system less another one in every task and set, on all languages but English; Holm's correction over these."""
    scores = read_scores(path)
    pairs = [
        (task, data)
        for task in dict.fromkeys(task for task, _, _ in scores.values)
        for data in scores.list_sets(task)
        if {system, baseline} <= set(scores.list_systems(task))
    ]
    if not pairs:
        sys.exit(f"{path}: has no task with both {system!r} and {baseline!r}")
    gains = [
        measure_gain(*(scores.average(task, name, data, is_zero_shot) for name in (system, baseline)))
        for task, data in pairs
    ]
    return [
        f"{task} {data}: {format_gain(gain, p)}, {gain.seeds if gain else 0} seeds, {decide(gain, p)}"
        for (task, data), gain, p in zip(pairs, gains, correct(gains), strict=True)
    ]


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, figures to the right."""
    lines = [f"| {' | '.join(head)} |", "| --- |" + " --: |" * (len(head) - 1)]
    return [*lines, *(f"| {' | '.join(row)} |" for row in rows), ""]


@dataclass(frozen=True)
class LanguageColumn:
    """A baseline in every language of a set, and the difference of a system from it."""

    heads: tuple[str, ...]
    """Of both; one alone: of the difference, where the column before it has the same baseline."""
    task: str
    data: str
    baseline: str
    system: str


def build_languages(scores: SeedScores, columns: Sequence[LanguageColumn]) -> list[str]:
    """A row for each language, English first; differences are corrected over the languages of their column."""
    cells: list[dict[str, list[str]]] = []
    for column in columns:
        found = [scores.values.get((column.task, name, column.data), {}) for name in (column.baseline, column.system)]
        levels = {code: by_seed for code, by_seed in found[0].items() if "=" not in code}
        gains = [measure_gain(found[1].get(code, {}), level) for code, level in levels.items()]
        cells.append(
            {
                code: [show_mean(level), f"{gain or ''}{MARKS.get(decide(gain, p), '')}"][-len(column.heads) :]
                for (code, level), gain, p in zip(levels.items(), gains, correct(gains), strict=True)
            }
        )
    codes = sorted({code for column in cells for code in column}, key=lambda code: (not is_english(code), code))
    rows = [
        [
            f"{code} {name_of(code)}",
            *(
                cell
                for column, found in zip(columns, cells, strict=True)
                for cell in found.get(code, [""] * len(column.heads))
            ),
        ]
        for code in codes
    ]
    return format_table(["language", *(head for column in columns for head in column.heads)], rows)


def read_scores(*paths: Path) -> SeedScores:
    """Of one study, or of several that differ in seeds alone; of a cell that two of them have, the last one's."""
    rows: list[Mapping[str, str]] = []
    for path in paths:
        with path.open(encoding="utf-8", newline="") as stream:
            rows += csv.DictReader(stream)
    return SeedScores(keep_main_scores(rows))


def keep_main_scores(rows: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Rows of the main score, which stands first; all systems of a task are compared by the same one."""
    main: dict[tuple[str, str], str] = {}
    return [row for row in rows if main.setdefault((row["task"], row["data"]), row["score"]) == row["score"]]


def gather_scores(results: Path, studies: Sequence[str], path: Path) -> int:
    """One table of the studies' main scores of every seed, with the dev scores that the stages' records have.

    ``results`` holds STUDY/seed-scores.csv or STUDY-seed-scores.csv, or is the folder STUDY itself; for dev scores
    seed-records.csv beside it, or records.csv of several studies.
    """
    rows: list[tuple[str, ...]] = []
    for study in studies:
        found = locate_csv(results, study, "seed-scores.csv")
        if found is None:
            sys.stderr.write(f"{results}: has no scores of {study}; left out\n")
            continue
        with found.open(encoding="utf-8", newline="") as stream:
            kept = keep_main_scores(csv.DictReader(stream))
        rows += [(study, *(row[name] for name in HEAD[1:])) for row in kept]
        rows += [
            (study, row["task"], row["system"], row["seed"], DEV, "en", "dev", row["dev"])
            for row in read_records(results, study)
            if row["dev"]
        ]
    records = results / "records.csv"
    if records.exists():
        with records.open(encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream):
                if row["study"] in studies and row["dev_score"] and not read_records(results, row["study"]):
                    score = f"{100 * float(row['dev_score']):.4f}"
                    system = neutralise(row["system"])
                    rows.append((row["study"], row["task"], system, row["seed"], DEV, "en", "dev", score))
    if not rows:
        sys.exit(f"{results}: no scores of {', '.join(studies)}; run the studies, then crossling study compare")
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([HEAD, *rows])
    return len(rows)


def locate_csv(results: Path, study: str, name: str) -> Path | None:
    """What ``crossling study compare`` wrote, below the folder of all results or in the folder of the study."""
    places = [results / f"{study}-{name}", results / study / name]
    if results.resolve().name == study:
        places.append(results / name)
    return next((place for place in places if place.exists()), None)


def read_records(results: Path, study: str) -> list[dict[str, str]]:
    """What ``crossling study compare`` wrote of the stages' records, if it is there."""
    found = locate_csv(results, study, "seed-records.csv")
    if found is None:
        return []
    with found.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def gather_changes(results: Path, study: str, path: Path) -> None:
    """What the records of adjust stages say of how far English words moved: a line for each system and seed."""
    lines: dict[tuple[str, int], dict[str, float]] = {}
    for row in read_records(results, study):
        if row["kind"] == "adjust" and row["drift"]:  # fine-tuning with replay has such a record, too
            changes = {name: float(row[name]) for name in CHANGES if row[name]}
            lines[row["system"], int(row["seed"])] = changes
    if (results / "records.csv").exists():
        with (results / "records.csv").open(encoding="utf-8", newline="") as stream:
            records = [row for row in csv.DictReader(stream) if row["study"] == study and row["source_vectors"]]
        for row in records:
            if row["kind"] == "adjust":
                lines[row["system"], int(row["seed"])] = json.loads(row["source_vectors"])
    if not lines:
        return
    names = [name for name, value in next(iter(lines.values())).items() if isinstance(value, int | float)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        rows = [(*key, *(change[name] for name in names)) for key, change in lines.items()]
        csv.writer(stream, lineterminator="\n").writerows([("system", "seed", *names), *rows])


def write_section(page: Path, name: str, lines: Sequence[str]) -> None:
    """Replace what stands between the markers of a section."""
    begin, end = f"<!-- {name}: written by docs/results -->", f"<!-- end of {name} -->"
    text = page.read_text(encoding="utf-8")
    if not (begin in text and end in text):
        sys.exit(f"{page}: has no section {name!r}; put these two lines where its tables belong:\n{begin}\n{end}")
    block = "\n".join([begin, "", *lines, end])
    page.write_text(
        re.sub(rf"{re.escape(begin)}.*?{re.escape(end)}", lambda _: block, text, flags=re.DOTALL), encoding="utf-8"
    )


def main(
    list_pages: Callable[[], Pages],
    *,
    gather: Callable[[Path], None] | None = None,
    draw: Callable[[], None] | None = None,
    arguments: Sequence[str] | None = None,
) -> None:
    """Print all tables, write them into their pages (--write), or gather what they are made from (--gather RESULTS)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if gather and given[:1] == ["--gather"] and len(given) == 2:
        gather(Path(given[1]))
        return
    if given not in ([], ["--write"]):
        sys.exit(f"usage: [--write{' | --gather RESULTS' if gather else ''}]")
    for page, sections in list_pages().items():
        for name, build in sections.items():
            lines = build()
            if given:
                write_section(page, name, lines)
            else:
                sys.stdout.write("\n".join([f"{page.name}: {name}", "", *lines]) + "\n")
    if given and draw:
        draw()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("usage: seed_tables.py TABLE.csv SYSTEM BASELINE")
    sys.stdout.write("\n".join(compare_systems(Path(sys.argv[1]), *sys.argv[2:])) + "\n")
