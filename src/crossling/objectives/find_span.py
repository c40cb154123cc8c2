"""Extractive answers: where in the context the answer begins and ends.

B windows, S subwords. An answer that lies outside a window is labelled with position 0, the first special token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crossling.data.batching import Batch, Examples
from crossling.models.heads import Head
from crossling.objectives import Terms
from crossling.objectives.inputs import IGNORED, collate_inputs

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.objectives import Arrays


class Objective:
    """Cross-entropy of the first and of the last subword of the answer, averaged."""

    weights = Terms(task=1.0)

    def __init__(self, name: str, *, longest: int = 30, dropout: float = 0.1) -> None:
        self.name = name
        self.longest = longest
        self.dropout = dropout

    def build_head(self, width: int) -> nn.Module:
        return Head(width, 2, self.dropout)

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Besides the inputs: the answer's ends, and which positions belong to the context."""
        ends = {side: np.full(size, IGNORED, dtype=np.int64) for side in ("first", "last")}
        context = np.zeros((size, plan.length), dtype=np.int64)
        for place, row in enumerate(plan.rows):
            for side, labels in ends.items():
                labels[place] = examples.get(side, int(row))[0]
            start = int(examples.get("context_from", int(row))[0])
            context[place, start : start + len(examples.get("starts", int(row)))] = 1
        return {**collate_inputs(examples, plan, size=size), **ends, "context": context}

    def count_targets(self, batch: Arrays) -> Terms[int]:
        return Terms(task=int((batch["first"] != IGNORED).sum()))

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        first_BS, last_BS = self._logits(model, batch)
        losses = [
            functional.cross_entropy(logits, batch[side], ignore_index=IGNORED, reduction="sum")
            for logits, side in ((first_BS, "first"), (last_BS, "last"))
        ]
        return Terms(task=(losses[0] + losses[1]) / 2)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The best span of each window, and by how much it beats having no answer there."""
        first_BS, last_BS = (torch.log_softmax(logits, dim=-1) for logits in self._logits(model, batch))
        outside_BS = batch["context"] == 0
        null_B = first_BS[:, 0] + last_BS[:, 0]
        first_BS = first_BS.masked_fill(outside_BS, -torch.inf)
        last_BS = last_BS.masked_fill(outside_BS, -torch.inf)
        # Spans (i, i + k) for every k below the longest, without an S x S table.
        length = first_BS.shape[1]
        best_B = torch.full_like(null_B, -torch.inf)
        start_B = torch.zeros_like(null_B, dtype=torch.long)
        end_B = torch.zeros_like(start_B)
        for extra in range(min(self.longest, length)):
            scores = first_BS[:, : length - extra] + last_BS[:, extra:]
            score_B, place_B = scores.max(dim=1)
            better_B = score_B > best_B
            best_B = torch.where(better_B, score_B, best_B)
            start_B = torch.where(better_B, place_B, start_B)
            end_B = torch.where(better_B, place_B + extra, end_B)
        return {"start": start_B, "end": end_B, "score": best_B - null_B, "confidence": best_B.exp()}

    def _logits(self, model: Model, batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Scores of being the first and the last subword; padding gets none."""
        logits_BS2 = model.heads[self.name](model.represent(batch)).float()
        hidden_BS1 = (batch["mask"] == 0).unsqueeze(-1)
        first_BS, last_BS = logits_BS2.masked_fill(hidden_BS1, -1e4).unbind(dim=-1)
        return first_BS, last_BS
