"""Label Studio's protocol: a served model pre-annotates tasks under the names of the project."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crossling.inference.label_studio import build_prediction
from crossling.inference.predictor import Predictor
from crossling.inference.server.limits import Limits
from served import Reply, Running, run_server

Trained = Callable[[str], Path]
SPANS = (
    '<View><Labels name="ner" toName="body"><Label value="PER"/></Labels><Text name="body" value="$article"/></View>'
)
CHOICES = (
    '<View><Text name="a" value="$premise"/><Text name="b" value="$hypothesis"/>'
    '<Choices name="nli" toName="a"><Choice value="x"/></Choices></View>'
)
ANSWERS = (
    '<View><Text name="c" value="$passage"/><Text name="q" value="$question"/>'
    '<Labels name="answer" toName="c"><Label value="answer"/></Labels></View>'
)


@pytest.fixture(scope="module")
def predictors(trained: Trained) -> dict[str, Predictor]:
    return {task: Predictor.load(trained(task)) for task in ("ner", "nli", "qa")}


@pytest.fixture(scope="module")
def server(predictors: dict[str, Predictor]) -> Iterator[Running]:
    with run_server(predictors, limits=Limits(items=10, characters=200, total=1000, body=20_000)) as running:
        yield running


def ask(server: Running, model: str, config: Any, *data: Any) -> Reply:
    content = {"tasks": [{"id": n, "data": one} for n, one in enumerate(data)], "label_config": config}
    return post(server, f"/label-studio/{model}/predict", content)


def post(server: Running, path: str, content: Any) -> Reply:
    return server.send("POST", path, json.dumps(content).encode(), headers={"Content-Type": "application/json"})


def test_a_project_can_be_connected(server: Running) -> None:
    assert server.get("/label-studio/ner/health").json["status"] == "UP"
    assert post(server, "/label-studio/ner/setup", {"project": "1"}).json == {"model_version": "ner"}
    assert post(server, "/label-studio/ner/webhook", {"action": "x"}).status == 200
    assert server.get("/label-studio/none/health").status == 404


def test_spans_have_the_names_of_the_project(server: Running, predictors: dict[str, Predictor]) -> None:
    texts = ["the cat sees a dog", "我们 see 猫", ""]
    data = [{"article": texts[0]}, {"article": texts[1], "language": "zh"}, {"article": texts[2]}]
    reply = ask(server, "ner", SPANS, *data)
    assert reply.status == 200, reply.body
    for result, text, language in zip(reply.json["results"], texts, ("en", "zh", "en"), strict=True):
        [found] = predictors["ner"].predict([text], language=language)
        expected = build_prediction(found, model="ner")
        assert [one["value"] for one in result["result"]] == [one["value"] for one in expected["result"]]
        assert {(one["from_name"], one["to_name"]) for one in result["result"]} <= {("ner", "body")}
    assert any(result["result"] for result in reply.json["results"])


def test_pairs_and_questions_are_read_in_their_order(server: Running, predictors: dict[str, Predictor]) -> None:
    [result] = ask(server, "nli", CHOICES, {"premise": "the cat", "hypothesis": "a dog"}).json["results"]
    [found] = predictors["nli"].predict([("the cat", "a dog")])
    assert result["result"][0]["value"] == {"choices": [found["label"]]}
    [result] = ask(server, "qa", ANSWERS, {"question": "who", "passage": "a dog sees the cat"}).json["results"]
    [found] = predictors["qa"].predict([("who", "a dog sees the cat")])
    assert [one["value"]["text"] for one in result["result"]] == ([found["answer"]] if found["start"] >= 0 else [])


@pytest.mark.parametrize(
    ("config", "data", "status"),
    [
        (SPANS, [{"title": "x"}], 422),
        (SPANS, [{"article": 7}], 422),
        (SPANS, [{"article": "x", "language": 7}], 422),
        (SPANS, [{"article": "x", "language": "klingon"}], 422),
        (SPANS, [{"article": "x" * 300}], 413),
        (SPANS, [{"article": "x"}] * 11, 413),
        (SPANS, [[]], 422),
        (CHOICES, [{"premise": "x"}], 422),
        ("<View", [{"article": "x"}], 422),
        ('<!DOCTYPE a [<!ENTITY b "c">]><View>&b;</View>', [{"article": "x"}], 422),
        (None, [{"article": "x"}], 422),
    ],
)
def test_bad_requests_are_refused(server: Running, config: Any, data: list[Any], status: int) -> None:
    reply = ask(server, "ner", config, *data)
    assert reply.status == status and reply.json["error"]["message"], reply.body
