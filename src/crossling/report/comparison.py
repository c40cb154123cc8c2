"""Systems side by side: a table for each data set, with marks for differences that are not chance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from crossling.data.languages import name_of
from crossling.errors import ArtefactError, nearest
from crossling.report.table import csv_text, latex_table, markdown_head, markdown_row, markdown_text
from crossling.report.tables import format_percent
from crossling.scores.significance import Comparison, Difference, Result
from crossling.scores.significance.compare import MARKS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

View = Literal["scores", "differences"]
"""`scores` shows means with marks, `differences` what separates each system from the baseline, with intervals."""

MISSING = "–"
PADDING = 3
"""Blanks between two columns in the terminal."""
_WORDS = {1: "better", -1: "worse", 0: ""}


@dataclass(frozen=True)
class Line:
    """A language or an average, with a result for each system that has one."""

    code: str
    """The language as in the recipe; empty for an average."""
    name: str
    results: tuple[Result | None, ...]
    is_average: bool
    is_source: bool

    @property
    def title(self) -> str:
        """Code and name, once where they are the same."""
        return self.name if self.code in ("", self.name) else f"{self.code} {self.name}"


@dataclass(frozen=True)
class ComparisonTable:
    """Systems on one data set: a line for each language, then the averages."""

    title: str
    score: str
    baseline: str
    second: str | None
    systems: tuple[str, ...]
    lines: tuple[Line, ...]
    legend: tuple[str, ...]
    """What marks and figures mean, how they were tested, and what a reader must not miss."""

    def to_rich(self, *, view: View = "scores") -> Fitted:
        """For the terminal, the legend below; more systems than fit side by side go below each other."""
        return Fitted(self, view)

    def to_markdown(self, *, view: View = "scores", wide: bool = False) -> str:
        """For a document; `wide` puts systems in rows and languages in columns, as papers do."""
        grid = self._grid(view, wide=wide)
        lines = [*markdown_head(grid[0]), *map(markdown_row, grid[1:])]
        return "\n".join([*lines, "", *(f"- {markdown_text(sentence)}" for sentence in self.legend)]) + "\n"

    def to_latex(self, *, view: View = "scores", wide: bool = True) -> str:
        """For a paper: a `tabular` for booktabs and amssymb, the legend as comments."""
        averages = [number for number, line in enumerate(self.lines, start=1) if line.is_average]
        rule = averages[0] if averages and not wide else None
        return latex_table(self._grid(view, wide=wide), comments=self.legend, rule_before=rule)

    def to_csv(self) -> str:
        """For a spreadsheet: all figures, a line for each language and system; scores in percent, marks in words."""
        columns = ("delta", "low", "high", "p", "holm_p", "test", "mark")
        roles = ("baseline", "second") if self.second else ("baseline",)
        head = ["code", "language", "average", "system", "score", "examples", "seeds", "mean", "sd"]
        rows: list[list[object]] = [[*head, *(f"{role}_{column}" for role in roles for column in columns)]]
        for line in self.lines:
            for result in filter(None, line.results):
                differences = (result.from_baseline, result.from_second)[: len(roles)]
                known = (line.code, line.name, "yes" if line.is_average else "no", result.system, result.score)
                figures = (result.examples, result.runs, _number(result.mean), _number(result.spread))
                rows.append([*known, *figures, *(value for one in differences for value in _csv_values(one))])
        return csv_text(rows)

    def shown(self, view: View) -> tuple[str, ...]:
        """The systems that a view has columns for."""
        return tuple(name for name in self.systems if view == "scores" or name != self.baseline)

    def cells(self, line: Line, view: View) -> list[str]:
        """A line's figures as text, in the order of :meth:`shown`."""
        format_cell = _FORMATS[view]
        pairs = zip(self.systems, line.results, strict=True)
        return [format_cell(result) if result else MISSING for name, result in pairs if name in self.shown(view)]

    def _grid(self, view: View, *, wide: bool) -> list[list[str]]:
        rows = [["language", *self.shown(view)]]
        rows.extend([line.code or line.title if wide else line.title, *self.cells(line, view)] for line in self.lines)
        if not wide:
            return rows
        turned = [list(column) for column in zip(*rows, strict=True)]
        turned[0][0] = "system"
        return turned


@dataclass(frozen=True)
class Fitted:
    """A table in as many parts as the terminal's width asks for: a figure is never cut short."""

    table: ComparisonTable
    view: View

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        for number, columns in enumerate(self._parts(options.max_width)):
            yield self._draw(columns, title=self.table.title if number == 0 else None)
        for sentence in self.table.legend:
            yield Text(sentence, style="dim")

    def _parts(self, room: int) -> list[list[int]]:
        """Columns that fit side by side; the baseline's comes first in every part."""
        names = self.table.shown(self.view)
        cells = list(zip(*(self.table.cells(line, self.view) for line in self.table.lines), strict=True))
        figures = cells or [()] * len(names)
        widths = [
            max(map(len, [*name.split(), *column, ""])) + PADDING for name, column in zip(names, figures, strict=True)
        ]
        first = [0] if names[:1] == (self.table.baseline,) else []
        room -= max((len(line.title) for line in self.table.lines), default=8) + PADDING
        parts: list[list[int]] = [list(first)]
        for column in range(len(first), len(names)):
            used = sum(widths[c] for c in parts[-1])
            if len(parts[-1]) > len(first) and used + widths[column] > room:
                parts.append(list(first))
            parts[-1].append(column)
        return parts

    def _draw(self, columns: Sequence[int], *, title: str | None) -> Table:
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        heading = escape(title) if title is not None else None
        table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("language", no_wrap=True)
        lines = self.table.lines
        for column in columns:
            figures = [self.table.cells(line, self.view)[column] for line in lines]
            name = self.table.shown(self.view)[column]
            table.add_column(escape(name), justify="right", min_width=max(map(len, figures), default=1))
        for before, line in zip((None, *lines), lines, strict=False):
            if line.is_average and before is not None and not before.is_average:
                table.add_section()
            style = "italic" if line.is_average else "cyan" if line.is_source else None
            cells = self.table.cells(line, self.view)
            table.add_row(escape(line.title), *(cells[column] for column in columns), style=style)
        return table


