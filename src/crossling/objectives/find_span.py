"""Extractive question answering: where in the context the answer begins and ends.

B windows, S subwords. An answer that lies outside a window is labelled with position 0, the first special token; where
attention is causal with the last one (``nowhere``), which alone has seen the window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.data.batching import Batch, Examples, pad_column
from crossling.objectives import Terms
from crossling.objectives.decoding import best_span
from crossling.objectives.inputs import IGNORED, collate_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossling.models.model import Model
    from crossling.objectives import Arrays

NEVER = -1e4
"""The logit of padding."""
LEAST = 1e-30
"""The least probability of a word, whose logarithm is still a number."""


class Objective:
    """Cross-entropy of the first and of the last subword of the answer, averaged."""

    weights = Terms(task=1.0)

    def __init__(self, name: str, *, longest: int = 30, dropout: float = 0.1) -> None:
        self.name = name
        self.longest = longest
        self.dropout = dropout

    def build_head(self, width: int) -> nn.Module:
        from crossling.models.heads import Head

        return Head(width, 2, self.dropout)

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Besides the inputs: the answer's ends, and which positions belong to the context."""
        ends = {side: np.full(size, IGNORED, dtype=np.int64) for side in ("first", "last")}
        context = np.zeros((size, plan.length), dtype=np.int64)
        for side, labels in ends.items():
            labels[: len(plan.rows)] = examples.take(side, plan.rows).values
        begins = examples.take("context_from", plan.rows).values[:, None]
        inside = np.arange(plan.length) - begins
        context[: len(plan.rows)] = (inside >= 0) & (inside < examples.take("starts", plan.rows).lengths[:, None])
        batch = {**collate_inputs(examples, plan, size=size), **ends, "context": context}
        if "nowhere" in examples.columns:
            batch["nowhere"] = np.zeros(size, dtype=np.int64)
            batch["nowhere"][: len(plan.rows)] = examples.take("nowhere", plan.rows).values
        return batch

    def count_targets(self, batch: Arrays) -> Terms[int]:
        return Terms(task=int((batch["first"] != IGNORED).sum()))

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        return Terms(task=self.sum_task(self.logits(model, batch), batch))

    def sum_task(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        from torch.nn import functional

        first_BS, last_BS = logits.unbind(dim=-1)
        losses = [
            functional.cross_entropy(logits, batch[side], ignore_index=IGNORED, reduction="sum")
            for logits, side in ((first_BS, "first"), (last_BS, "last"))
        ]
        return (losses[0] + losses[1]) / 2

    def locate_predictions(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Words (units) of subwords, since an example and its copy have the same ones; NONE for padding."""
        words = pad_column(examples, "units", plan, size=size, fill=-1)
        return {"compared": np.arange(size)[:, None] < len(plan.rows), "places": words}

    def log_probabilities(self, logits: Tensor, places: Tensor) -> Tensor:
        """Both ends as one distribution, half of it each: its divergence is the mean of theirs. A word is as probable
        as its subwords together."""
        chance_BS2 = logits.softmax(dim=1) / 2
        words = places.shape[1]
        slot_BS = places.where(places >= 0, words)
        empty_BW2 = chance_BS2.new_zeros(len(places), words + 1, 2)
        chance_BW2 = empty_BW2.scatter_add(1, slot_BS[:, :, None].expand(-1, -1, 2), chance_BS2)[:, :words]
        return chance_BW2.flatten(1).clamp(min=LEAST).log()[:, None]

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.decode(self.logits(model, batch), batch)

    def decode(self, logits: Any, batch: dict[str, Any]) -> dict[str, Any]:
        """The best span of each window, and by how much it beats having no answer there."""
        return best_span(
            logits[..., 0], logits[..., 1], batch["context"], longest=self.longest, nowhere=batch.get("nowhere")
        )

    def logits(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """Scores of being the first and the last subword, B x S x 2; padding gets none."""
        logits_BS2: Tensor = model.heads[self.name](model.represent(batch)).float()
        return logits_BS2.masked_fill((batch["mask"] == 0).unsqueeze(-1), NEVER)
