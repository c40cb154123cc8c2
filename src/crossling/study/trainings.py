"""How a study's trainings went: records of its stages from the store, as learning curves and times.

A record is all that is left of a training where its model was deleted; where the store itself is gone, nothing is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from crossling.errors import ArtefactError
from crossling.files import read_lines
from crossling.report.charts import COLOURS, Chart, Role, Series
from crossling.report.table import Table
from crossling.report.terminal import format_seconds
from crossling.store.artefacts import Store
from crossling.study.layout import EVENTS

POINTS = 60
"""Of a loss curve; more are averaged."""


@dataclass(frozen=True)
class Trainings:
    """The records of all stages that were found, by identity."""

    plan: Mapping[str, Any]
    records: Mapping[str, Mapping[str, Any]]
    store: Path

    @property
    def wanted(self) -> set[str]:
        """Identities of all stages of the study."""
        return {stage for cell in self.plan["cells"] for stage in cell["stages"]}

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


def read_trainings(plan: Mapping[str, Any], store: Path) -> Trainings:
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
    for cell in trainings.plan["cells"]:
        for number, identity in enumerate(cell["stages"]):
            if identity in trainings.records:
                key = (cell["task"], number, identity.partition("-")[0])
                groups.setdefault(key, {}).setdefault(cell["label"], {})[identity] = trainings.records[identity]
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


def tell_times(trainings: Trainings, finished: Mapping[str, Mapping[int, Mapping[str, Any]]], out: Path) -> Table:
    """What cells took, for each variant; a stage that several cells share counts in each."""
    rows = []
    for variant in trainings.plan["variants"]:
        markers = finished.get(variant["folder"], {})
        seconds = [float(marker["seconds"]) for marker in markers.values() if marker.get("seconds") is not None]
        records = [
            trainings.records[identity]
            for cell in trainings.plan["cells"]
            if cell["folder"] == variant["folder"]
            for identity in cell["stages"][-1:]
            if identity in trainings.records
        ]
        steps = [float(record["steps"]) for record in records if "steps" in record]
        speeds = [
            float(work["subwords"]) / work["seconds"]
            for record in records
            if (work := record.get("work", {})).get("seconds") and work.get("subwords")
        ]
        figures = (_mean(seconds, "{:.1f}"), _mean(steps, "{:,.0f}"), _mean(speeds, "{:,.0f}"))
        rows.append((variant["task"], variant["label"], str(len(markers)), *figures))
    notes = ["A cell's seconds are those of its last stage and its predictions; a worker does one cell at a time."]
    every = [float(m["seconds"]) for some in finished.values() for m in some.values() if m.get("seconds") is not None]
    if every:
        notes.append(f"All {len(every)} finished cells together: {format_seconds(sum(every))} of work.")
    notes += _tell_span(out)
    head = ("task", "system", "cells", "seconds each", "updates", "subwords/s")
    return Table("Time", head, tuple(rows), names=2, notes=tuple(notes), stem="timing").without_empty_names()


def _tell_span(out: Path) -> list[str]:
    """From the first job's begin to the last one's end, with pauses between."""
    events = [event for event in read_lines(out / EVENTS) if isinstance(event.get("time"), int | float)]
    if len(events) < 2:
        return []
    times = [float(event["time"]) for event in events]
    processes = {(event.get("machine"), event.get("process")) for event in events}
    noun = "process" if len(processes) == 1 else "processes"
    return [f"From first to last: {format_seconds(max(times) - min(times))}, by {len(processes)} {noun}."]


def _mean(values: Sequence[float], shape: str) -> str:
    if not values:
        return "–"
    spread = f" ± {shape.format(stdev(values))}" if len(values) > 1 and len(set(values)) > 1 else ""
    return shape.format(fmean(values)) + spread
