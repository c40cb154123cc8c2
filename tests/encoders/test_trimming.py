"""Trimming: same predictions and training with fewer rows, smaller encoders on disk, written whole or not at all."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.catalogue import open_data
from crossling.encoders import trimming
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.encoders.offline import load_blocks
from crossling.encoders.tokenization import SubwordTokenizer, encode_words
from crossling.encoders.trimming import collect_ids, trim_on, write_trimmed
from crossling.encoders.vocabulary import trim_encoder, untrim_encoder
from crossling.errors import ArtefactError, DataError, EncoderError, StorageError
from tiny import FAMILIES, tiny_encoder
from tiny_blocks import write_tiny_blocks
from tiny_families import make_family

TEXTS = ["the cat sleeps", "the dog eats fish in London не кошка", "我是学生 walking"]


def batch(encoder: Encoder) -> tuple[np.ndarray, torch.Tensor]:
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    return inputs["input_ids"].numpy(), inputs["attention_mask"]


def table_of(encoder: Encoder) -> torch.Tensor:
    weight: torch.Tensor = encoder.model.get_input_embeddings().weight
    return weight


@pytest.mark.parametrize("family", FAMILIES)
def test_trimmed_encoder_gives_same_states(family: str) -> None:
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
def test_training_trimmed_equals_training_whole(family: str) -> None:
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


def test_removed_rows_are_restored_unchanged() -> None:
    encoder = tiny_encoder("bert")
    base = table_of(encoder).detach().clone()
    trimmed = trim_encoder(encoder, np.asarray([7, 9]))
    with torch.no_grad():
        table_of(encoder).add_(1.0)
    untrim_encoder(encoder, trimmed, base)
    changed = (table_of(encoder) != base).any(1).nonzero()[:, 0]
    assert changed.tolist() == trimmed.rows.tolist()


def test_frozen_table_stays_frozen() -> None:
    encoder = tiny_encoder("bert")
    table_of(encoder).requires_grad_(False)
    trim_encoder(encoder, np.asarray([7]))
    assert not table_of(encoder).requires_grad


def test_removed_subword_error_names_it() -> None:
    encoder = tiny_encoder("bert")
    cat, dog = encoder.tokenizer.convert_tokens_to_ids(["cat", "dog"])
    trimmed = trim_encoder(encoder, np.asarray([cat]))
    assert trimmed.map_ids(np.asarray([[cat]])).tolist() == [[int(trimmed.to_rows[cat])]]
    with pytest.raises(EncoderError, match=r"'dog'.*encoder\.trim = false"):
        trimmed.map_ids(np.asarray([[cat, dog]]))


def test_trimmed_encoder_cannot_be_saved_or_trimmed_again(tmp_path: Path) -> None:
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
def test_smaller_encoder_on_disk_gives_same_states(family: str, tmp_path: Path) -> None:
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


def test_smaller_encoder_keeps_pooler(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert", pooler=True)
    small = load_encoder(str(write_trimmed(encoder, np.asarray([7]), tmp_path / "small")))
    hidden = torch.randn(1, 2, 16)
    assert torch.equal(small.pool_cls(hidden), encoder.pool_cls(hidden))


def test_unknown_words_of_smaller_encoder_are_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = tiny_encoder("xlm-r")
    used = encode_words(encoder.tokenizer, [["the", "cat"]]).pieces.values
    small = load_encoder(str(write_trimmed(encoder, used, tmp_path / "small")))
    subwords = SubwordTokenizer(small.tokenizer)
    with caplog.at_level(logging.WARNING):
        subwords.encode_words([["the", "cat"]])
        assert not caplog.records
        assert subwords.encode_words([["кошка"]]).pieces[0].tolist() == [small.tokenizer.unk_token_id]
    assert "trimmed" in caplog.text


def test_random_texts_are_tokenized_as_before(tmp_path: Path) -> None:
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


def test_only_four_bit_encoders_are_written_in_blocks(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="without --blocks"):
        write_trimmed(tiny_encoder("bert"), np.asarray([7]), tmp_path / "small", blocks=True)
    write_tiny_blocks(tmp_path / "tiny.bin")
    encoder = load_blocks(tmp_path / "tiny.bin", name="tiny")
    small = load_encoder(str(write_trimmed(encoder, np.asarray([5]), tmp_path / "small", blocks=True)))
    assert small.write_blocks is not None and small.vocabulary < encoder.vocabulary
    ordinary = load_encoder(str(write_trimmed(encoder, np.asarray([5]), tmp_path / "ordinary")))
    assert ordinary.tokenizer.get_vocab() == small.tokenizer.get_vocab()
    assert torch.equal(table_of(ordinary), table_of(small))


@pytest.mark.parametrize("family", FAMILIES)
def test_lowest_layers_alone_have_the_states_that_they_had(family: str, tmp_path: Path) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    small = load_encoder(str(write_trimmed(encoder, np.arange(encoder.vocabulary), tmp_path / "low", layers=2)))
    assert small.layers == 2 < encoder.layers
    with torch.no_grad():
        before = encoder(torch.from_numpy(ids), mask, layers=(1, 2))
        after = small(torch.from_numpy(ids), mask, layers=(1, 2))
        closing = getattr(encoder.model, "final_norm", torch.nn.Identity())  # ModernBERT's follows its last layer
        torch.testing.assert_close(after[1], before[1])
        torch.testing.assert_close(after[2], closing(before[2]))


def test_lowest_layers_of_blocks_are_those_of_the_ordinary_copy(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    encoder = load_blocks(tmp_path / "tiny.bin", name="tiny")
    found = [
        load_encoder(str(write_trimmed(encoder, np.asarray([5]), tmp_path / f"{blocks}", blocks=blocks, layers=1)))
        for blocks in (False, True)
    ]
    weights = [one.model.state_dict() for one in found]
    assert weights[0].keys() == weights[1].keys() and found[1].layers == 1 < encoder.layers
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    for layers in (0, encoder.layers + 1):
        with pytest.raises(EncoderError, match=f"has {encoder.layers} layers, of which 1 to {encoder.layers} can"):
            write_trimmed(encoder, np.asarray([5]), tmp_path / "none", layers=layers)


def test_layers_that_share_their_weights_are_all_kept(tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="share their weights"):
        write_trimmed(make_family("albert"), np.asarray([5]), tmp_path / "none", layers=1)


@pytest.fixture
def encoder(tiny_folder: Path) -> Encoder:
    return load_encoder(str(tiny_folder))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def name_pieces(encoder: Encoder, ids: np.ndarray[Any, Any]) -> set[str]:
    return set(encoder.tokenizer.convert_ids_to_tokens(ids.tolist()))


def test_subwords_of_running_text_and_of_words_are_kept(encoder: Encoder, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "\ufeffthe cat.\r\n\r\nwalks\n")
    found = name_pieces(encoder, collect_ids(encoder, str(path), store=tmp_path))
    assert {"▁the", "▁cat", "▁walk", "s", "."} <= found
    running = SubwordTokenizer(encoder.tokenizer).encode_texts(["the cat."]).pieces.values
    apart = SubwordTokenizer(encoder.tokenizer).encode_words([["the", "cat", "."]]).pieces.values
    assert name_pieces(encoder, np.concatenate([running, apart])) <= found
    assert not found & {"▁dog", "▁fish"}


def test_labels_of_data_sets_are_not_kept(encoder: Encoder, tmp_path: Path) -> None:
    ids = collect_ids(encoder, "phrasebook-ner:zh:test[:20]", store=tmp_path)
    rows = open_data("phrasebook-ner:zh:test[:20]", store=tmp_path)
    words = SubwordTokenizer(encoder.tokenizer).encode_words([record.words for record in rows])  # type: ignore[union-attr]
    assert set(ids.tolist()) == set(words.pieces.values.tolist())
    pairs = collect_ids(encoder, "phrasebook-nli:en:test[:5]", store=tmp_path)
    texts = open_data("phrasebook-nli:en:test[:5]", store=tmp_path)
    read = [text for record in texts for text in (record.first, record.second)]  # type: ignore[union-attr]
    assert set(pairs.tolist()) == set(SubwordTokenizer(encoder.tokenizer).encode_texts(read).pieces.values.tolist())


def test_trimmed_encoder_reads_text_as_before(encoder: Encoder, tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "the cat walks in London\n")
    line = trim_on(str(tiny_folder), [str(path)], tmp_path / "deep" / "smaller", blocks=False, store=tmp_path)
    smaller = load_encoder(str(tmp_path / "deep" / "smaller"))
    assert f"of {encoder.vocabulary:,} subwords in use" in line
    assert smaller.vocabulary < encoder.vocabulary / 2
    states = []
    for each in (encoder, smaller):
        ids = torch.tensor(SubwordTokenizer(each.tokenizer).encode_texts(["the cat walks"]).pieces.values)[None].long()
        states.append(each(ids, torch.ones_like(ids), layers=(3,))[3])
    assert torch.allclose(states[0], states[1], atol=1e-6)


def test_several_sources_are_combined(encoder: Encoder, tiny_folder: Path, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.txt", "the cat\n"), write(tmp_path / "b.txt", "кошка\n")
    trim_on(str(tiny_folder), [str(first), str(second)], tmp_path / "new", blocks=False, store=tmp_path)
    vocabulary = load_encoder(str(tmp_path / "new")).tokenizer.get_vocab()
    assert {"▁the", "▁cat", "▁кошка"} <= vocabulary.keys() and "▁dog" not in vocabulary


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no text"),
        ("\n \n", "holds no text"),
        (b"\xff\xfe", "text.txt: is UTF-16 or UTF-32, not UTF-8"),
        (b"\xff", "text.txt:1: not UTF-8"),
    ],
)
def test_files_without_text_are_errors(encoder: Encoder, tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        collect_ids(encoder, str(write(tmp_path / "text.txt", content)), store=tmp_path)


def test_missing_sources_are_errors(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; and a data set is named"):
        collect_ids(encoder, str(tmp_path / "text.txt"), store=tmp_path)
    with pytest.raises(DataError, match="unknown data set 'pankx'"):
        collect_ids(encoder, "pankx:de:dev", store=tmp_path)
    with pytest.raises(DataError, match="name a split"):
        collect_ids(encoder, "phrasebook-ner:de", store=tmp_path)


def test_existing_folder_is_not_overwritten(tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "the cat\n")
    before = {file.name: file.read_bytes() for file in tiny_folder.iterdir()}
    with pytest.raises(ArtefactError, match="is not empty"):
        trim_on(str(tiny_folder), [str(path)], tiny_folder, blocks=False, store=tmp_path)
    assert {file.name: file.read_bytes() for file in tiny_folder.iterdir()} == before
    (tmp_path / "empty").mkdir()
    trim_on(str(tiny_folder), [str(path)], tmp_path / "empty", blocks=False, store=tmp_path)
    assert (tmp_path / "empty" / "config.json").is_file()


def test_failure_leaves_no_partial_folder(tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "text.txt", "the cat\n")

    def fill_the_disk(encoder: Encoder, ids: Any, folder: Path, **_: Any) -> Path:
        folder.mkdir()
        write(folder / "config.json", "{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trimming, "write_trimmed", fill_the_disk)
    with pytest.raises(StorageError, match="disk is full"):
        trim_on(str(tiny_folder), [str(path)], tmp_path / "new", blocks=False, store=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


def test_blocks_option_needs_four_bit_encoder(tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "the cat\n")
    with pytest.raises(EncoderError, match="without --blocks"):
        trim_on(str(tiny_folder), [str(path)], tmp_path / "new", blocks=True, store=tmp_path)
    assert not (tmp_path / "new").exists()
