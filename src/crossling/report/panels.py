"""A comparison on one data set as a page shows it: languages by family, means below, differences drawn."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from markupsafe import Markup

from crossling.data.languages import GROUPINGS, find_language, group_of
from crossling.report.charts import draw_difference
from crossling.report.comparison import MISSING, ComparisonTable, Line, View
from crossling.report.tables import format_percent
from crossling.report.wording import Verdict
from crossling.scores.significance import Result

NOWHERE = "other"
"""The group of languages that nothing is known of."""


@dataclass(frozen=True)
class Panel:
    """One data set of one task."""

    key: str
    """An anchor on the page, and the stem of its files."""
    title: str
    table: ComparisonTable
    """Languages and the means over all of them."""
    groups: ComparisonTable | None
    """Means over families, scripts and the like, where there are any."""
    verdict: Verdict


def make_panel(key: str, title: str, table: ComparisonTable, verdict: Verdict) -> Panel:
    """The lines of groups are set apart from the others."""
    known = {group_of(line.code, way) for line in table.lines if line.code for way in GROUPINGS}
    groups = [line for line in table.lines if line.is_average and line.name.partition(": mean of ")[0] in known]
    others = tuple(line for line in table.lines if line not in groups)
    apart = replace(table, title=f"{table.title}, by group", lines=tuple(groups)) if groups else None
    return Panel(key, title, replace(table, lines=others), apart, verdict)


@dataclass(frozen=True)
class Cell:
    """A figure in the page's table."""

    text: str
    kind: str
    """``up``, ``down`` or empty."""
    drawing: Markup | None = None


@dataclass(frozen=True)
class Row:
    """A line of the page's table."""

    title: str
    code: str
    family: str
    script: str
    kind: str
    is_marked: bool
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Layout:
    """One view of a table: languages in their families, then means."""

    view: View
    columns: tuple[str, ...]
    families: tuple[tuple[str, tuple[str, ...], tuple[Row, ...]], ...]
    """A family, its means, and its languages."""
    means: tuple[Row, ...]
    reach: str
    """How far the axis of drawn differences goes, in points."""


def lay_out(table: ComparisonTable, view: View, *, drawn: bool = True) -> Layout:
    """A table for the page; ``drawn``: differences also as a picture each."""
    reach = _find_reach(table)
    rows = {
        line: _make_row(table, line, view, reach if drawn and view == "differences" else 0.0) for line in table.lines
    }
    families: dict[str, list[Line]] = {}
    for line in table.lines:
        if not line.is_average:
            families.setdefault(rows[line].family, []).append(line)
    grouped = tuple(
        (name, _average(table, lines, view), tuple(rows[line] for line in lines)) for name, lines in families.items()
    )
    means = tuple(rows[line] for line in table.lines if line.is_average)
    return Layout(view, table.shown(view), grouped, means, f"{100 * reach:.1f}")


def _find_reach(table: ComparisonTable) -> float:
    """The farthest end of any interval, so that all pictures of a table share an axis."""
    ends = [
        max(abs(one.low), abs(one.high), abs(one.delta))
        for line in table.lines
        for result in line.results
        if result and (one := result.from_baseline)
    ]
    return max(ends, default=0.0)


def _make_row(table: ComparisonTable, line: Line, view: View, reach: float) -> Row:
    language = find_language(line.code) if line.code else None
    shown = table.shown(view)
    results = [result for name, result in zip(table.systems, line.results, strict=True) if name in shown]
    texts = table.cells(line, view)
    return Row(
        title=line.name,
        code=line.code,
        family=language.family if language else NOWHERE,
        script=language.script if language else NOWHERE,
        kind="average" if line.is_average else "source" if line.is_source else "",
        is_marked=any(result is not None and result.mark for result in line.results),
        cells=tuple(_make_cell(result, text, reach) for result, text in zip(results, texts, strict=True)),
    )


def _make_cell(result: Result | None, text: str, reach: float) -> Cell:
    one = result.from_baseline if result else None
    if one is None:
        return Cell(text, "")
    kind = {1: "up", -1: "down", 0: ""}[one.direction]
    if not reach:
        return Cell(text, kind)
    return Cell(text, kind, draw_difference(one.delta, one.low, one.high, reach=reach, direction=one.direction))


def _average(table: ComparisonTable, lines: Sequence[Line], view: View) -> tuple[str, ...]:
    """Plain means over a family's languages; a dash where a system lacks one of them, nothing for a single one."""
    if len(lines) < 2:
        return ("",) * len(table.shown(view))
    found = []
    for place, name in enumerate(table.systems):
        if name not in table.shown(view):
            continue
        results = [line.results[place] for line in lines]
        known = [result for result in results if result is not None]
        if view == "scores":
            found.append(format_percent(fmean(r.mean for r in known)) if len(known) == len(results) else MISSING)
        else:
            deltas = [r.from_baseline.delta for r in known if r.from_baseline]
            found.append(f"{100 * fmean(deltas):+.1f}" if len(deltas) == len(results) else MISSING)
    return tuple(found)


def to_figures(table: ComparisonTable) -> str:
    """All figures behind a table as JSON, for whoever points at a cell: by line and system."""
    lines = {line.code or line.name: [_figures(result) for result in line.results] for line in table.lines}
    whole = {"systems": table.systems, "baseline": table.baseline, "lines": lines}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def _figures(result: Result | None) -> list[float | None] | None:
    if result is None:
        return None
    spread = None if result.spread is None else round(100 * result.spread, 2)
    found: list[float | None] = [round(100 * result.mean, 2), spread, result.examples, result.runs]
    if one := result.from_baseline:
        found += [round(100 * value, 2) for value in (one.delta, one.low, one.high)]
        found += [float(f"{one.p:.3g}"), float(f"{one.corrected_p:.3g}")]
    return found
