"""Tables and the figure of layer-fusion.md, from the scores of every seed: python docs/results/layer_fusion.py

python docs/results/layer_fusion.py --gather studies/layer-fusion   # its scores and English dev scores, into tables/
python docs/results/layer_fusion.py --gather studies                # and those of its follow-up studies
python docs/results/layer_fusion.py                                 # the tables, from tables/layer-fusion.csv
python docs/results/layer_fusion.py --write                         # into layer-fusion.md, and the figure of the sweep
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd
import seed_tables
from seed_tables import DEV, FOLDER, TABLES, BySeed, Gain, SeedScores, is_english, is_zero_shot

from crossling.data.languages import group_of, name_of
from crossling.papers.published import find_table
from crossling.report.figures import draw_figure

STUDY = "layer-fusion"
SCORES = TABLES / "layer-fusion.csv"
GATE_SCORES = TABLES / "layer-fusion-gate.csv"
ABLATION_SCORES = TABLES / "layer-fusion-ablation.csv"
MORE_SCORES = TABLES / "layer-fusion-more-seeds.csv"
MIX_SCORES = TABLES / "layer-fusion-mixes.csv"
GATES = TABLES / "layer-fusion-gates.csv"
PAGE = FOLDER / "layer-fusion.md"
FIGURE = FOLDER / "layer-fusion-layers.svg"
SEEDS = (1, 2, 3, 4, 5)
TASKS = {
    "pos": ("Parts of speech", "accuracy", "POS"),
    "ner": ("Named entities", "span F1", "NER"),
    "nli": ("Inference", "accuracy", "XNLI"),
    "paraphrase": ("Paraphrase", "accuracy", "PAWS-X"),
}
"""Title, score, and the name in the paper's tables."""
LAYERS = {f"dlfa layer={layer}": layer for layer in range(1, 12)}
SYSTEMS = {
    "plain": "plain",
    **{system: f"DLFA {layer}" for system, layer in LAYERS.items()},
    "itself": "D_12",
    "dlfa-1e-3 layer=11": "DLFA 11, rate 1e-3",
    "frozen layer=8": "frozen gate 8",
    "frozen layer=11": "frozen gate 11",
    "global layer=11": "global branches 11",
    "local layer=11": "local branches 11",
    "torch": "plain, torch's kernels",
}
"""Names on the page, by the study's."""
TRIED = tuple(system for system in SYSTEMS if system != "plain")
CONTROLS = tuple(system for system in TRIED if system not in LAYERS)
BETWEEN_FUSIONS = (
    ("dlfa-1e-3 layer=11", "dlfa layer=11"),
    ("frozen layer=8", "dlfa layer=8"),
    ("frozen layer=11", "dlfa layer=11"),
    ("global layer=11", "dlfa layer=11"),
    ("local layer=11", "dlfa layer=11"),
    ("local layer=11", "global layer=11"),
)
"""What is compared with what besides plain."""
ABLATION = {
    "dlfa layer=8": "DLFA 8",
    "global layer=8": "global branches 8",
    "local layer=8": "local branches 8",
    "mean layer=8": "fixed mean of 8",
    "mean layer=11": "fixed mean of 11",
    "scalar_mix": "mix of all layers",
}
"""Systems of the ablation: names on the page, by the study's."""
BETWEEN_ABLATED = (
    ("dlfa layer=8", "mean layer=8"),
    ("global layer=8", "dlfa layer=8"),
    ("local layer=8", "dlfa layer=8"),
    ("local layer=8", "global layer=8"),
    ("scalar_mix", "mean layer=11"),
)
MORE = (
    ("local layer=11", "plain"),
    ("local layer=11", "dlfa layer=11"),
    ("frozen layer=8", "dlfa layer=8"),
    ("frozen layer=11", "dlfa layer=11"),
    ("dlfa layer=11", "plain"),
    ("itself", "plain"),
)
"""Differences under one point that five more seeds test again."""
MIXES = (("ner", "mean layer=11"), ("pos", "scalar_mix"))
"""Mixes without attention that the ablation found under one point, which five more seeds test again."""
GATE_FIGURES = {
    "gate": "gate",
    "over channels": "over channels",
    "over tokens": "over tokens",
    "moved": "moved",
    "like English": "like English",
    "like frozen": "like frozen, same seed",
}
"""Of gates: columns on the page, by the archive's."""
FIXED_LAYERS = ("dlfa layer=8", "dlfa layer=11")
"""Those that were fixed beforehand, of which more seeds were run."""
GROUPED = (("nli", 11), ("nli", 8), ("paraphrase", 10), ("paraphrase", 6))
"""Tasks and layers of the paper's table III."""
ABLATED = {"pos": 11, "ner": 10, "nli": 11, "paraphrase": 10}
"""The higher one of the two layers that the paper's table V has for a task."""
FUSED, PLAIN, CHOSEN = "#3d7fb5", "#d97b1f", "#1f7f6c"

