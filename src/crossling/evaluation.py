"""From rows to encoded examples to predictions: what training on dev, evaluation and prediction share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from crossling.data.batching import Examples, plan_prediction, write_examples
from crossling.data.rows import Rows
from crossling.encoder import Encoder
from crossling.errors import DataError
from crossling.model import Model
from crossling.predictions import Predictions
from crossling.recipe import content_hash
from crossling.registry import load_kind
from crossling.training.loop import predict_examples
from crossling.training.progress import Progress, Silence
from crossling.training.world import World


def check_kind(task: Any, rows: Rows) -> Rows:
    """The rows, or an error where they hold something that the task cannot read."""
    if rows.kind is not task.record:
        raise DataError(
            f"{rows.name} holds {rows.kind.__name__} rows, but a task of kind {task.settings.kind!r} reads "
            f"{task.record.__name__} rows; name another data set or another task"
        )
    return rows


def encode_rows(task: Any, rows: Sequence[Rows], encoder: Encoder, *, cache: Path, labels: Sequence[str]) -> Examples:
    """Encoded examples of one or more sets, from the cache where they were encoded before."""
    identity = content_hash(
        {
            "rows": [part.fingerprint for part in rows],
            "encoder": encoder.identity,
            "task": task.settings.model_dump(mode="json"),
            "labels": list(labels),
            "version": load_kind("tasks", task.settings.kind).VERSION,
        }
    )
    path = cache / f"{identity}.arrow"
    if path.exists():
        return Examples(path)
    chunks: Iterator[dict[str, list[Any]]] = chain.from_iterable(part.chunks(2_000) for part in rows)
    return write_examples(path, task.encode(chunks, encoder, labels=labels))


def predict_rows(
    model: Model,
    task: Any,
    rows: Rows,
    *,
    head: str,
    world: World,
    cache: Path,
    batch: int = 128,
    progress: Progress | None = None,
    meta: dict[str, Any] | None = None,
) -> Predictions:
    """What a model predicts for every row; labels that training never saw are kept apart, and count as wrong."""
    check_kind(task, rows)
    progress = progress or Silence()
    unseen = sorted(set(task.collect_labels([rows])) - set(task.labels)) if len(rows) else []
    labels = (*task.labels, *unseen)
    examples = encode_rows(task, [rows], model.encoder, cache=cache, labels=labels)
    plan = plan_prediction(examples.lengths, batch)
    progress.begin(f"predicting {rows.name}", len(examples))
    outputs = predict_examples(model, task.build_objective(head), examples, world=world, plan=plan, progress=progress)
    predictions: Predictions = task.collect(outputs, examples, rows, labels=labels)
    progress.end()
    meta = {"fingerprint": rows.fingerprint, "score": task.settings.score, "skipped": rows.skipped, **(meta or {})}
    return replace(predictions, meta={**predictions.meta, **meta})
