"""From a request to results: reading within limits, admission, the queue, waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request

from crossling.errors import DataError
from crossling.inference.server.batching import ClosedError, QueueFullError
from crossling.inference.server.guard import FACTS, Refusal
from crossling.inference.server.schema import InputKind, TooLargeError, check_size

if TYPE_CHECKING:
    from crossling.inference.server.limits import Limits
    from crossling.inference.server.served import ServedModel, Service

TRY_AGAIN = {"retry-after": "1"}
CLIENT_GONE = 499


@contextmanager
def admit(service: Service) -> Iterator[None]:
    """Count a request as long as it is read and answered; refuse it where too many are."""
    if service.active >= service.limits.requests:
        raise Refusal(429, "busy", f"{service.active} requests are being answered; try again", headers=TRY_AGAIN)
    service.active += 1
    try:
        yield
    finally:
        service.active -= 1


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body of a request, within the limits on its size and time."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" or request.headers.get("content-encoding", "identity") != "identity":
        raise Refusal(415, "content_type", "send plain JSON with the header Content-Type: application/json")
    too_large = Refusal(413, "too_large", f"the request is larger than {limits.body} bytes; send several requests")
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > limits.body:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                body += part
                if len(body) > limits.body:
                    raise too_large
    except TimeoutError:
        message = f"the request did not arrive within {limits.seconds:g} seconds"
        raise Refusal(408, "slow", message, headers={"connection": "close"}) from None
    except ClientDisconnect:
        raise Refusal(CLIENT_GONE, "gone", "the client left") from None
    return bytes(body)


async def compute(
    request: Request,
    service: Service,
    model: ServedModel,
    inputs: list[Any],
    language: str | None,
    *,
    kind: InputKind | None = None,
) -> tuple[str, list[bytes]]:
    """The language of inputs and the JSON of each result; ``kind``: of the inputs, where the client names it."""
    facts: dict[str, Any] = request.scope[FACTS]
    facts["model"] = model.name
    try:
        facts |= {"inputs": len(inputs), "characters": check_size(kind or model.reads[0], inputs, service.limits)}
        code = model.resolve_language(language)
    except TooLargeError as error:
        raise Refusal(413, "too_large", str(error)) from None
    except DataError as error:
        raise Refusal(422, "language", str(error)) from None
    facts["language"] = code
    if kind is not None and kind not in model.reads:
        reads = " or ".join(model.reads)
        raise Refusal(422, "inputs", f"the model {model.name!r} reads {reads}, not {kind}")
    try:
        future = model.submit(inputs, code)
    except QueueFullError:
        message = f"{model.batcher.queued} inputs wait for {model.name!r}, of at most {service.limits.queue}; try again"
        raise Refusal(429, "queue_full", message, headers=TRY_AGAIN) from None
    except ClosedError:
        raise Refusal(503, "stopping", "the server stops", headers=TRY_AGAIN) from None
    return code, await wait_for(future, request, seconds=service.limits.seconds)


async def wait_for(future: Future[list[bytes]], request: Request, *, seconds: float) -> list[bytes]:
    """The results of a job, unless they take too long or the client leaves: then the job leaves the queue."""
    results, gone = asyncio.wrap_future(future), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        either: set[asyncio.Future[Any]] = {results, gone}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if results.done():
            return results.result()
        if gone.done():
            raise Refusal(CLIENT_GONE, "gone", "the client left")
        raise Refusal(504, "timeout", f"no result within {seconds:g} seconds; send fewer or shorter texts")
    finally:
        future.cancel()  # at once: cancelling ``results`` does it only after the answer may have been sent
        results.cancel()
        gone.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
