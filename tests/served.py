"""A server in a thread, on tiny models, and a plain client: what the server and its page are tested with."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import torch
import uvicorn

from crossling.inference.predictor import Predictor
from crossling.inference.server.app import build_app
from crossling.inference.server.limits import Limits
from crossling.inference.server.process import bind, make_config
from crossling.inference.server.served import Service
from crossling.models.heads import Head
from crossling.models.model import ModelCard, build_model
from tiny import tiny_encoder
from trained import wrap

HEAD = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def write_request(content: Any) -> bytes:
    """A request for predictions, to be sent at once: its body cannot come later than its head."""
    body = json.dumps(content).encode()
    return HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body


class GatedPredictor(Predictor):
    """A model that predicts when its gate is open, and fails on the word ``poison``."""

    def __init__(self, loaded: Predictor) -> None:
        super().__init__(loaded.engine, loaded.card)
        self.gate, self.entered = threading.Event(), threading.Event()
        self.batches: list[int] = []

    def predict_mixed(self, inputs: Sequence[Any], languages: Sequence[str | None]) -> list[dict[str, Any]]:
        self.entered.set()
        assert self.gate.wait(120)
        if any("poison" in item for item in inputs):
            raise ValueError("secret text of a user")
        self.batches.append(len(inputs))
        return super().predict_mixed(inputs, languages)


def build_untrained(labels: Sequence[str], *, scheme: str = "none") -> Predictor:
    """A tagger with random weights and any labels."""
    encoder = tiny_encoder("xlm-r", layers=1)
    model = build_model(encoder, {"kind": "last"})
    torch.manual_seed(0)
    model.heads["main"] = Head(encoder.width, len(labels), 0.0)
    settings = {"kind": "tag", "scheme": scheme}
    card = ModelCard("tiny", encoder.identity, tasks={"main": {"settings": settings, "labels": list(labels)}})
    return wrap(model, card)


@dataclass
class Reply:
    """The answer to a request."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """What an error is called."""
        return str(self.json["error"]["code"])


@dataclass
class Running:
    """A server that listens."""

    service: Service
    server: uvicorn.Server
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def send(
        self, method: str, path: str, body: bytes | None = None, *, headers: dict[str, str] | None = None
    ) -> Reply:
        """A request on a connection of its own."""
        connection = HTTPConnection(self.host, self.port, timeout=120)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return Reply(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def connect(self) -> socket.socket:
        """A plain connection."""
        return socket.create_connection((self.host, self.port), timeout=120)

    def get(self, path: str, **headers: str) -> Reply:
        return self.send("GET", path, headers=headers)

    def predict(self, content: Any, **headers: str) -> Reply:
        """A request for predictions; bytes are sent as they are."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.send("POST", "/v1/predict", body, headers={"Content-Type": "application/json", **headers})


@contextmanager
def run_server(
    predictors: dict[str, Predictor],
    *,
    limits: Limits | None = None,
    timeout: float | None = None,
    buffer: int | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """A server as the command starts it, on any free port, until the block ends.

    ``timeout``: seconds for a client to send a head or to read, by default those of the limits; ``buffer``: bytes
    that it sends ahead.
    """
    limits = limits or Limits()
    service = Service(predictors, limits=limits)
    timeout = limits.seconds if timeout is None else timeout
    server = uvicorn.Server(make_config(build_app(service, **settings), replace(limits, seconds=timeout)))
    opened = bind("127.0.0.1", 0)
    if buffer is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    opened.listen()
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]}, daemon=True)
    thread.start()
    try:
        yield Running(service, server, "127.0.0.1", opened.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(120)
        assert not thread.is_alive(), "the server does not stop"


def wait_until(condition: Callable[[], bool], *, seconds: float = 120.0) -> None:
    """Until something holds; an error where it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def load_gated(folder: Path) -> GatedPredictor:
    """A trained model with a gate."""
    return GatedPredictor(Predictor.load(folder))
