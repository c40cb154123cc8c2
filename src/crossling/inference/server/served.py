"""Models that are served, each with a queue and a thread of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from crossling.data.languages import get_language
from crossling.inference.predictor import Predictor
from crossling.inference.server.batching import Batcher
from crossling.inference.server.limits import Limits
from crossling.inference.server.metrics import ServerMetrics
from crossling.inference.server.schema import READS, InputKind, ServedModelInfo, count_characters

CHARACTERS = 512
"""Characters of an input, on average, in a batch that is full: a batch of long texts has fewer."""
Query = tuple[Any, str]
"""An input and the code of its language."""


class ServedModel:
    """A model with a queue; results come as JSON, so that the thread that answers clients does not encode them."""

    def __init__(self, name: str, predictor: Predictor, *, limits: Limits, metrics: ServerMetrics) -> None:
        self.name, self.predictor, self.metrics = name, predictor, metrics
        self.reads: tuple[InputKind, ...] = READS[predictor.task.record]
        self.batcher: Batcher[Query, bytes] = Batcher(
            self._predict,
            name=f"model {name}",
            batch=limits.batch,
            wait=limits.wait,
            queue=limits.queue,
            size=lambda query: count_characters(query[0]),
            volume=CHARACTERS * limits.batch,
            observe=self._observe,
        )

    def submit(self, inputs: Sequence[Any], language: str) -> Future[list[bytes]]:
        """Queue inputs; the future holds the JSON of each result."""
        return self.batcher.submit([(item, language) for item in inputs])

    def resolve_language(self, code: str | None) -> str:
        """A known language's code, by default that of the language that the model learnt from."""
        return get_language(code or self.predictor.card.source).code

    def describe(self) -> ServedModelInfo:
        """What a client needs to know of it."""
        task, card = self.predictor.task, self.predictor.card
        settings = task.settings.model_dump(mode="json")
        return ServedModelInfo(
            name=self.name,
            task=task.settings.kind,
            inputs=list(self.reads),
            labels=list(task.labels),
            spans=settings.get("scheme") == "bio",
            source=card.source,
            encoder=card.encoder.rstrip("/").rpartition("/")[2],
        )

    def warm_up(self) -> None:
        """Predict once: the first client should not wait for what is set up on first use."""
        self.predictor.predict(["a"] if "texts" in self.reads else [("a", "a")])

    def _predict(self, queries: list[Query]) -> list[bytes]:
        found = self.predictor.predict_mixed([item for item, _ in queries], [language for _, language in queries])
        return [json.dumps(result, ensure_ascii=False).encode() for result in found]

    def _observe(self, inputs: int, seconds: float) -> None:
        self.metrics.inputs.add(inputs, model=self.name)
        self.metrics.batch_inputs.observe(inputs, model=self.name)
        self.metrics.batch_seconds.observe(seconds, model=self.name)


class Service:
    """All served models by name, and what they have in common."""

    def __init__(self, predictors: Mapping[str, Predictor], *, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.metrics = ServerMetrics(
            lambda: {name: model.batcher.queued for name, model in self.models.items()}, lambda: self.active
        )
        self.models = {
            name: ServedModel(name, predictor, limits=self.limits, metrics=self.metrics)
            for name, predictor in predictors.items()
        }
        self.active = 0
        """Requests that are read or answered now."""
        self.stopping = False

    @property
    def healthy(self) -> bool:
        """Whether requests are answered."""
        return not self.stopping and all(model.batcher.alive for model in self.models.values())

    def close(self) -> bool:
        """Answer what was accepted, within the time limit of a request, and take nothing more."""
        self.stopping = True
        due = time.monotonic() + self.limits.seconds
        batchers = [model.batcher for model in self.models.values()]
        for batcher in batchers:
            batcher.close(0.0)
        return all(batcher.close(max(0.0, due - time.monotonic())) for batcher in batchers)
