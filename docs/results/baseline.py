"""Tables of baseline.md, from the scores of plain fine-tuning in tables/teaching.csv.

python docs/results/baseline.py            # the tables
python docs/results/baseline.py --write    # into the page
"""

from __future__ import annotations

import sys
from statistics import fmean

import seed_tables
import teaching
from seed_tables import FOLDER, BySeed, is_english

TASKS = {
    "pos": ("parts of speech", "EWT, 12,544 sentences → PUD, VTB for Vietnamese", "accuracy"),
    "ner": ("entities", "WikiANN, 18,000 sentences", "span F1"),
    "best-nli": ("NLI", "a pool of 56,879 pairs → XNLI", "accuracy"),
    "best-sentiment": ("sentiment", "UMSAB, 1,839 tweets", "macro F1"),
    "best-paraphrase": ("paraphrase", "900 pairs of PAWS-X", "accuracy"),
    "best-qa": ("questions", "TyDi QA and SQuADShifts, 30,922 questions → XQuAD", "F1"),
}
"""By study: the task, its data and the score. The studies' files say how plain fine-tuning is set up."""
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


def main() -> None:
    lines = build_section(read_plain())
    if sys.argv[1:] == ["--write"]:
        seed_tables.write_section(FOLDER / "baseline.md", "baseline", lines, before="")
    else:
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