Tested = tuple[Gain | None, float | None]
"""A difference, and p after the correction."""


def is_enf(language: str) -> bool:
    """English and German: the paper's avg_enf."""
    return group_of(language, "enf") == "avg_enf"


def is_noenf(language: str) -> bool:
    return not is_enf(language)


def is_any(_: str) -> bool:
    """English and all others: the paper's mean."""
    return True


def average(scores: SeedScores, task: str, system: str, keep: Callable[[str], bool] = is_zero_shot) -> BySeed:
    """The mean over languages, by default over all but English."""
    sets = scores.list_sets(task)
    return scores.average(task, system, sets[0], keep) if sets else {}


def compare(
    scores: SeedScores, task: str, pair: tuple[str, str], keep: Callable[[str], bool] = is_zero_shot
) -> Gain | None:
    one, other = (average(scores, task, system, keep) for system in pair)
    return seed_tables.measure_gain(one, other)


def correct(gains: list[Gain | None]) -> list[Tested]:
    """The differences with p after Holm's correction over them."""
    return list(zip(gains, seed_tables.correct(gains), strict=True))


def build_comparisons(
    scores: SeedScores, pairs: Sequence[tuple[str, str]], names: Mapping[str, str]
) -> list[list[str]]:
    """A row for each pair, a column for each task: differences, corrected over the pairs."""
    columns = [correct([compare(scores, task, pair) for pair in pairs]) for task in TASKS]
    return [
        [f"{names[one]} less {names[other]}", *map(format_tested, cells)]
        for (one, other), *cells in zip(pairs, *columns, strict=True)
    ]


def compare_systems(scores: SeedScores, task: str) -> dict[str, Tested]:
    """Every system against plain, corrected over all of them."""
    tested = correct([compare(scores, task, (system, "plain")) for system in TRIED])
    return dict(zip(TRIED, tested, strict=True))


def format_tested(tested: Tested) -> str:
    return seed_tables.format_gain(*tested)


def format_difference(value: float | None, baseline: float | None) -> str:
    """A difference of two printed figures, where the paper has both."""
    return "" if value is None or baseline is None else f"{value - baseline:+.2f}"


def build_sweep(scores: SeedScores) -> list[str]:
    """For each task all systems: means over seeds, and each one against plain."""
    lines: list[str] = []
    for task, (title, score, _) in TASKS.items():
        tested = compare_systems(scores, task)
        rows = []
        for system, name in SYSTEMS.items():
            means = [average(scores, task, system, keep) for keep in (is_english, is_zero_shot, is_enf, is_noenf)]
            shown = [seed_tables.show_mean(one) for one in (scores.average(task, system, DEV), *means)]
            verdict = [format_tested(tested[system]), seed_tables.decide(*tested[system])] if system in tested else []
            rows.append([name, *shown, *(verdict or ["", ""])])
        count = sum(map(is_zero_shot, scores.list_languages(task, scores.list_sets(task)[0])))
        head = ["system", "en dev", "en", f"mean of {count} others", "avg_enf", "avg_noenf", "others, from plain", ""]
        lines += [f"{title}, {score}:", "", *seed_tables.format_table(head, rows)]
    return lines


