"""Tables and the curve of baseline.md: plain fine-tuning, from tables/teaching.csv, and a few labels in Hindi.

python docs/results/baseline.py --gather studies    # scores of the study few-shot, into tables/few-shot.csv
python docs/results/baseline.py                     # the tables
python docs/results/baseline.py --write             # into the page, and the curve
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev

import seed_tables
import teaching
from seed_tables import FOLDER, TABLES, BySeed, SeedScores, is_english, is_zero_shot

from crossling.report.figures import draw_figure

PAGE = FOLDER / "baseline.md"

TASKS = {
    "pos": ("parts of speech", "EWT, 12,544 sentences → PUD, VTB for Vietnamese", "accuracy"),
    "ner": ("entities", "WikiANN, 18,000 sentences", "span F1"),
    "best-nli": ("NLI", "a pool of 56,879 pairs → XNLI", "accuracy"),
    "best-sentiment": ("sentiment", "UMSAB, 1,839 tweets", "macro F1"),
    "best-paraphrase": ("paraphrase", "900 pairs of PAWS-X", "accuracy"),
    "best-qa": ("questions", "TyDi QA and SQuADShifts, 30,922 questions → XQuAD", "F1"),
}
"""By study: the task, its data and the score. The studies' files say how plain fine-tuning is set up."""
FEW_SCORES = TABLES / "few-shot.csv"
FEW_FIGURE = FOLDER / "few-shot.svg"
FEW_SYSTEMS = {"none": "none", "hindi limit=10": "10", "hindi limit=100": "100", "hindi limit=1000": "1,000"}
"""Numbers of Hindi sentences, by the study's systems."""
FEW_DATA = "panx-dev--1000"
FEW_KINDS: dict[str, Callable[[str], bool]] = {
    "Hindi": lambda language: language == "hi",
    "mean of 14 others": lambda language: is_zero_shot(language) and language != "hi",
    "English": is_english,
}
Scores = dict[str, BySeed]


def read_plain() -> dict[str, Scores]:
    """Scores of plain fine-tuning, by study, language and seed."""
    found = teaching.read_means(teaching.SCORES, lambda _, language: language)
    return {study: found[study, "plain"] for study in TASKS}


def average_others(scores: Scores) -> BySeed:
    """The mean of all languages but English, for each seed."""
    others = [by_seed for code, by_seed in scores.items() if not is_english(code)]
    return {seed: fmean(one[seed] for one in others) for seed in others[0]}


def build_section(plain: dict[str, Scores]) -> list[str]:
    rows = []
    for study, (task, data, score) in TASKS.items():
        scores = plain[study]
        means = {code: fmean(by_seed.values()) for code, by_seed in scores.items() if not is_english(code)}
        low, high = (
            f"{code} {means[code]:.1f}"
            for code in (min(means, key=means.__getitem__), max(means, key=means.__getitem__))
        )
        shown = [seed_tables.show_mean(one) for one in (scores["en"], average_others(scores))]
        rows.append([f"{task}: {data}", score, str(len(scores["en"])), *shown, str(len(means)), f"{low} to {high}"])
    head = ("task", "score", "seeds", "English", "mean of the others", "how many", "from … to")
    codes = sorted(
        {code for scores in plain.values() for code in scores}, key=lambda code: (not is_english(code), code)
    )
    languages = [
        [f"{code} {seed_tables.name_of(code)}"]
        + [seed_tables.show_mean(scores[code]) if code in scores else "" for scores in plain.values()]
        for code in codes
    ]
    return [
        *seed_tables.format_table(head, rows),
        *seed_tables.format_table(("language", *(task for task, _, _ in TASKS.values())), languages),
    ]


def average_few(scores: SeedScores, system: str, kind: str) -> BySeed:
    return scores.average("", system, FEW_DATA, FEW_KINDS[kind])


def build_few_labels(scores: SeedScores) -> list[str]:
    """Without Hindi sentences, then what each number of them adds: on average, and in every language."""
    rows = []
    for kind in FEW_KINDS:
        none = average_few(scores, "none", kind)
        gains = [seed_tables.measure_gain(average_few(scores, system, kind), none) for system in list(FEW_SYSTEMS)[1:]]
        shown = map(seed_tables.format_gain, gains, seed_tables.correct(gains))
        rows.append([kind, seed_tables.show_mean(none), *shown])
    columns = [
        seed_tables.LanguageColumn((title,) if number else ("none", title), "", FEW_DATA, "none", system)
        for number, (system, title) in enumerate(list(FEW_SYSTEMS.items())[1:])
    ]
    return [
        *seed_tables.format_table(("", *FEW_SYSTEMS.values()), rows),
        "Every language; ▲ better, ▼ worse: p < 0.05 after Holm's correction over the languages of a column:",
        "",
        *seed_tables.build_languages(scores, columns),
    ]


def draw_curve(scores: SeedScores, path: Path) -> None:
    """Means over seeds with their standard deviation: Hindi, English, and the mean of the others."""
    with draw_figure(size=(6.4, 3.6)) as drawing:
        axis = drawing.axes
        for kind in FEW_KINDS:
            found = [list(average_few(scores, system, kind).values()) for system in FEW_SYSTEMS]
            bars = {"yerr": list(map(stdev, found)), "marker": "o", "capsize": 3}
            axis.errorbar(range(len(FEW_SYSTEMS)), list(map(fmean, found)), label=kind, **bars)
        axis.set_xticks(range(len(FEW_SYSTEMS)), list(FEW_SYSTEMS.values()))
        axis.set(xlabel="Hindi sentences added to 6,000 English ones", ylabel="span F1, percent")
        axis.grid(alpha=0.3)
        drawing.figure.legend(frameon=False, ncols=3, loc="outside upper center", fontsize="small")
    path.write_text(drawing.svg, encoding="utf-8")


def gather(results: Path) -> None:
    seed_tables.gather_scores(results, ("few-shot",), FEW_SCORES)


def list_pages() -> seed_tables.Pages:
    sections = {
        "baseline": lambda: build_section(read_plain()),
        "few-shot": lambda: build_few_labels(seed_tables.read_scores(FEW_SCORES)),
    }
    return {PAGE: sections}


if __name__ == "__main__":
    seed_tables.main(
        list_pages,
        gather=gather,
        draw=lambda: draw_curve(seed_tables.read_scores(FEW_SCORES), FEW_FIGURE),
    )
