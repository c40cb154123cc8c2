"""Token classification: a class for the first subword of every word.

B sentences, S subwords, C classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.data.batching import Batch, Examples, pad_column
from crossling.objectives import Terms
from crossling.objectives.decoding import top_class
from crossling.objectives.inputs import IGNORED, TARGETS, collate_inputs, fill_targets, sum_cross_entropy

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crossling.models.model import Model
    from crossling.objectives import Arrays


class Objective:
    """Cross-entropy at every word's first subword that holds a character."""

    weights = Terms(task=1.0)

    def __init__(self, name: str, *, classes: int, dropout: float = 0.1) -> None:
        self.name = name
        self.classes = classes
        self.dropout = dropout

    def build_head(self, width: int) -> nn.Module:
        from crossling.models.heads import Head

        return Head(width, self.classes, self.dropout)

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        batch = collate_inputs(examples, plan, size=size)
        labels = np.full((size, plan.length), IGNORED, dtype=np.int64)
        gold, words = examples.take("gold", plan.rows).values, examples.take("firsts", plan.rows)
        labels[np.repeat(np.arange(len(words)), words.lengths), words.values] = np.where(gold >= 0, gold, IGNORED)
        if TARGETS in examples.columns:
            batch[TARGETS] = np.zeros((size, plan.length, self.classes), np.float32)
            for place, row in enumerate(plan.rows):
                firsts = examples.get("firsts", int(row))
                targets = fill_targets(examples, int(row), examples.get("gold", int(row)), self.classes)
                batch[TARGETS][place, firsts] = targets
        return {**batch, "labels": labels}

    def count_targets(self, batch: Arrays) -> Terms[int]:
        return Terms(task=int((batch["labels"] != IGNORED).sum()))

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        return Terms(task=self.sum_task(self.logits(model, batch), batch))

    def sum_task(self, logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return sum_cross_entropy(logits.flatten(0, 1), batch)

    def locate_predictions(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """The first subword of every word, whether it has a label or not."""
        places = pad_column(examples, "firsts", plan, size=size, fill=-1)
        return {"compared": places >= 0, "places": np.maximum(places, 0)}

    def log_probabilities(self, logits: Tensor, places: Tensor) -> Tensor:
        logits_BWC = logits.gather(1, places[:, :, None].expand(-1, -1, logits.shape[-1]))
        return logits_BWC.float().log_softmax(dim=-1)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return self.decode(self.logits(model, batch), batch)

    def decode(self, logits: Any, batch: dict[str, Any]) -> dict[str, Any]:
        best, confidence = top_class(logits)
        return {"best": best, "confidence": confidence}

    def logits(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """The scores of all classes at every subword, B x S x C."""
        logits_BSC: Tensor = model.heads[self.name](model.represent(batch))
        return logits_BSC
