"""Tables and figures of layer-fusion.md, from the scores of every seed: python docs/results/layer_fusion.py

python docs/results/layer_fusion.py --gather RESULTS   # scores of the studies layer-fusion and layer-fusion-more-seeds
python docs/results/layer_fusion.py                    # the tables, from tables/layer-fusion-seeds.csv
python docs/results/layer_fusion.py --write            # into layer-fusion.md, and the figure of the sweep
python docs/results/layer_fusion.py --similarity STUDIES  # similarity against score; needs layer-fusion-pos and -ner,
                                                       # compared with --all, `crossling analyse similarity` of each
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import fmean, mean, stdev

import seed_tables
from matplotlib import pyplot
from matplotlib.axes import Axes
from seed_tables import DEV, FOLDER, TABLES, BySeed, Gain, SeedScores

from crossling.papers.published import find_table

SCORES = TABLES / "layer-fusion-seeds.csv"
STUDIES = ("layer-fusion", "layer-fusion-more-seeds")
TASKS = {
    "pos": ("Parts of speech", "accuracy", "POS"),
    "ner": ("Named entities", "span F1", "NER"),
    "nli": ("Inference", "accuracy", "XNLI"),
    "paraphrase": ("Paraphrase", "accuracy", "PAWS-X"),
}
"""Title, score, and the column of the paper's table II."""
LAYERS = range(1, 12)
AT = (8, 11)
"""The layers of the controls, fixed beforehand."""
CONTROLS = (
    ("dlfa", "plain"),
    ("learning", "plain"),
    ("frozen", "plain"),
    ("mean", "plain"),
    ("global", "plain"),
    ("local", "plain"),
    ("dlfa", "frozen"),
    ("dlfa", "mean"),
    ("learning", "dlfa"),
    ("dlfa", "global"),
    ("dlfa", "local"),
    ("local", "global"),
)
"""What is compared with what at those layers."""
INTRO = """## Four tasks, five seeds and more

    crossling study run recipes/studies/layer-fusion.toml
    crossling study run recipes/studies/layer-fusion-more-seeds.toml

The heads of these files say what each system is, and their tasks what they train on and how much of it is scored.
Points, mean over seeds ± standard deviation. Differences are paired by seed, with a 95 % interval by Student's t over
seeds, and p after Holm's correction over the eleven layers of a task; for controls over all comparisons of a task with
plain, and over those of fusions with each other. Where p is 0.05 or more a difference is inconclusive. The
paper's figures are of one run, of the mean with English, on mBERT. Scores of every seed:
[tables/layer-fusion-seeds.csv](tables/layer-fusion-seeds.csv).
"""
SIMILARITY = {
    "layer-fusion-pos": ("Parts of speech", "accuracy, percent"),
    "layer-fusion-ner": ("Named entities", "span F1, percent"),
}
MEASURES = {"cosine": "cosine of translations", "margin": "margin over unrelated sentences"}
FUSED, PLAIN, CHOSEN = "#3d7fb5", "#d97b1f", "#1f7f6c"
LAYER = re.compile(r"dlfa layer=(\d+)")


def is_enf(language: str) -> bool:
    """English and German: the paper's avg_enf."""
    return language in ("en", "de")


def is_noenf(language: str) -> bool:
    return not is_enf(language)


def name_system(system: str, layer: int) -> str:
    return system if system in ("plain", "itself") else f"{system} layer={layer}"


def choose_layer(scores: SeedScores, task: str) -> int | None:
    """The layer with the best mean score on English dev, over the seeds that all layers have."""
    found = {layer: scores.average(task, f"dlfa layer={layer}", DEV) for layer in LAYERS}
    seeds = set.intersection(*(set(values) for values in found.values()))
    if not seeds:
        return None
    return max(found, key=lambda layer: fmean(found[layer][seed] for seed in seeds))


def measure_sweep(scores: SeedScores, task: str, data: str) -> tuple[list[Gain | None], list[float | None]]:
    """Every layer's difference from plain without English, and p after the correction over the layers."""
    plain = scores.average(task, "plain", data, seed_tables.is_zero_shot)
    gains = [
        seed_tables.measure_gain(scores.average(task, f"dlfa layer={layer}", data, seed_tables.is_zero_shot), plain)
        for layer in LAYERS
    ]
    return gains, seed_tables.correct(gains)


