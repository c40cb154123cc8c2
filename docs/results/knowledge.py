"""Tables of knowledge.md, from the scores of every seed: python docs/results/knowledge.py

python docs/results/knowledge.py --gather RESULTS   # scores of the four studies, heads and perplexities
python docs/results/knowledge.py                    # the tables, from tables/knowledge-seeds*.csv
python docs/results/knowledge.py --write            # into knowledge.md
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import fmean

import pandas as pd
import seed_tables
from seed_tables import FOLDER, TABLES, BySeed, SeedScores, is_english, is_zero_shot

from crossling.papers.published import find_table

SCORES = TABLES / "knowledge-seeds.csv"
PROBES = TABLES / "knowledge-seeds-probes.csv"
HEADS = TABLES / "knowledge-seeds-heads.csv"
HEADS_IN_LAYERS = TABLES / "knowledge-seeds-heads-in-layers.csv"
HEAD_SCORES = TABLES / "knowledge-head-scores.csv"
OTHERS = TABLES / "knowledge-seeds-other-scores.csv"
PROBES_BY_LANGUAGE = TABLES / "knowledge-seeds-probes-languages.csv"
UPDATES = TABLES / "knowledge-head-updates-seeds.csv"
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
NAMES = {"pos": "POS", "ner": "NER", "sentiment": "SA", "paraphrase": "PI"}
"""Tasks in the paper's tables."""
OTHER_SCORES = {
    "macro_f1_supported": "macro F1, labels with 10 words or more",
    "accuracy": "accuracy",
    "span_f1": "span F1",
    "span_macro_f1": "span macro F1",
}
"""Scores beside the main one, which the archive has for some tasks."""
ARCHIVED_SCORES = (*OTHER_SCORES, "span_macro_f1_supported")
LANGUAGES = ("en", "de", "es", "fr")
TOP = "60"
"""Of 144 heads, as in the paper."""
SMALLEST = 0.0005
"""The smallest p of 1,999 permutations: the observed count is one of 2,000."""


def name_perplexities(task: str) -> Path:
    return TABLES / f"knowledge-seeds-perplexity-{task}.csv"


def name_row(model: str) -> str:
    """Of a model, in the paper's tables."""
    task, _, multi = model.partition("-")
    return f"{NAMES[task]}: {'multi' if multi else 'cross'}-ling"


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


def read_heads(path: Path) -> dict[tuple[str, str], dict[str, str]]:
    """By probe and model: how many of the best heads are shared, and how many by chance."""
    with path.open(encoding="utf-8", newline="") as stream:
        found = [row for row in csv.DictReader(stream) if row["top"] == TOP and row["shared"] and row["expected"]]
    return {(row["probe"], row["model"]): row for row in found}


def build_heads(path: Path, in_layers: Path) -> list[str]:
    """Shared heads of the best 60, beside what two seeds of one model share, and beside chance: over all heads, and
    within layers; and what the paper's models share."""
    found, others = read_heads(path), read_heads(in_layers) if in_layers.exists() else {}
    table = find_table("knowledge/4")
    rows = []
    for pair, row in found.items():
        chance = [f"{float(one['expected']):.1f}, p {show_p(one)}" if one else "" for one in (row, others.get(pair))]
        ceiling = f"{float(row['ceiling']):.1f}" if row["ceiling"] else ""
        paper = f"{table.value(f'{name_row(pair[1])} / {TOP}', f'{NAMES[pair[0]]} Ovlp'):.0f}"
        rows.append((*pair, f"{float(row['shared']):.1f}", ceiling, *chance, paper))
    head = ("task", "model", f"shared of {TOP}", "by two seeds", "by chance", "by chance in layers", "paper")
    return seed_tables.format_table(head, rows)


