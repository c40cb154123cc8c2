"""Systems side by side: tables for each data set, with marks for differences that are not chance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from markupsafe import Markup

from crossling.data.languages import GROUPINGS, find_language, group_of, name_of
from crossling.errors import ArtefactError, nearest
from crossling.report.charts import draw_difference
from crossling.report.run_summary import format_percent
from crossling.report.table import PageRow, RowKind, Table
from crossling.scores.significance.results import MARKS, OVER_EXAMPLES, OVER_SEEDS, Comparison, Difference, Result

View = Literal["scores", "differences"]
"""`scores` shows means with marks, `differences` what separates each system from the baseline, with intervals."""

MISSING = "–"
UNKNOWN = "other"
"""The family and script of languages that nothing is known of."""
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

    @property
    def kind(self) -> RowKind:
        """How tables set the line apart."""
        return "average" if self.is_average else "source" if self.is_source else ""

    @property
    def family(self) -> str:
        """The language's family."""
        language = find_language(self.code) if self.code else None
        return language.family if language else UNKNOWN

    @property
    def script(self) -> str:
        """The script that the language is written in."""
        language = find_language(self.code) if self.code else None
        return language.script if language else UNKNOWN


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
    about: tuple[str, ...] = ()
    """What the intervals are about; part of the legend."""

    def to_table(self, view: View = "scores", *, wide: bool = False) -> Table:
        """For reading; ``wide`` puts systems in rows and languages in columns, as papers do."""
        shown = self.shown(view)
        if wide:
            columns = [[line.code or line.title, *self.cells(line, view)] for line in self.lines]
            head, *rows = zip(["system", *shown], *columns, strict=True)
            return Table(self.title, head, tuple(rows), notes=self.legend)
        return Table(
            self.title,
            ("language", *shown),
            tuple((line.title, *self.cells(line, view)) for line in self.lines),
            notes=self.legend,
            kinds=tuple(line.kind for line in self.lines),
            repeated=int(shown[:1] == (self.baseline,)),
        )

    def to_data(self) -> Table:
        """For a spreadsheet: a row for each language and system with every number; marks in words."""
        columns = ("delta", "low", "high", "p", "holm_p", "test", "mark")
        roles = ("baseline", "second") if self.second else ("baseline",)
        head = ("code", "language", "average", "system", "score", "examples", "seeds", "mean", "sd", "low", "high")
        rows = []
        for line in self.lines:
            for result in filter(None, line.results):
                differences = (result.from_baseline, result.from_second)[: len(roles)]
                known = (line.code, line.name, "yes" if line.is_average else "no", result.system, result.score)
                numbers = [_number(value) for value in (result.mean, result.spread, result.low, result.high)]
                numbers = [str(result.examples), str(result.runs), *numbers]
                rows.append((*known, *numbers, *(value for one in differences for value in _csv_values(one))))
        return Table(
            self.title, (*head, *(f"{role}_{column}" for role in roles for column in columns)), tuple(rows), names=5
        )

    def to_page(self, view: View, *, drawn: bool = True) -> Table:
        """For a page: languages by family, each family below its mean; ``drawn``: differences also as drawings."""
        reach = self.reach() if drawn and view == "differences" else 0.0
        families: dict[str, list[Line]] = {}
        for line in self.lines:
            families.setdefault("" if line.is_average else line.family, []).append(line)
        means = families.pop("", [])
        rows: list[tuple[str, ...]] = []
        kinds: list[RowKind] = []
        page: list[PageRow] = []
        for family, lines in (*families.items(), ("", means)):
            if family and len(lines) > 1:
                rows.append((family, *self._average(lines, view)))
                kinds.append("head")
                page.append(PageRow(family))
            for line in lines:
                rows.append((line.title, *self.cells(line, view)))
                kinds.append(line.kind)
                page.append(PageRow(family, _page_attributes(line), tuple(self._page_cells(line, view, reach))))
        first = "language" if families else "group"
        return Table(self.title, (first, *self.shown(view)), tuple(rows), kinds=tuple(kinds), page=tuple(page))

    def to_markdown(self, task: str = "") -> str:
        """Scores, then differences, for a document."""
        title = f"{task}: {self.title}" if task else self.title
        differences = replace(self.to_table("differences"), title="Differences", notes=self.about)
        return "\n".join([replace(self.to_table(), title=title).to_markdown(), differences.to_markdown(level=3)])

    def to_figures(self) -> str:
        """All numbers behind the table as JSON, for the page's script: by line and system."""
        lines = {line.code or line.name: [_list_figures(result) for result in line.results] for line in self.lines}
        whole = {"systems": self.systems, "baseline": self.baseline, "lines": lines}
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))

    def split_groups(self) -> tuple[ComparisonTable, ComparisonTable | None]:
        """Languages and overall means, and apart from them means over families, scripts and other groups."""
        known = {group_of(line.code, way) for line in self.lines if line.code for way in GROUPINGS}
        groups = [line for line in self.lines if line.is_average and line.name.partition(": mean of ")[0] in known]
        others = tuple(line for line in self.lines if line not in groups)
        apart = replace(self, title=f"{self.title}, by group", lines=tuple(groups)) if groups else None
        return replace(self, lines=others), apart

    def shown(self, view: View) -> tuple[str, ...]:
        """The systems that a view has columns for."""
        return tuple(name for name in self.systems if view == "scores" or name != self.baseline)

    def cells(self, line: Line, view: View) -> list[str]:
        """A line's figures as text, in the order of :meth:`shown`."""
        return [_FORMATS[view](result) if result else MISSING for result in self._results(line, view)]

    def reach(self) -> float:
        """The farthest end of any interval, so that all drawings of a table share an axis."""
        ends = [
            max(abs(one.low), abs(one.high), abs(one.delta))
            for line in self.lines
            for result in line.results
            if result and (one := result.from_baseline)
        ]
        return max(ends, default=0.0)

    def _results(self, line: Line, view: View) -> list[Result | None]:
        shown = self.shown(view)
        return [result for name, result in zip(self.systems, line.results, strict=True) if name in shown]

    def _page_cells(self, line: Line, view: View, reach: float) -> list[Markup]:
        code = Markup('<span class="code">{}</span> ').format(line.code) if line.code not in ("", line.name) else ""
        family = Markup(" <small>{}</small>").format(line.family) if line.code else ""
        found = [Markup('{}<span class="title">{}</span>{}').format(code, line.name, family)]
        for result, text in zip(self._results(line, view), self.cells(line, view), strict=True):
            one = result.from_baseline if result else None
            kind = {1: "up", -1: "down", 0: ""}[one.direction if one else 0]
            drawing = draw_difference(one.delta, one.low, one.high, reach=reach, kind=kind) if one and reach else ""
            found.append(Markup('{}<span class="{}">{}</span>').format(drawing, kind, text))
        return found

    def _average(self, lines: Sequence[Line], view: View) -> list[str]:
        """Plain means over a family's languages; a dash where a system lacks one of them."""
        found = []
        for results in zip(*(self._results(line, view) for line in lines), strict=True):
            known = [result for result in results if result is not None]
            if view == "scores":
                found.append(format_percent(fmean(r.mean for r in known)) if len(known) == len(results) else MISSING)
            else:
                deltas = [r.from_baseline.delta for r in known if r.from_baseline]
                found.append(f"{100 * fmean(deltas):+.1f}" if len(deltas) == len(results) else MISSING)
        return found


