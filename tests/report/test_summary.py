"""Results are gathered from predictions over seeds without losing or mixing any."""

from __future__ import annotations

import math

import pytest

from crossling.errors import ArtefactError
from crossling.report.summary import LanguageResult, TagSample, gather_result
from crossling.scores.predictions import Predictions


def make_classes(predicted: list[int], labels: tuple[str, ...] = ("a", "b"), language: str = "de") -> Predictions:
    gold = [0, 1, 1, 0]
    return Predictions.from_classes(
        language, "x:de", labels=labels, gold=gold, predicted=predicted, confidence=[1.0] * 4
    )


def test_scores_stand_beside_each_other_by_seed() -> None:
    result = gather_result("x", [make_classes([0, 1, 1, 0]), make_classes([0, 0, 1, 0])])
    assert result.scores["accuracy"] == (1.0, 0.75)
    assert result.mean("accuracy") == pytest.approx(0.875)
    assert result.spread("accuracy") == pytest.approx(0.1767767)
    assert (result.language, result.data, result.examples) == ("de", "x", 4)


def test_confusions_are_added_by_label_name() -> None:
    result = gather_result("x", [make_classes([0, 1, 1, 0]), make_classes([0, 1, 1, 1], labels=("b", "a"))])
    assert result.confusion is not None
    assert result.confusion.gold == result.confusion.predicted == ("a", "b")
    # The first seed is all right; in the second, code 0 is b: gold b a a b against predicted b a a a.
    assert result.confusion.counts.tolist() == [[4, 0], [1, 3]]


def test_one_seed_has_no_spread_and_a_missing_score_no_mean() -> None:
    result = gather_result("x", [make_classes([0, 1, 1, 0])])
    assert result.spread("accuracy") is None
    assert math.isnan(result.mean("span_f1"))


def test_answers_have_no_confusion() -> None:
    answers = Predictions.from_answers(
        "de", "q", ids=["1"], gold=[["a"]], predicted=["a"], starts=[0], confidence=[1.0]
    )
    result = gather_result("q", [answers], variant="question=en")
    assert result.confusion is None
    assert (result.variant, result.scores["qa_f1"]) == ("question=en", (1.0,))


def test_predictions_that_do_not_belong_together_are_refused() -> None:
    with pytest.raises(ArtefactError, match="different kinds"):
        gather_result("x", [make_classes([0, 1, 1, 0]), make_classes([0, 1, 1, 0], language="fr")])
    with pytest.raises(ArtefactError, match="no predictions"):
        gather_result("x", [])


def test_a_sample_has_a_tag_for_every_word() -> None:
    with pytest.raises(AssertionError):
        TagSample(("a", "b"), ("X",), ("X",))
    assert isinstance(gather_result("x", [make_classes([0, 1, 1, 0])]), LanguageResult)
