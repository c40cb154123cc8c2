"""Figures as SVG files: the one place that sets up matplotlib, and figures that several analyses share."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from statistics import fmean, stdev
from typing import Any, Literal

COLOURS = {"sequential": "inferno", "diverging": "RdBu", "ranked": "RdYlGn"}
"""Bright for large values; blue above and red below zero; green for the best and red for the worst."""
CELL = 0.26
"""Inches that a cell of a heat map without a figure in it takes up."""
LETTER = 0.085
"""Inches that a letter of a label takes up, roughly."""
GROUP = 0.7
"""Of the room between two languages, what their dots take up."""


class Drawing:
    """A figure being drawn: its axes, and its SVG once it is done."""

    def __init__(self, figure: Any, axes: Any) -> None:
        self.figure, self.axes = figure, axes
        self.svg = ""


@contextmanager
def draw_figure(*, rows: int = 1, columns: int = 1, size: tuple[float, float], **options: Any) -> Iterator[Drawing]:
    """A figure whose SVG is the same text for the same numbers; options are those of ``pyplot.subplots``."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context({"svg.hashsalt": "crossling", "svg.fonttype": "none"}):
        figure, axes = pyplot.subplots(rows, columns, figsize=size, layout="constrained", **options)
        drawing = Drawing(figure, axes)
        try:
            yield drawing
            text = io.StringIO()
            figure.savefig(text, format="svg", metadata={"Date": None})
            drawing.svg = text.getvalue()
        finally:
            pyplot.close(figure)