def build_controls(scores: SeedScores) -> list[str]:
    """Controls against plain and against the learnt module, on all languages but English."""
    columns = {task: compare_systems(scores, task) for task in TASKS}
    rows = [
        [f"{SYSTEMS[system]} less plain", *(format_tested(columns[task][system]) for task in TASKS)]
        for system in CONTROLS
    ]
    rows += build_comparisons(scores, BETWEEN_FUSIONS, SYSTEMS)
    return seed_tables.format_table(["comparison", *(title for title, _, _ in TASKS.values())], rows)


def choose_system(dev: dict[str, BySeed], seeds: set[int]) -> str:
    """The one with the best mean on English dev over these seeds; of equal ones the first."""
    return max(dev, key=lambda system: fmean(dev[system][seed] for seed in seeds))


def choose_layers(scores: SeedScores, task: str) -> dict[str, dict[int, str]]:
    """What English dev chooses for each seed, by rule."""
    dev = {system: scores.average(task, system, DEV) for system in ("plain", *LAYERS)}
    seeds = set.intersection(*map(set, dev.values()))
    if not seeds:
        return {}
    layers = {system: dev[system] for system in LAYERS}
    return {
        "one layer, by the mean of all seeds": dict.fromkeys(sorted(seeds), choose_system(layers, seeds)),
        "a layer for each seed": {seed: choose_system(layers, {seed}) for seed in sorted(seeds)},
        "a layer or plain for each seed": {seed: choose_system(dev, {seed}) for seed in sorted(seeds)},
    }


def choose_one(scores: SeedScores, task: str) -> str | None:
    """The layer that the mean of all seeds on English dev chooses."""
    rules = choose_layers(scores, task)
    return next(iter(next(iter(rules.values())).values())) if rules else None


def build_choices(scores: SeedScores) -> list[str]:
    """What choosing a layer on English dev gives; p corrected over the tasks, rule by rule."""
    chosen = {task: choose_layers(scores, task) for task in TASKS}
    tested: dict[tuple[str, str], Tested] = {}
    for rule in dict.fromkeys(rule for rules in chosen.values() for rule in rules):
        tasks = [task for task in TASKS if rule in chosen[task]]
        gains = [measure_choice(scores, task, chosen[task][rule]) for task in tasks]
        tested |= zip(((task, rule) for task in tasks), correct(gains), strict=True)
    rows = []
    for task, rules in chosen.items():
        sweep = {layer: compare(scores, task, (system, "plain")) for system, layer in LAYERS.items()}
        means = {layer: gain.mean for layer, gain in sweep.items() if gain}
        best = max(means, key=lambda layer: means[layer], default=0)
        for rule, systems in rules.items():
            names = [str(LAYERS.get(system, "plain")) for system in systems.values()]
            shown = names[0] if len(set(names)) == 1 else ", ".join(names)
            verdict = [format_tested(tested[task, rule]), seed_tables.decide(*tested[task, rule])]
            rows.append([TASKS[task][0], rule, shown, *verdict, f"{best} ({means[best]:+.2f})" if means else ""])
    head = ["task", "choice on English dev", "chosen", "others, from plain", "", "best layer in hindsight"]
    return seed_tables.format_table(head, rows)


def measure_choice(scores: SeedScores, task: str, chosen: dict[int, str]) -> Gain | None:
    """What was chosen for each seed against plain, on all languages but English."""
    found = {seed: average(scores, task, system) for seed, system in chosen.items()}
    picked = {seed: values[seed] for seed, values in found.items() if seed in values}
    return seed_tables.measure_gain(picked, average(scores, task, "plain"))