def show_p(row: dict[str, str]) -> str:
    """After Holm's correction; the smallest that permutations can give is marked, since the true one may be smaller."""
    if not row["p_corrected"]:
        return "–"
    return f"{'≤ ' if float(row['p']) <= SMALLEST else ''}{float(row['p_corrected']):.3f}"


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
    """Perplexity on each task's own test text: levels, and divided by another model's; then the paper's."""
    rows, paper = [], []
    for task, title in TASKS.items():
        if not name_perplexities(task).exists():
            continue
        losses = read_losses(name_perplexities(task))
        names = {"original": "original", "cross": task, "multi": f"{task}-multi", "+DA": f"{task}+DA"}
        names["adapted"] = f"{task}-adapted"
        levels = [f"{math.exp(fmean(losses[name].values())):,.0f}" if name in losses else "" for name in names.values()]
        cross = losses.get(task, {})
        original = dict.fromkeys(losses.get(names["adapted"], {}), next(iter(losses["original"].values())))
        ratios = []
        for name, other in (("multi", cross), ("+DA", cross), ("adapted", original)):
            gain = seed_tables.measure_gain(losses.get(names[name], {}), other)
            factors = [math.exp(value) for value in (gain.mean, gain.low, gain.high)] if gain else []
            ratios.append("{:.2f} [{:.2f}, {:.2f}]".format(*factors) if factors else "")
        rows.append((title, *levels, *ratios))
        paper.append((title, *list_published_perplexities(task)))
    quotients = ("multi / cross", "+DA / cross", "adapted / original")
    head = ("own test text", "original", "cross", "multi", "+DA", "adapted, own head", *quotients)
    heads = ("the paper", "mBERT", "cross", "multi", "multi / cross")
    return [*seed_tables.format_table(head, rows), *seed_tables.format_table(heads, paper)]


def list_published_perplexities(task: str) -> tuple[str, ...]:
    """The paper's geometric means of de, es, fr: mBERT before fine-tuning, cross, multi, and these two divided."""
    table, rows = find_table("knowledge/5"), (f"{NAMES[task]}: mBERT", name_row(task), name_row(f"{task}-multi"))
    levels = [math.exp(fmean(math.log(table.value(row, code)) for code in ("de", "es", "fr"))) for row in rows]
    shown = [f"{level:,.0f}" if level >= 100 else f"{level:.1f}" for level in levels]
    return (*shown, f"{levels[2] / levels[1]:.2f}")


def build_systems_by_language(scores: SeedScores, task: str) -> list[str]:
    """Levels of cross by language and every other system's difference; Holm's correction over all of them."""
    [data, *_] = scores.list_sets(task)
    codes = scores.list_languages(task, data)
    systems = [system for system in scores.list_systems(task) if system != "cross"]
    found = {system: scores.values[task, system, data] for system in ("cross", *systems)}
    gains = [
        seed_tables.measure_gain(found[s].get(code, {}), found["cross"][code]) for s, code in product(systems, codes)
    ]
    cells = [
        f"{gain or ''}{seed_tables.MARKS.get(seed_tables.decide(gain, p), '')}"
        for gain, p in zip(gains, seed_tables.correct(gains), strict=True)
    ]
    rows = [("cross", *(seed_tables.show_mean(found["cross"][code]) for code in codes))]
    rows += [(system, *cells[n * len(codes) : (n + 1) * len(codes)]) for n, system in enumerate(systems)]
    return seed_tables.format_table((TASKS[task], *(code.partition("_")[0] for code in codes)), rows)


def read_probes() -> dict[tuple[str, str], BySeed]:
    """By model and probe: points above a probe on the original encoder."""
    found: dict[tuple[str, str], BySeed] = {}
    with PROBES.open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            found.setdefault((row["model"], row["probe"]), {})[int(row["seed"])] = float(row["result"])
    return found


def build_probes() -> list[str]:
    """Results of cross and multi, and their difference; Holm's correction over the differences of the whole table."""
    found = read_probes()
    pairs = list(product(TASKS, TASKS))
    gains = [seed_tables.measure_gain(found[f"{task}-multi", probe], found[task, probe]) for task, probe in pairs]
    cells: dict[str, list[str]] = {}
    for (task, probe), gain, p in zip(pairs, gains, seed_tables.correct(gains), strict=True):
        for model in (task, f"{task}-multi"):
            shown = seed_tables.measure_gain(found[model, probe], dict.fromkeys(found[model, probe], 0.0))
            own = "({})" if task == probe else "{}"
            cells.setdefault(model, []).append(own.format(shown))
        cells.setdefault(f"{task}-multi less {task}", []).append(seed_tables.format_gain(gain, p))
    table = seed_tables.format_table(("model", *TASKS.values()), [(name, *row) for name, row in cells.items()])
    return [
        *table,
        "The paper's results and the means of ours, on other tasks than the model's own:",
        "",
        *compare_probes(),
    ]


