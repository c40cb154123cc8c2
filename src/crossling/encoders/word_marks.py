"""A tokenizer that cuts words as a tagger of crossling does, for programs that know nothing of crossling.

A tagger reads words one by one: each begins with the mark of a space, except in scripts without spaces, and the mark
never stands alone. Here the mark is left out by pre-tokenization, which every tokenizers file can carry, or joined with
the subword after it. For BPE it is left out before characters that have no subword with a mark; where merges leave it
alone before others, a subword more is read than here.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from crossling.data.ragged import IntArray
from crossling.encoders.encoder import Encoder
from crossling.encoders.tokenization import UNSPACED, find_mark, is_unspaced, probe_spacing
from crossling.encoders.trimming import rebuild_tokenizer

MARK = "▁"
PREFERRED = 1e-6
"""By how much a marked twin is better than the mark and the subword, which are as good but two."""
LAST = 0x1FB00
"""The first code point after those of letters and emoji that words begin with; ideographs lie beyond."""


def carry_words(encoder: Encoder) -> tuple[Any, IntArray] | None:
    """The encoder's tokenizer with the marks of a tagger's words, and ids whose embeddings its new subwords share.

    Their rows belong at the end of the table. None for a tokenizer that has no marks and needs none of this.
    """
    settings = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    model, normalizer, shared = settings["model"], settings["normalizer"], np.zeros(0, np.int64)
    kind, mark = model["type"], find_mark(encoder.tokenizer.backend_tokenizer)
    if kind == "Unigram" and mark == MARK:
        vocabulary, shared, lone = _join_marks(encoder, model["vocab"])
        model = model | {"vocab": vocabulary}
        marked = {ord(piece[1]) for piece, _ in vocabulary if len(piece) > 1 and piece[0] == MARK} - lone
        marks = _put_marks(MARK, marked | {ord(MARK)}, splits=True)
    elif kind == "BPE" and mark == MARK:  # the normalizer puts marks, for spaces and perhaps before the text
        marks = _put_marks(MARK, _find_marked(encoder, mark))
        normalizer = _without_marks(normalizer)
    elif kind == "BPE" and mark is not None:
        splitter = settings["pre_tokenizer"]
        inner = splitter.get("pretokenizers", [splitter])
        cuts = [step | {"add_prefix_space": False} if step["type"] == "ByteLevel" else step for step in inner]
        marks = [*_put_marks(" ", _find_marked(encoder, mark)), *cuts]
    else:
        return None
    steps = [{"type": "WhitespaceSplit"}, *marks]
    changed = settings | {
        "model": model,
        "normalizer": normalizer,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
    }
    return rebuild_tokenizer(encoder.tokenizer, changed, {}), shared


def _put_marks(mark: str, marked: set[int], *, splits: bool = False) -> list[dict[str, Any]]:
    """Steps that put a mark before every word that begins with one of the ``marked`` characters.

    There is none before scripts without spaces, nor before a letter that is unknown or before which it stands alone.
    """
    bare = rf"^{mark}(?=[{UNSPACED}]|[^{_list_ranges(marked)}])"
    return [
        {"type": "Metaspace", "replacement": mark, "prepend_scheme": "always", "split": splits},
        {"type": "Split", "pattern": {"Regex": bare}, "behavior": "Removed", "invert": False},
    ]


def _find_marked(encoder: Encoder, mark: str) -> set[int]:
    """Characters before which BPE does not leave the mark alone."""
    backend = encoder.tokenizer.backend_tokenizer
    characters = [chr(code) for code in range(0x21, LAST) if chr(code).isprintable() and not is_unspaced(chr(code))]
    _, needs_space = probe_spacing(backend, mark)
    given = [" " * needs_space + character for character in characters]
    cut = backend.encode_batch_fast(given, add_special_tokens=False)
    alone = backend.token_to_id(mark)
    return {ord(character) for character, one in zip(characters, cut, strict=True) if alone not in one.ids}


def _without_marks(step: dict[str, Any] | None) -> dict[str, Any] | None:
    """A normalizer that neither replaces spaces by marks nor puts one before a text."""
    if step is None or step["type"] == "Prepend" or step.get("content") == MARK:
        return None
    if step["type"] == "Sequence":
        return step | {"normalizers": [part for part in map(_without_marks, step["normalizers"]) if part]}
    return step


def _list_ranges(codes: set[int]) -> str:
    """Characters as ranges of a regular expression, which may hold 10,000 of them."""
    first = [code for code in sorted(codes) if code - 1 not in codes]
    last = [code for code in sorted(codes) if code + 1 not in codes]
    return "".join(f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in zip(first, last, strict=True))


def _join_marks(encoder: Encoder, vocabulary: list[list[Any]]) -> tuple[list[list[Any]], IntArray, set[int]]:
    """The vocabulary with a marked twin of every subword before which the mark would stand alone.

    ``▁tiny`` is read as ``▁ tiny`` where it is not a subword. A tagger drops the mark and reads ``tiny``; a twin
    ``▁tiny`` does the same, with the score of both and the embedding of ``tiny``. Also returned are those ids, and
    characters that have a marked subword which is never chosen.
    """
    known = {piece: index for index, (piece, _) in enumerate(vocabulary)}
    pieces = [piece for piece in known if piece[:1] not in ("", MARK) and not is_unspaced(piece)]
    cut = encoder.tokenizer.backend_tokenizer.encode_batch_fast(pieces, add_special_tokens=False)
    alone = [piece for piece, one in zip(pieces, cut, strict=True) if one.ids == [known.get(MARK), known[piece]]]
    joined = [piece for piece in alone if MARK + piece not in known]
    # A table may have more rows than the tokenizer has subwords; twins come after all of them.
    unused = [[f"<unused-{index}>", -1e9] for index in range(len(vocabulary), encoder.vocabulary)]
    twins = [[MARK + piece, vocabulary[known[MARK]][1] + vocabulary[known[piece]][1] + PREFERRED] for piece in joined]
    lone = {ord(piece) for piece in alone if len(piece) == 1 and MARK + piece in known}
    return [*vocabulary, *unused, *twins], np.asarray([known[piece] for piece in joined], np.int64), lone
