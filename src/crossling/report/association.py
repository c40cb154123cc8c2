"""Whether one figure of models goes with another: correlations, and the points drawn."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LEAST = 3
"""Fewer points than this always lie on a line."""


@dataclass(frozen=True)
class Point:
    """One variant of a study: the mean of its seeds."""

    group: str
    """The task; correlations are within one."""
    label: str
    measures: Mapping[str, float]
    score: float
    """As a fraction."""


@dataclass(frozen=True)
class Correlation:
    """How a measure goes with the score, over the variants of one group; not a number where either is constant."""

    group: str
    measure: str
    pearson: float
    spearman: float
    n: int

    def describe(self) -> str:
        """One sentence for the reader."""
        where = f"{self.group}: " if self.group else ""
        if self.n < LEAST:
            return f"{where}{self.measure}: {self.n} variants are too few for a correlation with the score."
        figures = " and ".join(
            f"{name} {'undefined' if math.isnan(value) else f'{value:+.2f}'}"
            for name, value in (("Pearson", self.pearson), ("Spearman", self.spearman))
        )
        return f"{where}{self.measure} and mean zero-shot score: {figures} over {self.n} variants."


def correlate(points: Sequence[Point]) -> list[Correlation]:
    """Every measure with the score, group by group."""
    found = []
    for group in dict.fromkeys(point.group for point in points):
        inside = [point for point in points if point.group == group]
        for measure in inside[0].measures:
            values, scores = [point.measures[measure] for point in inside], [point.score for point in inside]
            found.append(Correlation(group, measure, *_correlate(values, scores), len(inside)))
    return found


def _correlate(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    if len(xs) < LEAST or len(set(xs)) == 1 or len(set(ys)) == 1:
        return math.nan, math.nan
    from scipy import stats

    return float(stats.pearsonr(xs, ys).statistic), float(stats.spearmanr(xs, ys).statistic)


def draw_points(points: Sequence[Point], *, title: str) -> str:
    """A scatter of each measure against the score as SVG, a colour a group, every point with its name."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    measures = list(points[0].measures)
    groups = list(dict.fromkeys(point.group for point in points))
    with pyplot.rc_context({"svg.hashsalt": "crossling", "svg.fonttype": "none"}):  # same numbers, same file
        figure, axes = pyplot.subplots(
            len(groups), len(measures), figsize=(5.2 * len(measures), 3.8 * len(groups)), squeeze=False
        )
        for row, group in zip(axes, groups, strict=True):
            inside = [point for point in points if point.group == group]
            for axis, measure in zip(row, measures, strict=True):
                axis.scatter([p.measures[measure] for p in inside], [100 * p.score for p in inside], s=18)
                for point in inside:
                    place = (point.measures[measure], 100 * point.score)
                    axis.annotate(point.label, place, xytext=(4, 3), textcoords="offset points", fontsize=7)
                axis.set_xlabel(measure)
                axis.set_ylabel(f"{group + ': ' if group else ''}mean zero-shot score, percent")
                axis.grid(alpha=0.3)
                axis.margins(x=0.15, y=0.1)
        figure.suptitle(title)
        figure.tight_layout()
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return text.getvalue()