def build_sweep(scores: SeedScores, task: str) -> list[str]:
    """The sweep of one task: means over seeds, and every layer against plain."""
    [data, *_] = scores.list_sets(task)
    title, score, column = TASKS[task]
    published = find_table("layer-fusion/2")
    baseline = published.figures["baseline", column].value or 0.0
    gains, corrected = measure_sweep(scores, task, data)
    rows = []
    for system, gain, p in zip(
        ["plain", *(f"dlfa layer={layer}" for layer in LAYERS)], [None, *gains], [None, *corrected], strict=True
    ):
        keeps = (seed_tables.is_english, seed_tables.is_zero_shot, is_enf, is_noenf)
        means = [seed_tables.show_mean(scores.average(task, system, data, keep)) for keep in keeps]
        dev = scores.average(task, system, DEV)
        layer = system.partition("=")[2]
        paper = published.figures[f"D_{layer}", column].value if layer else None
        rows.append(
            (
                "plain" if not layer else f"DLFA {layer}",
                f"{fmean(dev.values()):.2f}" if dev else "",
                *means,
                seed_tables.format_gain(gain, p),
                seed_tables.decide(gain, p) if layer else "",
                f"{paper - baseline:+.2f}" if paper is not None else "",
            )
        )
    count = len([language for language in scores.list_languages(task, data) if seed_tables.is_zero_shot(language)])
    head = ("system", "English dev", "English test", f"mean of {count}, without English", "avg_enf", "avg_noenf")
    head = (*head, "from plain, without English", "", "paper, from its baseline, with English")
    return [f"{title}, {score}:", "", *seed_tables.format_table(head, rows)]


def build_choices(scores: SeedScores) -> list[str]:
    """The layer that English dev chooses, and what it gains."""
    rows = []
    for task, (title, _, _) in TASKS.items():
        layer = choose_layer(scores, task)
        if layer is None:
            continue
        [data, *_] = scores.list_sets(task)
        gains, _ = measure_sweep(scores, task, data)
        means = [gain.mean if gain else float("-inf") for gain in gains]
        chosen = f"dlfa layer={layer}"
        dev = seed_tables.measure_gain(scores.average(task, chosen, DEV), scores.average(task, "plain", DEV))
        best = max(means)
        rows.append(
            (
                title,
                str(layer),
                seed_tables.format_gain(dev),
                seed_tables.format_gain(gains[layer - 1]),
                f"{sorted(means, reverse=True).index(means[layer - 1]) + 1} of 11",
                f"{means.index(best) + 1} ({best:+.2f})",
            )
        )
    head = ("task", "layer", "from plain on English dev", "from plain, without English", "rank", "best in hindsight")
    return seed_tables.format_table(head, rows)


def build_controls(scores: SeedScores) -> list[str]:
    """The controls: differences without English, corrected over those from plain and over those of fusions."""
    pairs = [("itself", "plain", 0), *((one, other, layer) for one, other in CONTROLS for layer in AT)]
    columns: dict[str, list[tuple[Gain | None, float | None]]] = {}
    for task in TASKS:
        sets = scores.list_sets(task)
        gains = []
        for one, other, layer in pairs:
            values: list[BySeed] = [
                scores.average(task, name_system(system, layer), sets[0], seed_tables.is_zero_shot) if sets else {}
                for system in (one, other)
            ]
            gains.append(seed_tables.measure_gain(*values))
        first = 1 + sum(other == "plain" for _, other in CONTROLS) * len(AT)
        corrected = [*seed_tables.correct(gains[:first]), *seed_tables.correct(gains[first:])]
        columns[task] = list(zip(gains, corrected, strict=True))
    rows = []
    for number, (one, other, layer) in enumerate(pairs):
        cells = [columns[task][number] for task in TASKS]
        seeds = max((gain.seeds for gain, _ in cells if gain), default=0)
        title = f"{one} less {other}" + (f", layer {layer}" if layer else "")
        rows.append((title, str(seeds), *(seed_tables.format_gain(gain, p) for gain, p in cells)))
    return seed_tables.format_table(("comparison", "seeds", *(title for title, _, _ in TASKS.values())), rows)


def build_section() -> list[str]:
    """All tables, from the archived scores."""
    scores = seed_tables.read_scores(SCORES)
    lines = [
        *INTRO.split("\n"),
    ]
    for task in TASKS:
        if scores.list_sets(task):
            lines += build_sweep(scores, task)
    lines += ["Chosen by English dev, of the eleven layers:", "", *build_choices(scores)]
    return [*lines, "Controls:", "", *build_controls(scores)]


def gather(results: Path) -> None:
    count = seed_tables.gather_scores(results, STUDIES, SCORES)
    sys.stdout.write(f"{SCORES}: {count} scores\n")


