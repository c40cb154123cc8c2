"""Tables of adjustment.md, from the scores of every seed: python docs/results/adjustment.py

python docs/results/adjustment.py --gather RESULTS   # scores of three studies, and distances
python docs/results/adjustment.py                    # the tables, from tables/adjustment-seeds.csv and others
python docs/results/adjustment.py --write            # into adjustment.md
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

import seed_tables
from seed_tables import FOLDER, TABLES, BySeed, SeedScores, is_english, is_zero_shot

from crossling.papers.published import find_table

SCORES = TABLES / "adjustment-seeds.csv"
SIZES = TABLES / "adjustment-size-seeds.csv"
LAYER = TABLES / "adjustment-replay-layer.csv"
NEWS = TABLES / "adjustment-replay-news.csv"
TERMS = TABLES / "adjustment-replay-news-terms.csv"
HARM = TABLES / "adjustment-replay-news-harm.csv"
AGREEMENT = TABLES / "adjustment-replay-agreement.csv"
AGREEMENT_TERMS = TABLES / "adjustment-replay-agreement-terms.csv"
AGREEMENT_HARM = TABLES / "adjustment-replay-agreement-harm.csv"
STRONG = TABLES / "adjustment-qa.csv"
CHANGES = TABLES / "adjustment-english-words.csv"
STUDIES = ("adjustment", "adjustment-more-seeds")
DISTANCES = {name: TABLES / f"adjustment-seeds-distances-{name}.csv" for name in ("ner", "nli")}
MEASURES = ("related", "unrelated", "relative", "auc", "same_sentence_auc")
"""Columns of `crossling analyse distances` that are shown; the last: unlinked words of the same sentence."""
ORIGINAL = "original"


def is_text_in_english(language: str) -> bool:
    return language.startswith("context=en,")


def is_other(language: str) -> bool:
    """One language that the paper did not score."""
    return "=" not in language and language not in ("es", "ru", "vi", "hi")


def is_question_in_english(language: str) -> bool:
    return language.endswith("question=en")


@dataclass(frozen=True)
class Column:
    """A mean over languages of one data set, with the place of its figures in the paper's tables."""

    title: str
    task: str
    data: str
    keep: Callable[[str], bool] = is_zero_shot
    table: int = 0
    group: str = ""
    """How the paper's rows of it begin."""
    columns: tuple[str, ...] = ("es", "ru", "vi", "hi")


