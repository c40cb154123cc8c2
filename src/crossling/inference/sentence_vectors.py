"""Vectors of sentences: what a model makes of each text, pooled over its tokens.

B texts, S subwords, N sentences, D width, K neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from torch import Tensor

from crossling.data.batching import Array, Batch, Examples, plan_prediction
from crossling.data.records import LabelledText
from crossling.data.rows import Rows
from crossling.inference.evaluate import encode_rows
from crossling.models.heads import pool_sentence
from crossling.models.model import Model
from crossling.objectives.inputs import collate_inputs
from crossling.progress import Progress
from crossling.tasks import build_task, parse_task
from crossling.training.distributed import Distributed
from crossling.training.loop import predict_examples

if TYPE_CHECKING:
    from crossling.objectives import Arrays

How = Literal["auto", "cls", "mean", "last", "first"]
"""As :func:`pool_sentence`; or ``first``, the first token's vector as the fusion gives it."""
BLOCK = 1024
"""Sentences that are compared with all others at a time."""


@dataclass
class PooledText:
    """Each text's representation, pooled; padding takes no part."""

    how: How

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        return collate_inputs(examples, plan, size=size)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        hidden_BSD = model.represent(batch).float()
        if self.how == "first":
            model.encoder.check_cls()
            return {"vector": hidden_BSD[:, 0]}
        return {"vector": pool_sentence(model.encoder, hidden_BSD, batch["mask"], how=self.how).float()}


def embed_texts(
    model: Model,
    rows: Rows,
    *,
    how: How,
    length: int,
    distributed: Distributed,
    cache: Path,
    batch: int,
    progress: Progress,
) -> Array:
    """One vector for each row of texts or of pairs, in their order, in single precision whatever the device."""
    kind = "classify" if rows.kind is LabelledText else "classify_pair"
    task = build_task(parse_task({"kind": kind, "length": length}), ())
    examples = encode_rows(task, [rows], model.encoder, cache=cache, labels=())
    outputs = predict_examples(
        model,
        PooledText(how),
        examples,
        distributed=replace(distributed, precision=torch.float32),
        plan=plan_prediction(examples.lengths, batch),
        progress=progress,
    )
    vectors_ND = np.zeros((len(rows), model.encoder.width), np.float32)
    progress.begin(f"reading {rows.name}", len(examples.lengths))
    for planned, arrays in outputs:
        vectors_ND[planned.rows] = arrays["vector"]
    progress.end()
    return vectors_ND


def find_neighbours(vectors_ND: Array, count: int, device: torch.device) -> Array:
    """For each vector the numbers of the ``count`` others with the highest cosine, the nearest first, N x K.

    A block of rows is compared with all rows at a time, so that the N x N cosines are never held.
    """
    unit_ND = torch.nn.functional.normalize(torch.from_numpy(vectors_ND).to(device), dim=1)
    number = min(count, len(unit_ND) - 1)
    found = []
    for start in range(0, len(unit_ND), BLOCK):
        cosine_BN = unit_ND[start : start + BLOCK] @ unit_ND.T
        own_B = torch.arange(len(cosine_BN), device=device)
        cosine_BN[own_B, start + own_B] = -torch.inf
        found.append(cosine_BN.topk(number, dim=1).indices.cpu().numpy())
    return np.concatenate(found)
