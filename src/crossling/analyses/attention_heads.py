"""Attention heads: their weights in an encoder, and their outputs.

B sentences, S subwords, L layers, H heads of a layer, D width of the encoder, d width of a head (D = H * d). The
output of a head is the input of its slice of the output projection; through the slices and summed, with the bias, the
heads of a layer make its attention's output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from crossling.encoders.structure import Attention, find_projections
from crossling.errors import EncoderError

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder


def find_attention(encoder: Encoder) -> list[Attention]:
    """The attention of every layer, or an error where the encoder has no heads that stand side by side.

    Layers that share their weights have one.
    """
    return [_find_in_layer(encoder, layer, number) for number, layer in enumerate(encoder.get_layers(), 1)]


def _find_in_layer(encoder: Encoder, layer: nn.Module, number: int) -> Attention:
    attention = find_projections(layer)
    if attention is None:
        raise EncoderError(
            f"{encoder.name}: no attention heads are known in layer {number}: a model of type "
            f"{encoder.model.config.model_type!r} has no linear projections of queries, keys, values and output there"
        )
    width, (query, *others) = encoder.width, attention.projections
    if any(other.out_features != query.out_features for other in others):
        raise EncoderError(
            f"{encoder.name}: layer {number} has fewer heads of keys and values than of queries (grouped-query "
            "attention), so that its heads do not have weights of their own to compare"
        )
    rows = width if others else 3 * width
    if attention.output.in_features != width or query.out_features != rows or width % encoder.heads:
        raise EncoderError(
            f"{encoder.name}: layer {number} has no {encoder.heads} heads of equal width side by side that together "
            f"are as wide as the encoder ({width}), so that the output of one cannot be compared with the others'"
        )
    return attention


@contextmanager
def capture_heads(encoder: Encoder) -> Iterator[list[Tensor]]:
    """The outputs of the heads of each layer in a forward pass, side by side: L tensors of B x S x D.

    A hook on the output projection sees it under every kernel of attention; weights of attention, which some kernels
    never form, are not needed. Layers that share their weights are seen at each of their calls.
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