def build_languages(scores: SeedScores) -> list[str]:
    """Plain in each language, and the difference of the layer that English dev chooses."""
    columns = []
    for task, (_, _, name) in TASKS.items():
        chosen = choose_one(scores, task) or "plain"
        data = scores.list_sets(task)[0]
        columns.append(seed_tables.LanguageColumn((f"{name} plain", SYSTEMS[chosen]), task, data, "plain", chosen))
    return seed_tables.build_languages(scores, columns)


def build_published(scores: SeedScores) -> list[str]:
    """The paper's tables II, III and V beside ours, as differences from plain or from the module with both branches."""
    table = find_table("layer-fusion/2")
    rows = []
    for system, layer in [*LAYERS.items(), ("itself", 12)]:
        cells: list[str] = []
        for task, (_, _, name) in TASKS.items():
            printed = [table.figures.get((row, name)) for row in (f"D_{layer}", "baseline")]
            cells.append(format_difference(*(figure.value if figure else None for figure in printed)))
            cells.append(seed_tables.format_gain(compare(scores, task, (system, "plain"), is_any)))
        rows.append([SYSTEMS[system], *cells])
    heads = [f"{name} {whose}" for _, _, name in TASKS.values() for whose in ("paper", "here")]
    lines = ["Mean of all languages, English among them, less plain (table II):", ""]
    lines += seed_tables.format_table(["", *heads], rows)
    return [*lines, *_build_groups(scores), *_build_branches(scores)]


def _build_groups(scores: SeedScores) -> list[str]:
    table, rows = find_table("layer-fusion/3"), []
    for task, layer in GROUPED:
        name, cells = TASKS[task][2], []
        for group, keep in (("avg_enf", is_enf), ("avg_noenf", is_noenf)):
            printed = [table.figures[f"{name}: {row}", group].value for row in (f"D_{layer}", "baseline")]
            cells.append(format_difference(*printed))
            cells.append(seed_tables.format_gain(compare(scores, task, (f"dlfa layer={layer}", "plain"), keep)))
        rows.append([f"{name}, DLFA {layer}", *cells])
    head = ["", "avg_enf paper", "avg_enf here", "avg_noenf paper", "avg_noenf here"]
    return ["English and German, and all others, less plain (table III):", "", *seed_tables.format_table(head, rows)]


def _build_branches(scores: SeedScores) -> list[str]:
    table, rows = find_table("layer-fusion/5"), []
    for task, layer in ABLATED.items():
        name, cells = TASKS[task][2], []
        for branches in ("global", "local"):
            ends = (f"_{branches[0].upper()}", "")
            cells.append(format_difference(*(table.figures[f"{name}: D_{layer}{end}", "score"].value for end in ends)))
            pair = (f"{branches} layer=11", "dlfa layer=11")
            cells.append(seed_tables.format_gain(compare(scores, task, pair, is_any)))
        rows.append([name, str(layer), *cells])
    head = ["", "layer in the paper", "global paper", "global here", "local paper", "local here"]
    about = "Two branches of one kind less one of each, mean of all languages (table V; here layer 11):"
    return [about, "", *seed_tables.format_table(head, rows)]


def draw_layers(axis: Any, scores: SeedScores, task: str) -> None:
    """Differences from plain by layer with their intervals, D_12 as the twelfth; the deviation of plain's seeds."""
    gains = {LAYERS.get(system, 12): compare(scores, task, (system, "plain")) for system in (*LAYERS, "itself")}
    found = {layer: gain for layer, gain in gains.items() if gain}
    spread = stdev(average(scores, task, "plain").values())
    axis.axhspan(-spread, spread, color=PLAIN, alpha=0.2, linewidth=0, label="plain ± deviation over seeds")
    axis.axhline(0, color=PLAIN, linestyle="--")
    for layers, colour, label in ((range(1, 12), FUSED, "DLFA of this layer"), ((12,), "#555555", "D_12")):
        shown = [layer for layer in layers if layer in found]
        means = [found[layer].mean for layer in shown]
        reach = [[found[n].mean - found[n].low for n in shown], [found[n].high - found[n].mean for n in shown]]
        axis.errorbar(shown, means, yerr=reach, marker="o", capsize=3, color=colour, label=label)
    chosen = LAYERS.get(choose_one(scores, task) or "")
    if chosen in found:
        place = (chosen, found[chosen].mean)
        axis.plot(*place, "o", markersize=12, fillstyle="none", color=CHOSEN, label="chosen on English dev")
    axis.set_xticks(range(1, 13))


