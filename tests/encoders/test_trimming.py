"""Smaller encoders on disk: which subwords are kept, and that nothing is left half-written or written over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.catalogue import open_data
from crossling.encoders import trimming
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.encoders.trimming import collect_ids, trim_on
from crossling.errors import ArtefactError, DataError, EncoderError


@pytest.fixture
def encoder(tiny_folder: Path) -> Encoder:
    return load_encoder(str(tiny_folder))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def name_pieces(encoder: Encoder, ids: np.ndarray[Any, Any]) -> set[str]:
    return set(encoder.tokenizer.convert_ids_to_tokens(ids.tolist()))


def test_text_is_kept_as_classifiers_and_as_taggers_read_it(encoder: Encoder, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "\ufeffthe cat.\r\n\r\nwalks\n")
    found = name_pieces(encoder, collect_ids(encoder, str(path), store=tmp_path))
    assert {"▁the", "▁cat", "▁walk", "s", "."} <= found
    running = SubwordTokenizer(encoder.tokenizer).encode_texts(["the cat."]).pieces.values
    apart = SubwordTokenizer(encoder.tokenizer).encode_words([["the", "cat", "."]]).pieces.values
    assert name_pieces(encoder, np.concatenate([running, apart])) <= found
    assert not found & {"▁dog", "▁fish"}


def test_of_a_data_set_only_what_is_read_is_kept(encoder: Encoder, tmp_path: Path) -> None:
    ids = collect_ids(encoder, "phrasebook-ner:zh:test[:20]", store=tmp_path)
    rows = open_data("phrasebook-ner:zh:test[:20]", store=tmp_path)
    words = SubwordTokenizer(encoder.tokenizer).encode_words([record.words for record in rows])  # type: ignore[union-attr]
    assert set(ids.tolist()) == set(words.pieces.values.tolist())
    pairs = collect_ids(encoder, "phrasebook-nli:en:test[:5]", store=tmp_path)
    texts = open_data("phrasebook-nli:en:test[:5]", store=tmp_path)
    read = [text for record in texts for text in (record.first, record.second)]  # type: ignore[union-attr]
    assert set(pairs.tolist()) == set(SubwordTokenizer(encoder.tokenizer).encode_texts(read).pieces.values.tolist())


def test_the_smaller_encoder_reads_the_text_as_before(encoder: Encoder, tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "the cat walks in London\n")
    told = trim_on(str(tiny_folder), [str(path)], tmp_path / "deep" / "smaller", blocks=False, store=tmp_path)
    smaller = load_encoder(str(tmp_path / "deep" / "smaller"))
    assert f"of {encoder.vocabulary:,} subwords in use" in told
    assert smaller.vocabulary < encoder.vocabulary / 2
    states = []
    for each in (encoder, smaller):
        ids = torch.tensor(SubwordTokenizer(each.tokenizer).encode_texts(["the cat walks"]).pieces.values)[None].long()
        states.append(each(ids, torch.ones_like(ids), layers=(3,))[3])
    assert torch.allclose(states[0], states[1], atol=1e-6)


def test_several_sources_add_up(encoder: Encoder, tiny_folder: Path, tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.txt", "the cat\n"), write(tmp_path / "b.txt", "кошка\n")
    trim_on(str(tiny_folder), [str(first), str(second)], tmp_path / "new", blocks=False, store=tmp_path)
    vocabulary = load_encoder(str(tmp_path / "new")).tokenizer.get_vocab()
    assert {"▁the", "▁cat", "▁кошка"} <= vocabulary.keys() and "▁dog" not in vocabulary


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "holds no text"), ("\n \n", "holds no text"), (b"\xff\xfe", "text.txt:1: not UTF-8")],
)
def test_files_without_text(encoder: Encoder, tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        collect_ids(encoder, str(write(tmp_path / "text.txt", content)), store=tmp_path)


def test_sources_that_are_not_there(encoder: Encoder, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file; and a data set is named"):
        collect_ids(encoder, str(tmp_path / "text.txt"), store=tmp_path)
    with pytest.raises(DataError, match="unknown data set 'pankx'"):
        collect_ids(encoder, "pankx:de:dev", store=tmp_path)
    with pytest.raises(DataError, match="name a split"):
        collect_ids(encoder, "phrasebook-ner:de", store=tmp_path)


def test_nothing_is_written_over(tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "the cat\n")
    before = {file.name: file.read_bytes() for file in tiny_folder.iterdir()}
    with pytest.raises(ArtefactError, match="is not empty"):
        trim_on(str(tiny_folder), [str(path)], tiny_folder, blocks=False, store=tmp_path)
    assert {file.name: file.read_bytes() for file in tiny_folder.iterdir()} == before
    (tmp_path / "empty").mkdir()
    trim_on(str(tiny_folder), [str(path)], tmp_path / "empty", blocks=False, store=tmp_path)
    assert (tmp_path / "empty" / "config.json").is_file()


def test_what_goes_wrong_leaves_nothing_half_written(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "text.txt", "the cat\n")

    def fill_the_disk(encoder: Encoder, ids: Any, folder: Path, **_: Any) -> Path:
        folder.mkdir()
        write(folder / "config.json", "{}")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trimming, "write_trimmed", fill_the_disk)
    with pytest.raises(ArtefactError, match="No space left"):
        trim_on(str(tiny_folder), [str(path)], tmp_path / "new", blocks=False, store=tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["text.txt"]


def test_blocks_are_for_the_offline_encoder(tiny_folder: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "text.txt", "the cat\n")
    with pytest.raises(EncoderError, match="without --blocks"):
        trim_on(str(tiny_folder), [str(path)], tmp_path / "new", blocks=True, store=tmp_path)
    assert not (tmp_path / "new").exists()
