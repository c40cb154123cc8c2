"""Parts that pages of runs and of studies share: drawings, and what an analysis found."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from crossling.report.table import Table


@dataclass(frozen=True)
class Figure:
    """A drawing with its name."""

    title: str
    drawing: Markup
    file: str = ""
    """Its file in the study's folder."""

    @classmethod
    def from_svg(cls, title: str, svg: str, file: str = "") -> Figure:
        """A drawing shown as an image, in which no script can run and nothing is fetched."""
        source = "data:image/svg+xml," + quote(svg, safe=" ,:;=()/'-.")
        return cls(title, Markup('<img class="drawn" alt="{}" src="{}">').format(title, source), file)


@dataclass(frozen=True)
class AnalysisPart:
    """An analysis of the study's models, from its folder."""

    title: str
    facts: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