def draw_sweep(scores: SeedScores, path: Path) -> None:
    """The sweep of all four tasks."""
    with draw_figure(rows=2, columns=2, size=(8.4, 6.8)) as drawing:
        for axis, (task, (title, score, _)) in zip(drawing.axes.flat, TASKS.items(), strict=True):
            draw_layers(axis, scores, task)
            axis.set(title=title, xlabel="layer fused with the last", ylabel=f"{score}, points from plain")
            axis.grid(alpha=0.3)
        handles, labels = drawing.axes.flat[0].get_legend_handles_labels()
        drawing.figure.legend(handles, labels, frameon=False, ncols=4, loc="outside lower center", fontsize="small")
    path.write_text(drawing.svg, encoding="utf-8")


def list_tasks(scores: SeedScores) -> list[str]:
    """Those that have scores, in the page's order."""
    return [task for task in TASKS if scores.list_sets(task)]


def build_confirmation(scores: SeedScores) -> list[str]:
    """The learnt module at a rate of its own against plain, by new seeds alone, by the first ones, and by all."""
    new = seed_tables.read_scores(GATE_SCORES) if GATE_SCORES.exists() else SeedScores(())
    module, same_rate = "dlfa-1e-3 layer=11", "dlfa layer=11"
    tasks = list_tasks(new)
    planned = correct([compare(new, task, (module, "plain")) for task in tasks])
    rows = []
    for task, tested in zip(tasks, planned, strict=True):
        found = [{**average(scores, task, name), **average(new, task, name)} for name in (module, "plain")]
        rows.append(
            [
                TASKS[task][0],
                *(seed_tables.show_mean(average(new, task, name)) for name in ("plain", module)),
                format_tested(tested),
                seed_tables.decide(*tested),
                seed_tables.format_gain(compare(scores, task, (module, "plain"))),
                seed_tables.format_gain(seed_tables.measure_gain(*found)),
                seed_tables.format_gain(compare(new, task, (same_rate, "plain"))),
            ]
        )
    head = ["", "plain", "rate 1e-3", "less plain, new seeds", "", "first five seeds", "all", "at the encoder's rate"]
    return seed_tables.format_table(head, rows)


def build_ablation(_: SeedScores) -> list[str]:
    """The second layer of the ablation and mixes without attention: against plain, and against one another."""
    scores = seed_tables.read_scores(ABLATION_SCORES)
    names = {"plain": "plain", **ABLATION}
    rows = build_comparisons(scores, [(system, "plain") for system in ABLATION], names)
    rows += build_comparisons(scores, BETWEEN_ABLATED, names)
    return seed_tables.format_table(["comparison", *(title for title, _, _ in TASKS.values())], rows)


def read_all_seeds() -> SeedScores:
    """Every archived seed of the sweep's training. Seeds 6 to 10 of inference were trained for two studies."""
    return seed_tables.read_scores(SCORES, MORE_SCORES, GATE_SCORES)


