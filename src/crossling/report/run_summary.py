"""A run's scores, gathered from stored predictions, and their tables; no model and no torch needed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from crossling.data.languages import is_same_language, name_of
from crossling.errors import ArtefactError, nearest
from crossling.report.table import RowKind, Table
from crossling.scores.metrics import Confusion, confusion, score
from crossling.scores.predictions import Predictions
from crossling.scores.significance.counts import score_supported
from crossling.scores.significance.rare_labels import describe_rare_labels, find_rare_labels

if TYPE_CHECKING:
    from crossling.report.parts import AnalysisPart

TERMINAL_SCORES = 3
"""Scores that the terminal shows; Markdown, HTML and CSV have all."""


@dataclass(frozen=True)
class TagSample:
    """A sentence to show: its words, with the tag that is right and the tag predicted for each."""

    words: tuple[str, ...]
    gold: tuple[str, ...]
    predicted: tuple[str, ...]

    def __post_init__(self) -> None:
        assert len(self.words) == len(self.gold) == len(self.predicted), "a tag for every word"


@dataclass(frozen=True)
class TextSample:
    """A text, or a pair of texts, with its class and the predicted one."""

    texts: tuple[str, ...]
    gold: str
    predicted: str
    confidence: float | None = None


@dataclass(frozen=True)
class AnswerSample:
    """A question about a context, with the answers that are right and the one predicted."""

    question: str
    context: str
    gold: tuple[str, ...]
    predicted: str
    confidence: float | None = None
    question_language: str = ""
    """Where it is not the context's."""


Sample = TagSample | TextSample | AnswerSample


