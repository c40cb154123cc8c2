"""Histograms of two groups of numbers, a panel for each model on a shared axis."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

COLOURS = ("#3568a8", "#d9772b")
PANELS = 6
"""More than so many stand in several columns."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Panel:
    """One model's two groups of numbers, and what is written beside them."""

    title: str
    groups: tuple[Array, Array]
    note: str = ""


def draw_histograms(panels: Sequence[Panel], *, title: str, axis: str, names: tuple[str, str], bins: int) -> str:
    """Panels with both groups, each of area 1, one over the other, as SVG; dashed lines are their means."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = -(-len(panels) // PANELS)
    rows = -(-len(panels) // columns)
    with pyplot.rc_context({"svg.hashsalt": "crossling", "svg.fonttype": "none"}):  # same numbers, same file
        figure, axes = pyplot.subplots(
            rows, columns, figsize=(6.4 * columns, 1.35 * rows + 1.5), sharex=True, squeeze=False, layout="constrained"
        )
        places = list(axes.T.flat)
        for place, panel in zip(places, panels, strict=False):
            _draw_panel(place, panel, bins)
        for place in places[len(panels) :]:
            place.set_visible(False)
        for place in _lowest(axes, len(panels)):
            place.set_xlabel(axis)
            place.tick_params(labelbottom=True)
        shapes = [pyplot.Rectangle((0, 0), 1, 1, color=colour, alpha=0.6) for colour in COLOURS]
        figure.legend(shapes, names, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return text.getvalue()


def _draw_panel(place: Any, panel: Panel, bins: int) -> None:
    edges = shared_edges(*panel.groups, bins=bins)
    for values, colour in zip(panel.groups, COLOURS, strict=True):
        heights, _ = np.histogram(values, edges, density=True)
        place.stairs(heights, edges, fill=True, color=colour, alpha=0.5)
        place.stairs(heights, edges, color=colour, linewidth=0.9)
        place.axvline(float(values.mean()), color=colour, linestyle="--", linewidth=1)
    place.set_title(panel.title, loc="left", fontsize=10)
    place.set_title(panel.note, loc="right", fontsize=9, color="#555555")
    place.set_yticks([])
    place.margins(x=0.01)
    place.set_ylim(bottom=0)
    place.spines[["left", "top", "right"]].set_visible(False)


def _lowest(axes: Any, panels: int) -> list[Any]:
    """The lowest panel of every column that has one."""
    rows, columns = axes.shape
    return [axes[min(rows, panels - column * rows) - 1, column] for column in range(columns)]


def shared_edges(first: Array, second: Array, *, bins: int) -> Array:
    """Edges of equal bins from the least to the greatest value of both groups."""
    low, high = min(first.min(), second.min()), max(first.max(), second.max())
    return np.linspace(low, high if high > low else low + 1, bins + 1)


def measure_overlap(first: Array, second: Array, *, bins: int) -> float:
    """The area that the two histograms of area 1 share: 1 where they are the same, 0 where they do not meet."""
    edges = shared_edges(first, second, bins=bins)
    shares = [np.histogram(values, edges)[0] / len(values) for values in (first, second)]
    return float(np.minimum(*shares).sum())
