"""Charts drawn as inline SVG: bars, lines, differences with their intervals, confusion matrices, heat maps.

The page's style sheet colours them, so that they follow light and dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from markupsafe import Markup

from crossling.scores.metrics import Confusion

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 12, 40
COLOURS = 8
"""Line colours of the style sheet; further lines repeat them."""
SHADES = 10
CELL = 26
LETTER = 6.6
"""Width of a letter of an axis label, in pixels, roughly."""
DECADES = 30.0
"""From this ratio of the largest value to the smallest on, an axis of chosen values goes by their logarithm."""

Role = Literal["main", "thin", "base"]


@dataclass(frozen=True)
class Series:
    """A line of a chart."""

    name: str
    points: tuple[tuple[float, float, float | None], ...]
    """Where, how much, and the standard deviation."""
    role: Role = "main"
    """``thin`` lines stand in the background, ``base`` is what the others are compared with."""


@dataclass(frozen=True)
class Chart:
    """Lines over a shared axis."""

    title: str
    across: str
    """What the axis from left to right is."""
    up: str
    series: tuple[Series, ...]
    chosen: bool = False
    """Whether places are values that someone chose, so that they may span decades, and not steps of time."""

    def legend(self) -> list[tuple[str, str]]:
        """The class and name of every line with a colour."""
        return [(kind, one.name) for kind, one in zip(self._classes(), self.series, strict=True) if one.role != "thin"]

    def draw(self) -> Markup:
        """The chart; ``data-series`` holds the points for the page's script."""
        frame = _Frame.around(self.series, chosen=self.chosen)
        data = [
            {"name": one.name, "points": [[x, round(y, 6), *([round(sd, 6)] if sd else [])] for x, y, sd in one.points]}
            for one in self.series
        ]
        lines = list(zip(range(len(self.series)), self._classes(), self.series, strict=True))
        order = sorted(lines, key=lambda line: ("thin", "base", "main").index(line[2].role))
        parts = [
            Markup(
                '<svg class="chart" viewBox="0 0 {w} {h}" role="img" aria-label="{title}" data-frame="{f}" '
                'data-series="{d}" data-across="{a}">'
            ).format(w=WIDTH, h=HEIGHT, title=self.title, f=frame.to_json(), d=_compact(data), a=self.across),
            frame.draw_axes(self.across, self.up),
            *(_draw_series(one, number, kind, frame) for number, kind, one in order),
            Markup('<circle class="at" r="4.5" cx="-9" cy="-9"/></svg>'),
        ]
        return Markup("").join(parts)

    def _classes(self) -> list[str]:
        """The style of each line: colours go to the main ones in turn."""
        found, number = [], 0
        for one in self.series:
            found.append(one.role if one.role != "main" else f"c{number % COLOURS + 1}")
            number += one.role == "main"
        return found


