"""Charts of a study's report: scores over the values of an axis, learning curves, and what the trainings took."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from crossling.data.languages import name_of
from crossling.errors import ArtefactError
from crossling.report.charts import COLOURS, Chart, Role, Series
from crossling.report.run_summary import format_percent
from crossling.report.study_page import Sweep
from crossling.report.table import Table
from crossling.report.terminal import format_seconds
from crossling.store.artefacts import Store
from crossling.study.cell_scores import StudyFiles, score_cells
from crossling.study.choose import group_variants
from crossling.study.compare import Finished, StudyComparison, TaskComparison
from crossling.study.folder import PlannedVariant, StudyPlan, name_file, read_events
from crossling.study.grid import name_values

MEAN = "mean"
"""The line of means among those of languages."""

Figures = Mapping[str, tuple[float, float | None]]
"""Mean and standard deviation by language, and of the means."""
Scores = Mapping[tuple[str, str, str], Figures]
"""By task, data set and label of a variant."""


def has_axes(plan: StudyPlan) -> bool:
    """Whether any system has an axis of numbers."""
    return any(_list_axes(plan))


def _list_axes(plan: StudyPlan) -> list[tuple[str, str]]:
    """Systems and their axes of two numbers or more."""
    found = []
    for system, settings in plan.settings.systems.items():
        for axis, values in settings.axes.items():
            numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
            if len(numbers) == len(values) > 1:
                found.append((system, axis))
    return found


def score_variants(plan: StudyPlan, files: StudyFiles, comparison: StudyComparison) -> Scores:
    """Scores of every variant from stored predictions, over seeds; languages trained on are not in the mean."""
    trained = {
        (part.task, result.data, result.language)
        for part in comparison.parts
        for result in part.comparison.results
        if result.is_source
    }
    by_seed: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for cell in score_cells(plan, files.out, files):
        for data in dict.fromkeys(data for data, _ in cell.scores):
            own = {
                language: found[cell.main_score] for (where, language), found in cell.scores.items() if where == data
            }
            known = {language for language in own if (cell.task, data, language) in trained}
            scores = {MEAN: average_languages(own, known), **own}
            by_seed.setdefault((cell.task, data, cell.label), []).append(scores)
    return {key: _average_seeds(seeds) for key, seeds in by_seed.items()}


def average_languages(scores: Mapping[str, float], trained: Collection[str]) -> float:
    """The mean that a comparison shows: without languages trained on and without pairs of two, if others are left."""
    single = {language: value for language, value in scores.items() if "=" not in language} or scores
    return fmean([value for language, value in single.items() if language not in trained] or single.values())


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


def draw_sweeps(plan: StudyPlan, scores: Scores, comparison: StudyComparison) -> list[Sweep]:
    """A chart and a table for each task, data set, system and axis of numbers."""
    sweeps = []
    for part in comparison.parts:
        for data in part.comparison.data_sets:
            for system, axis in _list_axes(plan):
                groups = group_variants([v for v in plan.variants if v.task == part.task], system, axis)
                sweep = _draw_sweep(part, data, system, axis, groups, scores)
                sweeps += [sweep] if sweep else []
    return sweeps


def _draw_sweep(
    part: TaskComparison, data: str, system: str, axis: str, groups: Sequence[Sequence[PlannedVariant]], scores: Scores
) -> Sweep | None:
    curves: dict[str, list[tuple[float, Figures]]] = {}
    for variants in groups:
        points = [
            (float(variant.axes[axis]), figures)
            for variant in variants
            if MEAN in (figures := scores.get((part.task, data, variant.label), {}))
        ]
        if len(points) > 1:
            others = {key: value for key, value in variants[0].axes.items() if key != axis}
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
    ends = [f"{axis} {x:g}{f' of {name}' if several else ''} ({100 * mean:.1f})" for mean, name, x in (best, worst)]
    beside = f"; {baseline} has {100 * base[MEAN][0]:.1f}" if MEAN in base else ""
    return (
        f"{title}: the mean is highest at {ends[0]} and lowest at {ends[1]}{beside}. A value chosen by these "
        "scores has been chosen on test labels."
    )


POINTS = 60
"""Of a loss curve; more are averaged."""


@dataclass(frozen=True)
class Trainings:
    """The records of all stages that were found, by identity."""

    plan: StudyPlan
    records: Mapping[str, Mapping[str, Any]]
    store: Path

    @property
    def wanted(self) -> set[str]:
        """Identities of all stages of the study."""
        return {stage for cell in self.plan.cells for stage in cell.stages}

    def note_missing(self) -> str:
        """What to say where records are not there."""
        missing = len(self.wanted - self.records.keys())
        if not missing:
            return ""
        which = "All" if missing == len(self.wanted) else f"{missing} of {len(self.wanted)}"
        return (
            f"{which} trainings of this study have no record in the store {self.store}: not trained yet, or trained "
            "elsewhere, or deleted. Their learning curves and speeds cannot be shown."
        )


def read_trainings(plan: StudyPlan, store: Path) -> Trainings:
    """All records that are there; a store that is not is left alone."""
    found = Trainings(plan, {}, store)
    if not store.is_dir():
        return found
    records, kept = {}, Store(store)
    for identity in found.wanted:
        try:
            records[identity] = kept.record(identity)
        except ArtefactError:
            continue
    return Trainings(plan, records, store)


def draw_learning(trainings: Trainings) -> list[Chart]:
    """For each task and stage: the loss, and the score on dev where there is one; a line is the mean of its seeds."""
    groups: dict[tuple[str, int, str], dict[str, dict[str, Mapping[str, Any]]]] = {}
    for cell in trainings.plan.cells:
        for number, identity in enumerate(cell.stages):
            if identity in trainings.records:
                key = (cell.task, number, identity.partition("-")[0])
                groups.setdefault(key, {}).setdefault(cell.label, {})[identity] = trainings.records[identity]
    several = len({number for _, number, _ in groups}) > 1
    charts = []
    for (task, number, kind), by_label in groups.items():
        name = ": ".join(filter(None, (task, f"stage {number + 1}, {kind}" if several else "")))
        for column, title, scale in (("loss", "training loss", 1.0), ("dev", "score on dev, percent", 100.0)):
            series = _draw_column(_merge_shared(by_label), column, scale)
            if series:
                charts.append(Chart(": ".join(filter(None, (name, title))), "updates", title, series))
    return charts


def _merge_shared(by_label: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Systems that share their trainings are one line with all their names."""
    names: dict[tuple[str, ...], list[str]] = {}
    for label, records in by_label.items():
        names.setdefault(tuple(records), []).append(label)
    return {", ".join(labels): list(by_label[labels[0]].values()) for labels in names.values()}


