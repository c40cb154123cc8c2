"""A sheet: a small table of text with what must be known to read it, for every reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from crossling.report.markup import csv_text, latex_table, markdown_head, markdown_row, markdown_text

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Sheet:
    """Lines of cells; the first ``names`` columns are words, the others figures."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 1
    notes: tuple[str, ...] = ()
    stem: str = ""
    """What files of it are called, without an ending."""

    def without_empty_names(self) -> Sheet:
        """Without columns of names that say nothing, such as the task in a study of one."""
        kept = [n for n in range(len(self.head)) if n >= self.names or any(row[n] for row in self.rows)]
        return replace(
            self,
            head=tuple(self.head[n] for n in kept),
            rows=tuple(tuple(row[n] for n in kept) for row in self.rows),
            names=sum(n < self.names for n in kept),
        )

    def to_rich(self) -> Table:
        """For the terminal, without its title: names wrap where it is narrow, a figure is never cut short."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
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
