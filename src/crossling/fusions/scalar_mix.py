"""A learnt mix of all layers, one weight each, as in ELMo."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from crossling.fusions._settings import Rate
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import nn


class Settings(FrozenSettings):
    """Which layers take part."""

    kind: Literal["scalar_mix"] = "scalar_mix"
    embeddings: bool = True
    """Whether the embeddings' output, layer 0, takes part, as in ELMo; else the mix is of layers 1 to the last."""
    lr: Rate = None
    """The weights' own learning rate; default: the stage's, at which they hardly leave the plain mean (1e-3 to 1e-2
    is usual)."""


def build(settings: Settings, *, layers: int, width: int) -> nn.Module:
    """The module for an encoder of this many layers."""
    from crossling.fusions._mixes import ScalarMix

    module = ScalarMix(tuple(range(0 if settings.embeddings else 1, layers + 1)))
    module.lr = settings.lr
    return module
