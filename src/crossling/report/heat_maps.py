"""Heat maps side by side: layers by heads, or models by tasks."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

COLOURS = {"sequential": "inferno", "diverging": "RdBu", "ranked": "RdYlGn"}
"""Bright where much happened; blue above and red below zero; green for the best and red for the worst."""
CELL = 0.26
"""Inches that a cell without a figure in it takes up."""
LETTER = 0.085
"""Inches that a letter of a label takes up, roughly."""


@dataclass(frozen=True)
class HeatMap:
    """A matrix with names for its rows and columns; none where there is no value."""

    title: str
    values: Sequence[Sequence[float | None]]
    rows: Sequence[str]
    columns: Sequence[str]
    colours: Literal["sequential", "diverging", "ranked"] = "sequential"
    note: str = ""
    """Below the map."""
    axes: tuple[str, str] = ("", "")
    """What rows and columns are."""
    write: bool = False
    """Whether figures stand in the cells."""
    upwards: bool = False
    """Whether the first row is the lowest, as the first layer of an encoder is."""

    def limits(self) -> tuple[float, float]:
        """What the ends of the colours stand for; diverging ones have zero in their middle."""
        known = [value for row in self.values for value in row if value is not None and math.isfinite(value)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if self.colours == "diverging":
            most = max(abs(low), abs(high), 1e-12)
            return -most, most
        return low, high if high > low else low + 1.0


def draw_maps(panels: Sequence[HeatMap], *, title: str, columns: int, shared: bool = False) -> str:
    """Maps as SVG, so many beside each other; ``shared``: maps of one kind of colours on one scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = -(-len(panels) // columns)
    wide, high = _measure(panels)
    with pyplot.rc_context({"svg.hashsalt": "crossling", "svg.fonttype": "none"}):  # same numbers, same file
        figure, axes = pyplot.subplots(
            lines, columns, figsize=(wide * columns, high * lines + 0.5), squeeze=False, layout="constrained"
        )
        places = list(axes.flat)
        for place, panel in zip(places, panels, strict=False):
            _draw_map(figure, place, panel, _find_limits(panel, panels if shared else [panel]))
        for place in places[len(panels) :]:
            place.set_visible(False)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return text.getvalue()


def _measure(panels: Sequence[HeatMap]) -> tuple[float, float]:
    """Inches that the largest map needs."""
    cell = max(_measure_cell(panel) for panel in panels)
    label = LETTER * max(len(name) for panel in panels for name in panel.rows)
    wide = cell * max(len(panel.columns) for panel in panels) + label + 1.1
    high = (0.34 if any(p.write for p in panels) else CELL) * max(len(panel.rows) for panel in panels) + 1.1
    longest = LETTER * max(len(line) for panel in panels for line in (panel.title, panel.note))
    return max(wide, longest, 2.2), high


def _measure_cell(panel: HeatMap) -> float:
    """Inches that a column takes up: where figures are written, its name fits as well."""
    return max(0.62, *(LETTER * len(name) for name in panel.columns)) if panel.write else CELL


def _find_limits(panel: HeatMap, together: Sequence[HeatMap]) -> tuple[float, float]:
    limits = [other.limits() for other in together if other.colours == panel.colours]
    return min(low for low, _ in limits), max(high for _, high in limits)


def _draw_map(figure: Any, place: Any, panel: HeatMap, limits: tuple[float, float]) -> None:
    import numpy as np

    grid = np.array([[math.nan if value is None else value for value in row] for row in panel.values], dtype=float)
    picture = place.imshow(
        grid,
        cmap=COLOURS[panel.colours],
        vmin=limits[0],
        vmax=limits[1],
        aspect="auto" if panel.write else "equal",
        origin="lower" if panel.upwards else "upper",
        interpolation="nearest",
    )
    place.set_title(panel.title, fontsize=10)
    place.set_xticks(range(len(panel.columns)), panel.columns, fontsize=8, rotation=90 if _crowd(panel) else 0)
    place.set_yticks(range(len(panel.rows)), panel.rows, fontsize=8)
    place.set_ylabel(panel.axes[0], fontsize=8)
    place.set_xlabel("\n".join(filter(None, (panel.axes[1], panel.note))), fontsize=8)
    place.tick_params(length=0)
    figure.colorbar(picture, ax=place, shrink=0.8).ax.tick_params(labelsize=7)
    if panel.write:
        _write_values(place, grid, limits)


def _crowd(panel: HeatMap) -> bool:
    """Whether the names of columns would run into each other."""
    return max((len(name) for name in panel.columns), default=0) * LETTER > _measure_cell(panel) + 1e-9


def _write_values(place: Any, grid: Any, limits: tuple[float, float]) -> None:
    """Figures in the cells, light on dark ones."""
    middle, reach = (limits[0] + limits[1]) / 2, (limits[1] - limits[0]) / 2 or 1.0
    for row, line in enumerate(grid):
        for column, value in enumerate(line):
            if not math.isnan(value):
                dark = abs(value - middle) > 0.6 * reach
                colour = "white" if dark else "black"
                place.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)
