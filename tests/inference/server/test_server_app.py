"""The server's routes: predictions of every task, refusals that say why, access, logs without texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crossling.data.records import TaggedSentence
from crossling.inference.predictor import Predictor
from crossling.inference.server.app import PAGE
from crossling.inference.server.limits import Limits
from crossling.inference.server.logs import LOGGER, JsonFormatter
from crossling.inference.server.schema import PredictResponse
from crossling.phrasebook import LANGUAGES
from examples import make_rows
from served import Running, load_gated, run_server, wait_until, write_request
from trained import list_inputs

Trained = Callable[[str], Path]
TASKS = ("ner", "pos", "sentiment", "nli", "qa")
REQUESTS: dict[str, dict[str, Any]] = {
    "ner": {"texts": ["the  cat sees", "", "мир 我们"]},
    "pos": {"words": [["the", "cat"], []]},
    "sentiment": {"texts": ["the cat", "in"]},
    "nli": {"pairs": [{"first": "the cat", "second": "a cat"}]},
    "qa": {"questions": [{"question": "the cat", "context": "😀 a dog sees the cat"}]},
}


@pytest.fixture(scope="module")
def predictors(trained: Trained) -> dict[str, Predictor]:
    return {task: Predictor.load(trained(task)) for task in TASKS}


@pytest.fixture(scope="module")
def server(predictors: dict[str, Predictor]) -> Iterator[Running]:
    small = Limits(items=40, characters=500, total=2000, body=20_000)
    with run_server(predictors, limits=small) as running:
        yield running


def as_inputs(request: dict[str, Any]) -> list[Any]:
    [items] = request.values()
    return [tuple(item.values()) if isinstance(item, dict) else item for item in items]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("language", [None, "de", "hin_Deva"])
def test_results_equal_predictions(
    server: Running, predictors: dict[str, Predictor], task: str, language: str | None
) -> None:
    content = {"model": task, **REQUESTS[task], **({"language": language} if language else {})}
    reply = server.predict(content)
    assert reply.status == 200, reply.body
    assert reply.json["results"] == predictors[task].predict(as_inputs(REQUESTS[task]), language=language)
    assert reply.json["language"] == {None: "en", "de": "de", "hin_Deva": "hi"}[language]
    assert PredictResponse.model_validate(reply.json).model == task


def test_concurrent_clients_get_what_they_would_get_alone(server: Running, predictors: dict[str, Predictor]) -> None:
    sentences = list_inputs(make_rows(TaggedSentence, 64))
    languages = ("en", "fr", "hi", "zh")
    expected = [
        predictors["ner"].predict([words], language=languages[number % 4])[0] for number, words in enumerate(sentences)
    ]

    def ask(number: int) -> list[Any]:
        content = {"model": "ner", "words": [sentences[number]], "language": languages[number % 4]}
        replies = [server.predict(content) for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 200]
        return [reply.json["results"] for reply in replies]

    with ThreadPoolExecutor(64) as pool:
        found = list(pool.map(ask, range(64)))
    for results, alone in zip(found, expected, strict=True):
        for [result] in results:
            assert [word["tag"] for word in result["words"]] == [word["tag"] for word in alone["words"]]
            assert [word["confidence"] for word in result["words"]] == pytest.approx(
                [word["confidence"] for word in alone["words"]], abs=2e-4
            )
    assert server.service.active == 0


def test_models_are_listed(server: Running) -> None:
    found = server.get("/v1/models").json
    assert [model["name"] for model in found["models"]] == list(TASKS)
    ner = found["models"][0]
    assert (ner["task"], ner["inputs"], ner["spans"], ner["source"]) == ("tag", ["texts", "words"], True, "en")
    assert ner["labels"] == ["B-X", "O"]
    assert found["limits"] == {"items": 40, "characters": 500, "total": 2000, "body": 20_000}


@pytest.mark.parametrize("task", TASKS)
def test_examples_can_be_predicted(server: Running, task: str) -> None:
    examples = server.get(f"/v1/examples?model={task}").json["examples"]
    assert [example["language"] for example in examples] == list(LANGUAGES)
    for example in examples:
        inputs = {kind: example[kind] for kind in ("texts", "pairs", "questions") if example[kind]}
        assert len(inputs) == 1
        reply = server.predict({"model": task, "language": example["language"], **inputs})
        assert reply.status == 200, reply.body


def test_server_serves_its_page_health_and_metrics(server: Running) -> None:
    page = server.get("/")
    assert page.status == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert server.get("/page.js").headers["x-content-type-options"] == "nosniff"
    assert server.get("/health").json["status"] == "ok"
    server.predict({"model": "ner", "texts": ["cat"]})
    metrics = server.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = metrics.body.decode()
    assert 'crossling_requests_total{path="/v1/predict",status="200"}' in text
    assert 'crossling_inputs_total{model="ner"}' in text


def test_description_of_the_interface_names_all_inputs(server: Running) -> None:
    found = server.get("/openapi.json").json
    body = found["paths"]["/v1/predict"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert {"model", "language", "texts", "words", "pairs", "questions"} == set(body["properties"])


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ({}, 422, "give one of texts, words, pairs, questions; found none"),
        ({"model": "ner", "texts": ["a"], "words": [["a"]]}, 422, "found texts and words"),
        ({"model": "ner", "texts": "a"}, 422, 'texts: must be an array, as in {"texts": ["…", …]}'),
        ({"model": "ner", "texts": ["a", 3]}, 422, "texts[1]: must be a string, as in"),
        ({"model": "ner", "words": [["a", None]]}, 422, 'words[0][1]: must be a string, as in {"words": [["…"'),
        ({"model": "ner", "language": 3, "texts": ["a"]}, 422, "language: must be a string"),
        ({"model": "nli", "pairs": [{"first": "a"}]}, 422, "pairs[0].second: "),
        (
            {"model": "nli", "pairs": [{"first": "a", "second": "b", "secnd": "b"}]},
            422,
            "pairs[0].secnd: unknown field. Did you mean 'second'? Valid: first, second.",
        ),
        (
            {"model": "ner", "texts": ["a"], "txets": []},
            422,
            "txets: unknown field. Did you mean 'texts'? Valid: language, model, ",
        ),
        ({"texts": ["a"]}, 422, "name a model: ner, pos"),
        ({"model": "nre", "texts": ["a"]}, 422, "no model 'nre' is served"),
        ({"model": "qa", "texts": ["a"]}, 422, "'qa' reads questions, not texts"),
        ({"model": "ner", "language": "swahilli", "texts": ["a"]}, 422, "unknown language 'swahilli'"),
        ({"model": "ner", "texts": ["a"] * 41}, 413, "41 of them; a request may have 40"),
        ({"model": "ner", "texts": ["a", "b" * 501]}, 413, "texts[1]: 501 characters"),
        ({"model": "qa", "questions": [{"question": "", "context": "b" * 501}]}, 413, "questions[0].context: 501"),
        ({"model": "ner", "texts": ["b" * 500] * 5}, 413, "2500 characters together"),
        (b'{"model": "ner", "texts": ["\xff"]}', 422, "Invalid JSON"),
        (b'{"model": "ner", "texts": ["\\ud800"]}', 422, "Invalid JSON"),
        (b'{"texts": [', 422, "Invalid JSON"),
        (b"", 422, "Invalid JSON"),
        (b"[" * 10_000, 422, "Invalid JSON"),
        (b"null", 422, 'must be an object, as in {"texts": ['),
        (b" " * 20_001, 413, "larger than 20000 bytes"),
    ],
)
def test_refusals_say_why(server: Running, content: Any, status: int, message: str) -> None:
    reply = server.predict(content)
    assert reply.status == status, reply.body
    assert message in reply.json["error"]["message"]


def test_other_methods_paths_and_kinds_are_refused(server: Running) -> None:
    assert server.get("/v1/predict").status == 405
    assert server.get("/../../etc/passwd").status == 404
    assert server.get("/page/page.js").status == 404
    plain = server.send("POST", "/v1/predict", b'{"texts": ["a"]}', headers={"Content-Type": "text/plain"})
    assert (plain.status, plain.code) == (415, "content_type")
    assert server.predict({"texts": ["a"]}, **{"Content-Encoding": "gzip"}).status == 415


def test_model_need_not_be_named_where_it_is_the_only_one(predictors: dict[str, Predictor]) -> None:
    with run_server({"ner": predictors["ner"]}) as running:
        reply = running.predict({"texts": ["the cat"]})
        assert (reply.status, reply.json["model"]) == (200, "ner")
        assert running.predict({"texts": []}).json["results"] == []


def test_token_guards_all_but_the_page(predictors: dict[str, Predictor]) -> None:
    token = "correct-horse-battery"
    with run_server({"ner": predictors["ner"]}, token=token) as running:
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/examples"):
            for given in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {token}"}):
                reply = running.send("GET", path, headers=given)
                assert (reply.status, reply.code) == (401, "token")
                assert reply.headers["www-authenticate"] == "Bearer"
            assert running.get(path, Authorization=f"Bearer {token}").status == 200
        assert running.predict({"texts": ["a"]}).status == 401
        assert running.predict({"texts": ["a"]}, Authorization=f"bearer {token}").status == 200
        assert {running.get(path).status for path in ("/health", *PAGE)} == {200}


def test_other_host_names_are_refused(predictors: dict[str, Predictor]) -> None:
    """A page elsewhere could let its name mean this machine, and read the answers as its own."""
    with run_server({"ner": predictors["ner"]}, hosts=frozenset({"localhost", "127.0.0.1", "[::1]"})) as running:
        for name in ("localhost", "127.0.0.1:99", "[::1]:80", "LOCALHOST"):
            assert running.get("/v1/models", Host=name).status == 200
        for name in ("evil.example", "localhost.evil.example:80", "localhost:80:evil", ""):
            assert running.get("/v1/models", Host=name).status in (400, 403)


def test_only_named_origins_may_read_answers(predictors: dict[str, Predictor]) -> None:
    origin, preflight = "https://app.example", {"Access-Control-Request-Method": "POST"}
    wanted = {"Access-Control-Request-Headers": "authorization,content-type", **preflight}
    with run_server({"ner": predictors["ner"]}, token="t" * 20, origins=[origin]) as running:
        asked = running.send("OPTIONS", "/v1/predict", headers={"Origin": origin, **wanted})
        assert asked.status == 200 and asked.headers["access-control-allow-origin"] == origin
        refused = running.predict({"texts": ["a"]}, Origin=origin)
        assert refused.status == 401 and refused.headers["access-control-allow-origin"] == origin
        other = running.send("OPTIONS", "/v1/predict", headers={"Origin": "https://evil.example", **wanted})
        assert "access-control-allow-origin" not in other.headers
    with run_server({"ner": predictors["ner"]}) as running:
        assert "access-control-allow-origin" not in running.predict({"texts": ["a"]}, Origin=origin).headers


def test_full_queue_and_too_many_requests_are_refused(trained: Trained) -> None:
    gated = load_gated(trained("ner"))
    limits = Limits(items=3, queue=3, requests=3, wait=0.0, seconds=120.0)
    with run_server({"ner": gated}, limits=limits) as running, ThreadPoolExecutor(8) as pool:
        first = pool.submit(running.predict, {"texts": ["cat"]})
        assert gated.entered.wait(120)
        second = pool.submit(running.predict, {"texts": ["a", "b", "c"]})
        wait_until(lambda: running.service.models["ner"].batcher.queued == 3)
        full = running.predict({"texts": ["d"]})
        assert (full.status, full.code, full.headers["retry-after"]) == (429, "queue_full", "1")
        running.service.active += 3
        assert running.predict({"texts": ["d"]}).code == "busy"
        running.service.active -= 3
        assert running.get("/health").status == 200
        gated.gate.set()
        assert [reply.result(120).status for reply in (first, second)] == [200, 200]


def test_requests_time_out_and_leave_the_queue(trained: Trained) -> None:
    gated = load_gated(trained("ner"))
    limits = Limits(wait=0.0, seconds=120.0)
    with run_server({"ner": gated}, limits=limits) as running, running.connect() as first, running.connect() as second:
        running.service.limits = replace(limits, seconds=0.1)
        first.sendall(write_request({"texts": ["cat"]}))
        assert gated.entered.wait(120)
        second.sendall(write_request({"texts": ["a", "b", "c"]}))
        assert [client.recv(65_536)[9:12] for client in (first, second)] == [b"504", b"504"]
        running.service.limits = limits
        gated.gate.set()
        assert running.predict({"texts": ["the cat"]}).status == 200
        assert gated.batches == [1, 1], "what nobody waits for was dropped"


def test_failure_is_one_clients_and_no_text_reaches_the_logs(trained: Trained) -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(JsonFormatter())
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    gated = load_gated(trained("ner"))
    try:
        with run_server({"ner": gated}) as running, ThreadPoolExecutor(8) as pool:
            texts = ["held", "the cat", "poison", "a dog"]
            replies = []
            for text in texts:
                replies.append(pool.submit(running.predict, {"texts": [text]}))
                assert gated.entered.wait(120)
            gated.gate.set()
            found = dict(zip(texts, (reply.result(120) for reply in replies), strict=True))
            bad = running.send(
                "POST", "/v1/predict?q=secret", b'{"secret', headers={"Content-Type": "application/json"}
            )
            running.get("/secret")
    finally:
        LOGGER.removeHandler(handler)
    assert {text: reply.status for text, reply in found.items()} == {
        **dict.fromkeys(texts, 200),
        "poison": 500,
    }
    assert bad.status == 422
    assert found["poison"].code == "internal" and b"secret" not in found["poison"].body
    logged = [json.loads(line) for line in lines]
    assert not any(word in line for line in lines for word in ("secret", "cat", "poison", "held"))
    failed = next(line for line in logged if line["status"] == 500)
    assert failed["error"] == "ValueError" and "predict_mixed" in failed["trace"][-1]
    assert failed["id"] == found["poison"].headers["x-request-id"]
    assert {line["inputs"] for line in logged if line["status"] == 200} == {1}
