"""What teachers labelled over rounds, shown: rows offered and kept by language, agreement, classes, the dev score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from crossling.report.figures import draw_lines
from crossling.report.parts import AnalysisPart, Figure
from crossling.report.table import Table

Record = Mapping[str, Any]
"""The record of a stage."""
ALL = "all"
"""The row of all languages of a round."""


@dataclass(frozen=True)
class _Taught:
    """One language in one round, over seeds."""

    offered: float
    kept: float
    agreement: float
    classes: Mapping[str, int]

    def cells(self) -> tuple[str, ...]:
        total = sum(self.classes.values())
        classes = ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in self.classes.items())
        figures = (100 * self.kept / self.offered, 100 * self.agreement)
        return (classes, f"{self.offered:,.0f}", f"{self.kept:,.0f}", *(f"{value:.1f}" for value in figures))


def show_rounds(systems: Mapping[str, Sequence[Sequence[Record]]]) -> AnalysisPart | None:
    """A table and a figure of the rounds of each system, from the records of all seeds in each round; nothing where no
    stage taught."""
    rows: list[tuple[str, ...]] = []
    figures: list[Figure] = []
    for system, rounds in systems.items():
        found = [_gather_round([one for one in records if one.get("teaching")]) for records in rounds]
        for number, (languages, dev) in enumerate(found, 1):
            shown = "" if dev is None else f"{100 * dev:.1f}"
            for name, one in languages.items():
                rows.append((system, str(number), name, *one.cells(), shown if name == ALL else ""))
        if sum(bool(languages) for languages, _ in found) > 1:
            title = ": ".join(filter(None, (system, "over rounds")))
            figures.append(Figure.from_svg(title, _draw(found, title)))
    if not rows:
        return None
    head = ("system", "round", "language", "classes", "offered", "kept", "kept %", "all agree %", "dev %")
    notes = (
        "Means over seeds. All agree: the share of rows on which all teachers predict the same. Classes: of what was "
        "kept. Dev: the student's score in the source language.",
    )
    table = Table("Teaching", head, tuple(rows), names=4, notes=notes, stem="teaching")
    facts = "Labels of the text were not read."
    return AnalysisPart("Teaching over rounds", facts, (table.without_empty_names(),), tuple(figures))


def _gather_round(records: Sequence[Record]) -> tuple[dict[str, _Taught], float | None]:
    """Each language of a round and all of them, and the dev score."""
    if not records:
        return {}, None
    by_language: dict[str, list[Record]] = {}
    for record in records:
        for language, facts in record["teaching"]["languages"].items():
            by_language.setdefault(language, []).append(facts)
    found = {language: _average(facts) for language, facts in by_language.items()}
    offered = sum(one.offered for one in found.values())
    classes = sum((Counter(one.classes) for one in found.values()), Counter())
    agreed = sum(one.agreement * one.offered for one in found.values()) / offered
    kept = sum(one.kept for one in found.values())
    scores = [record["dev_score"] for record in records if record.get("dev_score") is not None]
    return {**found, ALL: _Taught(offered, kept, agreed, _sort(classes))}, fmean(scores) if scores else None


def _average(facts: Sequence[Record]) -> _Taught:
    offered, kept, agreement = (fmean(one[name] for one in facts) for name in ("offered", "kept", "agreement"))
    return _Taught(offered, kept, agreement, _sort(sum((Counter(one["classes"]) for one in facts), Counter())))


def _sort(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _draw(rounds: Sequence[tuple[Mapping[str, _Taught], float | None]], title: str) -> str:
    """Lines over rounds: the share that was kept, the share on which all agree, and the dev score."""
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {"kept, percent": {}, "all teachers agree, percent": {}}
    for number, (languages, dev) in enumerate(rounds, 1):
        for name, one in languages.items():
            for panel, value in zip(panels.values(), (one.kept / one.offered, one.agreement), strict=False):
                panel.setdefault(name, []).append((number, 100 * value))
        if dev is not None:
            dev_panel = panels.setdefault("score on dev, percent", {})
            dev_panel.setdefault("source", []).append((number, 100 * dev))
    return draw_lines(panels, across="round", title=title)