XNLI, MIXED, FEW = "xnli-test--2000", "xnli@mixed-test--2000", "xquad-test--600"
QUESTIONS = tuple(f"{code} XQuAD" for code in ("es", "ru", "vi", "hi"))
COLUMNS = (
    Column("parts of speech", "pos", "ud"),
    Column("entities", "ner", "panx-dev--2000", table=3),
    Column("inference", "nli", XNLI, table=2, group="Original XNLI: "),
    Column("mixed inference", "nli", MIXED, table=2, group="Mixed-language NLI: "),
    Column("questions", "questions", "xquad", table=4, group="One language: ", columns=QUESTIONS),
    Column(
        "questions, text in English",
        "questions",
        "xquad",
        is_text_in_english,
        4,
        "Paragraph in English: ",
        QUESTIONS,
    ),
    Column(
        "questions, question in English",
        "questions",
        "xquad",
        is_question_in_english,
        4,
        "Question in English: ",
        QUESTIONS,
    ),
    Column("questions, few", "questions-few", FEW),
)
ENGLISH = (
    Column("parts of speech", "pos", "ud", is_english),
    Column("entities", "ner", "panx-dev--2000", is_english),
    Column("inference", "nli", XNLI, is_english),
    Column("questions", "questions", "xquad", is_english),
    Column("questions, few", "questions-few", FEW, is_english),
)
KINDS = (
    Column("English news", "pos", "news", is_english),
    Column("English Wikipedia", "pos", "wikipedia", is_english),
    Column("English web", "pos", "web", is_english),
    Column("other languages, news", "pos", "news"),
    Column("other languages, Wikipedia", "pos", "wikipedia"),
)
TWELVE = (Column("English, PUD", "pos", "ud", is_english), Column("twelve languages", "pos", "ud"))
TEXTS = {
    "ewt": "EWT's test set (web)",
    "tatoeba": "everyday sentences (Tatoeba Challenge)",
    "pud-wikipedia": "PUD, Wikipedia",
    "flores": "FLORES (Wikinews, Wikijunior, Wikivoyage)",
    "pud-news": "PUD, news",
    "ntrex": "NTREX, the replayed sentences themselves (news)",
}
NAMES = ("original", "replayed at layer 8")
LANGUAGES = tuple(
    seed_tables.LanguageColumn((column.title, "adjusted"), column.task, column.data, ORIGINAL, "adjusted")
    for column in COLUMNS[:5]
)
STRONG_XQUAD = tuple(
    replace(column, task="qa", table=0) for column in (*COLUMNS[4:7], replace(ENGLISH[3], title="questions, English"))
)
STRONG_MLQA = tuple(replace(column, data="mlqa-dev") for column in STRONG_XQUAD)
MLQA = tuple(f"{code} MLQA" for code in ("es", "vi", "hi"))
STRONG_PAPER = tuple(
    replace(column, title=f"{column.title}, 74 F1{title}", task="qa", data=data, columns=columns)
    for data, title, columns in (("xquad", "", QUESTIONS), ("mlqa-dev", ", MLQA", MLQA))
    for column in COLUMNS[4:7]
)
"""The same questions, answered by the model of three epochs; MLQA has no Russian."""
STRONG_BETWEEN = (
    ("kept keep=direction", "kept keep=scale"),
    ("adjusted", "kept keep=direction"),
    ("adjusted", "held"),
    ("continual", "adjusted"),
    ("layer layer=8", "adjusted"),
)
"""What is compared with what in the question answering model of three epochs, besides the original."""
STRONG_LANGUAGES = tuple(
    seed_tables.LanguageColumn((system,) if number else (ORIGINAL, system), "qa", "xquad", ORIGINAL, system)
    for number, system in enumerate(("adjusted", "continual", "kept keep=direction", "kept keep=scale"))
)
REPLAYED = ("de", "es", "hi", "ja", "ru", "vi", "zh")
"""Languages of the replayed text."""
BETWEEN = (
    ("adjusted", "held"),
    ("kept keep=direction", "kept keep=scale"),
    ("kept keep=direction", "held"),
    ("adjusted", "relative"),
    ("continual", "adjusted"),
)
"""What is compared with what besides the original."""
FIRST_SEEDS = 5
"""Seeds up to this one were run first; those after it were added when these had been seen."""
BETWEEN_SIZES = (
    ("adjusted sentences=5000", "adjusted sentences=1000"),
    ("adjusted sentences=15000", "adjusted sentences=1000"),
)
LONG_REPLAYS = {
    "thirteen": "plain",
    "seven": "plain",
    "thirteen-short": "plain-short",
    "layer": "plain",
    "everyday": "plain",
}
"""Systems of replay-news.toml, and what each is compared with."""
LONG_LANGUAGES = tuple(
    seed_tables.LanguageColumn((system,) if number else ("plain", system), "pos", "ud", "plain", system)
    for number, system in enumerate(name for name, baseline in LONG_REPLAYS.items() if baseline == "plain")
)
TERM_SYSTEMS = ("thirteen", "thirteen-stay", "thirteen-pull", "adjusted", "continual")
"""Systems of replay-news-terms.toml but plain."""
BETWEEN_TERMS = (
    ("thirteen-stay", "thirteen"),
    ("thirteen-pull", "thirteen"),
    ("continual", "thirteen"),
    ("continual", "adjusted"),
)
HARMS = (("thirteen", "plain"), ("seven", "plain"), ("seven", "thirteen"))
"""What replay-news-harm.toml tests again with new seeds."""
REPLAYS = ("continual", "replayed", "everyday", "replayed-stay", "replayed-pull", "replayed-layer")
SIZE_COLUMNS = (
    Column("entities", "ner", "panx-dev--2000"),
    Column("inference", "nli", XNLI),
    Column("mixed inference", "nli", MIXED),
    Column("entities, English", "ner", "panx-dev--2000", is_english),
    Column("inference, English", "nli", XNLI, is_english),
)


def average(scores: SeedScores, system: str, column: Column) -> BySeed:
    return scores.average(column.task, system, column.data, column.keep)


def list_systems(scores: SeedScores, columns: tuple[Column, ...]) -> list[str]:
    """All systems but the original, in the study's order."""
    found = dict.fromkeys(system for column in columns for system in scores.list_systems(column.task))
    return [system for system in found if system != ORIGINAL]


