"""Whether a measure of models goes with their zero-shot scores: correlations, and a scatter plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from crossling.report.figures import draw_figure

LEAST = 3
"""Fewer points than this always lie on a line."""


@dataclass(frozen=True)
class Variant:
    """One variant of a study: the mean of its seeds."""

    task: str
    """Correlations are within one."""
    label: str
    measures: Mapping[str, float]
    score: float
    """The mean zero-shot score, as a fraction."""


@dataclass(frozen=True)
class ScoreCorrelation:
    """How a measure goes with the score over the variants of one task; not a number where either is constant."""

    task: str
    measure: str
    pearson: float
    spearman: float
    n: int

    def describe(self) -> str:
        """One sentence for the reader."""
        where = f"{self.task}: " if self.task else ""
        if self.n < LEAST:
            return f"{where}{self.measure}: {self.n} variants are too few for a correlation with the score."
        figures = " and ".join(
            f"{name} {'undefined' if math.isnan(value) else f'{value:+.2f}'}"
            for name, value in (("Pearson", self.pearson), ("Spearman", self.spearman))
        )
        return f"{where}{self.measure} and mean zero-shot score: {figures} over {self.n} variants."


def correlate_scores(variants: Sequence[Variant]) -> list[ScoreCorrelation]:
    """Every measure with the score, task by task."""
    found = []
    for task in dict.fromkeys(variant.task for variant in variants):
        inside = [variant for variant in variants if variant.task == task]
        for measure in inside[0].measures:
            values, scores = [one.measures[measure] for one in inside], [one.score for one in inside]
            found.append(ScoreCorrelation(task, measure, *_correlate(values, scores), len(inside)))
    return found


def _correlate(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    if len(xs) < LEAST or len(set(xs)) == 1 or len(set(ys)) == 1:
        return math.nan, math.nan
    from scipy import stats

    return float(stats.pearsonr(xs, ys).statistic), float(stats.spearmanr(xs, ys).statistic)


def draw_scatter(variants: Sequence[Variant], *, title: str) -> str:
    """Each measure against the score as SVG, a row of panels for each task, every point with its name."""
    measures = list(variants[0].measures)
    tasks = list(dict.fromkeys(variant.task for variant in variants))
    size = (5.2 * len(measures), 3.8 * len(tasks))
    with draw_figure(rows=len(tasks), columns=len(measures), size=size, squeeze=False) as drawing:
        for row, task in zip(drawing.axes, tasks, strict=True):
            inside = [variant for variant in variants if variant.task == task]
            for axis, measure in zip(row, measures, strict=True):
                axis.scatter([one.measures[measure] for one in inside], [100 * one.score for one in inside], s=18)
                for one in inside:
                    place = (one.measures[measure], 100 * one.score)
                    axis.annotate(one.label, place, xytext=(4, 3), textcoords="offset points", fontsize=7)
                axis.set_xlabel(measure)
                axis.set_ylabel(f"{task + ': ' if task else ''}mean zero-shot score, percent")
                axis.grid(alpha=0.3)
                axis.margins(x=0.15, y=0.1)
        drawing.figure.suptitle(title)
    return drawing.svg