@dataclass(frozen=True, eq=False)
class LanguageResult:
    """Scores of a run on one data set in one language."""

    data: str
    """Data set without the language, such as `panx`: results of one set share a table."""
    language: str
    scores: Mapping[str, tuple[float, ...]]
    """Score name to fractions, one for each seed."""
    examples: int
    """Sentences, texts or questions in the set."""
    confusion: Confusion | None = None
    """Summed over seeds; none for answers."""
    samples: tuple[Sample, ...] = ()
    variant: str = ""
    """What distinguishes two results in one language, such as `question=en`."""
    rare: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By macro average the labels that have few gold items, with their number."""
    supported: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """As ``scores``, the macro averages over the other labels, which tables leave out."""

    def all_scores(self) -> Iterable[tuple[str, tuple[float, ...]]]:
        """Also those that tables leave out."""
        return (*self.scores.items(), *self.supported.items())

    def mean(self, name: str) -> float:
        """Mean of a score over seeds; not a number where the score was not taken."""
        values = self.scores.get(name, ())
        return float(np.mean(values)) if values else float("nan")

    def spread(self, name: str) -> float | None:
        """Sample standard deviation over seeds; none with fewer than two."""
        values = self.scores.get(name, ())
        return float(np.std(values, ddof=1)) if len(values) > 1 else None


@dataclass(frozen=True, eq=False)
class RunSummary:
    """Everything that a page or a table of one run shows."""

    title: str
    encoder: str
    task: str
    """Name of the preset or kind, such as `ner`."""
    source: str
    """Code of the language trained on (the first, where there are several)."""
    main_score: str
    """The score that the bars show and that comes first in tables."""
    results: tuple[LanguageResult, ...]
    recipe: str = ""
    """The resolved recipe as TOML."""
    seeds: tuple[int, ...] = ()
    command: str = ""
    """What to type to get this run again."""
    next_command: str = ""
    """What to try next."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Hardware, versions, times: shown in this order at the page's end."""
    notes: tuple[str, ...] = ()
    """Sentences that a reader must not miss, such as rows that were skipped."""
    sources: tuple[str, ...] = ()
    """All languages trained on; empty means `source` alone."""
    teaching: AnalysisPart | None = None
    """What teachers labelled over rounds."""

    @property
    def trained_on(self) -> tuple[str, ...]:
        """Languages whose scores are not zero-shot."""
        return self.sources or (self.source,)

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Data sets in the order of their first result."""
        return tuple(dict.fromkeys(result.data for result in self.results))


def gather_result(
    data: str,
    runs: Sequence[Predictions],
    *,
    samples: Sequence[Sample] = (),
    variant: str = "",
) -> LanguageResult:
    """Score the predictions of one data set in one language, one `Predictions` for each seed."""
    if not runs:
        raise ArtefactError(f"no predictions for {data}; run the recipe first")
    scored, supported = [score(run) for run in runs], [score_supported(run) for run in runs]
    if any(
        one.keys() != scored[0].keys() or run.language != runs[0].language
        for one, run in zip(scored, runs, strict=True)
    ):
        raise ArtefactError(f"predictions for {data} in {runs[0].language} are of different kinds")
    return LanguageResult(
        data=data,
        language=runs[0].language,
        scores={name: tuple(one[name] for one in scored) for name in scored[0]},
        examples=runs[0].n_rows,
        confusion=None if runs[0].kind == "answers" else sum_confusions([confusion(run) for run in runs]),
        samples=tuple(samples),
        variant=variant,
        rare={name: find_rare_labels(runs, name) for name in scored[0]},
        supported={name: tuple(one[name] for one in supported) for name in supported[0]},
    )


def sum_confusions(parts: Sequence[Confusion]) -> Confusion:
    """Add confusions over seeds, by label name, for seeds may have met their labels in another order."""
    gold = tuple(dict.fromkeys(name for part in parts for name in part.gold))
    predicted = tuple(dict.fromkeys(name for part in parts for name in part.predicted))
    counts = np.zeros((len(gold), len(predicted)), dtype=np.int64)
    for part in parts:
        rows = [gold.index(name) for name in part.gold]
        columns = [predicted.index(name) for name in part.predicted]
        counts[np.ix_(rows, columns)] += part.counts
    return Confusion(gold, predicted, counts)


@dataclass(frozen=True)
class Score:
    """A score over seeds: mean and standard deviation, as fractions."""

    mean: float
    spread: float | None = None

    def __str__(self) -> str:
        """In percent, with one decimal."""
        return format_percent(self.mean, self.spread)


def score_table(summary: RunSummary, data: str = "") -> Table:
    """The scores on one data set (the first where none is named): source language first, then others, then means."""
    results, scores = _find_results(summary, data)
    rows: list[tuple[str, ...]] = []
    kinds: list[RowKind] = []
    for result in results:
        cells = [format_percent(result.mean(score), result.spread(score)) for score in scores]
        rows.append((result.language, name_result(result), f"{result.examples:,}", *cells))
        kinds.append("source" if is_source(summary, result) else "")
    for name, part in _list_means(summary, results).items():
        examples = sum(result.examples for result in part)
        rows.append(("", name, f"{examples:,}", *(str(average(part, score)) for score in scores)))
        kinds.append("average")
    title, stem = f"{summary.title}: {results[0].data}", f"scores-{results[0].data}"
    head, notes = ("code", "language", "rows", *scores), _note_rare_labels(results, next(iter(scores), ""))
    return Table(title, head, tuple(rows), 2, notes, stem, tuple(kinds))


def score_data(summary: RunSummary, data: str = "") -> Table:
    """The same for a spreadsheet: mean and standard deviation apart, three decimals, languages only."""
    results, scores = _find_results(summary, data)
    head = ("code", "language", "rows", *(f"{name}_{part}" for name in scores for part in ("mean", "sd")))
    rows = []
    for result in results:
        values = [value for score in scores for value in (result.mean(score), result.spread(score))]
        rows.append((result.language, name_result(result), str(result.examples), *map(_show_exactly, values)))
    return Table(results[0].data, head, tuple(rows), 2, (), f"scores-{results[0].data}")


@dataclass(frozen=True)
class SeedResult:
    """All scores of one seed on one data set in one language."""

    task: str
    system: str
    seed: int
    data: str
    language: str
    scores: Mapping[str, float]
    main_score: str


def list_seed_scores(results: Iterable[SeedResult]) -> Table:
    """Every score of every seed on a line, the main one of its task first, so that others can test again."""
    head = ("task", "system", "seed", "data", "language", "score", "percent")
    rows = tuple(
        (one.task, one.system, str(one.seed), one.data, one.language, name, f"{100 * one.scores[name]:.4f}")
        for one in results
        for name in sorted(one.scores, key=lambda name: name != one.main_score)
    )
    return Table("Scores of every seed", head, rows, 6, (), "seed-scores")


def list_seeds(summary: RunSummary) -> Table:
    """The same of a run."""
    names = (summary.task, summary.title)
    return list_seed_scores(
        SeedResult(*names, seed, result.data, result.variant or result.language, scores, summary.main_score)
        for result in summary.results
        for place, seed in enumerate(summary.seeds)
        if (scores := {name: values[place] for name, values in result.all_scores() if place < len(values)})
    )


def score_tables(summary: RunSummary) -> tuple[Table, ...]:
    """One table for each data set."""
    return tuple(score_table(summary, data) for data in summary.data_sets)


def order_results(summary: RunSummary, data: str) -> list[LanguageResult]:
    """Results on a data set: the source language first, the others by code."""
    chosen = [result for result in summary.results if result.data == data]
    return sorted(
        chosen,
        key=lambda result: (not is_same_language(result.language, summary.source), result.language, result.variant),
    )


def order_scores(summary: RunSummary, results: Sequence[LanguageResult]) -> tuple[str, ...]:
    """Names of all scores taken, the main one first."""
    names = dict.fromkeys(name for result in results for name in result.scores)
    return tuple(sorted(names, key=lambda name: name != summary.main_score))


def is_source(summary: RunSummary, result: LanguageResult) -> bool:
    """Whether the model was trained on this language, so that its score is not zero-shot."""
    return any(is_same_language(result.language, code) for code in summary.trained_on)


def average(results: Sequence[LanguageResult], name: str) -> Score:
    """Mean over languages; its spread is that of the seeds' means, for languages are not repeats."""
    values = [result.scores[name] for result in results if result.scores.get(name)]
    if not values:
        return Score(float("nan"))
    seeds = {len(one) for one in values}
    if len(seeds) > 1:  # seeds cannot be paired, so the means have no spread
        return Score(float(np.mean([np.mean(one) for one in values])))
    by_seed = np.mean(values, axis=0)
    return Score(float(by_seed.mean()), float(by_seed.std(ddof=1)) if len(by_seed) > 1 else None)


