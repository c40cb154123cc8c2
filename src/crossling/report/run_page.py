"""A run's page: one HTML file that needs no network, with figures, examples and what is needed to repeat it.

Texts of data sets are untrusted: the template escapes everything.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from crossling.data.languages import find_language, is_same_language, name_of
from crossling.files import write_atomic
from crossling.report.charts import draw_bar, draw_confusion
from crossling.report.page import render_page
from crossling.report.run_summary import (
    AnswerSample,
    LanguageResult,
    RunSummary,
    Sample,
    TagSample,
    TextSample,
    average,
    format_percent,
    is_source,
    list_seeds,
    name_result,
    order_results,
    order_scores,
    score_data,
    score_table,
    score_tables,
)
from crossling.report.table import Table
from crossling.scores.metrics import explain, list_scores, title_of

HUES = 8
"""Colours that the style sheet has for tags, besides 0 for none."""
# fmt: off
_KNOWN_HUES = {
    "O": 0, "PER": 1, "LOC": 2, "ORG": 3, "DATE": 4, "MISC": 5,
    "NOUN": 6, "PROPN": 1, "VERB": 2, "AUX": 2, "ADJ": 3, "ADV": 7, "PRON": 5, "DET": 8, "ADP": 4,
    "NUM": 7, "CCONJ": 4, "SCONJ": 4, "PART": 8, "PUNCT": 0, "SYM": 0, "X": 0, "INTJ": 5,
}
# fmt: on
CONTEXT = 110
"""Characters of a context shown on each side of an answer."""


@dataclass(frozen=True)
class _Line:
    """A language's line in the bar chart, and its headings elsewhere on the page."""

    key: str
    code: str
    name: str
    family: str
    traits: str
    direction: str
    is_source: bool
    value: float
    shown: str
    bar: Markup
    values: str
    examples: int


@dataclass(frozen=True)
class _Word:
    """A word of an example with its tags, as the page shows them."""

    text: str
    gold: str
    predicted: str
    hue: int
    gold_hue: int
    is_right: bool
    is_outside: bool


@dataclass(frozen=True)
class _Example:
    """An example as the template takes it; `kind` picks the part of the template."""

    kind: str
    is_right: bool
    words: tuple[_Word, ...] = ()
    texts: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()
    predicted: str = ""
    confidence: str = ""
    pieces: tuple[tuple[str, str], ...] = ()
    question_code: str = ""
    question_direction: str = ""


@dataclass(frozen=True)
class _Section:
    """All that the page shows of one data set."""

    data: str
    key: str
    main: str
    """The score that the bars show."""
    scores: tuple[str, ...]
    groups: list[tuple[str, str, list[_Line]]]
    headlines: list[tuple[str, str, str]]
    table: Markup
    notes: tuple[str, ...]
    confusions: list[tuple[_Line, Markup]]
    examples: list[tuple[_Line, list[_Example]]]


def render_run(summary: RunSummary) -> str:
    """The whole page of a run as HTML."""
    return render_page(
        "run.html.j2",
        title=summary.title,
        styles=("page.css.j2",),
        script="run.js.j2",
        summary=summary,
        source_name=name_of(summary.source),
        sections=[_section(summary, data, number) for number, data in enumerate(summary.data_sets)],
        explanations={name: explain(name) for name in list_scores() if _is_taken(summary, name)},
        title_of=title_of,
    )


def write_run(summary: RunSummary, folder: Path) -> None:
    """Write a run's page, its scores as Markdown, and the scores on each data set and of each seed as CSV."""
    write_atomic(folder / "scores.md", "\n".join(table.to_markdown() for table in score_tables(summary)))
    tables = [*(score_data(summary, data) for data in summary.data_sets), list_seeds(summary)]
    for table in (*tables, *(summary.teaching.tables if summary.teaching else ())):
        write_atomic(folder / f"{table.stem}.csv", table.to_csv())
    write_atomic(folder / "page.html", render_run(summary))


def _is_taken(summary: RunSummary, name: str) -> bool:
    return any(name in result.scores for result in summary.results)


def _section(summary: RunSummary, data: str, number: int) -> _Section:
    results = order_results(summary, data)
    scores = order_scores(summary, results)
    main = scores[0] if scores else summary.main_score
    table = score_table(summary, data)
    lines = [
        (_line(result, f"{number}-{place}", main=main, is_source=is_source(summary, result)), result)
        for place, result in enumerate(results)
    ]
    return _Section(
        data=data,
        key=f"set-{number}",
        main=main,
        scores=scores,
        groups=_group_by_family(summary, [(line, average([result], main).mean) for line, result in lines]),
        headlines=_headlines(summary, results, main),
        table=_show_table(table),
        notes=table.notes,
        confusions=[
            (line, draw_confusion(result.confusion, title=f"Confusion of labels in {line.name}"))
            for line, result in lines
            if result.confusion is not None
        ],
        examples=[(line, [_example(sample) for sample in result.samples]) for line, result in lines if result.samples],
    )


def _show_table(table: Table) -> Markup:
    """All scores, under their headings."""
    return replace(table, head=(*table.head[:3], *map(title_of, table.head[3:]))).to_html(classes="scores")


