"""Systems over a numeric axis, such as the layer that is fused: scores as curves, beside the baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from crossling.data.languages import name_of
from crossling.report.charts import Chart, Role, Series
from crossling.report.document import Sweep
from crossling.report.table import Table
from crossling.report.tables import format_percent
from crossling.study.choices import group_variants
from crossling.study.comparing import Part, StudyComparison
from crossling.study.grid import name_values
from crossling.study.layout import name_file
from crossling.study.scoring import score_cells

MEAN = "mean"
"""The line of means among those of languages."""

Figures = Mapping[str, tuple[float, float | None]]
"""Mean and standard deviation by language, and of the means."""
Scores = Mapping[tuple[str, str, str], Figures]
"""By task, data set and label of a variant."""


def has_axes(plan: Mapping[str, Any]) -> bool:
    """Whether any system has an axis of numbers."""
    return any(_list_axes(plan))


def _list_axes(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Systems and their axes of two numbers or more."""
    found = []
    for system, settings in plan["settings"]["systems"].items():
        for axis, values in settings["axes"].items():
            numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
            if len(numbers) == len(values) > 1:
                found.append((system, axis))
    return found


def score_variants(plan: Mapping[str, Any], out: Path, comparison: StudyComparison) -> Scores:
    """Scores of every variant from stored predictions, over seeds; languages trained on are not in the mean."""
    trained = {
        (part.task, result.data, result.language)
        for part in comparison.parts
        for result in part.comparison.results
        if result.is_source
    }
    by_seed: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for cell in score_cells(plan, out):
        for data in dict.fromkeys(data for data, _ in cell.scores):
            own = {language: value for (where, language), value in cell.scores.items() if where == data}
            others = [value for language, value in own.items() if (cell.task, data, language) not in trained]
            scores = {MEAN: fmean(others or own.values()), **own}
            by_seed.setdefault((cell.task, data, cell.label), []).append(scores)
    return {key: _average_seeds(seeds) for key, seeds in by_seed.items()}


def _average_seeds(seeds: Sequence[Mapping[str, float]]) -> dict[str, tuple[float, float | None]]:
    found = {}
    for name in seeds[0]:
        values = [scores[name] for scores in seeds if name in scores]
        found[name] = (fmean(values), stdev(values) if len(values) > 1 else None)
    return found


def read_scores(comparison: StudyComparison) -> Scores:
    """The same from a comparison, of the variants that it has; for predictions that are no longer there."""
    found: dict[tuple[str, str, str], dict[str, tuple[float, float | None]]] = {}
    for part in comparison.parts:
        for result in part.comparison.results:
            figures = found.setdefault((part.task, result.data, result.system), {})
            if not result.is_average:
                figures[result.language] = (result.mean, result.spread)
            elif result.language.startswith("mean of ") and (
                MEAN not in figures or result.language.endswith("zero-shot")
            ):
                figures[MEAN] = (result.mean, result.spread)
    for figures in found.values():
        if len(figures) == 1:  # a single language has no mean beside it
            figures.setdefault(MEAN, next(iter(figures.values())))
    return found


def draw_sweeps(plan: Mapping[str, Any], scores: Scores, comparison: StudyComparison) -> list[Sweep]:
    """A chart and a table for each task, data set, system and axis of numbers."""
    sweeps = []
    for part in comparison.parts:
        for data in part.comparison.data_sets:
            for system, axis in _list_axes(plan):
                groups = group_variants(
                    [v for v in plan["variants"] if v["task"] == part.task], {"system": system, "axis": axis}
                )
                sweep = _draw_sweep(part, data, system, axis, groups, scores)
                sweeps += [sweep] if sweep else []
    return sweeps