def build_differences(
    scores: SeedScores, columns: tuple[Column, ...], systems: list[str], baseline: str = ORIGINAL
) -> list[str]:
    """Levels of the baseline, then every system's difference from it; Holm's correction over the systems."""
    cells: dict[str, list[str]] = {}
    for column in columns:
        original = average(scores, baseline, column)
        gains = [seed_tables.measure_gain(average(scores, system, column), original) for system in systems]
        corrected = seed_tables.correct(gains)
        cells.setdefault(baseline, []).append(seed_tables.show_mean(original))
        for system, gain, p in zip(systems, gains, corrected, strict=True):
            cells.setdefault(system, []).append(seed_tables.format_gain(gain, p))
    rows = [(system, *found) for system, found in cells.items() if any(found)]
    return seed_tables.format_table(("system", *(column.title for column in columns)), rows)


def build_between(scores: SeedScores, columns: tuple[Column, ...], pairs: tuple[tuple[str, str], ...]) -> list[str]:
    """Differences of systems from one another; Holm's correction over the pairs of a column."""
    cells: dict[tuple[str, str], list[str]] = {pair: [] for pair in pairs}
    for column in columns:
        gains = [
            seed_tables.measure_gain(average(scores, one, column), average(scores, other, column))
            for one, other in pairs
        ]
        for pair, gain, p in zip(pairs, gains, seed_tables.correct(gains), strict=True):
            cells[pair].append(seed_tables.format_gain(gain, p))
    rows = [(f"{one} less {other}", *found) for (one, other), found in cells.items()]
    return seed_tables.format_table(("", *(column.title for column in columns)), rows)


def build_new_seeds(
    scores: SeedScores, columns: tuple[Column, ...], systems: list[str], baseline: str = ORIGINAL
) -> list[str]:
    """Differences from a baseline over the seeds that were added when the first five had been seen, alone."""
    rows = []
    for system in systems:
        pairs = [(average(scores, system, column), average(scores, baseline, column)) for column in columns]
        new = [({seed: one[seed] for seed in one if seed > FIRST_SEEDS}, other) for one, other in pairs]
        if any(one for one, _ in new):
            rows.append((system, *(seed_tables.format_gain(seed_tables.measure_gain(*pair)) for pair in new)))
    return seed_tables.format_table(("system", *(column.title for column in columns)), rows)


def build_contrasts(scores: SeedScores) -> list[str]:
    """How much more replay costs on news than elsewhere: differences of differences, paired by seed."""
    rows = []
    for system in REPLAYS:
        rows.append((system, *build_contrast(scores, system, ORIGINAL)))
    return seed_tables.format_table(("system", "news less Wikipedia", "news less web"), rows)


def build_contrast(scores: SeedScores, system: str, baseline: str) -> list[str]:
    """How much more a system loses in English on news than on Wikipedia and on web text."""
    changes = []
    for column in KINDS[:3]:
        one, other = average(scores, system, column), average(scores, baseline, column)
        changes.append({seed: one[seed] - other[seed] for seed in one.keys() & other.keys()})
    news, *others = changes
    return [seed_tables.format_gain(seed_tables.measure_gain(news, other)) for other in others]


def build_paper(scores: SeedScores) -> list[str]:
    """The paper's differences from its original encoder beside ours, averaged over its languages."""
    strong, rows = seed_tables.read_scores(STRONG), []

    def keep(column: Column) -> Column:
        """The paper's languages alone."""
        return replace(column, keep=lambda language: column.keep(language) and not is_other(language))

    for column in (*(column for column in COLUMNS if column.table), *STRONG_PAPER):
        published = find_table(f"adjustment/{column.table}")
        continual = "Adjust+continual" if column.table == 4 else "Adjust.+continual"
        cells = [column.title]
        for system, published_name in (("adjusted", "Adjusted"), ("continual", continual)):
            figures = {
                row: [published.figures[f"{column.group}{row}", place].value or 0.0 for place in column.columns]
                for row in ("Original", published_name)
            }
            found = [average(strong if column.task == "qa" else scores, n, keep(column)) for n in (system, ORIGINAL)]
            gain = seed_tables.measure_gain(*found)
            cells += [
                f"{fmean(figures[published_name]) - fmean(figures['Original']):+.2f}",
                seed_tables.format_gain(gain),
            ]
        rows.append(cells)
    return seed_tables.format_table(("", "paper, adjusted", "here", "paper, continual", "here"), rows)


