"""Double layers feature aggregation: one lower layer and the last, mixed by an attention map (equations 1 to 4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from crossling.fusions._settings import Layer, Rate, check_layer, check_reduction
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import nn


class Settings(FrozenSettings):
    """Which layer, and which variant of the module."""

    kind: Literal["dlfa"] = "dlfa"
    layer: Layer
    """The layer that is fused with the last: 1 to the one before the last."""
    branches: Literal["both", "global", "local"] = "both"
    """A global (sentence) and a local (token) branch; or, as ablations, two of the one or two of the other."""
    r: int = Field(default=4, ge=1)
    """How much narrower a branch is in its middle; divides the encoder's width."""
    reading: Literal["gate", "weighted"] = "gate"
    """gate: weights between 0 and 1, a mix that keeps its scale; weighted: equation 4 with equation 3 as printed,
    where the weights are multiplied with the mean of the two layers."""
    start: Literal["random", "identity"] = "random"
    """random: from the first step about half of each layer; identity: the last layer exactly, and what training makes
    of it. Either moves with the learning rate, which identity wants much higher than an encoder does."""
    lr: Rate = None
    """The module's own learning rate; default: the stage's."""


def build(settings: Settings, *, layers: int, width: int) -> nn.Module:
    """The module for an encoder of this many layers and this width."""
    from crossling.fusions._aif import DoubleLayerFusion

    check_layer(settings.layer, layers=layers)
    check_reduction(settings.r, width=width)
    module = DoubleLayerFusion(
        settings.layer,
        layers=layers,
        width=width,
        r=settings.r,
        branches=settings.branches,
        reading=settings.reading,
        start=settings.start,
    )
    module.lr = settings.lr
    return module
