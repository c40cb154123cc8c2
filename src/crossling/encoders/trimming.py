"""A smaller encoder on disk, with only the subwords that some data uses: ``crossling trim``."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.catalogue import open_data
from crossling.data.ragged import IntArray
from crossling.data.words import cut_by_tokenizer, split_words
from crossling.encoders.coverage import read_text_lines
from crossling.encoders.encoder import Encoder
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.encoders.tokenization import TRIMMED_FROM, SubwordTokenizer, is_byte
from crossling.encoders.vocabulary import choose_rows, trim_encoder, untrim_encoder
from crossling.errors import DataError, EncoderError
from crossling.files import check_new_folder, write_folder

CHUNK = 2_000
NOT_TEXT = ("id", "label", "tags")
"""Columns of data sets that no encoder reads."""


def write_trimmed(
    encoder: Encoder, ids: IntArray, folder: Path, *, blocks: bool = False, layers: int | None = None
) -> Path:
    """A smaller encoder as a folder: the subwords ``ids``, special ones, and those that tokenization needs.

    ``layers``: how many, from the lowest on; default: all. What follows the last layer, such as a normalisation, then
    follows the highest of them. Text whose subwords were all kept is tokenized as before; other text gets smaller
    subwords or unknown ones.
    """
    if blocks and encoder.write_blocks is None:
        raise EncoderError(f"{encoder.name}: is not stored in quantised blocks; write it without --blocks.")
    layers = encoder.layers if layers is None else layers
    _check_layers(encoder, layers)
    # XLM-R counts positions from the pad id on, so the ids below it must stay.
    below = np.arange(encoder.tokenizer.pad_token_id + 1 if encoder.counts_from_pad else 0)
    settings = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    rows = choose_rows(encoder, np.concatenate([np.asarray(ids, np.int64), below, _needed_pieces(settings)]))
    rows = choose_rows(encoder, _add_parts(settings, rows))
    if blocks and encoder.write_blocks is not None:
        return encoder.write_blocks(rows, folder, layers)
    smaller = Encoder(
        _copy_model(encoder, rows, layers), _copy_tokenizer(encoder, settings, rows), name=encoder.name, identity=""
    )
    smaller.pooler = encoder.pooler
    return save_encoder(smaller, folder)


def _check_layers(encoder: Encoder, layers: int) -> None:
    if not 1 <= layers <= encoder.layers:
        raise EncoderError(f"{encoder.name}: has {encoder.layers} layers, of which 1 to {encoder.layers} can be kept.")
    if layers < encoder.layers != len(encoder.get_layers()):
        raise EncoderError(f"{encoder.name}: its layers share their weights, so that none of them can be left out.")


def _copy_model(encoder: Encoder, rows: IntArray, layers: int) -> Any:
    base = encoder.model.get_input_embeddings().weight
    trimmed = trim_encoder(encoder, rows)
    try:
        model = copy.deepcopy(encoder.model)
    finally:
        untrim_encoder(encoder, trimmed, base)
    model.config.vocab_size = len(rows)
    if layers < encoder.layers:
        del model.get_submodule(encoder.structure.layers)[layers:]
        model.config.num_hidden_layers = layers
        if kinds := getattr(model.config, "layer_types", None):
            model.config.layer_types = kinds[:layers]
    for key, value in model.config.to_dict().items():
        if key.endswith("_token_id") and isinstance(value, int):
            setattr(model.config, key, int(trimmed.to_rows[value]) if 0 <= value < len(trimmed.to_rows) else None)
        elif key.endswith("_token_id") and isinstance(value, list):  # Gemma names several ends
            kept = [int(trimmed.to_rows[one]) for one in value if 0 <= one < len(trimmed.to_rows)]
            setattr(model.config, key, [row for row in kept if row >= 0] or None)
    return model


def _copy_tokenizer(encoder: Encoder, settings: dict[str, Any], rows: IntArray) -> Any:
    """The same tokenizer with the kept pieces only, numbered anew."""
    place = {int(old): new for new, old in enumerate(rows)}
    smaller = settings | {
        "model": _TRIMMERS[settings["model"]["type"]](settings["model"], place),
        "added_tokens": [token | {"id": place[token["id"]]} for token in settings["added_tokens"]],
        "post_processor": _renumber(settings["post_processor"], place),
    }
    return rebuild_tokenizer(encoder.tokenizer, smaller, {TRIMMED_FROM: encoder.identity})


def rebuild_tokenizer(tokenizer: Any, settings: dict[str, Any], more: dict[str, str]) -> Any:
    """A tokenizer with another vocabulary and the special tokens and limits of the given one."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    names = {name: str(value) for name, value in tokenizer.special_tokens_map.items() if isinstance(value, str)}
    nameless = getattr(tokenizer, "extra_special_tokens", None)
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(settings)),
        model_max_length=tokenizer.model_max_length,
        model_input_names=list(tokenizer.model_input_names),
        **({"extra_special_tokens": list(nameless)} if isinstance(nameless, list) and nameless else {}),
        **names,
        **more,
    )


def _needed_pieces(settings: dict[str, Any]) -> IntArray:
    """Ids without which a tokenizer would split differently, or could not write some characters."""
    model = settings["model"]
    if model["type"] not in _TRIMMERS:
        raise EncoderError(f"a tokenizer of type {model['type']} cannot be trimmed; {', '.join(_TRIMMERS)} can.")
    needed = [int(token["id"]) for token in settings["added_tokens"]]
    if model["type"] == "Unigram":
        scores = np.asarray([score for _, score in model["vocab"]])
        # The penalty of an unknown character counts from the lowest score.
        needed.append(int(scores.argmin()))
        needed += [index for index, (piece, _) in enumerate(model["vocab"]) if piece == "▁" or is_byte(piece)]
    else:
        pieces: dict[str, int] = model["vocab"]
        spelling = [index for piece, index in pieces.items() if is_byte(piece)]
        if model["type"] == "BPE" and not spelling:  # its single characters are the bytes
            spelling = [index for piece, index in pieces.items() if len(piece) == 1]
        needed += spelling
    return np.asarray(needed, np.int64)


