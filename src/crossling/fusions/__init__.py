"""Fusions: how an encoder's layers become the representation that a head reads, one file per kind.

A kind's file defines ``Settings`` and ``build`` (:class:`FusionKind`); what it builds is a :class:`Fusion`.
Shapes: B sentences, S subwords, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, cast

from pydantic import BeforeValidator, Field

from crossling.errors import RecipeError
from crossling.limits import MOST_LAYERS
from crossling.recipe.recipe import FrozenSettings
from crossling.registry import load_kind

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.nn import Module as Module

SettingsT = TypeVar("SettingsT", bound=FrozenSettings, contravariant=True)


class Fusion(Protocol):
    """An ``nn.Module`` from the hidden states of some layers to one representation.

    A fusion may also have ``lr``, a learning rate for its own weights; without it they learn at the stage's.
    """

    reads: tuple[int, ...]
    """The layers whose hidden states it needs, in rising order: 0 is the embeddings' output."""

    def __call__(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        """The representation, B x S x D, from hidden states of that shape; ``mask_BS`` is 0 at padding."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Its weights."""


class FusionKind(Protocol[SettingsT]):
    """What a kind's module defines, besides its ``Settings``."""

    def build(self, settings: SettingsT, *, layers: int, width: int) -> Fusion:
        """The module for an encoder with this number of layers and this width."""


def build_fusion(table: dict[str, Any], *, layers: int, width: int) -> Fusion:
    """The fusion that a recipe's table names, for an encoder with this number of layers and this width."""
    module = load_kind("fusions", str(table.get("kind")))
    kind = cast("FusionKind[FrozenSettings]", module)
    return kind.build(module.Settings.model_validate(table), layers=layers, width=width)


if not TYPE_CHECKING:

    class Module:
        """``nn.Module``, whose subclasses can be defined before torch is imported.

        A recipe is checked by the settings of its kinds. Importing torch takes longer than the whole check, so a
        kind's file must not do it; yet its mathematics stands beside its settings. A subclass becomes an ``nn.Module``
        when its first instance is built.
        """

        def __new__(cls, *arguments: Any, **settings: Any) -> Module:
            return object.__new__(_with_torch(cls))

    @cache
    def _with_torch(defined: type) -> type:
        from torch import nn

        if issubclass(defined, nn.Module):
            return defined
        return type(defined.__name__, (defined, nn.Module), {"__module__": defined.__module__})


def _parse_layer(value: Any) -> int:
    """Only the encoder knows its number of layers, so the upper end is checked when the module is built."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"{value!r} is no layer to fuse: name it by number, from 1 (the encoder's first) to the one before its "
            "last (1 to 11 of an encoder with 12)"
        )
    return value


Layer = Annotated[int, BeforeValidator(_parse_layer), Field(ge=1, le=MOST_LAYERS)]
"""A hidden layer: 1 is the first, above the embeddings."""

LearningRate = Annotated[float, Field(gt=0, le=10)] | None
"""A learning rate for the fusion's weights; None: the stage's."""


def check_layer(layer: int, *, layers: int) -> None:
    """The last layer is valid, too: fused with itself it stays as it is, which makes it a control."""
    if not 1 <= layer <= layers:
        raise RecipeError(
            f"fusion.layer = {layer}: the encoder has {layers} layers. Valid: 1 to {layers - 1} "
            f"({layers}, the last, fused with itself, stays as it is)."
        )