def build_replay_at_layer(scores: SeedScores) -> list[str]:
    """Replay at layer 8 in both of its studies: on average, by whether the language's text was replayed, and by
    language."""
    groups = {
        "twelve languages": is_zero_shot,
        "replayed text": lambda language: language in REPLAYED,
        "none": lambda language: is_zero_shot(language) and language not in REPLAYED,
        "English": is_english,
    }
    again = seed_tables.read_scores(LAYER)
    columns = {
        "6,000 sentences, GPU": (scores, seed_tables.LanguageColumn(NAMES, "pos", "ud", ORIGINAL, "replayed-layer")),
        "2,000 sentences, CPU": (
            again,
            seed_tables.LanguageColumn(NAMES, "pos", again.list_sets("pos")[0], "plain", "replayed"),
        ),
    }
    rows, tables = [], []
    for title, (found, column) in columns.items():
        gains = [
            seed_tables.measure_gain(
                *(found.average("pos", name, column.data, keep) for name in (column.system, column.baseline))
            )
            for keep in groups.values()
        ]
        rows.append((title, *map(seed_tables.format_gain, gains)))
        tables += [f"{title}:", "", *seed_tables.build_languages(found, [column])]
    return [*seed_tables.format_table(("", *groups), rows), *tables]


def build_replay_of_news() -> list[str]:
    """A longer and a shorter training with replay: scores by kind of text, news against the others, and agreement with
    models without replay."""
    scores = seed_tables.read_scores(NEWS)
    columns = (*KINDS, Column("twelve languages", "pos", "ud"))
    rows = [
        (baseline, *(seed_tables.show_mean(average(scores, baseline, column)) for column in columns))
        for baseline in dict.fromkeys(LONG_REPLAYS.values())
    ]
    differences = []
    for column in columns:
        gains = [
            seed_tables.measure_gain(average(scores, system, column), average(scores, baseline, column))
            for system, baseline in LONG_REPLAYS.items()
        ]
        differences.append(map(seed_tables.format_gain, gains, seed_tables.correct(gains)))
    names = [f"{system} less {baseline}" for system, baseline in LONG_REPLAYS.items()]
    rows += [(name, *cells) for name, *cells in zip(names, *differences, strict=True)]
    fewer = (
        seed_tables.measure_gain(average(scores, "seven", column), average(scores, "thirteen", column))
        for column in columns
    )
    rows.append(("seven less thirteen, not corrected", *map(seed_tables.format_gain, fewer)))
    contrasts = [(name, *build_contrast(scores, *pair)) for name, pair in zip(names, LONG_REPLAYS.items(), strict=True)]
    return [
        *seed_tables.format_table(("", *(column.title for column in columns)), rows),
        *seed_tables.format_table(("", "news less Wikipedia", "news less web"), contrasts),
        *build_agreement(AGREEMENT, tuple(LONG_REPLAYS), seed_tables.format_mean),
        *seed_tables.build_languages(scores, LONG_LANGUAGES),
        *build_new_seeds(scores, columns, ["layer", "everyday"], "plain"),
    ]


def build_strong_model() -> list[str]:
    """The controls with the model of three epochs: on XQuAD and MLQA, between systems, and by language."""
    scores = seed_tables.read_scores(STRONG)
    systems = list_systems(scores, STRONG_XQUAD)
    lines = []
    for title, columns in (("XQuAD", STRONG_XQUAD), ("MLQA's dev set", STRONG_MLQA)):
        lines += [f"{title}:", "", *build_differences(scores, columns, systems)]
    for title, columns in (("XQuAD", STRONG_XQUAD), ("MLQA's dev set", STRONG_MLQA)):
        lines += [f"Between systems, {title}; p after Holm's correction over the lines of a column:", ""]
        lines += build_between(scores, columns, STRONG_BETWEEN)
    lines += ["Every language of XQuAD; ▲ better, ▼ worse: p < 0.05 after Holm's correction over the languages:", ""]
    return [*lines, *seed_tables.build_languages(scores, STRONG_LANGUAGES)]


