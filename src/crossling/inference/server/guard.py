"""ASGI middleware that every request passes: host, token, headers of the answer, one line in the log, counters."""

from __future__ import annotations

import hmac
import json
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from crossling.inference.server.logs import log

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from crossling.inference.server.metrics import ServerMetrics

FACTS = "crossling.facts"
"""Under this key of a request's scope, handlers leave what is logged of it: a model's name and numbers."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Refusal(Exception):  # noqa: N818 - it is an answer, not a fault
    """An answer that refuses a request."""

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.message = status, code, message
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The answer as JSON."""
        return json.dumps({"error": {"code": self.code, "message": self.message}}, ensure_ascii=False).encode()


class Guard:
    """Middleware around the application; no exception passes it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServerMetrics,
        paths: frozenset[str],
        free: frozenset[str],
        token: str | None = None,
        hosts: frozenset[str] | None = None,
    ) -> None:
        """``free``: paths that need no token, since they show nothing of models or texts.

        ``hosts``: the only names by which it may be called, against pages that let their name mean this machine.
        """
        self.app, self.metrics, self.paths, self.free = app, metrics, paths, free
        self.token = token.encode() if token is not None else None
        self.hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 0
        identity = uuid4().hex[:16]
        facts: dict[str, Any] = scope.setdefault(FACTS, {})

        async def send_guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name for name, _ in message["headers"]}
                added = {**HEADERS, "x-request-id": identity}.items()
                extra = [(name.encode(), value.encode()) for name, value in added if name.encode() not in present]
                message = {**message, "headers": [*message["headers"], *extra]}
            await send(message)

        failure: Exception | None = None
        try:
            self._check(scope)
            await self.app(scope, receive, send_guarded)
        except Refusal as refusal:
            await send_refusal(refusal, send_guarded)
        except Exception as error:
            failure = error
            if not status:
                await send_refusal(Refusal(500, "internal", f"internal error; request {identity}"), send_guarded)
        finally:
            path = scope["path"] if scope["path"] in self.paths else "unknown"
            seconds = time.monotonic() - began
            self.metrics.requests.add(path=path, status=str(status))
            self.metrics.request_seconds.observe(seconds, path=path)
            level = logging.ERROR if failure else logging.DEBUG if path in ("/health", "/metrics") else logging.INFO
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "OPTIONS") else "other"
            shown = {"id": identity, "method": method, "path": path, "status": status}
            log("request", level=level, error=failure, **shown, milliseconds=round(seconds * 1000, 1), **facts)

    def _check(self, scope: Scope) -> None:
        """Refuse a request with a wrong host, or without the token."""
        headers = dict(scope["headers"])
        if self.hosts is not None and strip_port(headers.get(b"host", b"").decode("latin-1")) not in self.hosts:
            raise Refusal(
                403, "host", "called by another name than localhost; without a token only this machine is answered"
            )
        if self.token is None or scope["path"] in self.free:
            return
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer" or not hmac.compare_digest(given.strip(), self.token):
            message = "send the server's token in the header Authorization: Bearer TOKEN"
            raise Refusal(401, "token", message, headers={"www-authenticate": "Bearer"})


def strip_port(host: str) -> str:
    """The name or address of a Host header."""
    name, _, port = host.rpartition(":")
    return (name if port.isdigit() and name else host).lower()


async def send_refusal(refusal: Refusal, send: Send) -> None:
    """Send a refusal as an answer."""
    body = refusal.body()
    headers = {"content-type": "application/json", "content-length": str(len(body)), **refusal.headers}
    encoded = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
