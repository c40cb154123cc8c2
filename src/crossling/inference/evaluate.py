"""Prediction of data sets: rows are encoded, batched and predicted, for dev scores, evaluation and new text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import numpy as np
import torch

from crossling.data.batching import Array, Batch, Examples, join_examples, plan_prediction, write_examples
from crossling.data.rows import Rows
from crossling.encoders.encoder import Encoder
from crossling.errors import DataError
from crossling.models.model import Model
from crossling.progress import NoProgress, Progress
from crossling.recipe.identity import content_hash
from crossling.registry import identify_plugins, load_kind
from crossling.scores.predictions import Predictions
from crossling.tasks import Task
from crossling.training.distributed import Distributed
from crossling.training.loop import predict_examples

STREAM = 20_000
"""Maximum number of rows that are predicted as one stream; a larger set is a stream by itself."""
LONG, SHORT = 128, 8
"""Subwords of a long example, and the number of short examples that a GPU takes in its place."""
Outputs = Iterable[tuple[Batch, dict[str, Any]]]
_encoding = Lock()


def check_kind(task: Task, rows: Rows) -> Rows:
    """The rows, or an error if the task cannot read their kind."""
    if rows.kind is not task.record:
        raise DataError(
            f"{rows.name} holds {rows.kind.__name__} rows, but a task of kind {task.settings.kind!r} reads "
            f"{task.record.__name__} rows; name another data set or another task"
        )
    return rows


def encode_rows(task: Task, rows: Sequence[Rows], encoder: Encoder, *, cache: Path, labels: Sequence[str]) -> Examples:
    """Encoded examples of one or more sets, from the cache if they were encoded before."""
    facts = {
        "rows": [part.fingerprint for part in rows],
        "encoder": encoder.identity,
        "task": task.settings.model_dump(mode="json"),
        "labels": list(labels),
        "version": load_kind("tasks", task.settings.kind).VERSION,
    }
    if plugins := identify_plugins(facts["task"]):
        facts["plugins"] = plugins
    identity = content_hash(facts)
    path = cache / f"{identity}.arrow"
    if path.exists():
        return Examples(path)
    with _encoding:  # tokenizers are not thread-safe, and another thread may be writing the same file
        if path.exists():
            return Examples(path)
        chunks: Iterator[dict[str, list[Any]]] = chain.from_iterable(part.chunks(2_000) for part in rows)
        return write_examples(path, task.encode(chunks, encoder, labels=labels))


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


def predict_rows(model: Model, task: Task, rows: Rows, **settings: Any) -> Predictions:
    """What a model predicts for every row of one set; settings are those of :func:`predict_sets`."""
    return next(predict_sets(model, task, [rows], **settings))


def predict_sets(
    model: Model,
    task: Task,
    sets: Sequence[Rows],
    *,
    head: str,
    distributed: Distributed,
    cache: Path,
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
            encode_rows(task, [rows], model.encoder, cache=cache, labels=labels)
            for rows, labels in zip(together, known, strict=True)
        ]
        stream = join_examples(parts)
        progress.begin(_describe(together), len(stream))
        plan = plan_stream(stream.lengths, batch, distributed.device)
        outputs = predict_examples(model, reading, stream, distributed=distributed, plan=plan, progress=progress)
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
    """Batches of ``batch`` examples; a GPU takes more if they are short, or it would wait for the next batch."""
    most = batch if device.type == "cpu" else SHORT * batch
    return plan_prediction(lengths, most, LONG * batch)


def _list_labels(task: Task, rows: Rows) -> tuple[str, ...]:
    unseen = sorted(set(task.collect_labels([rows])) - set(task.labels)) if len(rows) else []
    return (*task.labels, *unseen)


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
