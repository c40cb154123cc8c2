"""Entities in tagged text, found as conlleval and seqeval find them, but for a whole data set at once.

A walk over words in Python takes minutes for the languages of one NER table; comparing whole columns takes
milliseconds and gives the same spans, ill-formed runs included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossling.scores.predictions import Predictions

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class SpanCounts:
    """Per example: entities (or words) found rightly, predicted, there to find. Their sums give micro F1."""

    correct: Array
    predicted: Array
    gold: Array


def type_by_suffix(tag: str) -> str:
    """Entity type as seqeval 0.0.16 and later read it: what follows the first letter; CCONJ becomes CONJ."""
    return tag[1:].split("-", maxsplit=1)[-1] or "_"


def type_by_dash(tag: str) -> str:
    """Entity type as seqeval 0.0.12 read it: what follows the last dash, or all of it."""
    return tag.split("-")[-1]


@dataclass(frozen=True, eq=False)
class _Spans:
    """Spans in a flat run of words: at each span's last word its first word and type, elsewhere -1."""

    first: Array
    type: Array


PREFIXES = "BIESO."
"""Letters that begin a tag, by code; any other has the next one."""


def _code_prefix(tag: str) -> int:
    return PREFIXES.find(tag[0]) % (len(PREFIXES) + 1) if tag else len(PREFIXES)


def _tabulate(*pairs: tuple[str, str]) -> Array:
    """Whether the prefixes of two neighbouring words, by their codes, are among the pairs."""
    table = np.zeros((len(PREFIXES) + 1,) * 2, dtype=bool)
    for before, now in pairs:
        for letter in now:
            table[[_code_prefix(one) for one in before], _code_prefix(letter)] = True
    return table


_ANY = PREFIXES + "?"
_ENDS = _tabulate(("ES", _ANY), ("BI", "BSO"))
_STARTS = _tabulate((_ANY, "BS"), ("ESO", "EI"))
_INSIDE = np.array([letter not in "O." for letter in _ANY])
_OUTSIDE = _code_prefix("O")


def _find_spans(prefixes: Array, types: Array) -> _Spans:
    """Spans as conlleval and seqeval find them, ill-formed runs included, for all words of a set at once.

    ``prefixes`` are codes. A span ends before, or starts at, a word by what the word and the one before it are, so both
    are array comparisons; the start that belongs to an end is the last one before it.
    """
    before = np.concatenate([[_OUTSIDE], prefixes[:-1]])
    other_type = np.concatenate([[-1], types[:-1]]) != types
    ends = _ENDS[before, prefixes] | (_INSIDE[before] & other_type)
    starts = _STARTS[before, prefixes] | (_INSIDE[prefixes] & other_type)
    last_start = np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))
    closed = np.concatenate([ends[1:], [False]])  # the final word is always a separator
    return _Spans(np.where(closed, last_start, -1), np.where(closed, types, -1))


def list_spans(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """The spans of one sentence as ``(first word, last word, type)``, found as the scores find them."""
    closed = [*tags, "O"]
    names = sorted({type_by_suffix(tag) for tag in closed})
    types = np.array([names.index(type_by_suffix(tag)) for tag in closed])
    found = _find_spans(np.array([_code_prefix(tag) for tag in closed]), types)
    return [(int(found.first[last]), int(last), names[found.type[last]]) for last in np.flatnonzero(found.first >= 0)]


@dataclass(frozen=True, eq=False)
class SpanComparison:
    """Gold and predicted spans of a whole set, and the sentence in which each position lies."""

    gold: _Spans
    predicted: _Spans
    correct: Array
    row: Array
    n_rows: int
    n_types: int

    def count_by_row(self) -> SpanCounts:
        """Counts of each sentence."""
        return self._count(self.row, self.row, self.n_rows)

    def count_by_type(self) -> SpanCounts:
        """Counts of each entity type."""
        return self._count(self.predicted.type, self.gold.type, self.n_types)

    def _count(self, of_predicted: Array, of_gold: Array, size: int) -> SpanCounts:
        return SpanCounts(
            np.bincount(of_gold[self.correct], minlength=size),
            np.bincount(of_predicted[self.predicted.first >= 0], minlength=size),
            np.bincount(of_gold[self.gold.first >= 0], minlength=size),
        )


def compare_spans(predictions: Predictions, type_of: Callable[[str], str]) -> SpanComparison:
    """Find gold and predicted spans, with a separator after each sentence so that none crosses it."""
    row = predictions.column("row").astype(np.int64)
    # Code -1 picks the last entry: an unseen gold label is a type of its own, a missing prediction is outside.
    unseen = [*predictions.labels, "I-\0unseen"]
    missing = [*predictions.labels, "O"]
    names = sorted({type_of(tag) for tag in (*unseen, "O")})
    sentence = np.cumsum(np.diff(row, prepend=row[:1]) != 0)
    place = np.arange(len(row)) + sentence
    length = int(place[-1]) + 2 if len(place) else 1

    def find(codes: Array, tags: list[str]) -> _Spans:
        prefixes, types = np.full(length, _OUTSIDE), np.full(length, names.index(type_of("O")))
        prefixes[place] = np.array([_code_prefix(tag) for tag in tags])[codes]
        types[place] = np.array([names.index(type_of(tag)) for tag in tags])[codes]
        return _find_spans(prefixes, types)

    gold = find(predictions.column("gold"), unseen)
    predicted = find(predictions.column("predicted"), missing)
    correct = (gold.first >= 0) & (gold.first == predicted.first) & (gold.type == predicted.type)
    rows = np.zeros(length, dtype=np.int64)
    rows[place] = row
    return SpanComparison(gold, predicted, correct, rows, predictions.n_rows, len(names))
