"""Texts to label next: unsure, different from each other, ready for annotation."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from crossling.errors import UserError
from crossling.inference.predictor import Predictor
from crossling.inference.suggest import choose_diverse, measure_uncertainty, suggest, suggest_file

Trained = Callable[[str], Path]
TEXTS = ["the cat", "a dog", "the fish in London", "the cat", "кошка", "我是学生", "dog dog dog", "students eat"]


def test_equal_texts_are_not_chosen_together() -> None:
    doubt = np.array([0.9, 0.9, 0.5, 0.1])
    vectors = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.2], [0.0, 1.0]])
    assert choose_diverse(doubt, vectors, 2).tolist() == [0, 2]


def test_choice_equals_a_slow_greedy_search() -> None:
    rng = np.random.default_rng(0)
    doubt, vectors = rng.random(40), rng.normal(size=(40, 5))
    centred = vectors - vectors.mean(0)
    expected: list[int] = []
    while len(expected) < 12:
        scores = {}
        for n in set(range(40)) - set(expected):
            cosines = [
                centred[n] @ centred[m] / np.linalg.norm(centred[n]) / np.linalg.norm(centred[m]) for m in expected
            ]
            scores[n] = doubt[n] * min([2.0, *(1 - cosine for cosine in cosines)])
        expected.append(max(sorted(scores), key=lambda n: scores[n]))
    assert choose_diverse(doubt, vectors, 12).tolist() == expected


def test_uncertainty_of_tags_is_that_of_words() -> None:
    found = {"words": [{"confidence": 0.9}, {"confidence": 0.5}]}
    assert measure_uncertainty(found, "mean") == pytest.approx(0.3)
    assert measure_uncertainty(found, "least") == pytest.approx(0.5)
    assert measure_uncertainty({"label": "x", "confidence": 0.8}, "mean") == pytest.approx(0.2)


@pytest.mark.parametrize("task", ["ner", "sentiment"])
def test_suggestions_are_distinct_and_the_least_sure_comes_first(trained: Trained, task: str) -> None:
    predictor = Predictor.load(trained(task))
    chosen = suggest(predictor, TEXTS, count=5)
    assert len({TEXTS[one.place] for one in chosen}) == len(chosen) == 5
    doubts = [measure_uncertainty(found, "mean") for found in predictor.predict(TEXTS)]
    assert chosen[0].uncertainty == pytest.approx(max(doubts))
    assert len(suggest(predictor, TEXTS, count=100)) == len(set(TEXTS))


def test_files_are_written_for_annotation(trained: Trained, tmp_path: Path) -> None:
    given = tmp_path / "text.txt"
    given.write_text("\n".join(TEXTS) + "\n")
    folder = trained("ner")
    suggest_file(folder, given, tmp_path / "a.json", count=3)
    tasks = json.loads((tmp_path / "a.json").read_text())
    assert [TEXTS[task["data"]["line"] - 1] for task in tasks] == [task["data"]["text"] for task in tasks]
    suggest_file(folder, given, tmp_path / "a.conll", count=3)
    assert (tmp_path / "a.conll").read_text().count("\n\n") == 3
    suggest_file(folder, given, tmp_path / "a.jsonl", count=3)
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 3
    with pytest.raises(UserError, match="exists"):
        suggest_file(folder, given, tmp_path / "a.json", count=3)
    with pytest.raises(UserError, match="none of .json"):
        suggest_file(folder, given, tmp_path / "a.xlsx", count=3)
    with pytest.raises(UserError, match="unknown"):
        suggest_file(folder, given, tmp_path / "b.json", count=3, by="most")


def test_a_model_without_an_encoder_in_memory_is_refused_before_it_predicts(trained: Trained) -> None:
    predictor = Predictor.load(trained("sentiment"))
    predictor.engine = object()  # type: ignore[assignment]
    with pytest.raises(UserError, match="ONNX Runtime"):
        suggest(predictor, TEXTS, count=1)
