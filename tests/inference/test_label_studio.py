"""Predictions become tasks that annotators correct, and corrected tasks are read back as training data."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from crossling.data.readers.text_files import BadRows
from crossling.errors import DataError
from crossling.inference.label_studio import build_config, build_prediction, build_task
from crossling.inference.predictor import Predictor
from crossling.registry import load_kind

Trained = Callable[[str], Path]
INPUTS: dict[str, list[Any]] = {
    "ner": ["the cat sees a dog in Нижний Новгород", "我们 see 猫", "nothing"],
    "sentiment": ["the cat", "a dog"],
    "nli": [("the cat", "a cat"), ("a dog", "the cat")],
    "qa": [("who?", "the cat sees a dog")],
}


@pytest.mark.parametrize("task", INPUTS)
def test_corrected_tasks_are_read_as_what_was_predicted(trained: Trained, task: str, tmp_path: Path) -> None:
    found = Predictor.load(trained(task)).predict(INPUTS[task])
    tasks = [build_task(one, model="m") for one in found]
    for one in tasks:  # an annotator accepts every pre-annotation
        [prediction] = one.pop("predictions")
        assert 0 <= prediction["score"] <= 1 and prediction["model_version"] == "m"
        one["annotations"] = [{"result": prediction["result"]}]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps(tasks))
    reader = load_kind("readers", "label_studio")
    rows = list(reader.read(reader.Settings(path=path), BadRows("raise")))
    for row, one in zip(rows, found, strict=True):
        if task == "ner":
            assert list(row.tags) == [word["tag"] for word in one["words"]]
            assert list(row.words) == [word["word"] for word in one["words"]]
        elif task == "qa":
            expected = ((one["answer"],), (one["start"],)) if one["start"] >= 0 else ((), ())
            assert (row.answers, row.starts) == expected
        else:
            assert row.label == one["label"]


def test_words_are_cut_where_a_span_ends_inside_them(tmp_path: Path) -> None:
    text = "Müllerstraße in 東京都庁"
    values = [{"start": 0, "end": 6, "labels": ["PER"]}, {"start": 16, "end": 18, "labels": ["LOC"]}]
    result = [{"type": "labels", "value": value} for value in values]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([{"data": {"text": text}, "annotations": [{"result": result}]}]))
    reader = load_kind("readers", "label_studio")
    [row] = reader.read(reader.Settings(path=path), BadRows("raise"))
    assert row.words == ("Müller", "straße", "in", "東", "京", "都", "庁")
    assert row.tags == ("B-PER", "O", "O", "B-LOC", "I-LOC", "O", "O")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"start": 0, "end": 99, "labels": ["A"]}], "does not lie in the text"),
        ([{"start": 0, "end": 3, "labels": ["A"]}, {"start": 2, "end": 5, "labels": ["B"]}], "overlaps another"),
        ([{"start": 0, "end": 3, "labels": ["A", "B"]}], "no single label"),
        ([{"start": 3, "end": 4, "labels": ["A"]}], "holds no word"),
    ],
)
def test_annotations_that_are_no_tags_are_errors(tmp_path: Path, values: list[Any], message: str) -> None:
    result = [{"type": "labels", "value": value} for value in values]
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([{"data": {"text": "the cat"}, "annotations": [{"result": result}]}]))
    reader = load_kind("readers", "label_studio")
    with pytest.raises(DataError, match=message):
        list(reader.read(reader.Settings(path=path), BadRows("raise")))


def test_a_question_without_an_answer_has_an_empty_result() -> None:
    found = {"question": "q", "context": "c", "answer": "", "start": -1, "end": -1, "confidence": 0.5}
    assert build_prediction(found, model="m") == {"model_version": "m", "score": 0.5, "result": []}


@pytest.mark.parametrize(
    ("kind", "labels", "names"),
    [
        ("tag", ("O", "B-PER", "I-PER", 'B-"<&'), ["PER", '"<&']),
        ("classify", ("good", "bad"), ["good", "bad"]),
        ("classify_pair", ("yes",), ["yes"]),
        ("answer", (), ["answer"]),
    ],
)
def test_labelling_configuration_lists_the_labels(kind: str, labels: tuple[str, ...], names: list[str]) -> None:
    view = ElementTree.fromstring(build_config(labels, kind=kind))
    control = view[0]
    assert [child.get("value") for child in control] == names
    assert control.get("toName") in {text.get("name") for text in view.iter("Text")}
