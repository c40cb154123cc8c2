"""Spans counted by hand; their agreement with seqeval at large is tested with the scores."""

from __future__ import annotations

from crossling.scores.predictions import Predictions
from crossling.scores.spans import compare_spans, type_by_dash, type_by_suffix


def compare(gold: list[list[str]], predicted: list[list[str]]) -> tuple[list[int], list[int], list[int]]:
    """Correct, predicted and gold spans of each sentence."""
    labels = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
    predictions = Predictions.from_tags(
        "en",
        "made",
        labels=labels,
        gold=[[labels.index(tag) for tag in sentence] for sentence in gold],
        predicted=[[labels.index(tag) for tag in sentence] for sentence in predicted],
        confidence=[[1.0] * len(sentence) for sentence in gold],
        scheme="bio",
    )
    counts = compare_spans(predictions, type_by_suffix).count_by_row()
    return counts.correct.tolist(), counts.predicted.tolist(), counts.gold.tolist()


def test_borders_and_type_must_agree() -> None:
    gold = [["B-PER", "I-PER", "O"], ["B-LOC", "O"], ["B-PER", "I-PER"]]
    predicted = [["B-PER", "I-PER", "O"], ["B-PER", "O"], ["B-PER", "O"]]
    assert compare(gold, predicted) == ([1, 0, 0], [1, 1, 1], [1, 1, 1])


def test_inside_without_begin_starts_a_span_and_a_new_begin_splits() -> None:
    assert compare([["B-PER", "B-PER"]], [["I-PER", "I-PER"]]) == ([0], [1], [2])
    assert compare([["O", "B-LOC"]], [["O", "I-LOC"]]) == ([1], [1], [1])
    assert compare([["B-PER", "B-LOC"]], [["B-PER", "I-LOC"]]) == ([2], [2], [2])


def test_no_span_crosses_sentences_and_empty_ones_keep_their_place() -> None:
    assert compare([["B-PER"], [], ["I-PER"]], [["B-PER"], [], ["O"]]) == ([1, 0, 0], [1, 0, 0], [1, 0, 1])
    assert compare([], []) == ([], [], [])
    assert compare([[]], [[]]) == ([0], [0], [0])


def test_types_as_old_and_new_seqeval_read_them() -> None:
    assert [type_by_suffix(tag) for tag in ("B-PER", "B-a-b", "CCONJ", "X", "O")] == [
        "PER",
        "a-b",
        "CONJ",
        "_",
        "_",
    ]
    assert [type_by_dash(tag) for tag in ("B-PER", "B-a-b", "CCONJ", "X", "O")] == [
        "PER",
        "b",
        "CCONJ",
        "X",
        "O",
    ]