def _line(result: LanguageResult, key: str, *, main: str, is_source: bool) -> _Line:
    language = find_language(result.language)
    value, spread = result.mean(main), result.spread(main)
    traits = []
    if language:
        order = "no dominant order" if language.word_order == "none" else language.word_order
        branch = [language.branch] if language.branch not in (language.family, language.name) else []
        traits = [*branch, f"{language.script} script", order]
    by_score = {
        score: [
            round(100 * result.mean(score), 3),
            None if (sd := result.spread(score)) is None else round(100 * sd, 3),
        ]
        for score in result.scores
        if not math.isnan(result.mean(score))  # which JSON cannot say
    }
    return _Line(
        key=key,
        code=result.language,
        name=name_result(result),
        family=language.family if language else "Unknown",
        traits=" · ".join(traits),
        direction=language.direction if language else "auto",
        is_source=is_source,
        value=value,
        shown=format_percent(value, spread),
        bar=draw_bar(value, spread, is_source=is_source),
        values=json.dumps(by_score),
        examples=result.examples,
    )


def _group_by_family(summary: RunSummary, lines: Sequence[tuple[_Line, float]]) -> list[tuple[str, str, list[_Line]]]:
    """Families with their mean score: the source's first, then by name; lines keep their order within."""
    source = find_language(summary.source)
    first = source.family if source else ""
    groups = []
    for family in sorted({line.family for line, _ in lines}, key=lambda family: (family != first, family)):
        values = [value for line, value in lines if line.family == family]
        mean = format_percent(sum(values) / len(values))
        groups.append((family, mean, [line for line, _ in lines if line.family == family]))
    return groups


def _headlines(summary: RunSummary, results: Sequence[LanguageResult], name: str) -> list[tuple[str, str, str]]:
    """The few numbers that sum a run up: a big one, what it is, and a detail."""
    targets = [r for r in results if not is_source(summary, r) and not math.isnan(r.mean(name))]
    sources = [r for r in results if is_same_language(r.language, summary.source) and not math.isnan(r.mean(name))]
    found = []
    if sources:
        mean = average(sources, name)
        found.append((format_percent(mean.mean), name_of(summary.source), f"trained on · {title_of(name)}"))
    if targets:
        mean = average(targets, name)
        noun = "language" if len(targets) == 1 else "languages"
        found.append((format_percent(mean.mean), "zero-shot mean", f"over {len(targets)} {noun}"))
    if sources and targets:
        gap = average(sources, name).mean - average(targets, name).mean
        found.append((f"{100 * gap:.1f}", "transfer gap", "points between the two"))
    if len(targets) > 1:
        best, worst = (pick(targets, key=lambda r: r.mean(name)) for pick in (max, min))
        for label, result in (("best", best), ("hardest", worst)) if best is not worst else ():
            found.append((format_percent(result.mean(name)), name_of(result.language), f"{label} zero-shot language"))
    return found


def _example(sample: Sample) -> _Example:
    """Dispatch by the sample's type to the part of the template that shows it."""
    if isinstance(sample, TagSample):
        return _show_tags(sample)
    return _show_text(sample) if isinstance(sample, TextSample) else _show_answer(sample)


def _show_tags(sample: TagSample) -> _Example:
    words = tuple(
        _Word(
            text=word,
            gold=gold,
            predicted=predicted,
            hue=_hue(predicted),
            gold_hue=_hue(gold),
            is_right=gold == predicted,
            is_outside=gold == predicted == "O",
        )
        for word, gold, predicted in zip(sample.words, sample.gold, sample.predicted, strict=True)
    )
    return _Example("tags", all(word.is_right for word in words), words=words)


def _show_text(sample: TextSample) -> _Example:
    return _Example(
        "text",
        sample.gold == sample.predicted,
        texts=sample.texts,
        gold=(sample.gold,),
        predicted=sample.predicted,
        confidence=_show_confidence(sample.confidence),
    )


def _show_answer(sample: AnswerSample) -> _Example:
    question_language = find_language(sample.question_language) if sample.question_language else None
    return _Example(
        "answer",
        sample.predicted in sample.gold,
        texts=(sample.question,),
        gold=sample.gold,
        predicted=sample.predicted,
        confidence=_show_confidence(sample.confidence),
        pieces=mark_answers(sample.context, gold=sample.gold, predicted=sample.predicted),
        question_code=sample.question_language,
        question_direction=question_language.direction if question_language else "",
    )


def _show_confidence(confidence: float | None) -> str:
    return "" if confidence is None else f"confidence {100 * confidence:.0f} %"


def mark_answers(context: str, *, gold: Sequence[str], predicted: str) -> tuple[tuple[str, str], ...]:
    """The context around the answers, in pieces of one class each: gold, predicted, both, or near."""
    marks = ["far"] * len(context)
    found = [(context.find(answer), answer, "gold") for answer in gold[:1] if answer]
    found += [(context.find(predicted), predicted, "predicted")] if predicted else []
    for start, answer, _ in found:
        if start >= 0:
            near = range(max(0, start - CONTEXT), min(len(context), start + len(answer) + CONTEXT))
            for place in near:
                marks[place] = "near" if marks[place] == "far" else marks[place]
    for start, answer, kind in found:
        if start >= 0:
            for place in range(start, start + len(answer)):
                marks[place] = "both" if marks[place] not in ("far", "near") else kind
    if not found or all(mark == "far" for mark in marks):
        marks[: 2 * CONTEXT] = ["near"] * min(len(context), 2 * CONTEXT)
    pieces = []
    for mark, run in groupby(zip(marks, context, strict=True), key=lambda pair: pair[0]):
        text = "".join(character for _, character in run)
        pieces.append(("near", " … ") if mark == "far" else (mark, text))
    return tuple(pieces)


def _hue(tag: str) -> int:
    """A colour for a tag; B-PER and I-PER share theirs, O has none."""
    kind = tag.split("-", maxsplit=1)[-1]
    return _KNOWN_HUES.get(kind, 1 + zlib.crc32(kind.encode()) % HUES)