def build_all_seeds(_: SeedScores) -> list[str]:
    """DLFA of the layers that were fixed beforehand, less plain, with every seed that is archived."""
    scores, table, rows = read_all_seeds(), find_table("layer-fusion/2"), []
    for task, system in product(TASKS, FIXED_LAYERS):
        gains = [compare(scores, task, (system, "plain"), keep) for keep in (is_zero_shot, is_english, is_any)]
        printed = [table.figures[row, TASKS[task][2]].value for row in (f"D_{LAYERS[system]}", "baseline")]
        seeds = str(gains[0].seeds) if gains[0] else ""
        name = f"{TASKS[task][0]}, {SYSTEMS[system]}"
        rows.append([name, seeds, *map(seed_tables.format_gain, gains), format_difference(*printed)])
    return seed_tables.format_table(["", "seeds", "all but English", "English", "all languages", "paper"], rows)


def build_more_seeds(scores: SeedScores) -> list[str]:
    """Differences of the first five seeds, of five new ones, and of all ten."""
    new, rows = seed_tables.read_scores(MORE_SCORES), []
    for task in list_tasks(new):
        tested = correct([compare(new, task, pair) for pair in MORE])
        for pair, one in zip(MORE, tested, strict=True):
            both = [{**average(scores, task, name), **average(new, task, name)} for name in pair]
            gains = [compare(scores, task, pair), seed_tables.measure_gain(*both)]
            name = f"{TASKS[task][0]}: {SYSTEMS[pair[0]]} less {SYSTEMS[pair[1]]}"
            shown = map(seed_tables.format_gain, gains)
            rows.append([name, format_tested(one), seed_tables.decide(*one), *shown])
    return seed_tables.format_table(["", "new seeds", "", "first five", "all ten"], rows)


def build_mixes(_: SeedScores) -> list[str]:
    """Mixes without attention less plain: by new seeds alone, by those of the ablation, and by all ten."""
    new, first = seed_tables.read_scores(MIX_SCORES), seed_tables.read_scores(ABLATION_SCORES)
    rows = []
    planned = correct([compare(new, task, (system, "plain")) for task, system in MIXES])
    for (task, system), tested in zip(MIXES, planned, strict=True):
        for title, keep in (("", is_zero_shot), (", English", is_english)):
            ten = [{**average(first, task, name, keep), **average(new, task, name, keep)} for name in (system, "plain")]
            gains = [compare(new, task, (system, "plain"), keep), compare(first, task, (system, "plain"), keep)]
            shown = [seed_tables.format_gain(gain) for gain in (*gains, seed_tables.measure_gain(*ten))]
            if keep is is_zero_shot:
                shown[0] = format_tested(tested)
            verdict = "" if title else seed_tables.decide(*tested)
            rows.append([f"{TASKS[task][0]}{title}: {ABLATION[system]} less plain", shown[0], verdict, *shown[1:]])
    return seed_tables.format_table(["", "new seeds", "", "first five", "all ten"], rows)


def build_gates(_: SeedScores) -> list[str]:
    """Learnt gates beside frozen ones: means over languages, then over seeds, and their differences by seed; then by
    language how alike gates are to English and to the frozen ones."""
    table = pd.read_csv(GATES)
    table.loc[table["language"] == "en", "like English"] = None  # with itself
    rows = []
    for task in table["task"].unique():
        seeds = table[table["task"] == task].groupby(["system", "seed"])[list(GATE_FIGURES)].mean()
        for system, title in (("dlfa", "learnt"), ("frozen", "frozen")):
            cells = [
                f"{mean:.3f} ± {spread:.3f}" for mean, spread in seeds.loc[system].agg(["mean", "std"]).T.to_numpy()
            ]
            rows.append((f"{TASKS[task][0]}, {title}", *cells[:-1], cells[-1] if system == "dlfa" else ""))
        gains = [
            seed_tables.measure_gain(*(seeds.loc[one, name].to_dict() for one in ("dlfa", "frozen")))
            for name in list(GATE_FIGURES)[:-1]
        ]
        shown = [f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]" if gain else "" for gain in gains]
        rows.append((f"{TASKS[task][0]}, learnt less frozen", *shown, ""))
    means = table.groupby(["language", "task", "system"])[["like English", "like frozen"]].mean()
    columns = [
        (f"{TASKS[task][0]}: {title}", (task, system, name))
        for task in table["task"].unique()
        for title, system, name in (
            ("like English, learnt", "dlfa", "like English"),
            ("like English, frozen", "frozen", "like English"),
            ("learnt like frozen", "dlfa", "like frozen"),
        )
    ]
    languages = []
    for code in table["language"].unique():
        values = [means.loc[(code, task, system), name] for _, (task, system, name) in columns]
        languages.append((f"{code} {name_of(code)}", *("" if value != value else f"{value:.3f}" for value in values)))
    return [
        *seed_tables.format_table(("", *GATE_FIGURES.values()), rows),
        *seed_tables.format_table(("language", *(head for head, _ in columns)), languages),
    ]


