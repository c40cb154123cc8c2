"""Attention heads: their outputs, their weights, and how much training changed them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from crossling.analyses import AnalysisContext, head_updates
from crossling.analyses.attention_heads import capture_heads, find_attention
from crossling.analyses.head_updates import PARTS, list_head_weights, measure_updates
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.errors import EncoderError
from crossling.models.model import ModelCard, build_model
from crossling.training.distributed import Distributed
from tiny import FAMILIES, tiny_encoder

LAYERS, HEADS, WIDTH = 3, 2, 16
IDS = torch.tensor([[5, 8, 11, 9, 6], [5, 20, 6, 0, 0]])
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def run(encoder: Encoder) -> dict[int, Tensor]:
    hidden: dict[int, Tensor] = encoder(IDS, MASK, layers=range(encoder.layers + 1))
    return hidden


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_through_their_slices_make_the_attentions_output(family: str) -> None:
    """Before the residual and the normalisation: what the output projection itself gives out."""
    encoder = tiny_encoder(family)
    outputs: list[Tensor] = []
    for attention in find_attention(encoder):
        attention.output.register_forward_hook(lambda _module, _inputs, output: outputs.append(output))
    with capture_heads(encoder) as seen:
        run(encoder)
    assert len(seen) == len(outputs) == LAYERS
    for attention, heads_BSD, output_BSD in zip(find_attention(encoder), seen, outputs, strict=True):
        assert heads_BSD.shape == (2, 5, WIDTH)
        width = WIDTH // HEADS
        parts = [
            heads_BSD[..., head * width : (head + 1) * width]
            @ attention.output.weight[:, head * width : (head + 1) * width].T
            for head in range(HEADS)
        ]
        bias = attention.output.bias if attention.output.bias is not None else 0
        torch.testing.assert_close(sum(parts) + bias, output_BSD, rtol=1e-5, atol=1e-5)
        assert all(part.abs().max() > 1e-3 for part in parts)
    run(encoder)
    assert len(seen) == LAYERS, "no hook stays behind"


@pytest.mark.parametrize("family", FAMILIES)
def test_output_of_a_head_is_its_own_attention(family: str) -> None:
    """By hand, where positions play no part: softmax of its queries and keys, times its values."""
    if family == "modernbert":
        pytest.skip("turns queries and keys by their positions; the sum of its heads is tested above")
    encoder = tiny_encoder(family)
    hidden = run(encoder)
    with capture_heads(encoder) as seen:
        run(encoder)
    for layer, attention in enumerate(find_attention(encoder)):
        query, key, value = (
            projection(hidden[layer]).view(2, 5, HEADS, -1).transpose(1, 2) for projection in attention.projections
        )
        weights = query @ key.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        weights = weights.masked_fill(MASK[:, None, None] == 0, -torch.inf).softmax(-1)
        expected = (weights @ value).transpose(1, 2).flatten(2)
        torch.testing.assert_close(seen[layer][MASK > 0], expected[MASK > 0], rtol=1e-4, atol=1e-5)


def test_layer_without_linear_attention_is_an_error() -> None:
    encoder = tiny_encoder("bert")
    encoder.model.encoder.layer[1].attention.output.dense = nn.Identity()
    with pytest.raises(EncoderError, match="no attention heads are known in layer 2: a model of type 'bert'"):
        find_attention(encoder)


def test_heads_of_shared_keys_are_an_error() -> None:
    encoder = tiny_encoder("bert")
    encoder.model.encoder.layer[2].attention.self.key = nn.Linear(WIDTH, WIDTH // HEADS)
    with pytest.raises(EncoderError, match="layer 3 has fewer heads of keys and values than of queries"):
        find_attention(encoder)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_of_a_head_are_those_that_its_output_depends_on(family: str) -> None:
    """With zeros in one head's value rows (weights and biases) its output is zero, and its neighbours are unchanged."""
    encoder = tiny_encoder(family)
    with capture_heads(encoder) as plain:
        run(encoder)
    attention, width = find_attention(encoder)[0], WIDTH // HEADS
    values = attention.projections[-1]
    start = values.out_features - WIDTH + width
    values.weight[start : start + width] = 0
    if values.bias is not None:
        values.bias[start : start + width] = 0
    parts = list_head_weights(encoder)[0]
    assert not parts["value"][1].any()
    assert parts["value"][0].all() and parts["query"].all() and parts["key"].all() and parts["output"].all()
    with capture_heads(encoder) as seen:
        run(encoder)
    assert not seen[0][..., width:].any()
    torch.testing.assert_close(seen[0][..., :width], plain[0][..., :width])


