"""A learnt mix of all layers or of some, one weight each, as in ELMo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import model_validator

from crossling.fusions import Layers, LearningRate, Module, find_layers
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor


ADDED = ("layers",)


class Settings(FrozenSettings):
    """Which layers take part."""

    kind: Literal["scalar_mix"] = "scalar_mix"
    embeddings: bool = True
    """Whether the embeddings' output, layer 0, takes part, as in ELMo; else the mix is of layers 1 to the last."""
    lr: LearningRate = None
    """The weights' own learning rate; default: the stage's, at which they hardly leave the plain mean (1e-3 to 1e-2
    is usual)."""
    layers: Layers = ()
    """The layers that take part, such as [0, 6, -1]; default: all."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.layers and not self.embeddings:
            raise ValueError("embeddings = false: with layers, leave out 0 there instead")
        return self


def build(settings: Settings, *, layers: int, width: int) -> ScalarMix:
    """The module for an encoder of this many layers."""
    every = tuple(range(0 if settings.embeddings else 1, layers + 1))
    return ScalarMix(find_layers(settings.layers, layers=layers) or every, lr=settings.lr)


class ScalarMix(Module):
    """``gamma * sum_j softmax(scores)_j * hidden_j``; it starts as the plain mean of its layers."""

    def __init__(self, reads: tuple[int, ...], *, lr: float | None) -> None:
        import torch
        from torch import nn

        super().__init__()
        self.reads, self.lr = reads, lr
        self.scores = nn.Parameter(torch.zeros(len(reads)))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        weights = self.gamma * self.scores.softmax(dim=0)
        first, *others = self.reads
        mix_BSD = weights[0] * hidden[first]
        for place, layer in enumerate(others, start=1):
            mix_BSD = mix_BSD + weights[place] * hidden[layer]
        return mix_BSD.to(hidden[self.reads[-1]].dtype)
