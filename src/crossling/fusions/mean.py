"""A fixed mean of layers, of one lower layer and the last or of any set: the baseline for an attention map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from crossling.fusions import Layer, Layers, Module, find_layer, find_layers
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor

ADDED = ("layers",)


class Settings(FrozenSettings):
    """Which layers, and how much of them."""

    kind: Literal["mean"] = "mean"
    layer: Layer | None = None
    """The layer that is averaged with the last: 1 to the one before the last, 0 for the embeddings' output, or counted
    from the last, which is -1."""
    weight: float = Field(default=0.5, ge=0, le=1)
    """That layer's share; the last has the rest."""
    layers: Layers = ()
    """In place of layer: any layers, which all have the same share, such as [-4, -3, -2, -1]; without both: all."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.layer is not None and self.layers:
            raise ValueError("name either layer, which is averaged with the last, or layers, any set of them")
        if self.layer is None and self.weight != 0.5:
            raise ValueError("weight is the share of layer, which is missing; layers all have the same")
        return self


def build(settings: Settings, *, layers: int, width: int) -> LayerMean:
    """The module for an encoder of this many layers."""
    if settings.layer is None:
        chosen = find_layers(settings.layers or tuple(range(layers + 1)), layers=layers)
        return LayerMean(dict.fromkeys(chosen, 1 / len(chosen)))
    return TwoLayerMean(find_layer(settings.layer, layers=layers), second=layers, weight=settings.weight)


class LayerMean(Module):
    """``sum_j share_j * L_j``, by shares that add up to 1; nothing is learnt."""

    def __init__(self, shares: dict[int, float]) -> None:
        super().__init__()
        self.shares = dict(sorted(shares.items()))
        self.reads = tuple(self.shares)

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        *others, top = self.reads
        mean_BSD = hidden[top]
        for layer in others:
            # The differences from the top layer: exact where a share is 0
            mean_BSD = mean_BSD + (self.shares[layer] * (hidden[layer] - hidden[top])).to(hidden[top].dtype)
        return mean_BSD


class TwoLayerMean(LayerMean):
    """``weight * L1 + (1 - weight) * L2`` of a layer L1 and the last layer L2."""

    def __init__(self, layer: int, *, second: int, weight: float) -> None:
        super().__init__({layer: weight, second: 1 - weight} if layer != second else {second: 1.0})
        self.layer, self.second, self.weight = layer, second, weight

    def weigh(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        """How much of the first layer is in each element of the mix: the same everywhere."""
        return hidden[self.second].new_full((1, 1, 1), self.weight)
