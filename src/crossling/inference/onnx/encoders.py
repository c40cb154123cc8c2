"""The graph of an encoder, by family.

B sentences, S subwords, D width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from crossling.errors import ArtefactError
from crossling.inference.onnx.graph import RUNTIME, Graph, to_array

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder

FAMILIES = ("bert", "camembert", "distilbert", "electra", "modernbert", "roberta", "xlm-roberta")
"""Those that a graph can be written for."""
INT32 = 6
_MASKED_SCORE = -65504.0
"""What is added to a score of attention that must not count; finite, so that a row of padding is no NaN."""


def emit_encoder(graph: Graph, encoder: Encoder, *, reads: tuple[int, ...]) -> dict[int, str]:
    """Add an encoder up to the highest layer that is read; gives the names of these layers' hidden states, B x S x D.

    The graph's inputs are ``ids``, ``mask`` and, where the encoder reads segments, ``types``.
    """
    family = encoder.model.config.model_type
    if family not in FAMILIES:
        raise ArtefactError(
            f"{encoder.name}: a model of type {family!r} has no form for ONNX here; encoders of the families "
            f"{', '.join(FAMILIES)} have one. Export it with --to crossling, or with --to transformers."
        )
    hidden: dict[int, str]
    hidden = emit_modernbert(graph, encoder, reads) if family == "modernbert" else emit_bert(graph, encoder, reads)
    return {layer: hidden[layer] for layer in reads}


@dataclass(frozen=True)
class Layer:
    """The parts of a layer that normalises after each sum, as BERT's do."""

    query: nn.Linear
    key: nn.Linear
    value: nn.Linear
    mix: nn.Linear
    mix_norm: nn.LayerNorm
    widen: nn.Linear
    narrow: nn.Linear
    narrow_norm: nn.LayerNorm


def find_parts(layer: Any, family: str) -> Layer:
    """The parts of a layer of the BERT, ELECTRA, RoBERTa, CamemBERT and DistilBERT families."""
    attention = layer.attention
    if family == "distilbert":
        return Layer(
            *(attention.q_lin, attention.k_lin, attention.v_lin, attention.out_lin, layer.sa_layer_norm),
            *(layer.ffn.lin1, layer.ffn.lin2, layer.output_layer_norm),
        )
    own, output = attention.self, attention.output
    return Layer(
        *(own.query, own.key, own.value, output.dense, output.LayerNorm),
        *(layer.intermediate.dense, layer.output.dense, layer.output.LayerNorm),
    )


def emit_bert(graph: Graph, encoder: Encoder, reads: tuple[int, ...]) -> dict[int, str]:
    """BERT, RoBERTa and their like: embeddings, then attention and two linear layers, normalised after sums."""
    config, family = encoder.model.config, encoder.model.config.model_type
    activation = config.activation if family == "distilbert" else config.hidden_act
    hidden = {0: _emit_embeddings(graph, encoder)}
    visible = graph.add("Cast", "mask", to=INT32)
    for number, module in enumerate(encoder.get_layers()[: max(reads)], 1):
        before, name, parts = hidden[number - 1], f"layer.{number}", find_parts(module, family)
        projections = {"query": parts.query, "key": parts.key, "value": parts.value}
        query, key, value = (graph.matmul(before, p.weight, f"{name}.{n}") for n, p in projections.items())
        bias = graph.add_initializer(
            np.concatenate([to_array(p.bias) for p in projections.values()]), f"{name}.attention.bias"
        )
        attended = graph.add(
            *("MultiHeadAttention", query, key, value, bias, visible), domain=RUNTIME, num_heads=encoder.heads
        )
        mixed = _add_and_normalize(graph, attended, before, parts.mix, parts.mix_norm, f"{name}.mix")
        wide = graph.matmul(mixed, parts.widen.weight, f"{name}.widen")
        wide = graph.activate(wide, parts.widen.bias, activation, f"{name}.widen")
        hidden[number] = _add_and_normalize(graph, wide, mixed, parts.narrow, parts.narrow_norm, f"{name}.narrow")
    return hidden


def _add_and_normalize(graph: Graph, value: str, skipped: str, linear: nn.Linear, norm: nn.LayerNorm, name: str) -> str:
    """``norm(linear(value) + skipped)``.

    Operator by operator: on a CPU, ONNX Runtime's SkipLayerNormalization takes several times as long.
    """
    total = graph.add("Add", graph.apply_linear(value, linear, name), skipped)
    return graph.normalize(total, norm, f"{name}.norm")


