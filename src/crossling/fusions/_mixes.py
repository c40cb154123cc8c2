"""Mixes of layers without attention: a learnt one of all of them, a fixed one of two.

Shapes: B sentences, S subwords, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ScalarMix(nn.Module):
    """``gamma * sum_j softmax(scores)_j * hidden_j``; it starts as the plain mean of its layers."""

    lr: float | None = None
    """The learning rate of these weights, where it is not the stage's."""

    def __init__(self, reads: tuple[int, ...]) -> None:
        super().__init__()
        self.reads = reads
        self.scores = nn.Parameter(torch.zeros(len(reads)))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        weights = self.gamma * torch.softmax(self.scores, dim=0)
        first, *others = self.reads
        mix_BSD = weights[0] * hidden[first]
        for place, layer in enumerate(others, start=1):
            mix_BSD = mix_BSD + weights[place] * hidden[layer]
        return mix_BSD.to(hidden[self.reads[-1]].dtype)


class TwoLayerMean(nn.Module):
    """``weight`` of a lower layer and the rest of the last; nothing to learn."""

    def __init__(self, layer: int, *, layers: int, weight: float) -> None:
        super().__init__()
        self.layer, self.last = layer, layers
        self.reads = tuple(sorted({layer, layers}))
        self.weight = weight

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        last_BSD = hidden[self.last]
        return last_BSD + (self.weight * (hidden[self.layer] - last_BSD)).to(last_BSD.dtype)
