"""What an ensemble of teachers decides and keeps, against slow references; tags over links against a made case."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.stages.pseudo_labels import (
    Decided,
    Votes,
    begin_spans,
    decide_answers,
    decide_labels,
    group_classes,
    join_linked,
    join_votes,
    keep_rows,
    project_tags,
    score_rows,
    sharpen,
)


def _draw_votes(seed: int = 0, teachers: int = 3, labels: int = 60, classes: int = 4) -> tuple[Votes, np.ndarray]:
    each_TNC = np.random.default_rng(seed).dirichlet([0.5] * classes, size=(teachers, labels))
    return Votes(each_TNC.argmax(2), each_TNC.mean(0)), each_TNC


@pytest.mark.parametrize("teachers", [1, 2, 3, 5])
def test_decisions_equal_slow_references(teachers: int) -> None:
    votes, each_TNC = _draw_votes(teachers, teachers)
    by_mean, by_vote, by_agreement = (decide_labels(votes, how) for how in ("mean", "vote", "agreement"))
    for label in range(each_TNC.shape[1]):
        mean = [float(np.mean([each[label][c] for each in each_TNC])) for c in range(4)]
        given = [max(range(4), key=lambda c, each=each: each[label][c]) for each in each_TNC]
        assert by_mean.labels[label] == max(range(4), key=lambda c: mean[c])
        winner = max(range(4), key=lambda c: (given.count(c), mean[c]))
        assert by_vote.labels[label] == winner
        same = len(set(given)) == 1
        assert by_agreement.labels[label] == (given[0] if same else -1)
        assert by_agreement.confidence[label] == pytest.approx(mean[given[0]] if same else 0.0)
        assert by_vote.agree[label] == by_mean.agree[label] == same
        assert by_vote.confidence[label] == pytest.approx(mean[winner])


def test_a_sentence_is_as_sure_as_its_least_sure_word() -> None:
    labels, rows = np.array([1, 0, -1, 2, -1]), np.array([0, 0, 0, 1, 3])
    decided = Decided(labels, np.array([0.9, 0.6, 0.0, 0.8, 0.0]), np.array([True, True, False, True, False]))
    confidence, agree = score_rows(decided, rows, 4)
    assert confidence.tolist() == [0.6, 0.8, 0.0, 0.0]
    assert agree.tolist() == [False, True, True, False]


@pytest.mark.parametrize(("keep", "share", "most"), [("all", 0.4, None), ("agreement", 1.0, 3), ("confidence", 0.5, 2)])
def test_kept_rows_equal_a_slow_reference(keep: str, share: float, most: int | None) -> None:
    generator = np.random.default_rng(3)
    confidence = generator.integers(0, 8, 200) / 8  # with ties, and rows without labels
    agree = generator.random(200) < 0.6
    groups = [("de" if row % 3 else "hi", "neutral" if row % 7 else "positive") for row in range(200)]
    expected = []
    for group in sorted(set(groups)):
        rows = [r for r in range(200) if groups[r] == group and confidence[r] > 0]
        rows = [r for r in rows if keep != "agreement" or agree[r]]
        rows = [r for r in rows if keep != "confidence" or confidence[r] >= 0.5]
        number = -(-len(rows) * round(share * 10) // 10)
        expected += sorted(rows, key=lambda r: -confidence[r])[: number if most is None else min(number, most)]
    kept = keep_rows(confidence, agree, groups, keep=keep, threshold=0.5, share=share, most=most)  # type: ignore[arg-type]
    assert kept.tolist() == sorted(expected)


def test_most_rows_of_a_class_balance_classes() -> None:
    groups = [("de", "positive")] * 90 + [("de", "negative")] * 10
    kept = keep_rows(np.full(100, 0.9), np.full(100, True), groups, keep="all", threshold=0, share=1.0, most=10)
    assert [groups[row][1] for row in kept].count("positive") == 10 == [groups[r][1] for r in kept].count("negative")


def test_temperature_sharpens_and_flattens() -> None:
    mean = np.array([[0.6, 0.3, 0.1]])
    np.testing.assert_allclose(sharpen(mean, 1.0), mean, rtol=1e-6)
    np.testing.assert_allclose(sharpen(mean, 0.5), mean**2 / (mean**2).sum(), rtol=1e-6)
    assert sharpen(mean, 10.0).max() < 0.4


def test_tags_follow_links() -> None:
    """Angela Merkel visits Paris . -> Paris visita Angela X Merkel ! (X is not linked, ! to two words that differ)."""
    tags = ["B-PER", "I-PER", "O", "B-LOC", "O"]
    links = [(3, 0), (2, 1), (0, 2), (1, 4), (3, 5), (4, 5)]
    found, sources = project_tags(tags, links, 6, spans=True)
    assert found == ["B-LOC", "O", "B-PER", "", "I-PER", ""]
    assert sources == [3, 2, 0, -1, 1, -1]


def test_a_span_begins_with_its_first_word_in_the_translation() -> None:
    """Order of words: University of Oslo -> Oslo universitet, both words of one span."""
    found, _ = project_tags(["B-ORG", "I-ORG", "I-ORG"], [(2, 0), (0, 1)], 2, spans=True)
    assert found == ["B-ORG", "I-ORG"]
    neighbours, _ = project_tags(["B-PER", "B-PER"], [(0, 0), (1, 1)], 2, spans=True)
    assert neighbours == ["B-PER", "B-PER"]


def test_tags_that_are_no_spans_are_taken_as_they_are() -> None:
    found, sources = project_tags(["DET", "NOUN", ""], [(1, 0), (2, 1), (0, 2), (1, 3), (0, 3)], 4, spans=False)
    assert found == ["NOUN", "", "DET", ""]
    assert sources == [1, -1, 0, -1]


def test_votes_on_two_readings_are_joined_as_twice_the_teachers() -> None:
    (one, first_TNC), (other, second_TNC) = _draw_votes(1), _draw_votes(2)
    joined, whole_TNC = join_votes(one, other), np.concatenate([first_TNC, second_TNC])
    assert (joined.best == whole_TNC.argmax(2)).all()
    np.testing.assert_allclose(joined.mean, whole_TNC.mean(0))


def test_linked_words_have_the_votes_of_both_sides() -> None:
    (own, own_TNC), (source, source_TNC) = _draw_votes(1, labels=5), _draw_votes(2, labels=3)
    sources = np.array([2, -1, 0, 0, -1])
    joined = join_linked(own, source, sources)
    for word, linked in enumerate(sources):
        other_TC = source_TNC[:, linked] if linked >= 0 else own_TNC[:, word]
        np.testing.assert_allclose(joined.mean[word], np.concatenate([own_TNC[:, word], other_TC]).mean(0))
        assert joined.best[:, word].tolist() == [*own_TNC[:, word].argmax(1), *other_TC.argmax(1)]


def test_a_group_is_as_probable_as_its_classes() -> None:
    votes = Votes(np.array([[2, 0]]), np.array([[0.1, 0.2, 0.3, 0.4], [0.6, 0.4, 0.0, 0.0]]))
    grouped = group_classes(votes, np.array([0, 1, 0, 2]))
    assert grouped.best.tolist() == [[0, 0]]
    np.testing.assert_allclose(grouped.mean, [[0.4, 0.2, 0.4], [0.6, 0.4, 0.0]])


@pytest.mark.parametrize(
    ("types", "own", "sources", "expected"),
    [
        # the source's tags are B-PER I-PER B-PER O
        (["PER", "PER", "PER"], ["B-PER", "B-PER", "B-PER"], [1, 0, 2], ["B-PER", "I-PER", "B-PER"]),
        (["PER", "PER", "O"], ["B-PER", "I-PER", "O"], [0, -1, 3], ["B-PER", "I-PER", "O"]),
        (["PER", "PER", "O"], ["B-PER", "B-PER", "O"], [0, -1, 3], ["B-PER", "B-PER", "O"]),
        (["O", "PER", "LOC"], ["O", "I-PER", "I-LOC"], [-1, 1, -1], ["O", "B-PER", "B-LOC"]),
        (["PER", "", "PER"], ["B-PER", "O", "I-PER"], [0, -1, 1], ["B-PER", "", "I-PER"]),
        (["PER", "", "PER"], ["B-PER", "O", "B-PER"], [0, -1, -1], ["B-PER", "", "B-PER"]),
    ],
)
def test_spans_begin_where_a_side_begins_them(
    types: list[str], own: list[str], sources: list[int], expected: list[str]
) -> None:
    assert begin_spans(types, own, sources, ["B-PER", "I-PER", "B-PER", "O"]) == expected


def test_answers_are_voted_on() -> None:
    spans = [(3, "Oslo"), (3, "Oslo"), (9, "Bergen")]
    assert decide_answers(spans, [0.5, 0.3, 0.9], "vote") == ((3, "Oslo"), pytest.approx(0.8 / 3), False)
    assert decide_answers(spans, [0.5, 0.3, 0.9], "agreement")[0] is None
    assert decide_answers(spans[1:], [0.3, 0.9], "vote")[0] == (9, "Bergen"), "a tie goes to the surer one"
    assert decide_answers([(-1, ""), (-1, "")], [0.9, 0.9], "vote") == (None, 0.0, True)
