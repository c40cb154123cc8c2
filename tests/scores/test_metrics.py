"""Scores agree with the libraries that define them, on well-formed and ill-formed predictions alike."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import seqeval.metrics as seqeval
import sklearn.metrics as sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.scheme import IOB2

from crossling.errors import UserError
from crossling.scores.metrics import (
    MAIN_SCORE,
    SCORERS,
    UPOS,
    confusion,
    explain,
    list_scores,
    main_score,
    per_example,
    score,
    span_counts,
    title_of,
)
from crossling.scores.predictions import Predictions

BIO = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-a-b", "I-a-b")
BIOES = (*BIO, "E-PER", "S-PER", "E-LOC", "S-LOC")
POS = tuple(sorted(UPOS))
UNSEEN_TAG = "I-never"  # how the references below spell a gold label of code -1


def sentences(n_labels: int, lowest: int = 0) -> st.SearchStrategy[list[list[tuple[int, int]]]]:
    """Sentences of (gold, predicted) codes; few distinct ones, so that spans meet often."""
    code = st.integers(0, n_labels - 1)
    return st.lists(st.lists(st.tuples(st.integers(lowest, n_labels - 1), code), max_size=8), max_size=6)


def tags_of(pairs: list[list[tuple[int, int]]], labels: tuple[str, ...], scheme: str) -> Predictions:
    return Predictions.from_tags(
        "en",
        "made",
        labels=labels,
        gold=[[gold for gold, _ in sentence] for sentence in pairs],
        predicted=[[label for _, label in sentence] for sentence in pairs],
        confidence=[[1.0] * len(sentence) for sentence in pairs],
        scheme=scheme,  # type: ignore[arg-type]
    )


def names_of(pairs: list[list[tuple[int, int]]], labels: tuple[str, ...]) -> tuple[list[list[str]], list[list[str]]]:
    known = (*labels, UNSEEN_TAG)
    gold = [[known[g] for g, _ in sentence] for sentence in pairs]
    return gold, [[labels[p] for _, p in sentence] for sentence in pairs]


def classes_of(gold: list[int], predicted: list[int], labels: tuple[str, ...]) -> Predictions:
    return Predictions.from_classes(
        "en", "made", labels=labels, gold=gold, predicted=predicted, confidence=[1.0] * len(gold)
    )


def answers_of(language: str, *cases: tuple[str, list[str]]) -> Predictions:
    return Predictions.from_answers(
        language,
        "made",
        ids=[str(i) for i in range(len(cases))],
        gold=[gold for _, gold in cases],
        predicted=[label for label, _ in cases],
        starts=[0] * len(cases),
        confidence=[1.0] * len(cases),
    )


def quiet(function: Any, *args: Any, **settings_: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(function(*args, **settings_))


@pytest.mark.parametrize("labels", [BIO, BIOES], ids=["bio", "bioes"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_spans_agree_with_seqeval(labels: tuple[str, ...], data: st.DataObject) -> None:
    pairs = data.draw(sentences(len(labels), lowest=-1))
    scores = score(tags_of(pairs, labels, "bio"))
    gold, predicted = names_of(pairs, labels)
    for name, reference, average in (
        ("span_f1", seqeval.f1_score, "micro"),
        ("span_precision", seqeval.precision_score, "micro"),
        ("span_recall", seqeval.recall_score, "micro"),
        ("span_macro_f1", seqeval.f1_score, "macro"),
    ):
        expected = quiet(reference, gold, predicted, average=average) if any(gold) else 0.0
        assert scores[name] == pytest.approx(0.0 if np.isnan(expected) else expected), name


@settings(max_examples=150, deadline=None)
@given(pairs=sentences(len(POS)))
def test_legacy_xtreme_score_agrees_with_seqeval(pairs: list[list[tuple[int, int]]]) -> None:
    gold, predicted = names_of(pairs, POS)
    expected = quiet(seqeval.f1_score, gold, predicted) if any(gold) else 0.0
    assert score(tags_of(pairs, POS, "none"))["xtreme_pos_f1"] == pytest.approx(expected)


def runs_of(tags: list[list[str]]) -> set[tuple[int, int, str]]:
    """Runs of equal tags by a plain walk: the legacy score where no tag starts with B, I, E, S or O."""
    spans: set[tuple[int, int, str]] = set()
    position = 0
    for sentence in tags:
        start = 0
        for i, tag in enumerate(sentence):
            if i + 1 == len(sentence) or sentence[i + 1] != tag:
                spans.add((position + start, position + i, tag))
                start = i + 1
        position += len(sentence)
    return spans


@settings(max_examples=60, deadline=None)
@given(pairs=sentences(5))
def test_legacy_xtreme_score_of_2020_counts_runs_of_equal_tags(pairs: list[list[tuple[int, int]]]) -> None:
    labels = ("ADJ", "NOUN", "VERB", "PUNCT", "CCONJ")
    gold, predicted = (runs_of(side) for side in names_of(pairs, labels))
    expected = 2 * len(gold & predicted) / (len(gold) + len(predicted)) if gold or predicted else 0.0
    assert score(tags_of(pairs, labels, "none"))["xtreme_pos_f1_2020"] == pytest.approx(expected)


def test_conjunctions_are_one_type_only_in_the_later_legacy_score() -> None:
    labels = ("CCONJ", "NOUN", "SCONJ")
    scores = score(tags_of([[(1, 1), (2, 0), (1, 1)]], labels, "none"))
    assert scores["xtreme_pos_f1"] == 1.0
    assert scores["xtreme_pos_f1_2020"] == pytest.approx(2 / 3)
    assert scores["accuracy"] == pytest.approx(2 / 3)


def test_legacy_score_is_for_universal_tags_alone() -> None:
    assert "xtreme_pos_f1" not in score(tags_of([[(0, 0)]], ("NN", "VB"), "none"))


@pytest.mark.parametrize(("labels", "scheme"), [(BIO, "bio"), (POS, "none")])
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_word_scores_agree_with_sklearn(labels: tuple[str, ...], scheme: str, data: st.DataObject) -> None:
    pairs = data.draw(sentences(len(labels), lowest=-1))
    scores = score(tags_of(pairs, labels, scheme))
    gold, predicted = ([tag for sentence in side for tag in sentence] for side in names_of(pairs, labels))
    if not gold:
        assert set(scores.values()) == {0.0}
        return
    assert scores["accuracy"] == pytest.approx(sklearn.accuracy_score(gold, predicted))
    assert scores["macro_f1"] == pytest.approx(quiet(sklearn.f1_score, gold, predicted, average="macro"))
    inside = [tag for tag in (*labels, UNSEEN_TAG) if tag != "O"]
    micro = quiet(sklearn.f1_score, gold, predicted, average="micro", labels=inside)
    assert scores["token_micro_f1"] == pytest.approx(micro)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_class_scores_agree_with_sklearn(pairs: list[tuple[int, int]]) -> None:
    gold, predicted = [g for g, _ in pairs], [p for _, p in pairs]
    predictions = classes_of(gold, predicted, ("a", "b", "c"))
    assert score(predictions) == pytest.approx(
        {
            "accuracy": sklearn.accuracy_score(gold, predicted),
            "macro_f1": quiet(sklearn.f1_score, gold, predicted, average="macro"),
        }
    )
    table = confusion(predictions)
    reference = sklearn.confusion_matrix(gold, predicted, labels=[0, 1, 2, -1])
    assert table.counts.tolist() == reference[: len(table.gold), :3].tolist()
    assert table.gold == (("a", "b", "c", "(unseen)") if -1 in gold else ("a", "b", "c"))
    assert table.counts.sum() == len(pairs)


def test_missing_prediction_is_wrong() -> None:
    predictions = classes_of([-1, -1, 0], [-1, 0, -1], ("a", "b"))
    assert score(predictions) == {"accuracy": 0.0, "macro_f1": 0.0}
    table = confusion(predictions)
    assert (table.gold[-1], table.predicted[-1]) == ("(unseen)", "(none)")
    assert table.counts[-1, -1] == 1 and table.counts[0, -1] == 1 and table.counts[-1, 0] == 1
    tags = Predictions.from_tags(
        "en", "x", labels=BIO, gold=[[1, 2]], predicted=[[1, -1]], confidence=[[1, 0]], scheme="bio"
    )
    assert score(tags)["span_f1"] == 0.0


@settings(max_examples=60, deadline=None)
@given(pairs=sentences(len(BIO), lowest=-1))
def test_examples_add_up_to_the_set(pairs: list[list[tuple[int, int]]]) -> None:
    predictions = tags_of(pairs, BIO, "bio")
    counts = span_counts(predictions)
    assert len(counts.gold) == len(pairs)
    total = counts.predicted.sum() + counts.gold.sum()
    assert score(predictions)["span_f1"] == pytest.approx(2 * counts.correct.sum() / total if total else 0.0)
    for name in ("accuracy", "span_f1", "token_micro_f1"):
        alone = [score(tags_of([sentence], BIO, "bio"))[name] for sentence in pairs]
        values = per_example(predictions, name)
        assert len(values) == len(pairs)
        for value, one, sentence in zip(values, alone, pairs, strict=True):
            nothing_to_do = value == 1.0 and one == 0.0
            assert value == pytest.approx(one) or (nothing_to_do and not any(g or p for g, p in sentence))


def test_per_example_of_classes_and_answers() -> None:
    assert per_example(classes_of([0, 1, -1], [0, 0, 1], ("a", "b")), "accuracy").tolist() == [1, 0, 0]
    answers = answers_of("en", ("the cat sat", ["a cat"]), ("dog", ["dog"]))
    assert per_example(answers, "exact_match").tolist() == [0, 1]
    assert per_example(answers, "qa_f1").tolist() == pytest.approx([2 / 3, 1])
    assert score(answers) == pytest.approx(
        {"qa_f1": 5 / 6, "exact_match": 0.5, "squad_f1": 5 / 6, "squad_exact_match": 0.5}
    )
    with pytest.raises(UserError, match="'macro_f1' has no value for a single example"):
        per_example(answers, "macro_f1")


def test_no_examples_score_zero() -> None:
    assert set(score(answers_of("en")).values()) == {0.0}
    assert score(classes_of([], [], ("a",))) == {"accuracy": 0.0, "macro_f1": 0.0}


def test_every_score_is_explained_and_every_task_has_a_main_one() -> None:
    made = [
        tags_of([[(0, 0)]], POS, "none"),
        tags_of([[(0, 0)]], BIO, "bio"),
        classes_of([0], [0], ("a",)),
        answers_of("en", ("a", ["a"])),
    ]
    names = {name for predictions in made for name in score(predictions)}
    assert len(made) == len(SCORERS)
    assert names == set(list_scores())
    assert all(len(explain(name)) > 40 for name in names)
    assert set(MAIN_SCORE.values()) <= names
    assert main_score("ner", "bio") == main_score("tag", "bio") == "span_f1"
    assert (main_score("pos"), main_score("qa"), main_score("mine")) == ("accuracy", "qa_f1", "accuracy")
    with pytest.raises(UserError, match="span_f1"):
        explain("spanf1")


def test_titles_write_out_abbreviations() -> None:
    assert [title_of(name) for name in ("span_f1", "qa_f1", "xtreme_pos_f1")] == [
        "span F1",
        "QA F1",
        "XTREME POS F1",
    ]


def test_span_f1_is_described_as_the_default_of_seqeval_that_it_is() -> None:
    """On ill-formed tags the default and the strict mode differ: the default counts an entity without its B-."""
    predictions = tags_of([[(2, 2)]], BIO, "bio")
    gold = predicted = [["I-PER"]]
    strict = seqeval.f1_score(gold, predicted, mode="strict", scheme=IOB2, zero_division=0)
    assert score(predictions)["span_f1"] == seqeval.f1_score(gold, predicted) == 1.0
    assert strict == 0.0
    assert not explain("span_f1").startswith("Strict") and "by default" in explain("span_f1")
    assert "Strict" not in explain("span_macro_f1")
