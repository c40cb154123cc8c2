"""The one table type: text and figures with notes, written for the terminal, HTML, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup, escape

from crossling.errors import escape_controls

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table as RichTable

RowKind = Literal["", "source", "average", "head"]
"""A plain row, a language trained on, a mean over other rows, the heading of the rows below it."""
SHORT = 24
"""Letters of a word in the first column that a terminal does not wrap."""
PADDING = 3
"""Blanks between two columns in the terminal."""
_STYLES: dict[RowKind, str | None] = {"": None, "source": "cyan", "average": "italic", "head": "bold"}
_LATEX_MARKS = {"▲": r"\blacktriangle", "▼": r"\blacktriangledown", "△": r"\vartriangle", "▽": r"\triangledown"}
_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "<": "$<$",
    ">": "$>$",
    "\n": " ",
}
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
"""Where Markdown would see the start of an HTML tag; `p < 0.05` has none."""


_FORMULA = re.compile(r"'*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
"""How a formula begins, also with apostrophes before it, so that each cell can be read back."""
_FIGURE = re.compile(r"[+-]?(?:[\d\s.,%±()▲▼△▽*†‡–e+-]*|inf|nan)")


@dataclass(frozen=True)
class PageRow:
    """What an interactive page adds to a row."""

    group: str
    """Rows of one group stand together."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    cells: tuple[Markup, ...] = ()
    """The cells as HTML, where it is more than their text."""


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first ``names`` columns are words, the others figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    notes: tuple[str, ...] = ()
    stem: str = ""
    """The name of its files, without an ending."""
    kinds: tuple[RowKind, ...] = ()
    """One for each row; empty where all are plain."""
    repeated: int = 0
    """Columns of figures that every part has where a terminal is too narrow for one table: the baseline's."""
    page: tuple[PageRow, ...] = ()
    """One for each row of a table that a page sorts and groups; not part of the JSON."""

    def to_json(self) -> dict[str, object]:
        """For a file that a program reads back, see :meth:`from_json`."""
        return {name: value for name, value in asdict(replace(self, page=())).items() if name != "page"}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Table:
        """A table that :meth:`to_json` wrote."""
        rows = tuple(tuple(row) for row in value["rows"])
        lists = {name: tuple(value.get(name, ())) for name in ("head", "notes", "kinds")}
        return cls(**{**value, **lists, "rows": rows})

    def select(self, columns: Sequence[int]) -> Table:
        """The table with these columns alone."""
        return replace(
            self,
            head=tuple(self.head[n] for n in columns),
            rows=tuple(tuple(row[n] for n in columns) for row in self.rows),
            names=sum(n < self.names for n in columns),
        )

    def without_empty_names(self) -> Table:
        """Without columns of names that say nothing, such as the task in a study of one."""
        return self.select([n for n in range(len(self.head)) if n >= self.names or any(row[n] for row in self.rows)])

    def to_rich(self, *, whole: bool = False) -> Terminal:
        """For the terminal; ``whole`` with its title and notes."""
        return Terminal(self, whole)

    def to_markdown(self, *, level: int = 2) -> str:
        """For a document, below a heading of this level; means are set in italics."""
        lines = [f"{'#' * level} {markdown_text(self.title)}", "", *markdown_head(self.head, names=self.names)]
        for row, kind in zip(self.rows, self._kinds(), strict=True):
            lines.append(markdown_row(f"*{cell}*" if kind == "average" and cell else cell for cell in row))
        if self.notes:
            lines += ["", *(f"- {markdown_text(note)}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """For a paper: a ``tabular`` for booktabs and amssymb, title and notes as comments, a rule above the means."""
        head, *body = (" & ".join(map(latex_text, row)) + r" \\" for row in (self.head, *self.rows))
        rule = self._first_average()
        if rule:
            body.insert(rule, r"\midrule")
        comments = [" ".join(comment.split()) for comment in (self.title, *self.notes)]
        columns = "l" * self.names + "r" * (len(self.head) - self.names)
        parts = [
            *(f"% {comment}" for comment in comments if comment),
            "% needs \\usepackage{booktabs,amssymb}",
            rf"\begin{{tabular}}{{{columns}}}",
            *(r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"),
        ]
        return "\n".join(parts) + "\n"

    def to_csv(self) -> str:
        """For a spreadsheet, which shows foreign text and does not run it."""
        text = io.StringIO()
        plain = csv.writer(text, lineterminator="\n")
        quoted = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        for row in (self.head, *self.rows):
            writer = quoted if any("\r" in cell for cell in row) else plain  # which would leave \r without quotes
            writer.writerow(map(neutralise, row))
        return text.getvalue()

    def to_html(self, *, classes: str = "plain", caption: str = "", view: str = "") -> Markup:
        """For a page: the table alone; everything in it is escaped."""
        head = Markup("").join(
            Markup('<th scope="col"{}>{}</th>').format(self._value_class(n), name) for n, name in enumerate(self.head)
        )
        return Markup('<table class="sheet {}"{}>{}<thead><tr>{}</tr></thead>{}</table>').format(
            classes,
            Markup(' data-view="{}"').format(view) if view else "",
            Markup("<caption>{}</caption>").format(caption) if caption else "",
            head,
            self._html_bodies(),
        )

    def _html_bodies(self) -> Markup:
        """Rows in one body, or on an interactive page in one for each group and one for the means."""
        kinds = self._kinds()
        if not self.page:
            return Markup("<tbody>{}</tbody>").format(self._html_rows(range(len(self.rows))))
        bodies = []
        groups = groupby(range(len(self.rows)), key=lambda n: (kinds[n] == "average", self.page[n].group))
        for (is_means, _), numbers in groups:
            rows = list(numbers)
            kind = "means" if is_means else "group single" if len(rows) == 1 else "group"
            bodies.append(Markup('<tbody class="{}">{}</tbody>').format(kind, self._html_rows(rows)))
        return Markup("\n").join(bodies)

    def _html_rows(self, numbers: Iterable[int]) -> Markup:
        kinds, rows = self._kinds(), []
        for number in numbers:
            page = self.page[number] if self.page else PageRow("")
            attributes = [Markup(' {}="{}"').format(name, value) for name, value in page.attributes.items()]
            first, *others = page.cells or tuple(map(escape, self.rows[number]))
            scope = "rowgroup" if kinds[number] == "head" else "row"
            kind = "head" if kinds[number] == "head" else f"line {kinds[number]}".strip()
            cells = [Markup("<td{}>{}</td>").format(self._value_class(n), one) for n, one in enumerate(others, start=1)]
            rows.append(
                Markup('<tr class="{}"{}><th scope="{}">{}</th>{}</tr>').format(
                    kind, Markup("").join(attributes), scope, first, Markup("").join(cells)
                )
            )
        return Markup("\n").join(rows)

    def _value_class(self, column: int) -> Markup:
        return Markup(' class="value"') if column >= self.names else Markup("")

    def _kinds(self) -> tuple[RowKind, ...]:
        plain: RowKind = ""
        return self.kinds or (plain,) * len(self.rows)

    def _first_average(self) -> int:
        """The first mean that stands below other rows; 0 where there is none."""
        return next((n for n, kind in enumerate(self.kinds) if n and kind == "average"), 0)


@dataclass(frozen=True)
class Terminal:
    """A table in as many parts as the terminal's width asks for: names may wrap, a figure is never cut."""

    table: Table
    whole: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for number, columns in enumerate(self._parts(options.max_width)):
            yield self._draw(self.table.select(columns), is_first=number == 0)
        for note in self.table.notes if self.whole else ():
            yield Text(escape_controls(note), style="dim")

    def _parts(self, room: int) -> list[list[int]]:
        """Columns that fit side by side; names and repeated columns come first in every part."""
        table = self.table
        widths = [
            max(map(len, [*name.split(), *(row[n] for row in table.rows), ""])) + PADDING
            for n, name in enumerate(table.head)
        ]
        names, first = list(range(table.names)), list(range(table.names, table.names + table.repeated))
        room -= min(sum(widths[n] for n in names), room // 2)
        parts = [list(first)]
        for column in range(table.names + table.repeated, len(table.head)):
            if len(parts[-1]) > len(first) and sum(widths[n] for n in parts[-1]) + widths[column] > room:
                parts.append(list(first))
            parts[-1].append(column)
        return [names + part for part in parts]

    def _draw(self, table: Table, *, is_first: bool) -> RichTable:
        from rich import box
        from rich.markup import escape as plain
        from rich.table import Table as RichTable

        title = plain(table.title) if self.whole and is_first else None
        drawn = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(table.head):
            longest = max((len(row[number]) for row in table.rows), default=1)
            right = number >= table.names
            drawn.add_column(
                plain(column),
                justify="right" if right else "left",
                overflow="fold",
                min_width=longest if right else 1,
                no_wrap=number == 0 and longest <= SHORT and not any(" " in row[0] for row in table.rows),
            )
        for number, (row, kind) in enumerate(zip(table.rows, table._kinds(), strict=True)):
            if number and number == table._first_average():
                drawn.add_section()
            drawn.add_row(*map(plain, row), style=_STYLES[kind])
        return drawn


def neutralise(cell: str) -> str:
    """A cell that a spreadsheet would take for a formula, with an apostrophe before it; figures stay as they are."""
    return f"'{cell}" if _FORMULA.match(cell) and not _FIGURE.fullmatch(cell) else cell


def restore_cell(cell: str) -> str:
    """What :func:`neutralise` was given."""
    return cell[1:] if cell.startswith("'") and neutralise(cell[1:]) != cell[1:] else cell


def format_mean(values: Sequence[float], *, sign: bool = False) -> str:
    """Two decimals, and a standard deviation where there are several; a dash where there is none."""
    if not values:
        return "–"
    mean = f"{fmean(values):+.2f}" if sign else f"{fmean(values):.2f}"
    return mean + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def markdown_text(text: str) -> str:
    """Text in which Markdown sees neither HTML nor the end of a cell."""
    return " ".join(_TAG.sub(r"\\<", text.replace("|", "\\|")).split("\n"))


def markdown_row(cells: Iterable[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(map(markdown_text, cells)) + " |"


def markdown_head(cells: Sequence[str], *, names: int = 1) -> list[str]:
    """The first two lines of a table; all columns after the names are figures."""
    return [markdown_row(cells), markdown_row(["---"] * names + ["--:"] * (len(cells) - names))]


def latex_text(text: str) -> str:
    """A cell with special characters escaped and marks of significance raised."""
    marks = "".join(_LATEX_MARKS.get(letter, "") for letter in text)
    plain = "".join(_LATEX_SPECIAL.get(letter, letter) for letter in text if letter not in _LATEX_MARKS).rstrip()
    return f"{plain}$^{{{marks}}}$" if marks else plain