def _draw_column(by_label: Mapping[str, Sequence[Mapping[str, Any]]], column: str, scale: float) -> tuple[Series, ...]:
    found: list[Series] = []
    for label, records in by_label.items():
        curves = [
            {int(row["step"]): scale * float(row[column]) for row in record.get("history", ()) if column in row}
            for record in records
        ]
        points = average_curves([curve for curve in curves if curve])
        if points:
            role: Role = "main" if len(found) < COLOURS else "thin"
            found.append(Series(label, points, role))
    return tuple(found)


def average_curves(curves: Sequence[Mapping[int, float]]) -> tuple[tuple[float, float, float | None], ...]:
    """Mean and spread at the steps that all curves have; many steps are averaged to fewer."""
    if not curves:
        return ()
    steps = sorted(set.intersection(*(set(curve) for curve in curves)))
    size = -(-len(steps) // POINTS) or 1
    points = []
    for start in range(0, len(steps), size):
        part = steps[start : start + size]
        values = [fmean(curve[step] for step in part) for curve in curves]
        points.append((fmean(part), fmean(values), stdev(values) if len(values) > 1 else None))
    return tuple(points)


def list_times(trainings: Trainings, finished: Finished, out: Path) -> Table:
    """What cells took, for each variant; a stage that several cells share counts in each."""
    rows: list[tuple[str, ...]] = []
    on_gpu = False
    for variant in trainings.plan.variants:
        markers = finished.get(variant.folder, {})
        seconds = [marker.seconds for marker in markers.values() if marker.seconds is not None]
        records = [
            trainings.records[identity]
            for cell in trainings.plan.cells
            if cell.folder == variant.folder
            for identity in cell.stages[-1:]
            if identity in trainings.records
        ]
        steps = [float(record["steps"]) for record in records if "steps" in record]
        speeds = [
            float(work["subwords"]) / work["seconds"]
            for record in records
            if (work := record.get("work", {})).get("seconds") and work.get("subwords")
        ]
        figures = (_mean(seconds, "{:.1f}"), _mean(steps, "{:,.0f}"), _mean(speeds, "{:,.0f}"))
        sizes = [work["gpu_bytes"] / 1e9 for record in records if "gpu_bytes" in (work := record.get("work", {}))]
        on_gpu = on_gpu or bool(sizes)
        rows.append((variant.task, variant.label, str(len(markers)), *figures, _mean(sizes, "{:.2f}")))
    notes = ["A cell's seconds are those of its last stage and its predictions; a worker does one cell at a time."]
    every = [m.seconds for some in finished.values() for m in some.values() if m.seconds is not None]
    if every:
        notes.append(f"All {len(every)} finished cells together: {format_seconds(sum(every))} of work.")
    notes += _describe_span(out)
    head: tuple[str, ...] = ("task", "system", "cells", "seconds each", "updates", "subwords/s", "GPU memory, GB")
    if on_gpu:
        notes.append("Memory: the most that training had allocated on the GPU, without the CUDA context.")
    else:
        head, rows = head[:-1], [row[:-1] for row in rows]
    return Table("Time", head, tuple(rows), names=2, notes=tuple(notes), stem="timing").without_empty_names()


def _describe_span(out: Path) -> list[str]:
    """From the first job's begin to the last one's end, with pauses between."""
    events = read_events(out)
    if len(events) < 2:
        return []
    times = [event.time for event in events]
    processes = {(event.machine, event.process) for event in events}
    noun = "process" if len(processes) == 1 else "processes"
    return [f"From first to last: {format_seconds(max(times) - min(times))}, by {len(processes)} {noun}."]


def _mean(values: Sequence[float], shape: str) -> str:
    if not values:
        return "–"
    spread = f" ± {shape.format(stdev(values))}" if len(values) > 1 and len(set(values)) > 1 else ""
    return shape.format(fmean(values)) + spread
