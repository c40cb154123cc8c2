"""The report of a study: one page that needs no network, and every table of it for documents, papers, spreadsheets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from markupsafe import Markup

from crossling.report.charts import Chart
from crossling.report.page import render_page
from crossling.report.parts import AnalysisPart
from crossling.report.system_tables import ComparisonTable, View
from crossling.report.table import Table, markdown_text
from crossling.report.wording import ComparisonSummary
from crossling.scores.metrics import explain, list_scores, title_of

LARGEST = 2_000_000
"""Bytes of a page."""
WIDEST = 12
"""Systems whose differences are drawn in every cell."""
VIEWS: tuple[View, ...] = ("scores", "differences")
LONG = 12
"""Rows from which a table can be searched."""


@dataclass(frozen=True)
class Panel:
    """The comparison on one data set of one task."""

    key: str
    """An anchor on the page, and the stem of its files."""
    title: str
    table: ComparisonTable
    """Languages and the means over all of them."""
    groups: ComparisonTable | None
    """Means over families, scripts and the like, where there are any."""
    summary: ComparisonSummary

    def parts(self) -> list[tuple[str, ComparisonTable]]:
        """Both tables with the stems of their files."""
        return [(self.key, self.table), *([(f"{self.key}-groups", self.groups)] if self.groups else [])]


@dataclass(frozen=True)
class ShownPart:
    """A comparison's table as the page shows it."""

    table: ComparisonTable
    figures: str
    """All numbers as JSON, for the page's script."""
    sheets: tuple[Markup, ...]
    """Scores, and differences."""


@dataclass(frozen=True)
class Sweep:
    """A system over the values of an axis."""

    charts: tuple[Chart, ...]
    """The means, and the languages' differences from the baseline."""
    table: Table
    sentence: str


@dataclass(frozen=True)
class Document:
    """All that a report says."""

    name: str
    facts: tuple[tuple[str, str], ...]
    """What the study is, in a few words each."""
    panels: tuple[Panel, ...]
    cells: Table
    """How far the study is."""
    timing: Table
    machines: Table
    notes: tuple[str, ...] = ()
    """What a reader must not miss."""
    choices: tuple[Table, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    learning: tuple[Chart, ...] = ()
    learning_note: str = ""
    analyses: tuple[AnalysisPart, ...] = ()
    data: Table | None = None
    recipes: tuple[tuple[str, str], ...] = ()
    """Whole recipes by the names of their systems."""
    variants: Table | None = None
    """What differs from these in the others."""
    settings: str = ""
    """The study itself."""
    command: str = ""
    identities: Table | None = None
    citations: tuple[str, ...] = ()

    @property
    def summary(self) -> tuple[str, ...]:
        """The report in words."""
        compared = [sentence for panel in self.panels for sentence in panel.summary.sentences]
        return (*compared, *(sweep.sentence for sweep in self.sweeps))

    def tables(self) -> Iterator[Table]:
        """Every table but those of comparisons, in the order of the page."""
        yield from (sweep.table for sweep in self.sweeps)
        yield from self.choices
        yield from (table for part in self.analyses for table in part.tables)
        yield from filter(None, (self.cells, self.timing, self.machines, self.data, self.variants, self.identities))


def render_document(document: Document) -> str:
    """The page; where it would be too large, what is also in files is left out, the largest first, and it says so."""
    page = _render(document, drawn=True)
    if len(page.encode()) > LARGEST:
        page = _render(document, drawn=False)
    while len(page.encode()) > LARGEST and (smaller := _without_largest(document)) is not None:
        document = smaller
        page = _render(document, drawn=False)
    return page


def _without_largest(document: Document) -> Document | None:
    """The document without its largest drawing, or else without its longest table of an analysis."""
    figures = [(len(f.drawing), part, f) for part in document.analyses for f in part.figures if f.drawing]
    if figures:
        _, part, figure = max(figures, key=lambda found: found[0])
        kept = tuple(one for one in part.figures if one is not figure)
        note = f"The figure {figure.file or figure.title} is too large for this page."
        return _with_part(document, part, replace(part, figures=kept, notes=(*part.notes, note)))
    tables = [(len(sheet.rows), part, sheet) for part in document.analyses for sheet in part.tables]
    if tables:
        _, part, sheet = max(tables, key=lambda found: found[0])
        rest = tuple(one for one in part.tables if one is not sheet)
        note = f"The table of {len(sheet.rows)} lines is too large for this page; it is in {sheet.stem}.csv."
        return _with_part(document, part, replace(part, tables=rest, notes=(*part.notes, note)))
    if document.identities is not None:
        return replace(document, identities=None)
    return None


def _with_part(document: Document, old: AnalysisPart, new: AnalysisPart) -> Document:
    return replace(document, analyses=tuple(new if part is old else part for part in document.analyses))


def _render(document: Document, *, drawn: bool) -> str:
    return render_page(
        "study.html.j2",
        title=document.name,
        styles=("page.css.j2", "study.css.j2"),
        script="study.js.j2",
        document=document,
        panels=[(panel, [_show_part(table, drawn=drawn) for _, table in panel.parts()]) for panel in document.panels],
        explanations={name: explain(name) for name in list_scores() if _is_taken(document, name)},
        title_of=title_of,
        long=LONG,
    )


def _show_part(table: ComparisonTable, *, drawn: bool) -> ShownPart:
    """The numbers for the page's script, and a sheet for each view that has columns."""
    drawn = drawn and len(table.systems) <= WIDEST
    reach = f"{100 * table.reach():.1f}"
    axis = f"; the drawn axis goes from -{reach} to +{reach}" if drawn and table.reach() else ""
    captions = {"scores": "Scores", "differences": f"Differences from {table.baseline} in points{axis}"}
    sheets = [
        table.to_page(view, drawn=drawn).to_html(classes="compare", caption=captions[view], view=view)
        for view in VIEWS
        if table.shown(view)
    ]
    return ShownPart(table, table.to_figures(), tuple(sheets))


def _is_taken(document: Document, name: str) -> bool:
    return any(panel.table.score == name for panel in document.panels)


def write_tables(document: Document) -> dict[str, str]:
    """Every table as CSV and LaTeX, by file name."""
    files = {}
    for stem, compared in (part for panel in document.panels for part in panel.parts()):
        files[f"{stem}.csv"] = compared.to_data().to_csv()
        files[f"{stem}.tex"] = compared.to_table(wide=True).to_latex()
        files[f"{stem}-differences.tex"] = compared.to_table("differences", wide=True).to_latex()
    for table in document.tables():
        files |= {f"{table.stem}.csv": table.to_csv(), f"{table.stem}.tex": table.to_latex()}
    return files


def to_markdown(document: Document) -> str:
    """The whole report for a document: the summary and every table."""
    lines = [f"# {markdown_text(document.name)}", ""]
    lines += [f"> {markdown_text(note)}\n" for note in document.notes]
    lines += ["## Summary", "", *(f"- {markdown_text(sentence)}" for sentence in document.summary), ""]
    for panel in document.panels:
        lines += [compared.to_markdown(panel.title) for _, compared in panel.parts()]
    for table in document.tables():
        lines.append(table.to_markdown())
    if document.citations:
        lines += ["## Citations", "", *(f"- {markdown_text(text)}" for text in document.citations), ""]
    return "\n".join(lines)
