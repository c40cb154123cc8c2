"""Hostile and broken clients: no crash, no leak, and the health check answers all the while."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from crossling.inference.predictor import Predictor
from crossling.inference.server.limits import Limits
from served import HEAD, Running, build_untrained, load_gated, run_server, wait_until, write_request

Trained = Callable[[str], Path]
TIMEOUT = 1.0
"""Seconds after which the server cuts off slow clients, in tests of them."""
GARBAGE = {
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    # One byte over the limit, so that the server has read all of it when it refuses: what it has not read when it
    # closes resets the connection, and the answer may be lost.
    "huge head": b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ".ljust(16_385, b"a"),
    "bad length": HEAD + b"Content-Length: -1\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
}


@contextmanager
def watch_health(running: Running) -> Iterator[None]:
    """Ask for the server's health again and again while the block runs; every answer must be good."""
    done, answers = threading.Event(), []

    def watch() -> None:
        while not done.is_set() or not answers:
            began = time.monotonic()
            with running.connect() as client:
                with suppress(ConnectionError):
                    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                late = time.monotonic() - began > TIMEOUT / 2  # this client was stopped, and may be cut off for it
                answer = read_some(client)
            if answer or not late:
                answers.append(answer[9:12])

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield
        finally:
            done.set()
        watching.result(120)
    assert set(answers) == {b"200"}


def assert_nothing_left(running: Running) -> None:
    """Requests, inputs and connections of clients that are gone are gone, too."""
    state = running.server.server_state
    wait_until(lambda: not state.connections and not state.tasks and not running.service.active)
    assert all(model.batcher.queued == 0 and model.batcher.alive for model in running.service.models.values())


def read_some(client: socket.socket) -> bytes:
    """What the server sends first; nothing where it closed the connection."""
    try:
        return client.recv(65_536)
    except ConnectionError:
        return b""


def read_all(client: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    received = b""
    while part := read_some(client):
        received += part
    return received


@pytest.fixture(scope="module")
def server(trained: Trained) -> Iterator[Running]:
    with run_server({"ner": Predictor.load(trained("ner"))}) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(trained: Trained) -> Iterator[Running]:
    """A server that soon cuts off clients that send a head slowly or do not read; for results it waits as usual."""
    with run_server({"ner": Predictor.load(trained("ner"))}, timeout=TIMEOUT, buffer=8192) as running:
        yield running


@pytest.mark.parametrize("name", GARBAGE)
def test_malformed_requests_are_refused(server: Running, name: str) -> None:
    with watch_health(server), server.connect() as client:
        client.sendall(GARBAGE[name])
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).startswith(b"HTTP/1.1 4")
    assert_nothing_left(server)


def test_slow_heads_are_cut_off(hasty: Running) -> None:
    with watch_health(hasty):
        clients = [hasty.connect() for _ in range(40)]
        for client in clients[:20]:
            client.sendall(b"GET / HTTP/1.1\r\nHo")
        assert {read_all(client) for client in clients} == {b""}
        for client in clients:
            client.close()
    assert_nothing_left(hasty)


def test_slow_bodies_are_cut_off(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.service, "limits", Limits(seconds=TIMEOUT))
    with watch_health(server):
        clients = [server.connect() for _ in range(40)]
        for client in clients:
            client.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        assert {read_all(client)[9:12] for client in clients} == {b"408"}
        for client in clients:
            client.close()
    assert_nothing_left(server)


def test_second_head_on_a_connection_is_cut_off(hasty: Running) -> None:
    with hasty.connect() as client:
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(65_536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /health HTTP/1.1\r\nHos")
        assert b"200" not in read_all(client)
    assert_nothing_left(hasty)


def test_endless_head_is_cut_off(server: Running) -> None:
    with watch_health(server), server.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(b"a" * 65_536)
    assert_nothing_left(server)


def test_endless_body_is_refused_and_cut_off(hasty: Running) -> None:
    with watch_health(hasty), hasty.connect() as client:
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        part = b"10000\r\n" + b" " * 65_536 + b"\r\n"
        with pytest.raises(ConnectionError):
            while True:
                client.sendall(part)
    assert_nothing_left(hasty)


def test_client_that_sends_all_before_it_reads_gets_the_refusal(server: Running) -> None:
    reply = server.predict(b'{"texts": ["' + b"a" * 5_000_000 + b'"]}')
    assert (reply.status, reply.code) == (413, "too_large")
    assert_nothing_left(server)


def test_client_that_never_reads_is_cut_off(hasty: Running) -> None:
    with socket.socket() as client:
        with watch_health(hasty):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect((hasty.host, hasty.port))
            client.sendall(write_request({"texts": ["a " * 200] * 100}))
            assert client.recv(12) == b"HTTP/1.1 200"
        assert_nothing_left(hasty)
        assert len(read_all(client)) < 200_000, "the answer was not sent whole"


def test_clients_that_leave_are_not_computed_for(trained: Trained) -> None:
    gated = load_gated(trained("ner"))
    with run_server({"ner": gated}, limits=Limits(wait=0.0, seconds=120.0)) as running, watch_health(running):
        content = {"texts": ["the cat"]}
        clients = [running.connect() for _ in range(20)]
        clients[0].sendall(write_request(content))
        assert gated.entered.wait(120)
        for client in clients[1:]:
            client.sendall(write_request(content))
        wait_until(lambda: running.service.active == 20)
        for client in clients:
            client.close()
        wait_until(lambda: not running.service.active)
        gated.gate.set()
        assert running.predict(content).status == 200
        assert gated.batches == [1, 1], "of those that left, only the first was begun"


@pytest.mark.parametrize("unit", ["a.", "1,", "🇮", "a\u200d", "\u0301", "👩‍", "ก", "#", "\u202e", "\0", "x@", "我"])
def test_hostile_texts_are_answered(server: Running, unit: str) -> None:
    text = (unit * 10_000)[:9_998] + "1a"
    with watch_health(server):
        reply = server.predict({"texts": [text]})
    assert reply.status == 200, reply.body
    [result] = reply.json["results"]
    assert all(text[word["start"] : word["end"]] == word["word"] for word in result["words"])
    assert_nothing_left(server)


def test_model_of_ten_thousand_labels_is_served() -> None:
    labels = [f"<b>label {number}</b>" for number in range(10_000)]
    with run_server({"many": build_untrained(labels)}) as running, watch_health(running):
        assert running.get("/v1/models").json["models"][0]["labels"] == labels
        reply = running.predict({"texts": ["the cat sees a dog"] * 200})
        assert reply.status == 200
        assert {word["tag"] for word in reply.json["results"][0]["words"]} <= set(labels)