def format_percent(mean: float, spread: float | None = None) -> str:
    """`81.8 ± 0.3`; a dash where there is no value."""
    if math.isnan(mean):
        return "–"
    return f"{100 * mean:.1f}" if spread is None else f"{100 * mean:.1f} ± {100 * spread:.1f}"


def name_result(result: LanguageResult) -> str:
    """The language's name, with the variant of the result."""
    return name_of(result.language) + (f" ({result.variant})" if result.variant else "")


def _find_results(summary: RunSummary, data: str) -> tuple[list[LanguageResult], tuple[str, ...]]:
    """The results on one data set and the names of their scores."""
    sets = summary.data_sets
    if not sets:
        raise ArtefactError("a run without results has no scores to show")
    chosen = data or sets[0]
    if chosen not in sets:
        raise ArtefactError(f"the run was not evaluated on {chosen!r}.{nearest(chosen, sets)}")
    results = order_results(summary, chosen)
    return results, order_scores(summary, results)


def _note_rare_labels(results: Sequence[LanguageResult], score: str) -> tuple[str, ...]:
    """What to know of the score that comes first, if it is a macro average over labels with few gold items."""
    rare = {result.variant or result.language: result.rare.get(score, {}) for result in results}
    note = describe_rare_labels(results[0].data, score, rare)
    return (f"Note: {note}.",) if note else ()


def _list_means(summary: RunSummary, results: Sequence[LanguageResult]) -> dict[str, Sequence[LanguageResult]]:
    """The mean of all languages, and of those not trained on where these are fewer."""
    targets = [result for result in results if not is_source(summary, result)]
    means = {f"mean of {len(results)}": results}
    if targets and len(targets) < len(results):
        means[f"mean of {len(targets)} zero-shot"] = targets
    return means


def _show_exactly(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{100 * value:.3f}"