def _draw_sweep(
    part: Part, data: str, system: str, axis: str, groups: Sequence[Sequence[Mapping[str, Any]]], scores: Scores
) -> Sweep | None:
    curves: dict[str, list[tuple[float, Figures]]] = {}
    for variants in groups:
        points = [
            (float(variant["axes"][axis]), figures)
            for variant in variants
            if MEAN in (figures := scores.get((part.task, data, variant["label"]), {}))
        ]
        if len(points) > 1:
            others = {key: value for key, value in variants[0]["axes"].items() if key != axis}
            curves[" ".join([system, *name_values(others)])] = sorted(points, key=lambda point: point[0])
    if not curves:
        return None
    short = axis.rpartition(".")[2]
    baseline = part.comparison.baseline
    base = scores.get((part.task, data, baseline), {})
    title = f"{': '.join(filter(None, (part.task, data)))}: {system} over {short}"
    charts = [Chart(title, short, "score, percent", tuple(_list_means(curves, baseline, base)), chosen=True)]
    if base and len(curves) == 1:
        series = _list_differences(next(iter(curves.values())), base)
        name = f"{title}: by language, from {baseline}"
        charts.append(Chart(name, short, "difference, points", tuple(series), chosen=True))
    table = _tabulate(curves, baseline, base, short, title, stem=name_file("sweep", part.task, data, system, short))
    return Sweep(tuple(charts), table, _put_in_words(curves, baseline, base, short, title))


def _list_means(curves: Mapping[str, Sequence[tuple[float, Figures]]], baseline: str, base: Figures) -> list[Series]:
    """The mean of every curve, and the baseline's as a level."""
    found = []
    if MEAN in base:
        places = [x for points in curves.values() for x, _ in points]
        value = (100 * base[MEAN][0], None)
        found.append(Series(f"{baseline}, mean", ((min(places), *value), (max(places), *value)), "base"))
    return found + [Series(f"{name}, mean", _points(points, MEAN)) for name, points in curves.items()]


def _list_differences(points: Sequence[tuple[float, Figures]], base: Figures) -> list[Series]:
    """Every language's difference from the baseline, and that of the means."""
    found = []
    for name in sorted(base.keys() & points[0][1].keys(), key=lambda name: (name == MEAN, name)):
        there = [(x, 100 * (figures[name][0] - base[name][0]), None) for x, figures in points if name in figures]
        role: Role = "main" if name == MEAN else "thin"
        found.append(Series(MEAN if name == MEAN else name_of(name), tuple(there), role))
    level = ((points[0][0], 0.0, None), (points[-1][0], 0.0, None))
    return [*found, Series("no difference", level, "base")]


def _points(points: Sequence[tuple[float, Figures]], name: str) -> tuple[tuple[float, float, float | None], ...]:
    found = [(x, figures[name]) for x, figures in points if name in figures]
    return tuple((x, 100 * mean, None if sd is None else 100 * sd) for x, (mean, sd) in found)


def _tabulate(
    curves: Mapping[str, Sequence[tuple[float, Figures]]],
    baseline: str,
    base: Figures,
    axis: str,
    title: str,
    *,
    stem: str,
) -> Table:
    named = dict.fromkeys(name for points in curves.values() for _, figures in points for name in figures)
    languages = sorted(named, key=lambda name: name != MEAN)

    def show(figures: Figures) -> list[str]:
        return [format_percent(*figures[name]) if name in figures else "–" for name in languages]

    rows = [(baseline, "–", *show(base))] if base else []
    rows += [(name, f"{x:g}", *show(figures)) for name, points in curves.items() for x, figures in points]
    return Table(title, ("system", axis, *languages), tuple(rows), names=1, stem=stem)


def _put_in_words(
    curves: Mapping[str, Sequence[tuple[float, Figures]]], baseline: str, base: Figures, axis: str, title: str
) -> str:
    points = [(figures[MEAN][0], name, x) for name, some in curves.items() for x, figures in some]
    best, worst = max(points), min(points)
    if best[0] == worst[0]:
        return f"{title}: the mean is {100 * best[0]:.1f} at every value."
    several = len(curves) > 1
    told = [f"{axis} {x:g}{f' of {name}' if several else ''} ({100 * mean:.1f})" for mean, name, x in (best, worst)]
    beside = f"; {baseline} has {100 * base[MEAN][0]:.1f}" if MEAN in base else ""
    return (
        f"{title}: the mean is highest at {told[0]} and lowest at {told[1]}{beside}. A value that is picked by these "
        "scores has seen the labels it is judged by."
    )
