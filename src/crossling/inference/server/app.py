"""The routes: predictions, models, examples, health, metrics, and the page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from crossling.inference.server.computing import admit, compute, read_body
from crossling.inference.server.examples import ExamplesResponse, make_examples
from crossling.inference.server.guard import Guard, Refusal
from crossling.inference.server.label_studio import add_label_studio, list_paths
from crossling.inference.server.schema import (
    ErrorResponse,
    ModelsResponse,
    PredictRequest,
    PredictResponse,
    describe_fault,
)

if TYPE_CHECKING:
    from crossling.inference.server.served import ServedModel, Service

PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}": (name, "text/javascript") for name in ("page.js", "results.js", "formats.js")},
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
    add_label_studio(app, service)
    for path, (name, kind) in PAGE.items():
        add_file(app, path, name, kind)
    app.add_exception_handler(HTTPException, answer_http_error)
    free = frozenset({"/health", *PAGE})
    paths = free | {"/openapi.json", "/v1/predict", "/v1/models", "/v1/examples", "/metrics"} | list_paths(service)
    app.add_middleware(Guard, metrics=service.metrics, paths=paths, free=free, token=token, hosts=hosts)
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
        with admit(service):
            return await answer(request, service)

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
    body = parse_request(await read_body(request, service.limits))
    model = find_model(service, body.model)
    language, results = await compute(request, service, model, body.inputs(), body.language, kind=body.kind)
    head = json.dumps({"model": model.name, "language": language}, ensure_ascii=False)[:-1].encode()
    return Response(head + b', "results": [' + b", ".join(results) + b"]}", media_type="application/json")


def parse_request(body: bytes) -> PredictRequest:
    """A validated request; an error names each place and what is wrong there, at most eight of them."""
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_input=False, include_context=False)
        shown = [
            f"{_name_place(one['loc'])}{describe_fault(one['loc'], one['type'], one['msg'])}" for one in problems[:8]
        ]
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


async def answer_http_error(request: Request, error: Exception) -> Response:
    """Errors of routing (no such path, wrong method) in the form of all others."""
    assert isinstance(error, HTTPException)
    refusal = Refusal(error.status_code, "http", str(error.detail))
    return Response(refusal.body(), error.status_code, headers=error.headers, media_type="application/json")
