"""Fusions: how an encoder's layers become the representation that a head reads, one file per kind.

A kind's file defines ``Settings`` and ``build`` (:class:`FusionKind`); what it builds is a :class:`Fusion`.
Shapes: B sentences, S subwords, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar, cast

from pydantic import BeforeValidator, Field, PlainSerializer

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

    A fusion may also have ``lr``, a learning rate for its own weights; without it they learn at the stage's. One that
    mixes two layers may have their numbers, ``layer`` and ``second``, and ``weigh``, with the arguments of a call: how
    much of the first is in each element of the mix, which ``analyses/gates.py`` shows.
    """

    reads: tuple[int, ...]
    """The layers whose hidden states it needs, in rising order: 0 is the embeddings' output."""

    def __call__(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        """The representation, B x S x D, from hidden states of that shape; ``mask_BS`` is 0 at padding."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Its weights."""


class FusionKind(Protocol[SettingsT]):
    """What a kind's module defines, besides its ``Settings``; see also :func:`identify_fusion`."""

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
    """Only the encoder knows its number of layers, so both ends are checked when the module is built."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(
            f"{value!r} is no layer: name it by number, from 0 (the embeddings' output) and 1 (the encoder's first "
            "layer) up, or from the last down: -1, -2"
        )
    return value


Layer = Annotated[int, BeforeValidator(_parse_layer), Field(ge=-MOST_LAYERS, le=MOST_LAYERS)]
"""A layer's hidden states: 0 is the embeddings' output, 1 the first layer's, -1 the last one's."""


def _parse_layers(value: Any) -> Any:
    """A list, as a model's card in JSON has it, as a tuple."""
    if not isinstance(value, list | tuple):
        raise ValueError(f"{value!r} is no list of layers, such as [0, 6, -1]")
    if len(set(map(str, value))) < len(value):
        raise ValueError("every layer once")
    return tuple(value)


Layers = Annotated[tuple[Layer, ...], BeforeValidator(_parse_layers), PlainSerializer(list, return_type=list[int])]
"""Several layers, each once; a list in tables, so that a model's card equals the recipe's table."""

LearningRate = Annotated[float, Field(gt=0, le=10)] | None
"""A learning rate for the fusion's weights; None: the stage's."""


def find_layer(layer: int, *, layers: int, key: str = "layer") -> int:
    """The number of a layer from 0 up, or an error where the encoder has no such layer."""
    if not -layers - 1 <= layer <= layers:
        raise RecipeError(
            f"fusion.{key} = {layer}: the encoder has {layers} layers. Valid: 0 (the embeddings' output) to {layers}, "
            f"or -1 (the last layer) to {-layers - 1}."
        )
    return layer if layer >= 0 else layers + 1 + layer


def find_layers(chosen: Layers, *, layers: int) -> tuple[int, ...]:
    """The numbers of several layers in rising order, each once."""
    found = sorted(find_layer(layer, layers=layers, key="layers") for layer in chosen)
    if len(set(found)) < len(found):
        raise RecipeError(
            f"fusion.layers = {list(chosen)}: names a layer twice, for -1 is layer {layers}; name each once"
        )
    return tuple(found)


def identify_fusion(table: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a fusion's settings that results are known by.

    What a kind's file lists as ``ADDED`` came after results had been stored, so it counts only where it is not the
    default.
    """
    module = load_kind("fusions", str(table.get("kind")))
    added = {name: module.Settings.model_fields[name].get_default() for name in getattr(module, "ADDED", ())}
    unused = {name for name, default in added.items() if table.get(name, default) in (default, [])}
    return {name: value for name, value in table.items() if name not in unused}