def _page_attributes(line: Line) -> dict[str, str]:
    """What the page's script filters, groups and sorts by."""
    found = {"data-key": line.code or line.name, "data-family": line.family, "data-script": line.script}
    return found | ({"data-marked": "1"} if any(result and result.mark for result in line.results) else {})


def _list_figures(result: Result | None) -> list[float | None] | None:
    if result is None:
        return None
    spread = None if result.spread is None else round(100 * result.spread, 2)
    found: list[float | None] = [round(100 * result.mean, 2), spread, result.examples, result.runs]
    if one := result.from_baseline:
        found += [round(100 * value, 2) for value in (one.delta, one.low, one.high)]
        found += [float(f"{one.p:.3g}"), float(f"{one.corrected_p:.3g}")]
    return found


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
        about=tuple(_explain_intervals(comparison, results)),
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
    if _list_differences(results):
        sentences += [_explain_marks(comparison, results), *_explain_intervals(comparison, results)]
    of_set = f"{results[0].data}: "
    sets = tuple(f"{data}: " for data in comparison.data_sets)
    kept = [note for note in comparison.notes if note.startswith(of_set) or not note.startswith(sets)]
    return (*sentences, *(f"Note: {note}." for note in kept))


def _list_differences(results: Iterable[Result]) -> list[Difference]:
    return [one for result in results for one in (result.from_baseline, result.from_second) if one]


