"""Figures drawn as inline SVG, coloured by the page's style sheet so that they follow light and dark."""

from __future__ import annotations

import json
import math

import numpy as np
from markupsafe import Markup

from crossling.scores.metrics import Confusion

SHADES = 10
CELL = 26
LETTER = 6.6
"""Width of a letter of the axis labels, in pixels, roughly."""


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
        _draw_axes(confusion, totals, left=left, top=top),
    ]
    data = json.dumps(
        {"gold": confusion.gold, "predicted": confusion.predicted, "counts": confusion.counts.tolist()},
        ensure_ascii=False,
        separators=(",", ":"),
    )
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


def _draw_axes(confusion: Confusion, totals: np.ndarray, *, left: int, top: int) -> Markup:
    """Gold labels at the left, with their counts at the right, and predicted labels above."""
    right = left + confusion.counts.shape[1] * CELL + 8
    parts = []
    for number, name in enumerate(confusion.gold):
        y = top + number * CELL + CELL / 2 + 4
        parts.append(Markup('<text class="label gold" x="{}" y="{}">{}</text>').format(left - 7, y, name))
        parts.append(Markup('<text class="label count" x="{}" y="{}">{:,}</text>').format(right, y, totals[number]))
    for number, name in enumerate(confusion.predicted):
        x = left + number * CELL + CELL / 2 + 4
        parts.append(
            Markup('<text class="label" transform="translate({} {}) rotate(-90)">{}</text>').format(x, top - 7, name)
        )
    return Markup("").join(parts)
