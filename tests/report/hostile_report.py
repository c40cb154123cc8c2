"""A report in which every text tries to be code."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from markupsafe import Markup

from crossling.report.charts import Chart, Series, draw_heat
from crossling.report.parts import AnalysisPart, Figure
from crossling.report.study_page import Document, Panel, Sweep
from crossling.report.system_tables import comparison_table
from crossling.report.table import Table
from crossling.report.wording import summarise_comparison
from crossling.scores.significance import Comparison, Difference, Result, Settings
from crossling.scores.significance.results import OVER_SEEDS

EVIL = "<script>window.hacked=1</script>"
EVIL_SYSTEM = '"><img src=x onerror="window.hacked=2">'
LANGUAGES = {"en": 0.8, "de": 0.7, "fr": 0.72, "hi": 0.5, "zh": 0.4, "ja": 0.3, EVIL: 0.2}
EVIL_DRAWING = f"""<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9"
 onload="window.hacked=3"><script>window.hacked=4</script>
 <a xlink:href="javascript:window.hacked=5"><path d="M0 0"/></a>
 <foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="javascript:window.hacked=6"/></foreignObject>
 <path d="M0 0h9" onclick="window.hacked=7" style="fill: url(http://evil.example/x); stroke: red"/>
 <image xlink:href="http://evil.example/y.png" width="3" height="3"/><use xlink:href="http://evil.example/z.svg#a"/>
 <text x="1" y="5">{EVIL.replace("<", "&lt;")}</text></svg>"""


def make_results() -> tuple[Result, ...]:
    """Two systems in all languages and on average; the second gains 3 points but loses in German."""
    results = []
    for language, mean in LANGUAGES.items():
        delta = -0.02 if language == "de" else 0.03
        one = Difference(
            "plain", delta, delta - 0.01, delta + 0.01, 0.001, 0.007, OVER_SEEDS, 1 if delta > 0 else -1, 3, 7
        )
        common: dict[str, Any] = {
            "data": "panx",
            "language": language,
            "score": "span_f1",
            "spread": 0.01,
            "runs": 3,
            "examples": 100,
        }
        results.append(Result(system="plain", mean=mean, is_source=language == "en", **common))
        results.append(
            Result(system=EVIL_SYSTEM, mean=mean + delta, from_baseline=one, is_source=language == "en", **common)
        )
    for title, count in (("mean of 7", 7), ("mean of 6 zero-shot", 6), ("Indo-European family: mean of 4", 4)):
        one = Difference("plain", 0.02, 0.01, 0.03, 0.0002, 0.0002, OVER_SEEDS, 1, 3, 1)
        common = {"data": "panx", "language": title, "score": "span_f1", "spread": 0.01, "runs": 3, "is_average": True}
        results.append(Result(system="plain", mean=0.5, examples=100 * count, **common))
        results.append(Result(system=EVIL_SYSTEM, mean=0.52, examples=100 * count, from_baseline=one, **common))
    return tuple(results)


def make_document(**changes: object) -> Document:
    """Every part of a report, with hostile texts."""
    comparison = Comparison("plain", None, ("plain", EVIL_SYSTEM), make_results(), Settings(), (f"panx: {EVIL}",))
    tables = comparison_table(comparison).split_groups()
    panel = Panel("compare-panx", EVIL, *tables, summarise_comparison(comparison, "panx", task=EVIL))
    table = Table(EVIL, (EVIL, "b|c"), tuple((f"{EVIL} {n}", f"{n}.5") for n in range(20)), notes=(EVIL,), stem="t")
    chart = Chart(
        EVIL,
        EVIL,
        EVIL,
        (Series(EVIL_SYSTEM, ((1, 2.0, 0.5), (2, 3.0, None))), Series(EVIL, ((1, 1.0, None), (2, 4.0, None)), "thin")),
    )
    heat = draw_heat([[0.1, -0.5], [None, 1.0]], rows=[EVIL, "layer 1"], columns=["1", EVIL_SYSTEM], title=EVIL)
    figures = (Figure.from_svg(EVIL, EVIL_DRAWING, "x.svg"), Figure("heads", heat))
    parts: dict[str, object] = {
        "name": EVIL,
        "facts": ((EVIL, EVIL),),
        "panels": (panel,),
        "cells": Table("Cells", ("system", "done"), ((EVIL, "1"),), stem="cells"),
        "timing": Table("Time", ("system", "seconds"), ((EVIL, "1"),), stem="timing"),
        "machines": Table("Machines", ("fact", "value"), ((EVIL, EVIL),), stem="machines"),
        "notes": (f"Note: {EVIL}",),
        "sweeps": (Sweep((chart,), replace(table, stem="u"), EVIL),),
        "learning": (chart,),
        "learning_note": EVIL,
        "analyses": (AnalysisPart(EVIL, EVIL, (table,), figures, (EVIL,)),),
        "recipes": ((EVIL, EVIL),),
        "variants": replace(table, stem="v"),
        "settings": EVIL,
        "command": EVIL,
        "citations": (EVIL,),
    }
    return Document(**{**parts, **changes})  # type: ignore[arg-type]


def large_drawing(size: int) -> Markup:
    """A drawing of this many characters."""
    return Markup('<svg class="drawn"><path d="{}"/></svg>').format("M0 0" * (size // 4))
