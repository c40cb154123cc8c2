"""Texts as vectors: what a model's heads read, one vector for each text.

B texts, S subwords, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from crossling.data.batching import Batch, Examples, plan_prediction
from crossling.data.records import LabelledText
from crossling.data.rows import Rows
from crossling.inference.evaluate import encode_rows
from crossling.models.heads import pool_sentence
from crossling.objectives.inputs import collate_inputs
from crossling.tasks import build_task, parse_task
from crossling.training.loop import predict_examples

if TYPE_CHECKING:
    from crossling.analyses.context import AnalysisContext
    from crossling.models.model import Model, ModelCard
    from crossling.objectives import Arrays

Array = np.ndarray[Any, np.dtype[Any]]
How = Literal["auto", "cls", "mean", "first"]


@dataclass
class PooledText:
    """Each text's representation, pooled; padding takes no part."""

    how: How
    """As :func:`pool_sentence`; or ``first``, the first token's vector as the fusion gives it."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        return collate_inputs(examples, plan, size=size)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden_BSD = model.represent(batch).float()
        if self.how == "first":
            return {"vector": hidden_BSD[:, 0]}
        return {"vector": pool_sentence(model.encoder, hidden_BSD, batch["mask"], how=self.how).float()}


def embed_rows(model: Model, rows: Rows, *, how: How, length: int, context: AnalysisContext) -> Array:
    """One vector for each row of texts or of pairs, in their order, in single precision whatever the device."""
    kind = "classify" if rows.kind is LabelledText else "classify_pair"
    task = build_task(parse_task({"kind": kind, "length": length}), ())
    examples = encode_rows(task, [rows], model.encoder, cache=context.encoded, labels=())
    outputs = predict_examples(
        model,
        PooledText(how),
        examples,
        distributed=replace(context.distributed, precision=torch.float32),
        plan=plan_prediction(examples.lengths, context.batch),
        progress=context.progress,
    )
    vectors = np.zeros((len(rows), model.encoder.width), np.float32)
    context.progress.begin(f"reading {rows.name}", len(examples.lengths))
    for batch, arrays in outputs:
        vectors[batch.rows] = arrays["vector"]
    context.progress.end()
    return vectors


def choose_pooling(card: ModelCard, pool: str) -> How:
    """What ``pool`` means for a model; ``task``: as its task pools, and where heads read single tokens, their mean."""
    if pool == "cls":
        return "first"
    if pool == "mean":
        return "mean"
    settings: dict[str, Any] = next(iter(card.tasks.values()), {}).get("settings", {})
    how: How = settings.get("pooling", "mean")
    return how
