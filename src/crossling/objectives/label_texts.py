"""Sequence classification: a class for each text or pair of texts.

B texts, S subwords, C classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.data.batching import Batch, Examples
from crossling.objectives import Terms
from crossling.objectives.decoding import softmax, top_class
from crossling.objectives.inputs import IGNORED, TARGETS, collate_inputs, fill_targets, sum_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossling.models.heads import Pooling
    from crossling.models.model import Model
    from crossling.objectives import Arrays


class Objective:
    """Cross-entropy on one pooled vector of each text."""

    weights = Terms(task=1.0)

    def __init__(
        self,
        name: str,
        *,
        classes: int,
        pooling: Pooling = "auto",
        dropout: float = 0.1,
        probabilities: bool = False,
    ) -> None:
        self.name = name
        self.probabilities = probabilities
        """Give those of all classes, for texts that are read in windows."""
        self.classes = classes
        self.pooling = pooling
        self.dropout = dropout

    def build_head(self, width: int) -> nn.Module:
        from crossling.models.heads import Head

        return Head(width, self.classes, self.dropout)

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        batch = collate_inputs(examples, plan, size=size)
        labels = np.full(size, IGNORED, dtype=np.int64)
        gold = examples.take("gold", plan.rows).values
        labels[: len(gold)] = np.where(gold >= 0, gold, IGNORED)
        if TARGETS in examples.columns:
            batch[TARGETS] = np.zeros((size, self.classes), np.float32)
            for place, row in enumerate(plan.rows):
                batch[TARGETS][place] = fill_targets(examples, int(row), labels[place : place + 1], self.classes)
        return {**batch, "labels": labels}

    def count_targets(self, batch: Arrays) -> Terms[int]:
        return Terms(task=int((batch["labels"] != IGNORED).sum()))

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        return Terms(task=self.sum_task(self.logits(model, batch), batch))

    def sum_task(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return sum_cross_entropy(logits, batch)

    def locate_predictions(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """The one prediction for each text."""
        return {"compared": np.arange(size)[:, None] < len(plan.rows), "places": np.zeros((size, 1), np.int64)}

    def log_probabilities(self, logits: Tensor, places: Tensor) -> Tensor:
        return logits.float().log_softmax(dim=-1)[:, None]

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.decode(self.logits(model, batch), batch)

    def decode(self, logits: Any, batch: dict[str, Any]) -> dict[str, Any]:
        best, confidence = top_class(logits)
        more = {"probabilities": softmax(logits)} if self.probabilities else {}
        return {"best": best, "confidence": confidence, **more}

    def logits(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """The scores of all classes, B x C."""
        from crossling.models.heads import pool_sentence

        pooled_BD = pool_sentence(model.encoder, model.represent(batch), batch["mask"], how=self.pooling)
        logits_BC: Tensor = model.heads[self.name](pooled_BD)
        return logits_BC
