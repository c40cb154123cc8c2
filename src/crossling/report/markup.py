"""Cells of tables as Markdown, LaTeX and CSV; what stands in them is text of others, and stays text."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

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
