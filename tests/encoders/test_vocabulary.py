"""Trimming: the same predictions and the same training with fewer rows, and smaller encoders on disk."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.encoders.offline import load_blocks
from crossling.encoders.tokenization import SubwordTokenizer, encode_words
from crossling.encoders.trimming import trim_encoder, untrim_encoder, write_trimmed
from crossling.errors import EncoderError
from tiny import FAMILIES, tiny_encoder
from tiny_blocks import write_tiny_blocks

TEXTS = ["the cat sleeps", "the dog eats fish in London не кошка", "我是学生 walking"]


def batch(encoder: Encoder) -> tuple[np.ndarray, torch.Tensor]:
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    return inputs["input_ids"].numpy(), inputs["attention_mask"]


def table_of(encoder: Encoder) -> torch.Tensor:
    weight: torch.Tensor = encoder.model.get_input_embeddings().weight
    return weight


@pytest.mark.parametrize("family", FAMILIES)
def test_trimmed_states_are_the_same(family: str) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    with torch.no_grad():
        before = encoder(torch.from_numpy(ids), mask, layers=(0, 3))
        trimmed = trim_encoder(encoder, np.unique(ids))
        rows = torch.from_numpy(trimmed.map_ids(ids))
        after = encoder(rows, mask, layers=(0, 3))
    assert len(table_of(encoder)) == len(trimmed.rows) < encoder.vocabulary
    assert int(rows.max()) < len(trimmed.rows)
    for layer in (0, 3):
        assert torch.allclose(before[layer][mask.bool()], after[layer][mask.bool()], atol=1e-5)
    special = encoder.tokenizer.all_special_ids
    assert set(special) <= set(trimmed.rows.tolist())


@pytest.mark.parametrize("family", FAMILIES)
def test_training_trimmed_is_training_whole(family: str) -> None:
    whole, small = tiny_encoder(family), tiny_encoder(family)
    ids, mask = batch(whole)
    base = table_of(small).detach().clone()
    trimmed = trim_encoder(small, np.unique(ids))
    for encoder, inputs in ((whole, ids), (small, trimmed.map_ids(ids))):
        optimiser = torch.optim.AdamW(encoder.parameters(), lr=1e-2, weight_decay=0.0)
        for _ in range(3):
            optimiser.zero_grad()
            states = encoder(torch.from_numpy(inputs), mask, layers=(3,))[3]
            states[mask.bool()].pow(3).sum().backward()
            optimiser.step()
    untrim_encoder(small, trimmed, base)
    assert not torch.allclose(table_of(small), base)  # it was trained at all
    for (name, expected), (_, got) in zip(whole.named_parameters(), small.named_parameters(), strict=True):
        assert torch.allclose(got, expected, atol=1e-4), name
    assert small.model.get_input_embeddings().padding_idx == whole.model.get_input_embeddings().padding_idx
    with torch.no_grad():
        inputs = torch.from_numpy(ids)
        assert torch.allclose(small(inputs, mask, layers=(3,))[3], whole(inputs, mask, layers=(3,))[3], atol=1e-3)


def test_rows_that_were_not_kept_stay_as_they_were() -> None:
    encoder = tiny_encoder("bert")
    base = table_of(encoder).detach().clone()
    trimmed = trim_encoder(encoder, np.asarray([7, 9]))
    with torch.no_grad():
        table_of(encoder).add_(1.0)
    untrim_encoder(encoder, trimmed, base)
    changed = (table_of(encoder) != base).any(1).nonzero()[:, 0]
    assert changed.tolist() == trimmed.rows.tolist()


def test_a_frozen_table_stays_frozen() -> None:
    encoder = tiny_encoder("bert")
    table_of(encoder).requires_grad_(False)
    trim_encoder(encoder, np.asarray([7]))
    assert not table_of(encoder).requires_grad


def test_a_piece_that_is_gone_is_named() -> None:
    encoder = tiny_encoder("bert")
    cat, dog = encoder.tokenizer.convert_tokens_to_ids(["cat", "dog"])
    trimmed = trim_encoder(encoder, np.asarray([cat]))
    assert trimmed.map_ids(np.asarray([[cat]])).tolist() == [[int(trimmed.to_rows[cat])]]
    with pytest.raises(EncoderError, match=r"'dog'.*encoder\.trim = false"):
        trimmed.map_ids(np.asarray([[cat, dog]]))


def test_what_cannot_be_done_to_a_trimmed_encoder(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert")
    base = table_of(encoder).detach()
    with pytest.raises(EncoderError, match="subwords 0 to"):
        trim_encoder(encoder, np.asarray([10_000]))
    trimmed = trim_encoder(encoder, np.asarray([7]))
    with pytest.raises(EncoderError, match="trimmed already"):
        trim_encoder(encoder, np.asarray([7]))
    with pytest.raises(EncoderError, match="whole vocabulary back"):
        save_encoder(encoder, tmp_path / "saved")
    with pytest.raises(EncoderError, match="not the one that was trimmed"):
        untrim_encoder(encoder, trimmed, base[:-1])


def tokens_and_states(encoder: Encoder, text: str) -> tuple[list[str], torch.Tensor]:
    inputs = encoder.tokenizer(text, return_tensors="pt")
    with torch.no_grad():
        states = encoder(inputs["input_ids"], inputs["attention_mask"], layers=(3,))[3]
    return encoder.tokenizer.convert_ids_to_tokens(inputs["input_ids"][0]), states


@pytest.mark.parametrize("family", FAMILIES)
def test_a_smaller_encoder_on_disk_says_the_same(family: str, tmp_path: Path) -> None:
    encoder = tiny_encoder(family)
    base = table_of(encoder).detach().clone()
    folder = write_trimmed(encoder, np.unique(batch(encoder)[0]), tmp_path / "small")
    assert torch.equal(table_of(encoder), base) and encoder.trimmed_rows is None
    small = load_encoder(str(folder))
    assert small.vocabulary < encoder.vocabulary
    assert len(small.tokenizer) == small.vocabulary
    for text in TEXTS:
        (pieces, states), (small_pieces, small_states) = (
            tokens_and_states(encoder, text),
            tokens_and_states(small, text),
        )
        assert small_pieces == pieces
        assert torch.allclose(small_states, states, atol=1e-5)
    pair = encoder.tokenizer(TEXTS[0], TEXTS[1])["input_ids"]
    assert small.tokenizer.convert_ids_to_tokens(
        small.tokenizer(TEXTS[0], TEXTS[1])["input_ids"]
    ) == encoder.tokenizer.convert_ids_to_tokens(pair)
    for name in ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"):
        assert getattr(small.tokenizer, name) == getattr(encoder.tokenizer, name)
    assert small.model.config.pad_token_id == small.tokenizer.pad_token_id


def test_a_smaller_encoder_keeps_its_pooler(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert", pooler=True)
    small = load_encoder(str(write_trimmed(encoder, np.asarray([7]), tmp_path / "small")))
    hidden = torch.randn(1, 2, 16)
    assert torch.equal(small.pool_cls(hidden), encoder.pool_cls(hidden))


def test_words_in_lost_pieces_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = tiny_encoder("xlm-r")
    used = encode_words(encoder.tokenizer, [["the", "cat"]]).pieces.values
    small = load_encoder(str(write_trimmed(encoder, used, tmp_path / "small")))
    subwords = SubwordTokenizer(small.tokenizer)
    with caplog.at_level(logging.WARNING):
        subwords.encode_words([["the", "cat"]])
        assert not caplog.records
        assert subwords.encode_words([["кошка"]]).pieces[0].tolist() == [small.tokenizer.unk_token_id]
    assert "trimmed" in caplog.text


def test_random_texts_are_cut_as_before(tmp_path: Path) -> None:
    # Unigram's best path and BPE's merges must not change when pieces that they do not use are gone.
    random = np.random.default_rng(0)
    letters = list("thecatdogsilpfn ")
    texts = ["".join(random.choice(letters, 12)) for _ in range(200)]
    for family in ("xlm-r", "modernbert", "bert"):
        encoder = tiny_encoder(family)
        for number, some in enumerate((texts[:3], texts[:20], texts[:100])):
            used = np.unique(SubwordTokenizer(encoder.tokenizer).encode_pieces(some).values)
            small = load_encoder(str(write_trimmed(encoder, used, tmp_path / f"{family}{number}")))
            kept = set(used.tolist())
            for text in texts:
                ids = encoder.tokenizer(text, add_special_tokens=False)["input_ids"]
                if set(ids) <= kept:
                    assert small.tokenizer.tokenize(text) == encoder.tokenizer.tokenize(text), (family, text)


def test_blocks_are_for_encoders_in_blocks(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="without --blocks"):
        write_trimmed(tiny_encoder("bert"), np.asarray([7]), tmp_path / "small", blocks=True)
    write_tiny_blocks(tmp_path / "tiny.bin")
    encoder = load_blocks(tmp_path / "tiny.bin", name="tiny")
    small = load_encoder(str(write_trimmed(encoder, np.asarray([5]), tmp_path / "small", blocks=True)))
    assert small.blocks_file is not None and small.vocabulary < encoder.vocabulary
    ordinary = load_encoder(str(write_trimmed(encoder, np.asarray([5]), tmp_path / "ordinary")))
    assert ordinary.tokenizer.get_vocab() == small.tokenizer.get_vocab()
    assert torch.equal(table_of(ordinary), table_of(small))
