"""Histograms of distances, and how far two of them overlap (figures 1 and 2 of cross-lingual adjustment)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crossling.report.figures import draw_figure, make_swatch

PANELS = 6
"""With more models than this, their panels stand in several columns."""
COLOURS = {"related": "#3568a8", "unrelated": "#d9772b", "same_sentence": "#6b9a3f"}
NAMES = {"related": "related", "unrelated": "unrelated", "same_sentence": "unrelated, same sentence"}

Array = np.ndarray[Any, np.dtype[Any]]


def shared_edges(*groups: Array, bins: int) -> Array:
    """Edges of equal bins from the least to the greatest value of all groups."""
    low, high = min(group.min() for group in groups), max(group.max() for group in groups)
    return np.linspace(low, high if high > low else low + 1, bins + 1)


def measure_overlap(first: Array, second: Array, *, bins: int) -> float:
    """The area that the two histograms of area 1 share: 1 where they are the same, 0 where they do not meet."""
    edges = shared_edges(first, second, bins=bins)
    shares = [np.histogram(values, edges)[0] / len(values) for values in (first, second)]
    return float(np.minimum(*shares).sum())


def draw_histograms(
    models: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    title: str,
    axis: str,
    bins: int,
    negatives: str = "other_sentences",
    relative: bool = False,
) -> str:
    """For each model the histograms of all kinds of pairs, each of area 1, one over the other, with dashed means."""
    hidden = {"other_sentences": "same_sentence", "same_sentence": "unrelated"}.get(negatives, "")
    kinds = [kind for kind in COLOURS if kind != hidden]
    columns = -(-len(models) // PANELS)
    rows = -(-len(models) // columns)
    size = (6.4 * columns, 1.35 * rows + 1.5)
    with draw_figure(rows=rows, columns=columns, size=size, sharex=True, squeeze=False) as drawing:
        panels = list(drawing.axes.T.flat)
        for panel, (name, seeds) in zip(panels, models.items(), strict=False):
            _draw_panel(panel, name, seeds, bins, kinds, relative)
        for panel in panels[len(models) :]:
            panel.set_visible(False)
        for column in range(columns):
            lowest = drawing.axes[min(rows, len(models) - column * rows) - 1, column]
            lowest.set_xlabel(axis)
            lowest.tick_params(labelbottom=True)
        shapes = [make_swatch(COLOURS[kind], alpha=0.6) for kind in kinds]
        names = [NAMES[kind] for kind in kinds]
        drawing.figure.legend(shapes, names, loc="outside upper right", ncols=len(kinds), frameon=False, fontsize=9)
        drawing.figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return drawing.svg


def _scale(row: Mapping[str, Any], kind: str, relative: bool) -> Array:
    """The distances of one kind of pairs, divided by the mean of unrelated ones if relative."""
    unit = float(np.mean(row["unrelated_distances"])) or 1.0 if relative else 1.0
    return np.asarray(row.get(f"{kind}_distances", ()), float) / unit


def _draw_panel(
    panel: Any, name: str, seeds: Sequence[Mapping[str, Any]], bins: int, kinds: Sequence[str], relative: bool
) -> None:
    groups = {kind: np.concatenate([_scale(row, kind, relative) for row in seeds]) for kind in kinds}
    groups = {kind: values for kind, values in groups.items() if len(values)}
    edges = shared_edges(*groups.values(), bins=bins)
    for kind, values in groups.items():
        heights, _ = np.histogram(values, edges, density=True)
        panel.stairs(heights, edges, fill=True, color=COLOURS[kind], alpha=0.5)
        panel.stairs(heights, edges, color=COLOURS[kind], linewidth=0.9)
        panel.axvline(float(values.mean()), color=COLOURS[kind], linestyle="--", linewidth=1)
    notes = []
    for kind, prefix, where in (("unrelated", "", ""), ("same_sentence", "same_sentence_", "same sentence: ")):
        if kind in groups:
            overlap, auc = (float(np.mean([row[prefix + measure] for row in seeds])) for measure in ("overlap", "auc"))
            notes.append(f"{where}overlap {overlap:.2f}, area under the curve {auc:.3f}")
    note = "; ".join(notes)
    panel.set_title(name, loc="left", fontsize=10)
    panel.set_title(note, loc="right", fontsize=9, color="#555555")
    panel.set_yticks([])
    panel.margins(x=0.01)
    panel.set_ylim(bottom=0)
    panel.spines[["left", "top", "right"]].set_visible(False)