def compare_probes() -> list[str]:
    """The paper's results beside ours; it leaves out probes of a model's own task."""
    found, table, rows = read_probes(), find_table("knowledge/3"), []
    for model in (f"{task}{end}" for task in TASKS for end in ("", "-multi")):
        cells: list[str] = []
        for probe in TASKS:
            other = not model.startswith(probe)
            cells.append(f"{table.value(name_row(model), NAMES[probe]):+.2f}" if other else "")
            cells.append(f"{fmean(found[model, probe].values()):+.2f}" if other else "")
        rows.append((model, *cells))
    heads = [f"{title}, {whose}" for title in TASKS.values() for whose in ("paper", "here")]
    return seed_tables.format_table(("model", *heads), rows)


def build_other_scores(scores: SeedScores) -> list[str]:
    """Every task that has other scores: levels of cross, and what other systems differ by; Holm's correction over the
    systems of a column."""
    with OTHERS.open(encoding="utf-8", newline="") as stream:
        archived = list(csv.DictReader(stream))
    lines: list[str] = []
    for task in dict.fromkeys(row["task"] for row in archived):
        names = [name for name in OTHER_SCORES if any((row["task"], row["score"]) == (task, name) for row in archived)]
        columns = [("macro F1", scores)]
        for name in names:
            rows = [row for row in archived if (row["task"], row["score"]) == (task, name)]
            if (found := SeedScores(rows)).values != {key: scores.values[key] for key in found.values}:
                columns.append((OTHER_SCORES[name], found))
        cells: dict[str, list[str]] = {}
        for _, found in columns:
            [data, *_] = found.list_sets(task)
            cross = found.average(task, "cross", data, is_zero_shot)
            systems = [system for system in found.list_systems(task) if system != "cross"]
            gains = [seed_tables.measure_gain(found.average(task, one, data, is_zero_shot), cross) for one in systems]
            cells.setdefault("cross", []).append(seed_tables.show_mean(cross))
            for system, gain, p in zip(systems, gains, seed_tables.correct(gains), strict=True):
                cells.setdefault(system, []).append(seed_tables.format_gain(gain, p))
        heads = (TASKS[task], *(title for title, _ in columns))
        lines += seed_tables.format_table(heads, [(system, *row) for system, row in cells.items()])
    return lines


def build_probes_by_language() -> list[str]:
    """Results of cross in every language, and what multi differs by; Holm's correction over all differences."""
    table = pd.read_csv(PROBES_BY_LANGUAGE)
    table = table[table["score"] == "macro_f1"]
    found = {
        key: dict(zip(one["seed"], one["result"], strict=True))
        for key, one in table.groupby(["model", "probe", "language"])
    }
    tasks = [task for task in TASKS if task in set(table["model"])]
    keys = list(product(tasks, TASKS, LANGUAGES))
    gains = [seed_tables.measure_gain(found[f"{t}-multi", p, code], found[t, p, code]) for t, p, code in keys]
    corrected = dict(zip(keys, zip(gains, seed_tables.correct(gains), strict=True), strict=True))
    rows = []
    for task, probe in product(tasks, TASKS):
        levels = [found[task, probe, code] for code in LANGUAGES]
        shown = [str(seed_tables.measure_gain(level, dict.fromkeys(level, 0.0))) for level in levels]
        rows.append((task, TASKS[probe], *shown))
        marked = []
        for code in LANGUAGES:
            gain, p = corrected[task, probe, code]
            marked.append(f"{gain}{seed_tables.MARKS.get(seed_tables.decide(gain, p), '')}")
        rows.append((f"{task}-multi less {task}", TASKS[probe], *marked))
    return seed_tables.format_table(("model", "probe", *LANGUAGES), rows)


def build_updates() -> list[str]:
    """Spearman's rho between maps of updates of heads: of means over seeds, and of single seeds."""
    table = pd.read_csv(UPDATES).set_index(["model", "seed"])
    models = list(dict.fromkeys(table.index.get_level_values("model")))
    rows = []
    for number, one in enumerate(models):
        for other in models[number:]:
            maps = [table.loc[name].T.add_suffix(end) for name, end in ((one, " one"), (other, " other"))]
            between = pd.concat(maps, axis=1).corr("spearman")
            pairs = [
                between.loc[f"{a} one", f"{b} other"]
                for a, b in product(table.loc[one].index, table.loc[other].index)
                if a != b and (one != other or a < b)
            ]
            mean = table.loc[one].mean().corr(table.loc[other].mean(), "spearman")
            means = "" if one == other else f"{mean:.2f}"
            rows.append(
                (
                    one,
                    "its other seeds" if one == other else other,
                    means,
                    f"{fmean(pairs):.2f}",
                    f"{min(pairs):.2f} to {max(pairs):.2f}",
                )
            )
    return seed_tables.format_table(("model", "and", "rho of means", "of two seeds", "lowest to highest"), rows)