@dataclass(frozen=True)
class _Frame:
    """From values to places in the drawing."""

    left: float
    right: float
    low: float
    high: float
    logarithmic: bool = False
    """From left to right."""

    @classmethod
    def around(cls, series: Sequence[Series], *, chosen: bool) -> _Frame:
        xs = [x for one in series for x, _, _ in one.points]
        ys = [y + sign * (sd or 0) for one in series for y, sd in _values(one) for sign in (-1, 1)]
        low, high = (min(ys), max(ys)) if ys else (0.0, 1.0)
        room = 0.06 * (high - low) or max(abs(high) * 0.05, 0.5)
        left, right = (min(xs), max(xs)) if xs else (0.0, 1.0)
        side = 0.0 if right > left else 1.0
        logarithmic = chosen and left > 0 and right / left >= DECADES
        return cls(left - side, right + side, low - room, high + room, logarithmic)

    def x(self, value: float) -> float:
        left, right = self.left, self.right
        if self.logarithmic:
            value, left, right = math.log10(value), math.log10(left), math.log10(right)
        return LEFT + (WIDTH - LEFT - RIGHT) * (value - left) / (right - left)

    def y(self, value: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (self.high - value) / (self.high - self.low)

    def to_json(self) -> str:
        edges = [LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM, self.left, self.right, self.low, self.high]
        return _compact([*edges, int(self.logarithmic)])

    def draw_axes(self, across: str, up: str) -> Markup:
        bottom = HEIGHT - BOTTOM
        parts = []
        for tick in find_ticks(self.low, self.high):
            y = self.y(tick)
            parts.append(Markup('<path class="grid" d="M{} {:.1f}H{}"/>').format(LEFT, y, WIDTH - RIGHT))
            parts.append(Markup('<text class="tick up" x="{}" y="{:.1f}">{:g}</text>').format(LEFT - 6, y + 4, tick))
        find = find_powers if self.logarithmic else find_ticks
        for tick in find(self.left, self.right, most=8):
            x = self.x(tick)
            parts.append(Markup('<path class="grid" d="M{:.1f} {}v4"/>').format(x, bottom))
            parts.append(Markup('<text class="tick" x="{:.1f}" y="{}">{:g}</text>').format(x, bottom + 16, tick))
        middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
        parts.append(Markup('<path class="axis" d="M{} {}V{}H{}"/>').format(LEFT, TOP, bottom, WIDTH - RIGHT))
        parts.append(Markup('<text class="name" x="{}" y="{}">{}</text>').format(middle, HEIGHT - 6, across))
        turned = Markup('<text class="name" transform="translate(13 {}) rotate(-90)">{}</text>')
        parts.append(turned.format(TOP + (bottom - TOP) / 2, up))
        return Markup("").join(parts)


def _values(series: Series) -> list[tuple[float, float | None]]:
    return [(y, sd if series.role != "thin" else None) for _, y, sd in series.points]


def _draw_series(series: Series, number: int, kind: str, frame: _Frame) -> Markup:
    """A band of one standard deviation, the line, and its points where they are few."""
    places = [(frame.x(x), y, sd) for x, y, sd in series.points]
    parts = []
    if series.role == "main" and len(places) > 1 and any(sd for _, _, sd in places):
        upper = [f"{x:.1f} {frame.y(y + (sd or 0)):.1f}" for x, y, sd in places]
        lower = [f"{x:.1f} {frame.y(y - (sd or 0)):.1f}" for x, y, sd in reversed(places)]
        parts.append(Markup('<path class="band {}" d="M{}z"/>').format(kind, "L".join(upper + lower)))
    path = "L".join(f"{x:.1f} {frame.y(y):.1f}" for x, y, _ in places)
    if series.role == "base" and len(places) == 1:
        path = f"{LEFT} {frame.y(places[0][1]):.1f}H{WIDTH - RIGHT}"
    line = Markup('<path class="line {}" data-n="{}" d="M{}"><title>{}</title></path>')
    parts.append(line.format(kind, number, path, series.name))
    if series.role == "main" and len(places) <= 24:
        dots = (Markup('<circle class="dot {}" r="2.6" cx="{:.1f}" cy="{:.1f}"/>') for _ in places)
        parts += [dot.format(kind, x, frame.y(y)) for dot, (x, y, _) in zip(dots, places, strict=True)]
    return Markup("").join(parts)


def find_ticks(low: float, high: float, *, most: int = 7) -> list[float]:
    """Round numbers between two values, at most ``most``."""
    span = high - low
    if not math.isfinite(span) or span <= 0:
        return [low]
    step = 10.0 ** math.floor(math.log10(span))
    step = next(s for s in (step / 10, step / 5, step / 2, step, step * 2, step * 5) if span / s <= most - 1)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def find_powers(low: float, high: float, *, most: int = 7) -> list[float]:
    """Round numbers between two positive values, evenly apart by their logarithm, at most ``most``."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for mantissas in ((1, 2, 5), (1, 3), (1,)):
        every = [float(f"{mantissa}e{power}") for power in decades for mantissa in mantissas]
        found = [tick for tick in every if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / most)]


def _count_rows(totals: np.ndarray, right: int, above: int) -> list[Markup]:
    """How many examples each gold label has."""
    count = Markup('<text class="label count" x="{}" y="{}">{:,}</text>')
    return [count.format(right, above + n * CELL + CELL / 2 + 4, total) for n, total in enumerate(totals)]


def draw_bar(mean: float, spread: float | None, *, is_source: bool) -> Markup:
    """A bar from 0 to 100 percent with a tick of one standard deviation to both sides.

    It is stretched to the width of its table cell, so lengths are in percent and lines keep their thickness.
    """
    length = 0.0 if math.isnan(mean) else 100 * mean
    low, high = (max(0.0, length - 100 * (spread or 0)), min(100.0, length + 100 * (spread or 0)))
    kind = "bar source" if is_source else "bar"
    tick = Markup('<path class="tick" d="M{0:.2f} 5H{1:.2f}M{0:.2f} 2.5v5M{1:.2f} 2.5v5"/>').format(low, high)
    return Markup(
        '<svg class="{}" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        'aria-label="{:.1f} percent"><path class="grid" d="M25 0v10M50 0v10M75 0v10"/>'
        '<rect class="fill" width="{:.2f}" height="10"/>{}</svg>'
    ).format(kind, length, length, tick if spread else "")


def draw_confusion(confusion: Confusion, *, title: str) -> Markup:
    """A heat map: how the words of each gold label (rows) were labelled (columns), in percent of the row.

    Cells of one shade are one path, for a page holds a matrix for each language.
    """
    left = int(LETTER * max(map(len, confusion.gold), default=0)) + 12
    top = int(LETTER * max(map(len, confusion.predicted), default=0)) + 12
    rows, columns = confusion.counts.shape
    width, height = left + columns * CELL + 64, top + rows * CELL + 4
    totals = confusion.counts.sum(axis=1)
    shares = confusion.counts / np.maximum(totals, 1)[:, None]
    parts = [
        Markup('<path class="board" d="M{} {}h{}v{}h-{}z"/>').format(
            left, top, columns * CELL, rows * CELL, columns * CELL
        ),
        _draw_cells(confusion, shares, left=left, top=top),
        *_name_cells(confusion.gold, confusion.predicted, left, top),
        *_count_rows(totals, left + columns * CELL + 8, top),
    ]
    data = _compact({"gold": confusion.gold, "predicted": confusion.predicted, "counts": confusion.counts.tolist()})
    head = Markup(
        '<svg class="confusion" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
        'aria-label="{title}" data-left="{left}" data-top="{top}" data-cell="{cell}" data-matrix="{data}">'
    ).format(w=width, h=height, title=title, left=left, top=top, cell=CELL, data=data)
    return head + Markup("").join(parts) + Markup("</svg>")


def _draw_cells(confusion: Confusion, shares: np.ndarray, *, left: int, top: int) -> Markup:
    """The coloured squares, right ones in another colour than wrong ones; those below 1 percent are noise."""
    squares: dict[str, list[str]] = {}
    numbers: list[Markup] = []
    for row, column in zip(*np.nonzero(shares >= 0.01), strict=True):
        share = float(shares[row, column])
        x, y = left + int(column) * CELL, top + int(row) * CELL
        right = "right" if confusion.gold[row] == confusion.predicted[column] else "wrong"
        shade = math.ceil(share * SHADES)
        squares.setdefault(f"{right} s{shade}", []).append(f"M{x} {y}h{CELL}v{CELL}h-{CELL}z")
        kind = "number strong" if shade > 5 else "number"
        number = Markup('<text class="{}" x="{}" y="{}">{:.0f}</text>')
        numbers.append(number.format(kind, x + CELL // 2, y + CELL // 2 + 4, 100 * share))
    paths = [Markup('<path class="{}" d="{}"/>').format(kind, "".join(d)) for kind, d in sorted(squares.items())]
    return Markup("").join([*paths, *numbers])


def draw_difference(delta: float, low: float, high: float, *, reach: float, kind: str) -> Markup:
    """A difference with its interval, on an axis from ``-reach`` to ``reach`` with 0 in the middle.

    It is stretched to the width of its table cell, so lengths are in percent and lines keep their thickness.
    """
    places = [min(100.0, max(0.0, 50 + 50 * value / reach)) if reach else 50.0 for value in (low, high, delta)]
    return Markup(
        '<svg class="gap {}" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        '<path d="M50 0v12"/><path d="M{:.1f} 6H{:.1f}"/><path d="M{:.1f} 1.5v9"/></svg>'
    ).format(kind, *places)


def draw_heat(
    values: Sequence[Sequence[float | None]], *, rows: Sequence[str], columns: Sequence[str], title: str
) -> Markup:
    """A heat map of any numbers; where they have both signs, negative ones have a colour of their own.

    Cells of one shade are one path, which keeps the drawing small.
    """
    known = [abs(value) for row in values for value in row if value is not None and math.isfinite(value)]
    signed = any(value is not None and value < 0 for row in values for value in row)
    top = max(known, default=0.0) or 1.0
    bottom = 0.0 if signed else min(known, default=0.0)
    left = int(LETTER * max(map(len, rows), default=0)) + 12
    above = int(LETTER * max(map(len, columns), default=0)) + 12
    squares: dict[str, list[str]] = {}
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value is None or not math.isfinite(value):
                continue
            share = (abs(value) - bottom) / (top - bottom) if top > bottom else 1.0
            kind = f"{'wrong' if value < 0 else 'right'} s{max(1, math.ceil(share * SHADES))}"
            place = f"M{left + x * CELL} {above + y * CELL}h{CELL}v{CELL}h-{CELL}z"
            squares.setdefault(kind, []).append(place)
    width, height = left + len(columns) * CELL + 4, above + len(rows) * CELL + 4
    data = _compact({"rows": list(rows), "columns": list(columns), "values": [[_short(v) for v in r] for r in values]})
    head = Markup(
        '<svg class="confusion heat" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" aria-label="{title}" '
        'data-left="{left}" data-top="{above}" data-cell="{cell}" data-heat="{data}">'
    ).format(w=width, h=height, title=title, left=left, above=above, cell=CELL, data=data)
    paths = [Markup('<path class="{}" d="{}"/>').format(kind, "".join(d)) for kind, d in sorted(squares.items())]
    return head + Markup("").join([*paths, *_name_cells(rows, columns, left, above)]) + Markup("</svg>")


def _name_cells(rows: Sequence[str], columns: Sequence[str], left: int, above: int) -> list[Markup]:
    middle = CELL / 2 + 4
    beside = Markup('<text class="label gold" x="{}" y="{}">{}</text>')
    turned = Markup('<text class="label" transform="translate({} {}) rotate(-90)">{}</text>')
    found = [beside.format(left - 7, above + number * CELL + middle, name) for number, name in enumerate(rows)]
    return found + [turned.format(left + n * CELL + middle, above - 7, name) for n, name in enumerate(columns)]


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.4g}")


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