@pytest.mark.parametrize("family", FAMILIES)
def test_updates_are_the_mean_absolute_change(family: str) -> None:
    before, after = tiny_encoder(family), tiny_encoder(family)
    attention = find_attention(after)[2]
    bias = attention.projections[0].bias is not None
    attention.projections[0].weight[:8] -= 0.5  # the first head's queries stand first, joined with the rest or not
    attention.output.weight[:, 8:] += 0.25
    found = measure_updates(before, after)
    assert [float(layer["update"].max()) for layer in found[:2]] == [0.0, 0.0]
    weights = 8 * WIDTH
    expected = {"query": [0.5 * weights / (weights + 8 * bias), 0], "key": [0, 0], "value": [0, 0], "output": [0, 0.25]}
    total = 4 * weights + 3 * 8 * bias
    expected["update"] = [0.5 * weights / total, 0.25 * weights / total]
    for part, values in expected.items():
        np.testing.assert_allclose(found[2][part].numpy(), values, rtol=1e-5)
    old = torch.cat([list_head_weights(before)[2][part][0] for part in PARTS])
    assert float(found[2]["weight"][0]) == pytest.approx(float(old.abs().mean()), rel=1e-5)


def test_encoders_of_different_sizes_are_not_compared() -> None:
    with pytest.raises(EncoderError, match="3 layers of 2 heads, width 16 and 2 layers of 4 heads, width 16"):
        measure_updates(tiny_encoder(), tiny_encoder(layers=2, heads=4))


def analyse(model: Any, card: ModelCard, folder: Path, **settings: Any) -> list[dict[str, Any]]:
    chosen = head_updates.Settings(**settings)
    data = head_updates.open_analysis_data(chosen, source="en", store=folder)
    context = AnalysisContext(Distributed(0, 1, torch.device("cpu"), torch.float32), folder)
    rows: list[dict[str, Any]] = head_updates.analyse(model, card, data, settings=chosen, context=context).to_pylist()
    return rows


def test_a_model_is_compared_with_the_encoder_that_it_was(tiny_folder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(tiny_folder))
    model, card = build_model(encoder, {"kind": "last"}), ModelCard(str(tiny_folder), encoder.identity)
    find_attention(encoder)[0].output.weight += 1
    rows = analyse(model, card, tmp_path)
    assert [(row["layer"], row["head"]) for row in rows] == [(1 + i // 2, 1 + i % 2) for i in range(len(rows))]
    assert [round(row["output"], 5) for row in rows] == [1, 1, *[0] * (len(rows) - 2)]
    assert all(row["query"] == row["key"] == 0 for row in rows)
    assert rows[0]["update"] > 0 and not any(row["update"] for row in rows[2:])


def test_update_is_measured_against_the_named_model(tiny_folder: Path, tmp_path: Path) -> None:
    from crossling.models.model import save_model

    encoder = load_encoder(str(tiny_folder))
    model, card = build_model(encoder, {"kind": "last"}), ModelCard(str(tiny_folder), encoder.identity)
    find_attention(encoder)[0].output.weight += 1
    save_model(model, card, tmp_path / "saved")
    assert not any(row["update"] for row in analyse(model, card, tmp_path, against=str(tmp_path / "saved")))
    assert any(row["update"] for row in analyse(model, card, tmp_path, against=str(tiny_folder)))