def _add_parts(settings: dict[str, Any], rows: IntArray) -> IntArray:
    """For BPE, also the pieces from which kept pieces are merged.

    Within a piece of a text the same merges are made as in the piece alone: one across its borders never was.
    """
    if settings["model"]["type"] != "BPE":
        return rows
    pieces: dict[str, int] = settings["model"]["vocab"]
    ranks = {merge: rank for rank, merge in enumerate(_read_merges(settings["model"]))}
    texts = {index: piece for piece, index in pieces.items()}
    kept = set(rows.tolist())
    for row in rows.tolist():
        kept.update(pieces[part] for part in _list_merged(texts.get(row, ""), ranks) if part in pieces)
    return np.asarray(sorted(kept), np.int64)


def _list_merged(piece: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """A piece's characters, and what becomes of them as they are merged, the first merge first."""
    parts = list(piece)
    found = list(parts)
    while len(parts) > 1:
        rank, place = min((ranks.get(pair, len(ranks)), place) for place, pair in enumerate(pairwise(parts)))
        if rank == len(ranks):
            break
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
        found.append(parts[place])
    return found


def _read_merges(model: dict[str, Any]) -> list[tuple[str, str]]:
    split = (merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"])
    return [(left, right) for left, right in split]


def _trim_unigram(model: dict[str, Any], place: dict[int, int]) -> dict[str, Any]:
    vocabulary = [model["vocab"][old] for old in place if old < len(model["vocab"])]
    return model | {"vocab": vocabulary, "unk_id": place.get(model["unk_id"])}


def _trim_wordpiece(model: dict[str, Any], place: dict[int, int]) -> dict[str, Any]:
    return model | {"vocab": {piece: place[old] for piece, old in model["vocab"].items() if old in place}}


def _trim_bpe(model: dict[str, Any], place: dict[int, int]) -> dict[str, Any]:
    kept = {piece: place[old] for piece, old in model["vocab"].items() if old in place}
    merges = [list(merge) for merge in _read_merges(model) if {*merge, "".join(merge)} <= kept.keys()]
    return model | {"vocab": kept, "merges": merges}


_TRIMMERS = {"Unigram": _trim_unigram, "WordPiece": _trim_wordpiece, "BPE": _trim_bpe}


def _renumber(step: dict[str, Any] | None, place: dict[int, int]) -> dict[str, Any] | None:
    """A post-processor with the new ids of the special pieces that it adds."""
    if step is None:
        return None
    step = dict(step)
    for key in ("cls", "sep"):
        if key in step:
            step[key] = [step[key][0], place[step[key][1]]]
    if "special_tokens" in step:
        step["special_tokens"] = {
            name: token | {"ids": [place[old] for old in token["ids"]]}
            for name, token in step["special_tokens"].items()
        }
    if "processors" in step:
        step["processors"] = [_renumber(part, place) for part in step["processors"]]
    return step


def trim_on(
    name: str, sources: Sequence[str], out: Path, *, blocks: bool, layers: int | None = None, store: Path
) -> str:
    """Write the trimmed encoder, atomically; returns a line that says how much is left."""
    check_new_folder(out)
    encoder = load_encoder(name)
    _check_layers(encoder, encoder.layers if layers is None else layers)
    used = np.unique(np.concatenate([collect_ids(encoder, source, store=store) for source in sources]))
    write_folder(out, lambda folder: write_trimmed(encoder, used, folder, blocks=blocks, layers=layers))
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    height = "" if layers is None else f", {layers} of {encoder.layers} layers"
    return f"{out}: {len(used):,} of {encoder.vocabulary:,} subwords in use{height}, {size / 1e6:.1f} MB"


def collect_ids(encoder: Encoder, source: str, *, store: Path) -> IntArray:
    """The subwords of a text file, or of all that an encoder would read of a data set."""
    subwords = SubwordTokenizer(encoder.tokenizer)
    if Path(source).is_file():
        found = list(_cut_lines(subwords, read_text_lines(Path(source)), encoder))
    elif ":" not in source:
        raise DataError(f"{source}: no such file; and a data set is named with its language, such as panx:de:dev")
    else:
        chunks = open_data(source, split="", store=store).chunks(CHUNK)
        found = [ids for chunk in chunks for ids in _cut_columns(subwords, chunk)]
    if not found:
        raise DataError(f"{source}: holds no text to trim on")
    return np.unique(np.concatenate(found)).astype(np.int64)


def _cut_lines(subwords: SubwordTokenizer, lines: Iterable[str], encoder: Encoder) -> Iterator[IntArray]:
    """Running text as a classifier reads it, and word by word as a tagger does."""
    pieces = cut_by_tokenizer(encoder.tokenizer)
    rest = iter(lines)
    while chunk := list(islice(rest, CHUNK)):
        yield np.unique(subwords.encode_pieces(chunk).values)
        words = [[word.text for word in split_words(line, pieces=pieces)] for line in chunk]
        yield np.unique(subwords.encode_words(words).pieces.values)


def _cut_columns(subwords: SubwordTokenizer, chunk: dict[str, list[Any]]) -> Iterator[IntArray]:
    for name, values in chunk.items():
        if name in NOT_TEXT:
            continue
        if isinstance(values[0], str):
            yield np.unique(subwords.encode_pieces(values).values)
        elif any(value and isinstance(value[0], str) for value in values):
            yield np.unique(subwords.encode_words(values).pieces.values)
