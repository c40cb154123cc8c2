"""The routes: predictions, models, examples, health, metrics, and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from crossling.errors import DataError
from crossling.inference.server.batching import ClosedError, QueueFullError
from crossling.inference.server.examples import ExamplesResponse, make_examples
from crossling.inference.server.guard import FACTS, Guard, Refusal
from crossling.inference.server.schema import (
    ErrorResponse,
    ModelsResponse,
    PredictRequest,
    PredictResponse,
    TooLargeError,
    check_size,
)

if TYPE_CHECKING:
    from crossling.inference.server.limits import Limits
    from crossling.inference.server.served import ServedModel, Service

PAGE = {
    "/": ("index.html", "text/html"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""The files of the page, by path."""
REFUSALS = {
    401: "The token is missing or wrong.",
    408: "The request did not arrive in time.",
    413: "The request is larger than a limit.",
    415: "The body is not declared as application/json.",
    422: "The request is not valid.",
    429: "Too many requests or inputs are waiting; try again after a moment.",
    503: "The server stops.",
    504: "The answer took too long.",
}
TRY_AGAIN = {"retry-after": "1"}
CLIENT_GONE = 499


def build_app(
    service: Service,
    *,
    token: str | None = None,
    hosts: frozenset[str] | None = None,
    origins: Sequence[str] = (),
) -> FastAPI:
    """The application; ``origins`` are the other sites whose pages may call it."""

    @asynccontextmanager
    async def closing(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(service.close)

    # Their documentation pages load scripts from elsewhere; docs/serving.md says what they would.
    app = FastAPI(title="crossling", version="1", docs_url=None, redoc_url=None, lifespan=closing)
    add_routes(app, service)
    for path, (name, kind) in PAGE.items():
        add_file(app, path, name, kind)
    app.add_exception_handler(HTTPException, answer_http_error)
    paths = frozenset({"/openapi.json", "/v1/predict", "/v1/models", "/v1/examples", "/health", "/metrics", *PAGE})
    app.add_middleware(Guard, metrics=service.metrics, paths=paths, token=token, hosts=hosts)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["retry-after", "x-request-id"],
        )
    return app


def add_routes(app: FastAPI, service: Service) -> None:
    """What clients call."""

    @app.post(
        "/v1/predict",
        response_model=PredictResponse,
        responses={status: {"model": ErrorResponse, "description": text} for status, text in REFUSALS.items()},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": PredictRequest.model_json_schema()}},
            }
        },
    )
    async def predict(request: Request) -> Response:
        """Tag, classify or answer."""
        if service.active >= service.limits.requests:
            raise Refusal(429, "busy", f"{service.active} requests are being answered; try again", headers=TRY_AGAIN)
        service.active += 1
        try:
            return await answer(request, service)
        finally:
            service.active -= 1

    @app.get("/v1/models")
    async def models() -> ModelsResponse:
        """The served models and the limits on requests."""
        limits = service.limits
        shown = {"items": limits.items, "characters": limits.characters, "total": limits.total, "body": limits.body}
        return ModelsResponse(models=[model.describe() for model in service.models.values()], limits=shown)

    @app.get("/v1/examples")
    async def examples(model: str | None = None) -> ExamplesResponse:
        """Inputs to try, in eight languages, as a model reads them."""
        found = find_model(service, model)
        return await asyncio.to_thread(make_examples, found.reads, labels=len(found.predictor.task.labels))

    @app.get("/health")
    async def health() -> Response:
        """Whether requests are answered."""
        status = "ok" if service.healthy else "stopping" if service.stopping else "failed"
        queued = {name: model.batcher.queued for name, model in service.models.items()}
        content = json.dumps({"status": status, "queued": queued})
        return Response(content, 200 if service.healthy else 503, media_type="application/json")

    @app.get("/metrics")
    async def metrics() -> Response:
        """Counters for Prometheus."""
        return Response(service.metrics.format(), media_type="text/plain; version=0.0.4; charset=utf-8")


def add_file(app: FastAPI, path: str, name: str, kind: str) -> None:
    """Serve a file of the page, read once."""
    content = (files("crossling.inference.server") / "page" / name).read_bytes()

    @app.get(path, include_in_schema=False)
    async def send_file() -> Response:
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})


async def answer(request: Request, service: Service) -> Response:
    """The answer to a request for predictions."""
    facts: dict[str, Any] = request.scope[FACTS]
    body = parse_request(await read_body(request, service.limits))
    model = find_model(service, body.model)
    facts["model"] = model.name
    inputs = body.inputs()
    try:
        facts |= {"inputs": len(inputs), "characters": check_size(body.kind, inputs, service.limits)}
        language = model.resolve_language(body.language)
    except TooLargeError as error:
        raise Refusal(413, "too_large", str(error)) from None
    except DataError as error:
        raise Refusal(422, "language", str(error)) from None
    facts["language"] = language
    if body.kind not in model.reads:
        reads = " or ".join(model.reads)
        raise Refusal(422, "inputs", f"the model {model.name!r} reads {reads}, not {body.kind}")
    try:
        future = model.submit(inputs, language)
    except QueueFullError:
        message = f"{model.batcher.queued} inputs wait for {model.name!r}, of at most {service.limits.queue}; try again"
        raise Refusal(429, "queue_full", message, headers=TRY_AGAIN) from None
    except ClosedError:
        raise Refusal(503, "stopping", "the server stops", headers=TRY_AGAIN) from None
    results = await wait_for(future, request, seconds=service.limits.seconds)
    head = json.dumps({"model": model.name, "language": language}, ensure_ascii=False)[:-1].encode()
    return Response(head + b', "results": [' + b", ".join(results) + b"]}", media_type="application/json")


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


def parse_request(body: bytes) -> PredictRequest:
    """A validated request; an error names each place and what is wrong there, at most eight of them."""
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        shown = [f"{_name_place(problem['loc'])}{problem['msg']}" for problem in problems[:8]]
        more = [f"and {len(problems) - 8} more"] if len(problems) > 8 else []
        raise Refusal(422, "invalid", "; ".join(shown + more)) from None


def _name_place(place: tuple[int | str, ...]) -> str:
    """A place in a request as ``texts[3]: ``; nothing for the request as a whole."""
    name = "".join(f"[{part}]" if isinstance(part, int) else f".{part[:60]}" for part in place)
    return f"{name.removeprefix('.')}: " if name else ""


def find_model(service: Service, name: str | None) -> ServedModel:
    """A model by name; without a name the only one."""
    if name is None and len(service.models) == 1:
        return next(iter(service.models.values()))
    if name is None:
        raise Refusal(422, "model", f"name a model: {', '.join(service.models)}")
    if name not in service.models:
        raise Refusal(422, "model", f"no model {name[:60]!r} is served; served: {', '.join(service.models)}")
    return service.models[name]


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
        results.cancel()
        gone.cancel()


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Errors of routing (no such path, wrong method) in the form of all others."""
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, "http", str(error.detail))
    return Response(refusal.body(), error.status_code, headers=error.headers, media_type="application/json")
