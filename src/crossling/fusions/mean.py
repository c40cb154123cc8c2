"""A fixed mean of one lower layer and the last: the baseline for an attention map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from crossling.fusions import Layer, Module, check_layer
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor


class Settings(FrozenSettings):
    """Which layer, and how much of it."""

    kind: Literal["mean"] = "mean"
    layer: Layer
    """The layer that is averaged with the last: 1 to the one before the last."""
    weight: float = Field(default=0.5, ge=0, le=1)
    """The lower layer's share; the last has the rest."""


def build(settings: Settings, *, layers: int, width: int) -> TwoLayerMean:
    """The module for an encoder of this many layers."""
    check_layer(settings.layer, layers=layers)
    return TwoLayerMean(settings.layer, last=layers, weight=settings.weight)


class TwoLayerMean(Module):
    """``weight * L1 + (1 - weight) * L2`` of a lower layer L1 and the last layer L2; nothing is learnt."""

    def __init__(self, layer: int, *, last: int, weight: float) -> None:
        super().__init__()
        self.layer, self.last = layer, last
        self.reads = tuple(sorted({layer, last}))
        self.weight = weight

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        last_BSD = hidden[self.last]
        return last_BSD + (self.weight * (hidden[self.layer] - last_BSD)).to(last_BSD.dtype)
