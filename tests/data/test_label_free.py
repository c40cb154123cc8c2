"""Rows without their labels: equal whatever the labels were, and found again among other rows by their text."""

from __future__ import annotations

from typing import Any

import pytest

from crossling.data.label_free import collect_keys, drop_labels, find_equal, list_keys
from crossling.data.records import LabelledPair, LabelledText, ParallelPair, PlainText, Question, TaggedSentence
from examples import rows_of

PAIRS: list[tuple[Any, Any]] = [
    (TaggedSentence(("a", "cat"), ("O", "B-X")), TaggedSentence(("a", "cat"), ("B-X", "O"))),
    (LabelledText("a cat", "good"), LabelledText("a cat", "bad")),
    (LabelledPair("a", "b", "yes"), LabelledPair("a", "b", "no")),
    (Question("1", "who?", "a cat", ("cat",), (2,)), Question("7", "who?", "a cat", ("a",), (0,))),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_labels_leave_no_trace(one: Any, other: Any) -> None:
    first, second = drop_labels(rows_of([one])), drop_labels(rows_of([other]))
    assert first.fingerprint == second.fingerprint
    assert list(first) == list(second)
    assert rows_of([one]).fingerprint != rows_of([other]).fingerprint


def test_other_text_has_another_fingerprint() -> None:
    rows = [drop_labels(rows_of([LabelledText(text, "x")])) for text in ("a cat", "a dog")]
    assert rows[0].fingerprint != rows[1].fingerprint


def test_equal_texts_are_found_however_words_are_cut() -> None:
    scored = collect_keys([rows_of([TaggedSentence(("A", "cat", "."), ("O", "O", "O"))])])
    text = rows_of([PlainText("A cat."), PlainText("A\u00a0 dog."), PlainText("A  cat\t.")])
    assert find_equal(text, scored).tolist() == [True, False, True]
    translations = rows_of([ParallelPair("A cat.", "Eine Katze."), ParallelPair("Ein Hund.", "A dog.")])
    assert find_equal(translations, scored).tolist() == [True, False]
    assert not find_equal(rows_of([LabelledPair("A", "cat.", "x")]), scored).any(), "two texts are not one"


def test_both_texts_of_a_pair_count() -> None:
    keys = list_keys(rows_of([LabelledPair("a b", "c", "x"), LabelledPair("a", "b c", "x")])).to_pylist()
    assert keys[0] != keys[1]


def test_lines_are_found_among_the_texts_of_pairs() -> None:
    scored = collect_keys([rows_of([LabelledPair("A cat.", "A dog.", "x")])])
    lines = [ParallelPair("A dog .", "x"), ParallelPair("x", "A cat."), ParallelPair("y", "z")]
    assert find_equal(rows_of(lines), scored).tolist() == [True, True, False]
