"""The one table type: text and figures with notes, written for the terminal, HTML, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.table


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
"""What Markdown would take for the begin of HTML; `p < 0.05` is none."""


@dataclass(frozen=True)
class Table:
    """Lines of cells; the first ``names`` columns are words, the others figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    notes: tuple[str, ...] = ()
    stem: str = ""
    """What files of it are called, without an ending."""

    def to_json(self) -> dict[str, object]:
        """For a file that a program reads back, see :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Table:
        """A table that :meth:`to_json` wrote."""
        rows = tuple(tuple(row) for row in value["rows"])
        lists = {name: tuple(value[name]) for name in ("head", "notes")}
        return cls(**{**value, **lists, "rows": rows})

    def without_empty_names(self) -> Table:
        """Without columns of names that say nothing, such as the task in a study of one."""
        kept = [n for n in range(len(self.head)) if n >= self.names or any(row[n] for row in self.rows)]
        return replace(
            self,
            head=tuple(self.head[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
            names=sum(n < self.names for n in kept),
        )

    def to_rich(self) -> rich.table.Table:
        """For the terminal, without its title: names wrap where it is narrow, a figure is never cut short."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table as RichTable

        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(self.head):
            longest = max((len(row[number]) for row in self.rows), default=1)
            right = number >= self.names
            table.add_column(
                escape(column),
                justify="right" if right else "left",
                overflow="fold",
                min_width=longest if right else 1,
            )
        for row in self.rows:
            table.add_row(*map(escape, row))
        return table

    def to_markdown(self) -> str:
        """For a document."""
        lines = [f"## {markdown_text(self.title)}", ""]
        lines += [*markdown_head(self.head, names=self.names), *map(markdown_row, self.rows)]
        if self.notes:
            lines += ["", *(f"- {markdown_text(note)}" for note in self.notes)]
        return "\n".join(lines) + "\n"

    def to_latex(self) -> str:
        """For a paper."""
        return latex_table([self.head, *self.rows], names=self.names, comments=(self.title, *self.notes))

    def to_csv(self) -> str:
        """For a spreadsheet."""
        return csv_text([self.head, *self.rows])


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
    """A line of a table."""
    return "| " + " | ".join(map(markdown_text, cells)) + " |"


def markdown_head(cells: Sequence[str], *, names: int = 1) -> list[str]:
    """The first two lines of a table; all columns but the first few are figures."""
    return [markdown_row(cells), markdown_row(["---"] * names + ["--:"] * (len(cells) - names))]


def latex_text(text: str) -> str:
    """A cell: special characters as they are written, marks of significance raised."""
    marks = "".join(_LATEX_MARKS.get(letter, "") for letter in text)
    plain = "".join(_LATEX_SPECIAL.get(letter, letter) for letter in text if letter not in _LATEX_MARKS).rstrip()
    return f"{plain}$^{{{marks}}}$" if marks else plain


def latex_table(
    grid: Sequence[Sequence[str]], *, names: int = 1, comments: Iterable[str] = (), rule_before: int | None = None
) -> str:
    """A ``tabular`` for booktabs and amssymb, with comments above; ``rule_before`` sets lines apart from a row on."""
    body = [" & ".join(map(latex_text, row)) + r" \\" for row in grid]
    if rule_before is not None:
        body.insert(rule_before, r"\midrule")
    parts = [
        *(f"% {' '.join(comment.split())}" for comment in comments),
        "% needs \\usepackage{booktabs,amssymb}",
        rf"\begin{{tabular}}{{{'l' * names}{'r' * (len(grid[0]) - names)}}}",
        r"\toprule",
        body[0],
        r"\midrule",
        *body[1:],
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(parts) + "\n"


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows for a spreadsheet."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
