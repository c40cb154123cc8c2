"""Attention heads: where each family of encoders keeps them, what they give out, and what they weigh.

B sentences, S subwords, L layers, H heads of a layer, D width of the encoder, d width of a head (D = H * d). What a
head gives out is what goes into its slice of the output projection; through the slices and summed, with the bias, the
heads of a layer make its attention's output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from crossling.encoders.encoder import FAMILIES
from crossling.errors import EncoderError

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder

PARTS = ("query", "key", "value", "output")
"""What a head weighs: rows of three projections, and columns of the fourth."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where in a layer the projections are; ``joined`` is one module with query, key and value below each other."""

    output: str
    query: str = ""
    key: str = ""
    value: str = ""
    joined: str = ""


_BERT = Places("attention.output.dense", "attention.self.query", "attention.self.key", "attention.self.value")
PLACES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "distilbert": Places("attention.out_lin", "attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "modernbert": Places("attn.Wo", joined="attn.Wqkv"),
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
    if family not in PLACES or family not in FAMILIES:
        raise EncoderError(
            f"{encoder.name}: no attention heads are known in a model of type {family!r}; heads of "
            f"{', '.join(sorted(PLACES))} can be looked at"
        )
    places = PLACES[family]
    layers = encoder.model.get_submodule(FAMILIES[family].layers)
    found = [_find_in_layer(encoder, layer, places, number) for number, layer in enumerate(layers)]
    if len(found) != encoder.layers:
        raise EncoderError(f"{encoder.name}: {len(found)} of its {encoder.layers} layers have attention of their own")
    return found


def _find_in_layer(encoder: Encoder, layer: nn.Module, places: Places, number: int) -> Attention:
    names = [places.joined] if places.joined else [places.query, places.key, places.value]
    modules = [_find_linear(encoder, layer, name, number) for name in (places.output, *names)]
    width = encoder.width
    rows = 3 * width if places.joined else width
    fits = [modules[0].in_features == width, *(module.out_features == rows for module in modules[1:])]
    if encoder.width % encoder.heads or not all(fits):
        raise EncoderError(
            f"{encoder.name}: layer {number + 1} has no {encoder.heads} heads of equal width side by side, so that "
            "what one of them does cannot be told from the others"
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
def watch_heads(encoder: Encoder) -> Iterator[list[Tensor]]:
    """What the heads of each layer give out in a forward pass, side by side: L tensors of B x S x D.

    A hook on the output projection sees it under every kernel of attention; weights of attention, which some kernels
    never form, are not needed.
    """
    seen: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0])

    with _hook((attention.output, keep) for attention in find_attention(encoder)):
        yield seen


@contextmanager
def silence_heads(encoder: Encoder, heads: Iterable[tuple[int, int]]) -> Iterator[None]:
    """While this lasts, the named heads (layer and head, from 0) give out nothing."""
    silent = set(heads)
    attentions = find_attention(encoder)
    wrong = [one for one in sorted(silent) if not (0 <= one[0] < encoder.layers and 0 <= one[1] < encoder.heads)]
    if wrong:
        raise EncoderError(
            f"{encoder.name}: no head {wrong[0]}; layers are 0 to {encoder.layers - 1}, heads 0 to {encoder.heads - 1}"
        )

    def silence(layer: int) -> Callable[..., tuple[Tensor]]:
        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Tensor]:
            heads_BSHd = inputs[0].unflatten(-1, (encoder.heads, -1)).clone()
            for number in range(encoder.heads):
                if (layer, number) in silent:
                    heads_BSHd[:, :, number] = 0
            return (heads_BSHd.flatten(2),)

        return hook

    with _hook((attentions[layer].output, silence(layer)) for layer in {layer for layer, _ in silent}):
        yield


@contextmanager
def _hook(hooks: Iterable[tuple[nn.Module, Callable[..., Any]]]) -> Iterator[None]:
    handles = [module.register_forward_pre_hook(hook) for module, hook in hooks]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def list_head_weights(encoder: Encoder) -> list[dict[str, Tensor]]:
    """For each layer and part, the weights of its heads, H x (weights and biases of one head), on the CPU.

    The output's bias belongs to no head.
    """
    return [_list_in_layer(attention, encoder.heads) for attention in find_attention(encoder)]


def _list_in_layer(attention: Attention, heads: int) -> dict[str, Tensor]:
    rows = [projection.weight.detach().cpu().float() for projection in attention.projections]
    biases = [projection.bias for projection in attention.projections if projection.bias is not None]
    weights = torch.cat(rows).view(3, heads, -1)
    if biases:
        bias = torch.cat([bias.detach().cpu().float() for bias in biases]).view(3, heads, -1)
        weights = torch.cat([weights, bias], dim=2)
    output = attention.output.weight.detach().cpu().float()
    slices = output.view(len(output), heads, -1).transpose(0, 1).flatten(1)
    return dict(zip(PARTS, (*weights.unbind(0), slices), strict=True))


def measure_updates(before: Encoder, after: Encoder) -> list[dict[str, Tensor]]:
    """For each layer, the mean absolute change of each head's weights by part and over ``all``, H numbers each.

    ``weight`` is the mean absolute weight before, over all parts.
    """
    shapes = [(e.layers, e.heads, e.width) for e in (before, after)]
    if shapes[0] != shapes[1]:
        told = " and ".join(f"{layers} layers of {heads} heads, width {width}" for layers, heads, width in shapes)
        raise EncoderError(f"{before.name} and {after.name}: {told}; heads are compared within one kind of encoder")
    found = []
    for old, new in zip(list_head_weights(before), list_head_weights(after), strict=True):
        changes = {part: (new[part] - old[part]).abs() for part in PARTS}
        measures = {part: change.mean(1) for part, change in changes.items()}
        measures["all"] = torch.cat(list(changes.values()), dim=1).mean(1)
        measures["weight"] = torch.cat([old[part].abs() for part in PARTS], dim=1).mean(1)
        found.append(measures)
    return found
