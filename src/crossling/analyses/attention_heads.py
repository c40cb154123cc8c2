"""Attention heads: where each family of encoders keeps them, and their outputs.

B sentences, S subwords, L layers, H heads of a layer, D width of the encoder, d width of a head (D = H * d). The
output of a head is the input of its slice of the output projection; through the slices and summed, with the bias, the
heads of a layer make its attention's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from crossling.encoders.encoder import FAMILIES
from crossling.errors import EncoderError

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder


@dataclass(frozen=True, slots=True)
class ProjectionNames:
    """Where in a layer the projections are; ``joined`` is one module with query, key and value below each other."""

    output: str
    query: str = ""
    key: str = ""
    value: str = ""
    joined: str = ""


_BERT = ProjectionNames("attention.output.dense", "attention.self.query", "attention.self.key", "attention.self.value")
PROJECTIONS = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": ProjectionNames("attention.out_lin", "attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "modernbert": ProjectionNames("attn.Wo", joined="attn.Wqkv"),
}


@dataclass(frozen=True)
class Attention:
    """The projections of one layer."""

    output: nn.Linear
    projections: tuple[nn.Linear, ...]
    """Query, key and value; or one that is all three."""


def find_attention(encoder: Encoder) -> list[Attention]:
    """The attention of every layer, or an error where the encoder has no heads that stand side by side."""
    family = encoder.model.config.model_type
    if family not in PROJECTIONS or family not in FAMILIES:
        raise EncoderError(
            f"{encoder.name}: no attention heads are known in a model of type {family!r}; heads of "
            f"{', '.join(sorted(PROJECTIONS))} can be analysed"
        )
    names = PROJECTIONS[family]
    layers = encoder.model.get_submodule(FAMILIES[family].layers)
    found = [_find_in_layer(encoder, layer, names, number) for number, layer in enumerate(layers)]
    if len(found) != encoder.layers:
        raise EncoderError(f"{encoder.name}: {len(found)} of its {encoder.layers} layers have attention of their own")
    return found


def _find_in_layer(encoder: Encoder, layer: nn.Module, names: ProjectionNames, number: int) -> Attention:
    inputs = [names.joined] if names.joined else [names.query, names.key, names.value]
    modules = [_find_linear(encoder, layer, name, number) for name in (names.output, *inputs)]
    width = encoder.width
    rows = 3 * width if names.joined else width
    fits = [modules[0].in_features == width, *(module.out_features == rows for module in modules[1:])]
    if encoder.width % encoder.heads or not all(fits):
        raise EncoderError(
            f"{encoder.name}: layer {number + 1} has no {encoder.heads} heads of equal width side by side, so that "
            "the output of one cannot be separated from the others'"
        )
    return Attention(modules[0], tuple(modules[1:]))


def _find_linear(encoder: Encoder, layer: nn.Module, name: str, number: int) -> nn.Linear:
    try:
        module = layer.get_submodule(name)
    except AttributeError:
        module = None
    if not isinstance(module, nn.Linear):
        raise EncoderError(
            f"{encoder.name}: layer {number + 1} has no linear projection {name!r}, where a model of type "
            f"{encoder.model.config.model_type!r} has its attention heads"
        )
    return module


@contextmanager
def capture_heads(encoder: Encoder) -> Iterator[list[Tensor]]:
    """The outputs of the heads of each layer in a forward pass, side by side: L tensors of B x S x D.

    A hook on the output projection sees it under every kernel of attention; weights of attention, which some kernels
    never form, are not needed.
    """
    seen: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    handles = [attention.output.register_forward_pre_hook(keep) for attention in find_attention(encoder)]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
