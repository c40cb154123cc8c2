"""The last layer, as it is: what a plain fine-tuned encoder reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor, nn


class Settings(FrozenSettings):
    """No choices to make."""

    kind: Literal["last"] = "last"


def build(settings: Settings, *, layers: int, width: int) -> nn.Module:
    """A module from the hidden states of the layers in its ``reads`` to one representation."""
    from torch import nn

    class LastLayer(nn.Module):
        reads = (layers,)

        def forward(self, hidden_BSD: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
            return hidden_BSD[layers]

    return LastLayer()
