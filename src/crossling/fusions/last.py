"""The last layer, as it is: what the head of a plainly fine-tuned encoder reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from crossling.fusions import Module
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor


class Settings(FrozenSettings):
    """No choices to make."""

    kind: Literal["last"] = "last"


def build(settings: Settings, *, layers: int, width: int) -> LastLayer:
    """The module for an encoder of this many layers."""
    return LastLayer(layers)


class LastLayer(Module):
    """Nothing is fused, nothing is learnt."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.reads = (last,)

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        return hidden[self.reads[0]]
