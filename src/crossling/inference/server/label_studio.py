"""The protocol of Label Studio's ML backends: a served model pre-annotates the tasks of a project.

In the project's settings, connect a model at ``http://HOST:PORT/label-studio/MODEL``. A task's language is that of the
field ``language`` in its data, or the one that the model learnt from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from fastapi import FastAPI, Request, Response

from crossling.inference.label_studio import build_prediction
from crossling.inference.server.computing import admit, compute, read_body
from crossling.inference.server.guard import Refusal

if TYPE_CHECKING:
    from crossling.inference.server.served import ServedModel, Service

PREFIX = "/label-studio/{name}"
VERBS = ("health", "setup", "webhook", "predict")


@dataclass(frozen=True)
class Labelling:
    """What a project's labelling configuration says."""

    control: str
    """The name of the tag that labels."""
    shown: str
    """The name of the text that is labelled."""
    keys: tuple[str, ...]
    """The fields of a task's data that hold its texts, that of ``shown`` last."""


def list_paths(service: Service) -> set[str]:
    """The paths of all served models."""
    return {f"{PREFIX.format(name=name)}/{verb}" for name in service.models for verb in VERBS}


def add_label_studio(app: FastAPI, service: Service) -> None:
    """The routes that Label Studio calls."""

    @app.get(PREFIX + "/health", include_in_schema=False)
    async def health(name: str) -> Response:
        _find(service, name)
        return _reply({"status": "UP", "model_class": "crossling"})

    @app.post(PREFIX + "/setup", include_in_schema=False)
    async def setup(name: str, request: Request) -> Response:
        _find(service, name)
        await read_body(request, service.limits)
        return _reply({"model_version": name})

    @app.post(PREFIX + "/webhook", include_in_schema=False)
    async def webhook(name: str, request: Request) -> Response:
        """Label Studio reports what was annotated; a served model does not learn."""
        _find(service, name)
        await read_body(request, service.limits)
        return _reply({"status": "ignored"})

    @app.post(PREFIX + "/predict", include_in_schema=False)
    async def predict(name: str, request: Request) -> Response:
        model = _find(service, name)
        with admit(service):
            tasks, labelling = parse_tasks(await read_body(request, service.limits), model)
            return _reply({"results": await _predict(tasks, labelling, model, request, service), "model_version": name})


async def _predict(
    tasks: list[dict[str, Any]], labelling: Labelling, model: ServedModel, request: Request, service: Service
) -> list[dict[str, Any]]:
    """A prediction for every task; those of one language are computed together."""
    inputs = [_read_texts(task, labelling, number) for number, task in enumerate(tasks)]
    groups: dict[str | None, list[int]] = {}
    for number, task in enumerate(tasks):
        groups.setdefault(task.get("language"), []).append(number)
    results: dict[int, dict[str, Any]] = {}
    for language, numbers in groups.items():
        _, found = await compute(request, service, model, [inputs[number] for number in numbers], language)
        for number, one in zip(numbers, found, strict=True):
            results[number] = _rename(build_prediction(json.loads(one), model=model.name), labelling)
    return [results[number] for number in range(len(tasks))]


def _find(service: Service, name: str) -> ServedModel:
    if name not in service.models:
        raise Refusal(404, "model", f"no model {name[:60]!r} is served; served: {', '.join(service.models)}")
    return service.models[name]


def _reply(content: Any) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), media_type="application/json")


def parse_tasks(body: bytes, model: ServedModel) -> tuple[list[dict[str, Any]], Labelling]:
    """The data of a request's tasks, and what its labelling configuration says."""
    try:
        content = json.loads(body)
        tasks = [task["data"] for task in content["tasks"]]
        config = content["label_config"]
        if not isinstance(config, str) or not all(isinstance(task, dict) for task in tasks):
            raise TypeError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Refusal(422, "invalid", "send tasks with data, and label_config, as Label Studio does") from None
    wrong = next((task for task in tasks if not isinstance(task.get("language", ""), str)), None)
    if wrong is not None:
        raise Refusal(422, "language", "a task's language is not text")
    return tasks, parse_config(config, model)


def parse_config(config: str, model: ServedModel) -> Labelling:
    """The names in a labelling configuration that fit what the model predicts."""
    classes = model.predictor.task.settings.kind.startswith("classify")
    wanted = "Choices" if classes else "Labels"
    try:
        if "<!" in config.replace("<!--", ""):
            raise ValueError
        view = ElementTree.fromstring(config)
    except (ElementTree.ParseError, ValueError):
        raise Refusal(422, "config", "label_config is not plain XML") from None
    texts = {tag.get("name", ""): tag.get("value", "").removeprefix("$") for tag in view.iter("Text")}
    control = next((tag for tag in view.iter(wanted) if tag.get("toName") in texts), None)
    if control is None:
        raise Refusal(422, "config", f"label_config has no <{wanted} toName=…> for a <Text>, as this model needs")
    shown = control.get("toName", "")
    pairs = model.reads[0] in ("pairs", "questions")
    if pairs and len(texts) != 2:
        raise Refusal(422, "config", f"label_config has {len(texts)} <Text>; this model reads two")
    keys = tuple(texts.values()) if classes else (*(v for k, v in texts.items() if k != shown), texts[shown])
    return Labelling(control.get("name", ""), shown, keys if pairs else (texts[shown],))


def _read_texts(task: dict[str, Any], labelling: Labelling, number: int) -> Any:
    texts = [task.get(key) for key in labelling.keys]
    missing = next((key for key, text in zip(labelling.keys, texts, strict=True) if not isinstance(text, str)), None)
    if missing is not None:
        raise Refusal(422, "inputs", f"tasks[{number}].data has no text under {missing[:60]!r}")
    return texts[0] if len(texts) == 1 else tuple(texts)


def _rename(prediction: dict[str, Any], labelling: Labelling) -> dict[str, Any]:
    """A prediction under the names of the project's configuration."""
    for entry in prediction["result"]:
        entry |= {"from_name": labelling.control, "to_name": labelling.shown}
    return prediction
