"""Prediction of data sets: rows are encoded, batched and predicted, for dev scores, evaluation and new text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from crossling.data.batching import (
    Array,
    Batch,
    Examples,
    InMemoryExamples,
    join_examples,
    plan_prediction,
    write_examples,
)
from crossling.data.rows import Rows
from crossling.errors import DataError
from crossling.files import is_intact
from crossling.inference.encoding_key import TOKENIZING, identify_encoding, restrict_encoding
from crossling.progress import NoProgress, Progress
from crossling.scores.predictions import Predictions
from crossling.tasks import Task, check_labels

if TYPE_CHECKING:
    import torch

    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import TaskObjective
    from crossling.training.distributed import Distributed

STREAM = 20_000
"""Maximum number of rows that are predicted as one stream; a larger set is a stream by itself."""
LONG, MOST_SUBWORDS, MOST_EXAMPLES = 128, 256, 16
"""Subwords of a long example; by example of the batch size that is asked for, what a GPU takes at most."""
Outputs = Iterable[tuple[Batch, dict[str, Any]]]


def check_kind(task: Task, rows: Rows) -> Rows:
    """The rows, or an error if the task cannot read their kind."""
    if rows.kind is not task.record:
        raise DataError(
            f"{rows.name} holds {rows.kind.__name__} rows, but a task of kind {task.settings.kind!r} reads "
            f"{task.record.__name__} rows; name another data set or another task"
        )
    if len(rows):
        check_labels(task.collect_labels([rows]), rows.name)
    return rows


def encode_rows(
    task: Task, rows: Sequence[Rows], encoder: Encoder, *, cache: Path | None, labels: Sequence[str]
) -> Examples:
    """Encoded examples of one or more sets, from the cache if they were encoded before; in memory without a cache."""
    chunks: Iterator[dict[str, list[Any]]] = chain.from_iterable(part.chunks(2_000) for part in rows)
    if cache is None:
        with TOKENIZING:
            return InMemoryExamples(task.encode(chunks, encoder, labels=labels))
    path = cache / f"{identify_encoding(task, rows, encoder, labels)}.arrow"
    if is_intact(path):
        return Examples(path)
    with TOKENIZING:  # another thread may be writing the same file
        if is_intact(path):
            return Examples(path)
        limited, reading = restrict_encoding(task, encoder)
        return write_examples(path, limited.encode(chunks, reading, labels=labels))


def encode_ahead(task: Task, sets: Sequence[Rows], encoder: Encoder, *, cache: Path) -> Thread:
    """Encode sets in a thread, while a model trains, as :func:`predict_sets` will need them.

    Errors are ignored here: :func:`predict_sets` raises them.
    """

    def encode() -> None:
        with suppress(Exception):
            for rows in sets:
                encode_rows(task, [rows], encoder, cache=cache, labels=_list_labels(task, rows))

    thread = Thread(target=encode, name="encoding ahead", daemon=True)
    thread.start()
    return thread


class Engine(Protocol):
    """What runs a model: torch (:class:`TorchEngine`) or ONNX Runtime (``onnx/engine.py``)."""

    @property
    def encoder(self) -> Encoder:
        """Its encoder, of which tokenization reads the tokenizer and the limits."""

    def predict(self, objective: TaskObjective, examples: Examples, *, batch: int, progress: Progress) -> Outputs:
        """Every example in a batch of up to ``batch`` with what the objective predicts for it, in any order."""


@dataclass(frozen=True)
class TorchEngine:
    """A model in memory, run by torch on the device of the processes that it was loaded for."""

    model: Model
    distributed: Distributed

    @property
    def encoder(self) -> Encoder:
        return self.model.encoder

    def predict(self, objective: TaskObjective, examples: Examples, *, batch: int, progress: Progress) -> Outputs:
        from crossling.training.loop import predict_examples

        plan = plan_stream(examples.lengths, batch, self.distributed.device)
        return predict_examples(
            self.model, objective, examples, distributed=self.distributed, plan=plan, progress=progress, convert=True
        )


def predict_rows(model: Model, task: Task, rows: Rows, **settings: Any) -> Predictions:
    """What a model predicts for every row of one set; settings are those of :func:`predict_sets`."""
    return next(predict_sets(model, task, [rows], **settings))


def predict_sets(
    model: Model, task: Task, sets: Sequence[Rows], *, distributed: Distributed, **settings: Any
) -> Iterator[Predictions]:
    """What a model in memory predicts; further settings are those of :func:`predict_with`."""
    return predict_with(TorchEngine(model, distributed), task, sets, **settings)


def predict_with(
    engine: Engine,
    task: Task,
    sets: Sequence[Rows],
    *,
    head: str,
    cache: Path | None,
    batch: int = 128,
    progress: Progress | None = None,
    meta: dict[str, Any] | None = None,
) -> Iterator[Predictions]:
    """What a model predicts for every row of each set, in the order of the sets.

    Several sets are one stream, so that a batch holds examples of similar length from any language. A stream has at
    most ``STREAM`` rows, and its sets are yielded before the next begins: a killed process loses little. Labels that
    were not in training stay in the results and count as errors.
    """
    for rows in sets:
        check_kind(task, rows)
    reading, progress = task.build_objective(head), progress or NoProgress()
    for together in group_sets(sets):
        known = [_list_labels(task, rows) for rows in together]
        parts = [
            encode_rows(task, [rows], engine.encoder, cache=cache, labels=labels)
            for rows, labels in zip(together, known, strict=True)
        ]
        stream = join_examples(parts)
        progress.begin(_describe(together), len(stream))
        outputs = engine.predict(reading, stream, batch=batch, progress=progress)
        routed = route_outputs(outputs, [len(part) for part in parts])
        found: list[Predictions] = [
            task.collect(own, examples, rows, labels=labels)
            for rows, labels, examples, own in zip(together, known, parts, routed, strict=True)
        ]
        progress.end()
        for rows, one in zip(together, found, strict=True):
            facts = {"fingerprint": rows.fingerprint, "score": task.settings.score, "skipped": rows.skipped}
            yield replace(one, meta={**one.meta, **facts, **(meta or {})})


def plan_stream(lengths: Array, batch: int, device: torch.device) -> list[Batch]:
    """Batches of ``batch`` examples; a GPU takes more, or it would wait for the next batch."""
    if device.type == "cpu":
        return plan_prediction(lengths, batch, LONG * batch)
    return plan_prediction(lengths, MOST_EXAMPLES * batch, MOST_SUBWORDS * batch)


def _list_labels(task: Task, rows: Rows) -> tuple[str, ...]:
    unseen = sorted(set(task.collect_labels([rows])) - set(task.labels)) if len(rows) else []
    return check_labels((*task.labels, *unseen), rows.name)


def _describe(sets: Sequence[Rows]) -> str:
    names = [rows.name for rows in sets]
    return f"predicting {', '.join(names[:2])}" + (f" and {len(names) - 2} more" if len(names) > 2 else "")


def group_sets(sets: Sequence[Rows]) -> Iterator[list[Rows]]:
    """Consecutive sets, grouped up to the maximum number of rows of a stream."""
    group: list[Rows] = []
    for rows in sets:
        if group and sum(map(len, group)) + len(rows) > STREAM:
            yield group
            group = []
        group.append(rows)
    if group:
        yield group


def route_outputs(outputs: Outputs, sizes: Sequence[int]) -> Sequence[Outputs]:
    """Split the outputs of joined examples by part, with rows counted from each part's first.

    A single part is streamed, not held in memory: it may have any size.
    """
    if len(sizes) == 1:
        return [outputs]
    ends = np.cumsum(sizes)
    routed: list[list[tuple[Batch, dict[str, Any]]]] = [[] for _ in sizes]
    for batch, arrays in outputs:
        owners = np.searchsorted(ends, batch.rows, side="right")
        for owner in np.unique(owners).tolist():
            mine = owners == owner
            own = replace(batch, rows=batch.rows[mine] - (ends[owner] - sizes[owner]))
            routed[owner].append((own, {name: values[mine] for name, values in arrays.items()}))
    return routed