def build_replay_terms() -> list[str]:
    """One term alone, and replay after adjusting: scores by kind of text, between systems, agreement, languages."""
    scores, columns = seed_tables.read_scores(TERMS), (*KINDS, *TWELVE)
    adjusting = []
    for column in columns:
        found = {name: average(scores, name, column) for name in ("plain", *TERM_SYSTEMS)}
        changes = [
            {seed: found[one][seed] - found[other][seed] for seed in found[one].keys() & found[other].keys()}
            for one, other in (("continual", "adjusted"), ("thirteen", "plain"))
        ]
        adjusting.append(seed_tables.format_gain(seed_tables.measure_gain(*changes)))
    languages = [
        seed_tables.LanguageColumn((system,) if number else ("plain", system), "pos", "ud", "plain", system)
        for number, system in enumerate(TERM_SYSTEMS)
    ]
    *between, _ = build_between(scores, columns, BETWEEN_TERMS)
    return [
        *build_differences(scores, columns, list(TERM_SYSTEMS), "plain"),
        *between,
        f"| what replay changes after adjusting less without, not corrected | {' | '.join(adjusting)} |",
        "",
        *build_agreement(AGREEMENT_TERMS, TERM_SYSTEMS, format_range),
        *seed_tables.build_languages(scores, languages),
    ]


def build_replay_harm() -> list[str]:
    """The harm of replayed news: five new seeds alone, the first five, and all ten; agreement in the new ones."""
    new, first = seed_tables.read_scores(HARM), seed_tables.read_scores(NEWS)
    columns = (*KINDS, *TWELVE)
    cells: dict[tuple[str, str], list[list[str]]] = {pair: [] for pair in HARMS}
    for column in columns:
        gains = [seed_tables.measure_gain(*(average(new, name, column) for name in pair)) for pair in HARMS]
        for pair, gain, p in zip(HARMS, gains, seed_tables.correct(gains), strict=True):
            early = [
                {seed: value for seed, value in average(first, name, column).items() if seed <= FIRST_SEEDS}
                for name in pair
            ]
            ten = [{**one, **average(new, name, column)} for one, name in zip(early, pair, strict=True)]
            others = (seed_tables.format_gain(seed_tables.measure_gain(*one)) for one in (early, ten))
            cells[pair].append([seed_tables.format_gain(gain, p), *others])
    rows = [
        (f"{one} less {other}, {title}", *(cell[number] for cell in found))
        for (one, other), found in cells.items()
        for number, title in enumerate(("new seeds", "first five", "all ten"))
    ]
    ten_seeds = seed_tables.read_scores(NEWS, HARM)
    languages = [
        seed_tables.LanguageColumn((system,) if number else ("plain", system), "pos", "ud", "plain", system)
        for number, system in enumerate(("thirteen", "seven"))
    ]
    return [
        *seed_tables.format_table(("", *(column.title for column in columns)), rows),
        *build_agreement(AGREEMENT_HARM, ("thirteen", "seven"), format_range),
        *seed_tables.build_languages(ten_seeds, languages),
    ]


def format_range(values: Sequence[float]) -> str:
    """The mean over seeds, with the lowest and the highest."""
    return f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def build_agreement(path: Path, systems: Sequence[str], show: Callable[[list[float]], str]) -> list[str]:
    """Percent of words with the same tag as without replay: a line for each text, over seeds."""
    found: dict[str, dict[str, list[float]]] = {}
    words: dict[str, str] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            words[row["text"]] = f"{int(row['words']):,}"
            found.setdefault(row["text"], {}).setdefault(row["system"], []).append(float(row["agreed"]))
    rows = [(title, words[text], *(show(found[text][system]) for system in systems)) for text, title in TEXTS.items()]
    return seed_tables.format_table(("English text", "words", *systems), rows)