def _emit_embeddings(graph: Graph, encoder: Encoder) -> str:
    """The normalised sum of the embeddings of subwords, of positions and, where there are any, of segments."""
    embeddings = encoder.model.embeddings
    positions = to_array(embeddings.position_embeddings.weight)
    types = getattr(embeddings, "token_type_embeddings", None)
    if types is not None and not encoder.uses_token_types:
        positions = positions + to_array(types.weight)[0]  # the segment of all subwords, added once and for all
    total = graph.gather_rows(embeddings.word_embeddings.weight, "ids", "embeddings.subwords")
    if encoder.counts_from_pad:
        counted = graph.add("Mul", graph.add("CumSum", "mask", graph.add_initializer(np.int64(1))), "mask")
        numbers = graph.add("Add", counted, graph.add_initializer(np.int64(encoder.model.config.pad_token_id)))
        placed = graph.add("Gather", graph.add_initializer(positions, "embeddings.positions"), numbers)
    else:
        table = graph.add_initializer(positions, "embeddings.positions")
        placed = graph.add("Slice", table, graph.add_initializer(np.zeros(1, np.int64)), _length_of(graph))
    total = graph.add("Add", total, placed)
    if types is not None and encoder.uses_token_types:
        segments = graph.add("Gather", graph.add_weight(types.weight, "embeddings.segments"), "types")
        total = graph.add("Add", total, segments)
    normal = graph.normalize(total, embeddings.LayerNorm, "embeddings.norm")
    wider = getattr(encoder.model, "embeddings_project", None)  # of ELECTRA, where embeddings are narrower
    return normal if wider is None else graph.apply_linear(normal, wider, "embeddings.project")


def _length_of(graph: Graph) -> str:
    """The number of positions, as an array of one."""
    return graph.add(
        "Slice", graph.add("Shape", "ids"), *(graph.add_initializer(np.array([n], np.int64)) for n in (1, 2))
    )


def emit_modernbert(graph: Graph, encoder: Encoder, reads: tuple[int, ...]) -> dict[int, str]:
    """ModernBERT: rotary positions, attention to neighbours in most layers, gated layers, normalised before each."""
    model, config = encoder.model, encoder.model.config
    found = graph.gather_rows(model.embeddings.tok_embeddings.weight, "ids", "embeddings.subwords")
    hidden = {0: graph.normalize(found, model.embeddings.norm, "embeddings.norm")}
    visible, near = graph.add("Cast", "mask", to=INT32), _make_window_mask(graph, config.sliding_window)
    first = graph.add_initializer(np.zeros(1, np.int64))
    for number, layer in enumerate(model.layers[: max(reads)], 1):
        before, name, kind = hidden[number - 1], f"layer.{number}", config.layer_types[number - 1]
        normal = before
        if isinstance(layer.attn_norm, nn.LayerNorm):
            normal = graph.normalize(before, layer.attn_norm, f"{name}.attention.norm")
        together = graph.apply_linear(normal, layer.attn.Wqkv, f"{name}.qkv")
        query, key, value = graph.split("Split", together, outputs=3, axis=-1)
        rotary = _add_rotary_embeddings(graph, model.rotary_emb, kind, encoder.max_length)
        query, key = (
            graph.add("RotaryEmbedding", side, first, *rotary, domain=RUNTIME, num_heads=encoder.heads)
            for side in (query, key)
        )
        bias = near if kind == "sliding_attention" else ""
        attended = graph.add(
            *("MultiHeadAttention", query, key, value, "", visible, bias), domain=RUNTIME, num_heads=encoder.heads
        )
        mixed = graph.add("Add", before, graph.apply_linear(attended, layer.attn.Wo, f"{name}.mix"))
        wide = graph.apply_linear(
            graph.normalize(mixed, layer.mlp_norm, f"{name}.widen.norm"), layer.mlp.Wi, f"{name}.widen"
        )
        shown, gate = graph.split("Split", wide, outputs=2, axis=-1)
        gated = graph.add("Mul", graph.activate(shown, None, config.hidden_activation, name), gate)
        hidden[number] = graph.add("Add", mixed, graph.apply_linear(gated, layer.mlp.Wo, f"{name}.narrow"))
    if encoder.layers in reads:
        hidden[encoder.layers] = graph.normalize(hidden[encoder.layers], model.final_norm, "final_norm")
    return hidden


def _make_window_mask(graph: Graph, window: int) -> str:
    """A sliding window as an additive mask, 1 x 1 x S x S: 0 where two positions are at most ``window`` apart."""
    length = graph.add("Squeeze", _length_of(graph))
    places = graph.add("Range", graph.add_initializer(np.int64(0)), length, graph.add_initializer(np.int64(1)))
    rows, columns = (
        graph.add("Unsqueeze", places, graph.add_initializer(np.array([axis], np.int64))) for axis in (1, 0)
    )
    apart = graph.add("Abs", graph.add("Sub", rows, columns))
    far = graph.add("Greater", apart, graph.add_initializer(np.int64(window)))
    mask = graph.add(
        "Where", far, graph.add_initializer(np.float32(_MASKED_SCORE)), graph.add_initializer(np.float32(0))
    )
    return graph.add("Unsqueeze", mask, graph.add_initializer(np.array([0, 1], np.int64)))


def _add_rotary_embeddings(graph: Graph, rotary: Any, kind: str, length: int) -> tuple[str, str]:
    """Cosines and sines of the rotary position embeddings (RoPE) of a kind of layer, S x half of a head's width."""
    if rotary.rope_type[kind] != "default":
        raise ArtefactError(f"rotary positions of type {rotary.rope_type[kind]!r}: --to onnx knows only the default")
    frequencies = to_array(getattr(rotary, f"{kind}_inv_freq")).astype(np.float64)
    angles = np.arange(length)[:, None] * frequencies
    cosines, sines = (wave(angles).astype(np.float32) for wave in (np.cos, np.sin))
    return graph.add_initializer(cosines, f"cosines.{kind}"), graph.add_initializer(sines, f"sines.{kind}")
