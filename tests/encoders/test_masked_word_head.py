"""The head for masked words: what checkpoints carry, compared with transformers' own models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from crossling.encoders.loading import load_encoder, locate_checkpoint
from crossling.encoders.masked_word_head import MaskedWordHead, build_head, has_head, load_head
from crossling.errors import EncoderError
from tiny import FAMILIES, save_tiny, save_with_head, tiny_encoder


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpoint_head_gives_logits_of_its_model(family: str, tmp_path: Path) -> None:
    whole = save_with_head(tmp_path / "whole", family)
    encoder = load_encoder(str(tmp_path / "whole"))
    head = load_head(encoder)
    assert head is not None
    assert has_head(str(tmp_path / "whole"))
    ids = torch.tensor([encoder.tokenizer("the cat sleeps in London")["input_ids"]])
    with torch.no_grad():
        expected = whole(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        hidden = encoder(ids, torch.ones_like(ids), layers=[encoder.layers])[encoder.layers]
        scores = head(hidden, encoder.model.get_input_embeddings().weight)
    assert expected.std() > 0.1
    assert torch.allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_encoder_without_head_has_none(family: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "plain", family)
    assert load_head(load_encoder(str(folder))) is None
    assert not has_head(str(folder))
    assert load_head(tiny_encoder(family)) is None


def test_gamma_and_beta_of_old_berts_are_read(tmp_path: Path) -> None:
    save_with_head(tmp_path, "bert")
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    modern = load_head(load_encoder(str(tmp_path)))
    for kind, old in (("weight", "gamma"), ("bias", "beta")):
        name = "cls.predictions.transform.LayerNorm"
        weights[f"{name}.{old}"] = weights.pop(f"{name}.{kind}")
    save_file(weights, path, metadata={"format": "pt"})
    old_head = load_head(load_encoder(str(tmp_path)))
    assert modern is not None and old_head is not None
    assert torch.equal(modern.norm.weight, old_head.norm.weight)
    assert torch.equal(modern.norm.bias, old_head.norm.bias)


def test_untied_head_is_refused(tmp_path: Path) -> None:
    save_with_head(tmp_path, "bert", tie_word_embeddings=False)
    with pytest.raises(EncoderError, match="embedding table of its own"):
        load_head(load_encoder(str(tmp_path)))


def test_tied_table_is_stored_once() -> None:
    encoder = tiny_encoder()
    head = build_head(encoder)
    assert {name: tuple(p.shape) for name, p in head.named_parameters()} == {
        "dense.weight": (16, 16),
        "dense.bias": (16,),
        "norm.weight": (16,),
        "norm.bias": (16,),
        "bias": (encoder.vocabulary,),
    }


def test_new_head_predicts_subword_frequencies() -> None:
    encoder = tiny_encoder()
    counts = np.zeros(encoder.vocabulary, np.int64)
    counts[[7, 9]] = 30, 10
    chances = torch.softmax(build_head(encoder, counts).bias.detach(), dim=0)
    assert float(chances[7] / chances[9]) == pytest.approx(30.5 / 10.5, rel=1e-5)
    assert float(chances[7] / chances[50]) == pytest.approx(61, rel=1e-5)


def test_trimmed_head_scores_kept_subwords_as_before() -> None:
    torch.manual_seed(0)
    head, table = MaskedWordHead(8, 20), torch.randn(20, 8)
    torch.nn.init.normal_(head.bias)
    vectors = torch.randn(3, 8)
    rows = torch.tensor([1, 4, 7, 19])
    whole = head(vectors, table)
    head.keep_rows(rows.numpy())
    assert torch.allclose(head(vectors, table[rows]), whole[:, rows], atol=1e-6)


def test_offline_encoder_has_no_head() -> None:
    assert locate_checkpoint("multilingual-e5-small") is None
    assert not has_head("multilingual-e5-small")