def build_changes(path: Path) -> list[str]:
    """How far English words moved in every adjust stage: means over seeds."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = ("drift", "variance", "variance_within", "correlation")
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name in names:
            found.setdefault(row["system"], {}).setdefault(name, []).append(float(row[name]))
    lines = [
        (system, *(f"{fmean(values[n]):.3f} ± {stdev(values[n]) if len(values[n]) > 1 else 0:.3f}" for n in names))
        for system, values in found.items()
    ]
    return seed_tables.format_table(("system", "drift", "variance", "variance within sentences", "correlation"), lines)


def build_distances(path: Path) -> list[str]:
    """Distances of linked and unlinked words in every model: means over languages, then over seeds."""
    values: dict[str, dict[str, dict[str, list[float]]]] = {}
    with path.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            seeds = values.setdefault(row["model"], {}).setdefault(row["seed"], {})
            for name in MEASURES:
                seeds.setdefault(name, []).append(float(row[name]))
    rows = []
    for model, seeds in values.items():
        means = {name: [fmean(found[name]) for found in seeds.values()] for name in MEASURES}
        spread = {name: f" ± {stdev(found):.3f}" if len(found) > 1 else "" for name, found in means.items()}
        rows.append((model, *(f"{fmean(means[name]):.3f}{spread[name]}" for name in MEASURES)))
    return seed_tables.format_table(("model", *(name.replace("_", " ") for name in MEASURES)), rows)


def build_controls(scores: SeedScores) -> list[str]:
    """All systems against the original, then against one another, then by the seeds that were added."""
    systems = list_systems(scores, COLUMNS)
    return [
        "Mean of the languages without labels:",
        "",
        *build_differences(scores, COLUMNS, systems),
        "English:",
        "",
        *build_differences(scores, ENGLISH, systems),
        "Between systems; p after Holm's correction over the lines of a column:",
        "",
        *build_between(scores, COLUMNS[1:4], BETWEEN),
        "Seeds 6 to 10 alone: points from the original, not corrected. All other tables have all seeds:",
        "",
        *build_new_seeds(scores, COLUMNS[1:4], systems),
    ]


def build_sizes() -> list[str]:
    """How much text: each size against the original, and the larger ones against the smallest."""
    scores = seed_tables.read_scores(SIZES)
    differences = build_differences(scores, SIZE_COLUMNS, list_systems(scores, SIZE_COLUMNS))
    return [*differences, *build_between(scores, SIZE_COLUMNS, BETWEEN_SIZES)]


def list_pages() -> seed_tables.Pages:
    """The tables of the page, from the archived scores."""
    scores = seed_tables.read_scores(SCORES)
    sections = {
        "controls": lambda: build_controls(scores),
        "languages": lambda: seed_tables.build_languages(scores, LANGUAGES),
        "paper": lambda: build_paper(scores),
        "strong": build_strong_model,
        "english-words": lambda: build_changes(CHANGES),
        "sizes": build_sizes,
        **{f"distances-{name}": partial(build_distances, path) for name, path in DISTANCES.items()},
        "replay-news": build_replay_of_news,
        "replay-harm": build_replay_harm,
        "replay-terms": build_replay_terms,
        "replay-short": lambda: [*build_differences(scores, KINDS, list(REPLAYS)), *build_contrasts(scores)],
        "replay-layer": lambda: build_replay_at_layer(scores),
    }
    return {FOLDER / "adjustment.md": sections}


def gather(results: Path) -> None:
    if any(seed_tables.locate_csv(results, study, "seed-scores.csv") for study in STUDIES):
        count = seed_tables.gather_scores(results, STUDIES, SCORES)
        sys.stdout.write(f"{SCORES}: {count} scores\n")
        seed_tables.gather_changes(results, "adjustment", CHANGES)
    if seed_tables.locate_csv(results, "replay-layer", "seed-scores.csv"):
        seed_tables.gather_scores(results, ("replay-layer",), LAYER)
    if seed_tables.locate_csv(results, "adjustment-qa", "seed-scores.csv"):
        seed_tables.gather_scores(results, ("adjustment-qa",), STRONG)
    if seed_tables.locate_csv(results, "replay-news", "seed-scores.csv"):
        seed_tables.gather_scores(results, ("replay-news", "replay-news-more-seeds"), NEWS)
    for path in (AGREEMENT_TERMS, AGREEMENT_HARM):  # what agreement.py printed
        name = path.stem.removeprefix("adjustment-replay-")
        if (found := results / "analyses" / f"{name}.csv").exists():
            path.write_bytes(found.read_bytes())
    for path in (TERMS, HARM):
        study = path.stem.removeprefix("adjustment-")
        if seed_tables.locate_csv(results, study, "seed-scores.csv"):
            seed_tables.gather_scores(results, (study,), path)
    size = "adjustment-size-tatoeba"
    if any((results / place).exists() for place in (f"{size}-seed-scores.csv", f"{size}/seed-scores.csv")):
        seed_tables.gather_scores(results, (size,), SIZES)
    for name, path in DISTANCES.items():
        if (found := results / "analyses" / f"distances-{name}.csv").exists():
            path.write_bytes(found.read_bytes())


if __name__ == "__main__":
    seed_tables.main(list_pages, gather=gather)
