"""A tokenizer that cuts words as a tagger of crossling does, for programs that know nothing of crossling.

A tagger reads words one by one: each begins with the mark of a space, except in scripts without spaces, and the mark
never stands alone. Here the mark is left out by pre-tokenization, which every tokenizers file can carry, or joined with
the subword after it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from crossling.data.ragged import IntArray
from crossling.encoders.encoder import Encoder
from crossling.encoders.tokenization import UNSPACED, is_unspaced
from crossling.encoders.trimming import rebuild_tokenizer

MARK = "▁"
PREFERRED = 1e-6
"""By how much a marked twin is better than the mark and the subword, which are as good but two."""


def carry_words(encoder: Encoder) -> tuple[Any, IntArray] | None:
    """The encoder's tokenizer with the marks of a tagger's words, and ids whose embeddings its new subwords share.

    Their rows belong at the end of the table. None for a tokenizer that has no marks and needs none of this.
    """
    settings = json.loads(encoder.tokenizer.backend_tokenizer.to_str())
    model, shared = settings["model"], np.zeros(0, np.int64)
    kind, splitter = model["type"], settings["pre_tokenizer"] or {}
    if kind == "Unigram" and '"Metaspace"' in json.dumps(splitter):
        vocabulary, shared, lone = _join_marks(encoder, model["vocab"])
        model = model | {"vocab": vocabulary}
        marked = {ord(piece[1]) for piece, _ in vocabulary if len(piece) > 1 and piece[0] == MARK} - lone
        # No mark before scripts without spaces, nor before a letter that is unknown or before which it stands alone.
        bare = rf"^{MARK}(?=[{UNSPACED}]|[^{_list_ranges(marked | {ord(MARK)})}])"
        marks = [
            {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always", "split": True},
            {"type": "Split", "pattern": {"Regex": bare}, "behavior": "Removed", "invert": False},
        ]
    elif kind == "BPE" and splitter.get("type") == "ByteLevel":
        marks = [splitter | {"add_prefix_space": True}]
    else:
        return None
    steps = [{"type": "WhitespaceSplit"}, *marks]
    changed = settings | {"model": model, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}}
    return rebuild_tokenizer(encoder.tokenizer, changed, {}), shared


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
