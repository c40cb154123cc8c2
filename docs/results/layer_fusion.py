"""Draw the layer sweep: python docs/results/layer_fusion.py STUDIES (a folder with layer-fusion-pos, layer-fusion-ner).

Both studies must have been compared with --all, and analysed with `crossling analyse similarity … --on ntrex`.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import defaultdict
from pathlib import Path
from statistics import mean

from matplotlib import pyplot
from matplotlib.axes import Axes

STUDIES = {
    "layer-fusion-pos": ("Parts of speech", "accuracy, percent"),
    "layer-fusion-ner": ("Named entities", "span F1, percent"),
}
MEASURES = {"cosine": "cosine of translations", "margin": "margin over unrelated sentences"}
FUSED, PLAIN, CHOSEN = "#3d7fb5", "#d97b1f", "#1f7f6c"
LAYER = re.compile(r"dlfa layer=(\d+)")


def read_scores(study: Path) -> dict[str, tuple[float, float]]:
    """The mean over languages not trained on, and its standard deviation over seeds, by system."""
    path = next(study.glob("compare-*.csv"))
    with path.open(encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if re.fullmatch(r"mean of \d+ zero-shot", r["language"])]
    return {r["system"]: (float(r["mean"]), float(r["sd"])) for r in rows}


def read_similarity(study: Path) -> dict[str, dict[str, float]]:
    """The means of all measures over languages and seeds, by system."""
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with (study / "similarity-ntrex.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            for measure in MEASURES:
                values[row["model"]][measure].append(float(row[measure]))
    return {model: {name: mean(found) for name, found in measures.items()} for model, measures in values.items()}


def draw_layers(axis: Axes, scores: dict[str, tuple[float, float]]) -> None:
    """Layers from left to right, with plain fine-tuning as a line and its seeds as a band around it."""
    layers = sorted((int(found[1]), *scores[name]) for name in scores if (found := LAYER.fullmatch(name)))
    numbers, means, spreads = zip(*layers, strict=True)
    plain, spread = scores["plain"]
    axis.axhspan(plain - spread, plain + spread, color=PLAIN, alpha=0.2, linewidth=0)
    axis.axhline(plain, color=PLAIN, linestyle="--", label="plain (the last layer alone)")
    axis.errorbar(numbers, means, yerr=spreads, marker="o", capsize=3, color=FUSED, label="DLFA of this layer")
    chosen = scores["dlfa (chosen by source_dev)"][0]
    where = numbers[means.index(chosen)]
    axis.plot(where, chosen, "o", markersize=12, fillstyle="none", color=CHOSEN, label="chosen by English dev")
    axis.set_xticks(numbers)
    axis.set_xlabel("layer fused with the last")


def draw_association(axis: Axes, scores: dict[str, tuple[float, float]], measured: dict[str, float]) -> None:
    """Every model a point, named by its layer."""
    for system, value in measured.items():
        found = LAYER.fullmatch(system)
        score = scores[system][0]
        axis.plot(value, score, marker="o" if found else "D", color=FUSED if found else PLAIN)
        label, place = (found[1], (8, 4)) if found else ("plain", (0, 6))
        axis.annotate(label, (value, score), place, textcoords="offset points", ha="center", fontsize="small")
    axis.margins(0.12)


def main(studies: Path) -> None:
    pyplot.rcParams["svg.hashsalt"] = "crossling"  # the same file from the same numbers
    scores = {name: read_scores(studies / name) for name in STUDIES}
    figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 3.6))
    for axis, (name, (title, unit)) in zip(axes, STUDIES.items(), strict=True):
        draw_layers(axis, scores[name])
        axis.set(title=title, ylabel=f"mean zero-shot {unit}")
        axis.grid(alpha=0.3)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, ncols=3, loc="lower center", fontsize="small")
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(Path(__file__).parent / "layer-fusion-layers.svg", metadata={"Date": None})

    figure, axes = pyplot.subplots(2, 2, figsize=(8.4, 6.4))
    for row, (name, (title, unit)) in zip(axes, STUDIES.items(), strict=True):
        similarity = read_similarity(studies / name)
        for axis, (measure, words) in zip(row, MEASURES.items(), strict=True):
            draw_association(axis, scores[name], {system: found[measure] for system, found in similarity.items()})
            axis.set(xlabel=words, ylabel=f"mean zero-shot {unit}", title=title)
            axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "layer-fusion-similarity.svg", metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