SECTIONS: dict[str, Callable[[SeedScores], list[str]]] = {
    "sweep": build_sweep,
    "controls": build_controls,
    "confirmation": build_confirmation,
    "more-seeds": build_more_seeds,
    "all-seeds": build_all_seeds,
    "ablation": build_ablation,
    "mixes": build_mixes,
    "gates": build_gates,
    "choices": build_choices,
    "languages": build_languages,
    "published": build_published,
}
"""Tables by the markers' name in the page."""


def list_pages() -> seed_tables.Pages:
    scores = seed_tables.read_scores(SCORES)
    return {PAGE: {name: partial(build, scores) for name, build in SECTIONS.items()}}


def gather_gates(results: Path) -> None:
    """A line for each task, system, seed and language: means over channels, and correlations of the channels' gates
    with those in English and with the frozen ones of the same seed, which have the same random start."""
    rows = []
    for task in TASKS:
        path = results / "analyses" / f"gates-{task}.parquet"
        if not path.exists():
            continue
        table = pd.read_parquet(path).sort_values("channel", kind="stable")
        gates = {key: one.reset_index() for key, one in table.groupby(["model", "seed", "language"], sort=False)}
        for (model, seed, language), one in gates.items():
            row = {"task": task, "system": model, "seed": int(seed), "language": language}
            row |= {"gate": one["gate"].mean(), "over channels": one["gate"].std(ddof=0)}
            row |= {"over tokens": one["deviation"].mean(), "moved": one["moved"].mean()}
            others = {"like English": (model, seed, "en"), "like frozen": ("frozen", seed, language)}
            rows.append(row | {name: one["gate"].corr(gates[key]["gate"]) for name, key in others.items()})
    if rows:
        pd.DataFrame(rows).to_csv(GATES, index=False, float_format="%.5f", lineterminator="\n")


def gather(results: Path) -> None:
    """Archive the scores of every seed, and say which cells are missing."""
    gather_gates(results)
    for path in (GATE_SCORES, ABLATION_SCORES, MORE_SCORES, MIX_SCORES):
        if seed_tables.locate_csv(results, path.stem, "seed-scores.csv"):
            seed_tables.gather_scores(results, (path.stem,), path)
    if not seed_tables.locate_csv(results, STUDY, "seed-scores.csv"):
        return
    count = seed_tables.gather_scores(results, (STUDY,), SCORES)
    scores = seed_tables.read_scores(SCORES)
    for data in ("scores", "English dev scores"):
        missing = [
            f"{task} {system} seed {seed}"
            for task, system, seed in product(TASKS, SYSTEMS, SEEDS)
            if seed not in (average(scores, task, system) if data == "scores" else scores.average(task, system, DEV))
        ]
        sys.stdout.write("".join(f"no {data}: {cell}\n" for cell in missing))
    sys.stdout.write(f"{SCORES}: {count} scores\n")


if __name__ == "__main__":
    seed_tables.main(list_pages, gather=gather, draw=lambda: draw_sweep(seed_tables.read_scores(SCORES), FIGURE))
