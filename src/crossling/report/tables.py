"""A run's scores as a table: for the terminal, for Markdown and for a spreadsheet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crossling.data.languages import find_language, name_of
from crossling.errors import ArtefactError, nearest
from crossling.report.summary import LanguageResult, RunSummary
from crossling.report.table import csv_text, markdown_head, markdown_row

if TYPE_CHECKING:
    from rich.table import Table

TERMINAL_SCORES = 3
"""Scores that fit beside the names in 80 columns; Markdown and CSV have all."""


@dataclass(frozen=True)
class Cell:
    """A score over seeds: mean and standard deviation, as fractions."""

    mean: float
    spread: float | None

    def __str__(self) -> str:
        """In percent, with one decimal."""
        return format_percent(self.mean, self.spread)


@dataclass(frozen=True)
class Row:
    """A language, or an average over several."""

    code: str
    name: str
    examples: int
    cells: tuple[Cell, ...]
    is_source: bool = False
    is_average: bool = False


@dataclass(frozen=True)
class ScoreTable:
    """Scores of a run on one data set, a row for each language, source first, then averages."""

    title: str
    scores: tuple[str, ...]
    rows: tuple[Row, ...]

    def to_rich(self) -> Table:
        """For the terminal: the main scores, the source language set apart."""
        from rich import box
        from rich.table import Table

        shown = self.scores[:TERMINAL_SCORES]
        table = Table(title=_plain(self.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("code", no_wrap=True)
        table.add_column("language", no_wrap=True)
        table.add_column("rows", justify="right", no_wrap=True)
        for number, name in enumerate(shown):
            table.add_column(name, justify="right", no_wrap=True, style="bold" if number == 0 else None)
        for before, row in zip((None, *self.rows), self.rows, strict=False):
            if row.is_average and before is not None and not before.is_average:
                table.add_section()
            style = "italic" if row.is_average else "cyan" if row.is_source else None
            cells = [str(cell) for cell in row.cells[: len(shown)]]
            table.add_row(_plain(row.code), _plain(row.name), f"{row.examples:,}", *cells, style=style)
        return table

    def to_markdown(self) -> str:
        """For a document: all scores."""
        head = ["code", "language", "rows", *self.scores]
        lines = markdown_head(head, names=2)
        for row in self.rows:
            cells = [row.code, row.name, f"{row.examples:,}", *map(str, row.cells)]
            lines.append(markdown_row([f"*{cell}*" if row.is_average and cell else cell for cell in cells]))
        return "\n".join(lines) + "\n"

    def to_csv(self) -> str:
        """For a spreadsheet: all scores in percent, mean and standard deviation apart, languages only."""
        columns = [f"{name}_{part}" for name in self.scores for part in ("mean", "sd")]
        rows: list[list[object]] = [["code", "language", "rows", *columns]]
        for row in self.rows:
            if not row.is_average:
                values = [_csv_number(number) for cell in row.cells for number in (cell.mean, cell.spread)]
                rows.append([row.code, row.name, row.examples, *values])
        return csv_text(rows)


def score_table(summary: RunSummary, data: str = "") -> ScoreTable:
    """The scores on one data set (the first where none is named)."""
    sets = summary.data_sets
    if not sets:
        raise ArtefactError("a run without results has no scores to show")
    chosen = data or sets[0]
    if chosen not in sets:
        raise ArtefactError(f"the run was not evaluated on {chosen!r}.{nearest(chosen, sets)}")
    results = order_results(summary, chosen)
    scores = order_scores(summary, results)
    rows = [_language_row(summary, result, scores) for result in results]
    return ScoreTable(f"{summary.title}: {chosen}", scores, (*rows, *_average_rows(summary, results, scores)))


def score_tables(summary: RunSummary) -> tuple[ScoreTable, ...]:
    """One table for each data set."""
    return tuple(score_table(summary, data) for data in summary.data_sets)


def order_results(summary: RunSummary, data: str) -> list[LanguageResult]:
    """Results on a data set: the source language first, the others by code."""
    chosen = [result for result in summary.results if result.data == data]
    return sorted(
        chosen,
        key=lambda result: (not is_same(result.language, summary.source), result.language, result.variant),
    )


def order_scores(summary: RunSummary, results: Sequence[LanguageResult]) -> tuple[str, ...]:
    """Names of all scores taken, the main one first."""
    names = dict.fromkeys(name for result in results for name in result.scores)
    return tuple(sorted(names, key=lambda name: name != summary.main_score))


def is_same(code: str, other: str) -> bool:
    """Whether two codes, `en` and `eng_Latn` say, mean one language."""
    first, second = find_language(code), find_language(other)
    return code == other or (first is not None and second is not None and first.code == second.code)


def is_source(summary: RunSummary, result: LanguageResult) -> bool:
    """Whether the model was trained on this language, so that its score is not zero-shot."""
    return any(is_same(result.language, code) for code in summary.trained_on)


def average(results: Sequence[LanguageResult], name: str) -> Cell:
    """Mean over languages; its spread is that of the seeds' means, for languages are not repeats."""
    values = [result.scores[name] for result in results if result.scores.get(name)]
    if not values:
        return Cell(float("nan"), None)
    seeds = {len(one) for one in values}
    if len(seeds) > 1:  # seeds cannot be paired, so there is no spread to speak of
        return Cell(float(np.mean([np.mean(one) for one in values])), None)
    by_seed = np.mean(values, axis=0)
    return Cell(float(by_seed.mean()), float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None)


def format_percent(mean: float, spread: float | None = None) -> str:
    """`81.8 ± 0.3`; a dash where there is no value."""
    if math.isnan(mean):
        return "–"
    return f"{100 * mean:.1f}" if spread is None else f"{100 * mean:.1f} ± {100 * spread:.1f}"


def _language_row(summary: RunSummary, result: LanguageResult, scores: Sequence[str]) -> Row:
    name = f"{name_of(result.language)} ({result.variant})" if result.variant else name_of(result.language)
    cells = tuple(Cell(result.mean(score), result.spread(score)) for score in scores)
    return Row(result.language, name, result.examples, cells, is_source=is_source(summary, result))


def _average_rows(summary: RunSummary, results: Sequence[LanguageResult], scores: Sequence[str]) -> tuple[Row, ...]:
    targets = [result for result in results if not is_source(summary, result)]
    chosen = [(f"mean of {len(results)}", results)]
    if targets and len(targets) < len(results):
        chosen.append((f"mean of {len(targets)} zero-shot", targets))
    return tuple(
        Row(
            "",
            name,
            sum(result.examples for result in part),
            tuple(average(part, score) for score in scores),
            is_average=True,
        )
        for name, part in chosen
    )


def _plain(text: str) -> str:
    """Text in which rich sees no markup."""
    from rich.markup import escape

    return escape(text)


def _csv_number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{100 * value:.3f}"