def comparison_table(comparison: Comparison, data: str = "") -> ComparisonTable:
    """The systems on one data set (the first where none is named)."""
    sets = comparison.data_sets
    if not sets:
        raise ArtefactError("there are no predictions to compare; run the study first")
    chosen = data or sets[0]
    if chosen not in sets:
        raise ArtefactError(f"the systems were not evaluated on {chosen!r}.{nearest(chosen, sets)}")
    results = [result for result in comparison.results if result.data == chosen]
    present = {result.system for result in results}
    systems = tuple(name for name in comparison.systems if name in present)
    scores = tuple(dict.fromkeys(result.score for result in results))
    return ComparisonTable(
        title=f"{chosen}: {', '.join(scores)}",
        score=scores[0],
        baseline=comparison.baseline,
        second=comparison.second,
        systems=systems,
        lines=_gather_lines(results, systems),
        legend=_legend(comparison, results, scores),
    )


def comparison_tables(comparison: Comparison) -> tuple[ComparisonTable, ...]:
    """One table for each data set."""
    return tuple(comparison_table(comparison, data) for data in comparison.data_sets)


def _gather_lines(results: Sequence[Result], systems: Sequence[str]) -> tuple[Line, ...]:
    lines = []
    for title in dict.fromkeys(result.language for result in results):
        by_system = {result.system: result for result in results if result.language == title}
        one = next(iter(by_system.values()))
        code, name = ("", title) if one.is_average else (title, name_of(title))
        cells = tuple(by_system.get(system) for system in systems)
        lines.append(Line(code, name, cells, one.is_average, one.is_source))
    return tuple(lines)


def _legend(comparison: Comparison, results: Sequence[Result], scores: Sequence[str]) -> tuple[str, ...]:
    """Sentences that make the table readable on its own."""
    seeds = sorted({result.runs for result in results})
    listed = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    noun = "seed" if seeds == [1] else "seeds"
    sentences = [f"{', '.join(scores)} in percent, mean ± standard deviation over {listed} {noun}."]
    differences = [one for result in results for one in (result.from_baseline, result.from_second) if one]
    if differences:
        sentences.extend(_tell_marks(comparison, results, {one.test for one in differences}))
    of_set = f"{results[0].data}: "
    sets = tuple(f"{data}: " for data in comparison.data_sets)
    kept = [note for note in comparison.notes if note.startswith(of_set) or not note.startswith(sets)]
    return (*sentences, *(f"Note: {note}." for note in kept))


def _tell_marks(comparison: Comparison, results: Sequence[Result], tests: set[str]) -> list[str]:
    """What marks and intervals mean, and how they were found."""
    settings = comparison.settings
    languages = len({result.language for result in results if not result.is_average})
    marked = [f"{MARKS['baseline', 1]} better or {MARKS['baseline', -1]} worse than {comparison.baseline}"]
    if comparison.second:
        marked.append(f"{MARKS['second', 1]} better or {MARKS['second', -1]} worse than {comparison.second}")
    corrected = f"after Holm's correction over {languages} languages" if languages > 1 else "for one language"
    return [
        f"{', '.join(marked)}: p < {settings.level:g} {corrected} (averages: one test each), two-sided.",
        *(_TESTS[test](comparison) for test in sorted(tests)),
        f"Differences in points [{100 * settings.confidence:g}% interval: paired bootstrap over seeds and "
        f"examples, {settings.draws:,} draws]; a test takes the trained models as given, an interval does not.",
    ]


def _tell_t_test(_: Comparison) -> str:
    return "paired t-test: scores of single examples, averaged over seeds."


def _tell_permutation(comparison: Comparison) -> str:
    how = (
        "seeds concatenated and each sentence of each swapped on its own, as published"
        if comparison.settings.as_published
        else "an example is swapped in all seeds at once, and in all languages that share it"
    )
    return f"permutation test: {comparison.settings.rounds:,} rounds; {how}."


_TESTS: dict[str, Callable[[Comparison], str]] = {
    "paired t-test": _tell_t_test,
    "permutation test": _tell_permutation,
}


def _show_score(result: Result) -> str:
    shown = format_percent(result.mean, result.spread)
    return f"{shown} {result.mark}" if result.mark else shown


def _show_difference(result: Result) -> str:
    one = result.from_baseline
    if one is None:
        return MISSING
    shown = f"{100 * one.delta:+.1f} [{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
    return f"{shown} {result.mark}" if result.mark else shown


_FORMATS: dict[str, Callable[[Result], str]] = {"scores": _show_score, "differences": _show_difference}


def _csv_values(one: Difference | None) -> list[str]:
    if one is None:
        return [""] * 7
    figures = [_number(value) for value in (one.delta, one.low, one.high)]
    return [*figures, f"{one.p:.6g}", f"{one.corrected_p:.6g}", one.test, _WORDS[one.direction]]


def _number(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.3f}"