def draw_layers(axis: Axes, plain: BySeed, layers: dict[int, BySeed], chosen: int | None) -> None:
    """Layers from left to right, with plain fine-tuning as a line and its seeds as a band around it."""
    numbers = [layer for layer, values in layers.items() if values]
    means = [fmean(layers[layer].values()) for layer in numbers]
    spreads = [stdev(layers[layer].values()) if len(layers[layer]) > 1 else 0.0 for layer in numbers]
    level, spread = fmean(plain.values()), stdev(plain.values()) if len(plain) > 1 else 0.0
    axis.axhspan(level - spread, level + spread, color=PLAIN, alpha=0.2, linewidth=0)
    axis.axhline(level, color=PLAIN, linestyle="--", label="plain (the last layer alone)")
    axis.errorbar(numbers, means, yerr=spreads, marker="o", capsize=3, color=FUSED, label="DLFA of this layer")
    if chosen in numbers:
        place = (chosen, means[numbers.index(chosen)])
        axis.plot(*place, "o", markersize=12, fillstyle="none", color=CHOSEN, label="chosen by English dev")
    axis.set_xticks(numbers)
    axis.set_xlabel("layer fused with the last")


def draw_sweep(path: Path) -> None:
    """The sweep of all four tasks."""
    pyplot.rcParams["svg.hashsalt"] = "crossling"  # the same file from the same numbers
    scores = seed_tables.read_scores(SCORES)
    figure, axes = pyplot.subplots(2, 2, figsize=(8.4, 6.8))
    for axis, (task, (title, score, _)) in zip(axes.flat, TASKS.items(), strict=True):
        [data, *_] = scores.list_sets(task)
        plain = scores.average(task, "plain", data, seed_tables.is_zero_shot)
        layers = {n: scores.average(task, f"dlfa layer={n}", data, seed_tables.is_zero_shot) for n in LAYERS}
        draw_layers(axis, plain, layers, choose_layer(scores, task))
        axis.set(title=title, ylabel=f"mean zero-shot {score}, percent")
        axis.grid(alpha=0.3)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, loc="lower center", fontsize="small")
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def read_means(study: Path) -> dict[str, float]:
    """The mean over languages not trained on, by system, as `crossling study compare` wrote it."""
    path = next(study.glob("compare-*.csv"))
    with path.open(encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if re.fullmatch(r"mean of \d+ zero-shot", r["language"])]
    return {r["system"]: float(r["mean"]) for r in rows}


def read_similarity(study: Path) -> dict[str, dict[str, float]]:
    """The means of all measures over languages and seeds, by system."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (study / "similarity-ntrex.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            for measure in MEASURES:
                values[row["model"]][measure].append(float(row[measure]))
    return {model: {name: mean(found) for name, found in measures.items()} for model, measures in values.items()}


def draw_association(axis: Axes, scores: dict[str, float], measured: dict[str, float]) -> None:
    """Every model a point, named by its layer."""
    for system, value in measured.items():
        found = LAYER.fullmatch(system)
        axis.plot(value, scores[system], marker="o" if found else "D", color=FUSED if found else PLAIN)
        label, place = (found[1], (8, 4)) if found else ("plain", (0, 6))
        axis.annotate(label, (value, scores[system]), place, textcoords="offset points", ha="center", fontsize="small")
    axis.margins(0.12)


def draw_similarity(studies: Path) -> None:
    pyplot.rcParams["svg.hashsalt"] = "crossling"
    figure, axes = pyplot.subplots(2, 2, figsize=(8.4, 6.4))
    for row, (name, (title, unit)) in zip(axes, SIMILARITY.items(), strict=True):
        scores, similarity = read_means(studies / name), read_similarity(studies / name)
        for axis, (measure, words) in zip(row, MEASURES.items(), strict=True):
            draw_association(axis, scores, {system: found[measure] for system, found in similarity.items()})
            axis.set(xlabel=words, ylabel=f"mean zero-shot {unit}", title=title)
            axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(FOLDER / "layer-fusion-similarity.svg", metadata={"Date": None})


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--similarity"]:
        draw_similarity(Path(arguments[1]))
        return
    seed_tables.main(
        FOLDER / "layer-fusion.md",
        section="layer-fusion-seeds",
        before="## What was run",
        build=build_section,
        gather=gather,
        arguments=arguments,
    )
    if arguments == ["--write"]:
        draw_sweep(FOLDER / "layer-fusion-layers.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
