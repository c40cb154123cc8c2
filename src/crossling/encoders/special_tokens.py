"""Where an encoder has its special tokens: subwords of one or two texts put together, and shortened to fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crossling.data.ragged import Ragged, join_rows, to_offsets
from crossling.encoders.tokenization import EncodedWords, find_padding


@dataclass(frozen=True, slots=True)
class Layout:
    """The special pieces around one text or two, in the tokenizer's own order, and each part's segment."""

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    """After the second text of a pair."""
    single_suffix: tuple[int, ...]
    """After a single text."""
    prefix_types: tuple[int, ...]
    middle_types: tuple[int, ...]
    suffix_types: tuple[int, ...]
    single_suffix_types: tuple[int, ...]
    first_type: int
    second_type: int
    pad: int

    @property
    def single_extra(self) -> int:
        """How many special pieces a single text gets."""
        return len(self.prefix) + len(self.single_suffix)

    @property
    def pair_extra(self) -> int:
        """How many special pieces a pair gets."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)


def special_layout(tokenizer: Any) -> Layout:
    """Where a tokenizer adds special tokens, found by encoding a pair and a single text.

    Some add none, as decoders do. Then a text ends with the end of text, so that no input is empty, and so does the
    first text of a pair, because nothing else would separate the two.
    """
    backend = tokenizer.backend_tokenizer
    alone = backend.encode("a", add_special_tokens=True)
    pair = backend.encode("a", "a", add_special_tokens=True)
    first = [i for i, sequence in enumerate(pair.sequence_ids) if sequence == 0]
    second = [i for i, sequence in enumerate(pair.sequence_ids) if sequence == 1]
    only = [i for i, sequence in enumerate(alone.sequence_ids) if sequence == 0]
    parts = {
        "prefix": (pair, 0, first[0]),
        "middle": (pair, first[-1] + 1, second[0]),
        "suffix": (pair, second[-1] + 1, len(pair.ids)),
        "single_suffix": (alone, only[-1] + 1, len(alone.ids)),
    }
    ids = {name: tuple(source.ids[start:end]) for name, (source, start, end) in parts.items()}
    types = {f"{name}_types": tuple(source.type_ids[start:end]) for name, (source, start, end) in parts.items()}
    first_type, second_type = pair.type_ids[first[0]], pair.type_ids[second[0]]
    padding = find_padding(tokenizer)
    added = {"middle": (not ids["middle"], first_type)}
    if not ids["prefix"]:
        added |= {"suffix": (not ids["suffix"], second_type), "single_suffix": (not ids["single_suffix"], first_type)}
    for name, (is_missing, segment) in added.items():
        if is_missing:
            named = (tokenizer.sep_token_id, tokenizer.eos_token_id, padding)
            ids[name] = (next(index for index in named if index is not None),)
            types[f"{name}_types"] = (segment,)
    return Layout(**ids, **types, first_type=first_type, second_type=second_type, pad=padding)


def assemble(layout: Layout, first: Ragged, second: Ragged | None = None) -> tuple[Ragged, Ragged]:
    """Ids and segments of whole inputs: texts, or pairs of texts, with their special pieces around them."""
    count = len(first)

    def constant(values: tuple[int, ...]) -> Ragged:
        return Ragged(np.tile(np.asarray(values, np.int32), count), np.arange(count + 1) * len(values))

    def filled(like: Ragged, value: int) -> Ragged:
        return Ragged(np.full(len(like.values), value, np.int32), like.offsets)

    if second is None:
        ids = [constant(layout.prefix), first, constant(layout.single_suffix)]
        types = [
            constant(layout.prefix_types),
            filled(first, layout.first_type),
            constant(layout.single_suffix_types),
        ]
    else:
        ids = [constant(layout.prefix), first, constant(layout.middle), second, constant(layout.suffix)]
        types = [
            constant(layout.prefix_types),
            filled(first, layout.first_type),
            constant(layout.middle_types),
        ]
        types += [filled(second, layout.second_type), constant(layout.suffix_types)]
    return join_rows(ids), join_rows(types)


def shorten_words(encoded: EncodedWords, *, room: int) -> EncodedWords:
    """Sentences of at most ``room`` pieces: the rest is cut off."""
    lengths = encoded.pieces.lengths
    if not len(lengths) or lengths.max() <= room:
        return encoded
    kept = np.arange(len(encoded.pieces.values)) - np.repeat(encoded.pieces.offsets[:-1], lengths) < room
    offsets = to_offsets(np.minimum(lengths, room))
    return EncodedWords(Ragged(encoded.pieces.values[kept], offsets), Ragged(encoded.words.values[kept], offsets))


def shorten_pair(first: int, second: int, *, room: int) -> tuple[int, int]:
    """Lengths of two texts that fit into ``room`` together: the longer one is cut first, then both equally."""
    if first + second <= room:
        return first, second
    half = room // 2
    if first <= half:
        return first, room - first
    if second <= half:
        return room - second, second
    return room - half, half
