"""Counts give the very scores that `metrics` gives, for every score there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import seqeval.metrics as seqeval
import sklearn.metrics as sklearn
from made import make_answers, make_classes, make_gold, make_tags

from crossling.errors import UserError
from crossling.scores.metrics import SCORERS, list_scores, score
from crossling.scores.predictions import Predictions
from crossling.scores.significance.counts import MEASURES, align, default_score, divide, find_measure


def make_any(kind: str, scheme: str, seed: int) -> Predictions:
    rng = np.random.default_rng(seed)
    if kind == "tags":
        gold = make_gold(seed, 30)
        gold[3] = gold[3] * 0 - 1  # labels never seen in training
        predicted = [np.where(rng.random(len(g)) < 0.5, rng.integers(-1, 5, len(g)), g) for g in gold]
        return make_tags(gold, predicted, scheme=scheme)
    if kind == "classes":
        return make_classes(rng.integers(-1, 3, 40), rng.integers(0, 3, 40))
    words = ["red car", "a red car", "blue", ""]
    return make_answers(*(rng.choice(words, 20).tolist() for _ in range(2)))


ALL = [
    (kind, scheme, name)
    for (kind, scheme), choices in MEASURES.items()
    for name in choices
    if not name.endswith("_supported")
]


@pytest.mark.parametrize(("kind", "scheme", "name"), ALL)
@pytest.mark.parametrize("seed", range(4))
def test_quotient_of_sums_is_the_score(kind: str, scheme: str, name: str, seed: int) -> None:
    predictions = make_any(kind, scheme, seed)
    counted = find_measure(predictions, name).count(predictions).values
    assert len(counted) == predictions.n_rows
    assert float(divide(counted.sum(axis=0))) == pytest.approx(score(predictions)[name], abs=1e-12)


def test_every_score_of_every_kind_can_be_tested() -> None:
    assert {name for _, _, name in ALL} == set(list_scores())
    assert MEASURES.keys() == SCORERS.keys()
    for kind, scheme in SCORERS:
        supported = {name for name in MEASURES[kind, scheme] if name.endswith("_supported")}
        assert set(score(make_any(kind, scheme, 1))) == set(MEASURES[kind, scheme]) - supported
        assert {name.removesuffix("_supported") for name in supported} == {
            name for name in MEASURES[kind, scheme] if name.endswith("macro_f1")
        }


def test_supported_macro_f1_is_scikit_learns_over_labels_with_ten_gold_items() -> None:
    rng = np.random.default_rng(3)
    gold = np.array([0] * 10 + [1] * 9 + [2] * 40)
    predicted = np.where(rng.random(59) < 0.4, rng.integers(0, 4, 59), gold)
    predictions = make_classes(gold, predicted, labels="abcd")
    counted = find_measure(predictions, "macro_f1_supported").count(predictions)
    wanted = sklearn.f1_score(gold, predicted, labels=[0, 2], average="macro")
    assert float(divide(counted.values.sum(axis=0))) == pytest.approx(wanted)
    assert counted.list_rare() == {"b": 9}
    assert find_measure(predictions, "macro_f1").count(predictions).list_rare() == {"b": 9, "d": 0}
    with pytest.raises(UserError, match="no label has 10 gold items"):
        MEASURES["classes", "none"]["macro_f1_supported"].count(make_classes([0, 1], [0, 1]))


def test_supported_span_macro_f1_is_seqevals_over_types_with_ten_entities() -> None:
    names = np.array(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
    gold = [np.array([0, 1, 2, 0])] * 12 + [np.array([3, 0])] * 4
    predicted = [np.where(np.arange(len(g)) == row % 7, 0, g) for row, g in enumerate(gold)]
    predictions = make_tags(gold, predicted)
    counted = find_measure(predictions, "span_macro_f1_supported").count(predictions)
    people = [[names[np.where(codes > 2, 0, codes)].tolist() for codes in some] for some in (gold, predicted)]
    assert float(divide(counted.values.sum(axis=0))) == pytest.approx(seqeval.f1_score(*people))
    assert counted.list_rare() == {"LOC": 4}


@pytest.mark.parametrize("kind", ["tags", "classes", "answers"])
def test_nothing_predicted_and_nothing_there_is_zero_not_an_error(kind: str) -> None:
    empty: Any = {
        "tags": make_tags([[]], [[]]),
        "classes": make_classes([], []),
        "answers": make_answers([], []),
    }[kind]
    for name in score(empty):
        measure = MEASURES[empty.kind, empty.scheme][name]
        assert float(divide(measure.count(empty).values.sum(axis=0))) == 0.0


def test_labels_are_aligned_by_name() -> None:
    gold, predicted = np.array([0, 1, 2, 2]), np.array([0, 2, 2, 1])
    swap = np.array([2, 1, 0])
    count = MEASURES["classes", "none"]["macro_f1"].count
    runs = [
        count(make_classes(gold, predicted, labels="abc")),
        count(make_classes(swap[gold], swap[predicted], labels="cba")),
    ]
    first, second = align(runs)
    assert np.array_equal(first, second)
    assert not np.array_equal(runs[0].values, runs[1].values)


def test_unknown_score_names_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'accuracy'"):
        find_measure(make_classes([0], [0]), "acuracy")


def test_default_score_is_the_tasks_own() -> None:
    assert default_score(make_classes([0], [0])) == "accuracy"
    assert default_score(make_classes([0], [0], task="sentiment")) == "macro_f1"
    assert default_score(make_tags([[0]], [[0]])) == "span_f1"
    assert default_score(make_tags([[0]], [[0]], scheme="none", task="pos")) == "accuracy"
    assert default_score(make_answers(["a"], ["a"])) == "qa_f1"
