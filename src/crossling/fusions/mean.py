"""A fixed mean of one lower layer and the last: what an attention map has to beat."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from crossling.fusions._settings import Layer, check_layer
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import nn


class Settings(FrozenSettings):
    """Which layer, and how much of it."""

    kind: Literal["mean"] = "mean"
    layer: Layer
    """The layer that is averaged with the last: 1 to the one before the last."""
    weight: float = Field(default=0.5, ge=0, le=1)
    """The lower layer's share; the last has the rest."""


def build(settings: Settings, *, layers: int, width: int) -> nn.Module:
    """The module for an encoder of this many layers."""
    from crossling.fusions._mixes import TwoLayerMean

    check_layer(settings.layer, layers=layers)
    return TwoLayerMean(settings.layer, layers=layers, weight=settings.weight)