def _explain_marks(comparison: Comparison, results: Sequence[Result]) -> str:
    """What marks mean, and over how many tests p is corrected."""
    marked = [f"{MARKS['baseline', 1]} better or {MARKS['baseline', -1]} worse than {comparison.baseline}"]
    if comparison.second:
        marked.append(f"{MARKS['second', 1]} better or {MARKS['second', -1]} worse than {comparison.second}")
    level = f"{', '.join(marked)}: p < {comparison.settings.level:g}"
    if comparison.settings.as_published:
        return f"{level}, two-sided, not corrected for the number of tests, as published."
    if comparison.settings.interval == "bootstrap":
        languages = len({result.language for result in results if not result.is_average})
        corrected = f"after Holm's correction over {languages} languages" if languages > 1 else "for one language"
        return f"{level} {corrected} (averages: one test each), two-sided."
    single, averages = (
        _count_tests(_list_differences(result for result in results if result.is_average == is_average))
        for is_average in (False, True)
    )
    parts = [f"over {single} (systems × languages)" if single else ""]
    parts += [f"for each average over {averages} (systems)" if averages else ""]
    return f"{level}, two-sided, after Holm's correction {', '.join(filter(None, parts))}."


def _count_tests(differences: Sequence[Difference]) -> str:
    """`22 tests`, or `22 tests against plain and 11 against extra`; empty where there is none."""
    numbers = {one.against: one.tests for one in differences}
    nouns = {number: f"{number} test{'' if number == 1 else 's'}" for number in numbers.values()}
    if len(nouns) < 2:
        return "".join(nouns.values())
    return " and ".join(f"{nouns[number]} against {name}" for name, number in numbers.items())


def _explain_intervals(comparison: Comparison, results: Sequence[Result]) -> list[str]:
    """What intervals and marks are about, and how they were found."""
    differences = _list_differences(results)
    tests = {one.test for one in differences}
    share = f"{100 * comparison.settings.confidence:g}%"
    if comparison.settings.interval == "bootstrap":
        about = [
            f"Differences in points [{share} interval: paired bootstrap over seeds and examples, "
            f"{comparison.settings.draws:,} draws, which covers less than that with few seeds]; a test takes the "
            "trained models as given, an interval does not."
        ]
        return [*(_TESTS[test](comparison) for test in sorted(tests)), *about] if tests else []
    sentences = []
    if OVER_SEEDS in tests:
        sentences.append(
            f"Differences in points [{share} interval]: the mean to expect of new seeds, on new examples of the same "
            "kind in these languages (Student's t, from the variance between seeds and that between examples)."
        )
    if any(one.test == OVER_SEEDS and one.seeds == 2 for one in differences):
        sentences.append("Two seeds: a 95% interval may cover 91%; three are enough for 94%.")
    if OVER_EXAMPLES in tests:
        sentences.append(
            f"One seed: no interval for the next seed. Differences in points [{share} interval over examples alone], "
            "and marks, are about these trained models on new examples of the same kind."
        )
    return sentences


def _explain_t_test(_: Comparison) -> str:
    return "paired t-test: scores of single examples, averaged over seeds."


def _explain_permutation(comparison: Comparison) -> str:
    how = (
        "seeds concatenated and each sentence of each swapped on its own, as published"
        if comparison.settings.as_published
        else "an example is swapped in all seeds at once, and in all languages that share it"
    )
    return f"permutation test: {comparison.settings.rounds:,} rounds; {how}."


_TESTS: dict[str, Callable[[Comparison], str]] = {
    "paired t-test": _explain_t_test,
    "permutation test": _explain_permutation,
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
