"""The process that serves: its socket, its token, slow clients, a shutdown that finishes what was accepted."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from crossling.errors import UserError
from crossling.inference.predictor import Predictor
from crossling.inference.server.app import build_app
from crossling.inference.server.limits import Limits
from crossling.inference.server.logs import log, setup_logs
from crossling.inference.server.served import Service
from crossling.limits import read_regular

TOKEN = "CROSSLING_TOKEN"
"""The environment variable that may hold the token."""
SHORTEST = 16
"""Characters of a token at least."""
HEAD_SECONDS = 10.0
"""Time for the head of a request to arrive, or for a client to finish a body that was refused."""


def make_protocol(seconds: float) -> type[H11Protocol]:
    """HTTP/1.1 with time limits that uvicorn lacks, for clients that send a request's head or read an answer slowly."""
    head = min(seconds, HEAD_SECONDS)

    class TimedProtocol(H11Protocol):
        _head_timer: asyncio.TimerHandle | None = None
        _write_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._head_timer = self.loop.call_later(head, transport.abort)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._cancel_head_timer()
            elif self._head_timer is None:  # a head that is not whole yet, or the rest of a body that was refused
                self._head_timer = self.loop.call_later(head, self.transport.abort)

        def on_response_complete(self) -> None:
            self._cancel_head_timer()
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._write_timer = self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._write_timer is not None:
                self._write_timer.cancel()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_head_timer()
            self.resume_writing()
            super().connection_lost(exc)

        def _cancel_head_timer(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return TimedProtocol


def name_models(given: Sequence[str]) -> dict[str, Path]:
    """Folders by name, from ``NAME=FOLDER`` or ``FOLDER``, which is then named after its last part."""
    models: dict[str, Path] = {}
    for text in given:
        name, equals, folder = text.partition("=")
        if not equals or "/" in name:
            name, folder = Path(text).resolve().name, text
        if not re.fullmatch(r"[\w.-]{1,60}", name):
            raise UserError(f"{text}: {name!r} cannot be a model's name (letters, digits, . _ -); write NAME=FOLDER")
        if name in models:
            raise UserError(f"{text}: another model is called {name!r}; write NAME=FOLDER")
        models[name] = Path(folder)
    return models


def read_token(file: Path | None) -> str | None:
    """The token from a file, or from the environment; none where neither is given."""
    if file is not None:
        try:
            token, where = read_regular(file).decode("utf-8").strip(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"--token-file {file}: cannot be read: {getattr(error, 'strerror', 'not text')}") from None
    elif TOKEN in os.environ:
        token, where = os.environ[TOKEN].strip(), TOKEN
    else:
        return None
    if len(token) < SHORTEST or not re.fullmatch(r"[!-~]+", token):
        raise UserError(
            f"{where}: a token is {SHORTEST} or more ASCII characters without spaces; "
            "make one with: openssl rand -hex 32"
        )
    return token


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_access(host: str, token: str | None, *, no_auth: bool) -> None:
    """Refuse to serve other machines without a token, unless that is wanted."""
    if token is None and not no_auth and not is_loopback(host):
        raise UserError(
            f"--host {host}: other machines could use the models without a token. Set {TOKEN} or --token-file, "
            "or say --no-auth if something in front of the server checks who calls."
        )


def bind(host: str, port: int) -> socket.socket:
    """A socket at an address. Nothing is accepted before the server listens on it."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
    except OSError as error:
        raise UserError(f"{host}:{port}: {error.strerror}; choose another with --host and --port") from None
    return opened


def make_config(app: FastAPI, limits: Limits) -> uvicorn.Config:
    """How uvicorn runs the application."""
    return uvicorn.Config(
        app,
        http=make_protocol(limits.seconds),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(2 * limits.seconds) + 1,
    )


class AnnouncedServer(uvicorn.Server):
    """A server that says when it listens."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def serve(
    models: Mapping[str, Path],
    *,
    load: Callable[[Path], Predictor] = Predictor.load,
    host: str = "127.0.0.1",
    port: int = 8000,
    token: str | None = None,
    no_auth: bool = False,
    origins: Sequence[str] = (),
    limits: Limits | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve models until a signal stops the process; ``ready`` gets the address when requests are accepted."""
    check_access(host, token, no_auth=no_auth)
    limits = limits or Limits()
    opened = bind(host, port)
    setup_logs(sys.stderr)
    service = Service({name: load(folder) for name, folder in models.items()}, limits=limits)
    for model in service.models.values():
        model.warm_up()
        log("model loaded", model=model.name, task=model.predictor.task.settings.kind)
    local = is_loopback(host) and token is None and not no_auth
    hosts = frozenset({"localhost", "127.0.0.1", "[::1]", host.lower()}) if local else None
    config = make_config(build_app(service, token=token, hosts=hosts, origins=origins), limits)
    address = f"http://{f'[{host}]' if ':' in host else host}:{opened.getsockname()[1]}"

    def announce() -> None:
        log("serving", address=address, models=list(service.models), token=token is not None)
        if ready is not None:
            ready(address)

    for number in (signal.SIGINT, signal.SIGTERM):
        # uvicorn handles a signal, and when it has stopped it raises the signal again for this handler: exit with 0.
        signal.signal(number, lambda *_: None)
    AnnouncedServer(config, announce).run(sockets=[opened])
    log("stopped")