def list_pages() -> seed_tables.Pages:
    """The tables of the page, from the archived scores."""
    scores = seed_tables.read_scores(SCORES)
    tasks = [task for task in TASKS if scores.list_sets(task)]

    def join(build: Callable[[SeedScores, str], list[str]]) -> list[str]:
        return [line for task in tasks for line in build(scores, task)]

    sections = {
        "scores": lambda: join(build_scores),
        "methods": lambda: build_methods(scores),
        "languages": lambda: join(build_systems_by_language),
        "other-scores": lambda: build_other_scores(scores),
        "probes": build_probes,
        "probes-languages": build_probes_by_language,
        "head-updates": build_updates,
        "heads": lambda: build_heads(HEADS, HEADS_IN_LAYERS),
        "perplexities": build_perplexities,
    }
    return {FOLDER / "knowledge.md": sections}


def gather_other_scores(results: Path) -> None:
    """Scores beside the main one, of the studies whose ``seed-scores.csv`` has them."""
    rows: list[tuple[str, ...]] = []
    for study in STUDIES:
        if found := seed_tables.locate_csv(results, study, "seed-scores.csv"):
            with found.open(encoding="utf-8", newline="") as stream:
                others = [row for row in csv.DictReader(stream) if row["score"] in ARCHIVED_SCORES]
            rows += [(study, *(row[name] for name in seed_tables.HEAD[1:])) for row in others]
    if rows:
        with OTHERS.open("w", encoding="utf-8", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([seed_tables.HEAD, *rows])


def gather(results: Path) -> None:
    count = seed_tables.gather_scores(results, STUDIES, SCORES)
    sys.stdout.write(f"{SCORES}: {count} scores\n")
    gather_other_scores(results)
    places = {"head_probe-shared": HEADS, "head_probe-in-layers-shared": HEADS_IN_LAYERS}
    places |= {f"perplexity-{task}": name_perplexities(task) for task in TASKS}
    for name, path in places.items():
        if (found := results / "analyses" / f"{name}.csv").exists():
            path.write_bytes(found.read_bytes())
    if (probes := results / "analyses" / "probe.csv").exists():
        table = pd.read_csv(probes)
        shown = table[(table["sample"] == 0) & table["score"].isin(["macro_f1", "macro_f1_supported"])]
        columns = ["model", "seed", "probe", "language", "score", "result"]
        shown[columns].to_csv(PROBES_BY_LANGUAGE, index=False, lineterminator="\n")
        table = table[(table["language"] == "all") & (table["score"] == "macro_f1") & (table["sample"] == 0)]
        table[["model", "seed", "probe", "result"]].to_csv(PROBES, index=False)
    if (updates := results / "analyses" / "head_updates.csv").exists():
        table = pd.read_csv(updates)
        table["name"] = table["layer"].astype(str) + "." + table["head"].astype(str)
        wide = table.pivot_table(index=["model", "seed"], columns="name", values="update", sort=False)
        wide.reset_index().to_csv(UPDATES, index=False, float_format="%.5g", lineterminator="\n")
    if (heads := results / "analyses" / "head_probe.parquet").exists():
        table = pd.read_parquet(heads)
        table = table[(table["language"] == "all") & (table["score"] == "macro_f1") & (table["sample"] == 0)]
        table["seed"] = table["seed"].map("{:.0f}".format, na_action="ignore").fillna("")  # the original has none
        table["name"] = table["layer"].astype(str) + "." + table["head"].astype(str)
        wide = table.pivot_table(
            index=["model", "seed", "probe"], columns="name", values="value", sort=False, dropna=False, observed=True
        )
        wide.dropna(how="all").reset_index().to_csv(HEAD_SCORES, index=False, float_format="%.4f")


if __name__ == "__main__":
    seed_tables.main(list_pages, gather=gather)
