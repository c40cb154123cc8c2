"""A study's page: the tables of all its comparisons in one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from crossling.report.comparison import ComparisonTable


def render_study(
    name: str, parts: Sequence[tuple[str, Sequence[ComparisonTable]]], *, notes: Sequence[str] = ()
) -> str:
    """The page; names and notes come from files of the user and are escaped."""
    environment = Environment(
        loader=PackageLoader("crossling", "report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    style = environment.get_template("page.css.j2").render()
    page: str = environment.get_template("study.html.j2").render(
        name=name, parts=parts, notes=notes, style=Markup(style), views=("scores", "differences")
    )
    return page