def make_swatch(colour: str, *, alpha: float) -> Any:
    """A patch of colour for a legend."""
    from matplotlib.patches import Rectangle

    return Rectangle((0, 0), 1, 1, color=colour, alpha=alpha)


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
        """The values at both ends of the colour map; diverging colours have zero in their middle."""
        known = [value for row in self.values for value in row if value is not None and math.isfinite(value)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if self.colours == "diverging":
            most = max(abs(low), abs(high), 1e-12)
            return -most, most
        return low, high if high > low else low + 1.0

    def to_json(self) -> dict[str, object]:
        """For a file that a program reads back, see :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> HeatMap:
        """A map that :meth:`to_json` wrote."""
        return cls(**{**value, "axes": tuple(value["axes"])})


def draw_heat_maps(panels: Sequence[HeatMap], *, title: str, columns: int, shared: bool = False) -> str:
    """Maps as SVG, ``columns`` beside each other; ``shared``: maps of one kind of colours on one scale."""
    lines = -(-len(panels) // columns)
    wide, high = _measure(panels)
    with draw_figure(rows=lines, columns=columns, size=(wide * columns, high * lines + 0.5), squeeze=False) as drawing:
        places = list(drawing.axes.flat)
        for place, panel in zip(places, panels, strict=False):
            _draw_heat_map(drawing.figure, place, panel, _find_limits(panel, panels if shared else [panel]))
        for place in places[len(panels) :]:
            place.set_visible(False)
        drawing.figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return drawing.svg


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


def _draw_heat_map(figure: Any, place: Any, panel: HeatMap, limits: tuple[float, float]) -> None:
    grid = [[math.nan if value is None else value for value in row] for row in panel.values]
    image = place.imshow(
        grid,
        cmap=COLOURS[panel.colours],
        vmin=limits[0],
        vmax=limits[1],
        aspect="auto" if panel.write else "equal",
        origin="lower" if panel.upwards else "upper",
        interpolation="nearest",
    )
    crowded = max((len(name) for name in panel.columns), default=0) * LETTER > _measure_cell(panel) + 1e-9
    place.set_title(panel.title, fontsize=10)
    place.set_xticks(range(len(panel.columns)), panel.columns, fontsize=8, rotation=90 if crowded else 0)
    place.set_yticks(range(len(panel.rows)), panel.rows, fontsize=8)
    place.set_ylabel(panel.axes[0], fontsize=8)
    place.set_xlabel("\n".join(filter(None, (panel.axes[1], panel.note))), fontsize=8)
    place.tick_params(length=0)
    figure.colorbar(image, ax=place, shrink=0.8).ax.tick_params(labelsize=7)
    if panel.write:
        _write_values(place, grid, limits)


def _write_values(place: Any, grid: Sequence[Sequence[float]], limits: tuple[float, float]) -> None:
    """Figures in the cells, light on dark ones."""
    middle, reach = (limits[0] + limits[1]) / 2, (limits[1] - limits[0]) / 2 or 1.0
    for row, line in enumerate(grid):
        for column, value in enumerate(line):
            if not math.isnan(value):
                colour = "white" if abs(value - middle) > 0.6 * reach else "black"
                place.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=8, color=colour)


def draw_dots(
    values: Mapping[tuple[str, str], Sequence[float]],
    *,
    axis: str,
    title: str,
    logarithmic: bool = False,
    intervals: Mapping[tuple[str, str], tuple[float, float]] | None = None,
) -> str:
    """A dot for each model (colour) and language (group), as SVG: the mean of its seeds ± one standard deviation.

    Where there are intervals (from, to), they are drawn instead.
    """
    models, languages = (list(dict.fromkeys(key[place] for key in values)) for place in (0, 1))
    width = 2.2 + len(languages) * max(0.8, 0.16 * len(models))
    with draw_figure(size=(min(width, 14), 3.6 + 0.18 * len(models))) as drawing:
        for number, model in enumerate(models):
            shift = GROUP * ((number + 0.5) / len(models) - 0.5)
            keys = [(place, (model, code)) for place, code in enumerate(languages) if (model, code) in values]
            bars = [_measure_bar(values[key], (intervals or {}).get(key)) for _, key in keys]
            drawing.axes.errorbar(
                [place + shift for place, _ in keys],
                [fmean(values[key]) for _, key in keys],
                yerr=[[below for below, _ in bars], [above for _, above in bars]],
                markersize=5,
                capsize=2,
                color=f"C{number % 10}",
                fmt="os^Dv"[number // 10 % 5],
                label=model,
            )
        drawing.axes.set_xticks(range(len(languages)), languages)
        drawing.axes.set_xlim(-0.5, len(languages) - 0.5)
        drawing.axes.set_ylabel(axis)
        if logarithmic:
            _scale_logarithmically(drawing.axes)
        drawing.axes.grid(axis="y", which="both", alpha=0.3)
        for place in range(len(languages) - 1):
            drawing.axes.axvline(place + 0.5, color="0.85", linewidth=0.8)
        drawing.figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        drawing.figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return drawing.svg


def _measure_bar(seeds: Sequence[float], interval: tuple[float, float] | None) -> tuple[float, float]:
    """How far the bar of a dot reaches below and above it."""
    if interval is not None:
        return max(fmean(seeds) - interval[0], 0.0), max(interval[1] - fmean(seeds), 0.0)
    spread = stdev(seeds) if len(seeds) > 1 else 0.0
    return spread, spread


def draw_lines(panels: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]], *, across: str, title: str) -> str:
    """Panels beside each other, each named by its upward axis, with a line for each name; places are whole numbers."""
    names = list(dict.fromkeys(name for lines in panels.values() for name in lines))
    drawn: dict[str, Any] = {}
    with draw_figure(columns=len(panels), size=(3.6 * len(panels), 3.4), squeeze=False) as drawing:
        for place, (up, lines) in zip(drawing.axes.flat, panels.items(), strict=True):
            for name, points in lines.items():
                number = names.index(name)
                style = {"color": f"C{number % 10}", "marker": "os^Dv"[number // 10 % 5], "markersize": 4}
                drawn[name] = place.plot(*zip(*points, strict=True), **style)[0]
            places = sorted({x for points in lines.values() for x, _ in points})
            place.set_xticks(places, [f"{x:g}" for x in places])
            place.set_xlabel(across)
            place.set_ylabel(up)
            place.grid(axis="y", alpha=0.3)
        options = {"loc": "outside lower center", "ncols": 8, "frameon": False, "fontsize": 8}
        drawing.figure.legend(list(drawn.values()), list(drawn), **options)
        drawing.figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return drawing.svg


def _scale_logarithmically(axis: Any) -> None:
    """Numbers at 1, 2, 5, 10 and so on, written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_formatter(NullFormatter())
    low, high = axis.get_ylim()
    if high < 5 * low:  # else there might be a single number on the axis
        axis.set_ylim(low / 1.6, high * 1.6)
