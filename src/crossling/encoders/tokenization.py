"""Tokenization: words and texts to subword ids, in bulk and without a Python object per subword.

Words are tokenized one by one: their subwords do not depend on their neighbours, so each distinct word is tokenized
once. Nothing here imports torch.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex

from crossling.data.ragged import IntArray, Ragged, build_ragged, join_rows, take_rows, to_offsets

__all__ = [
    "EncodedTexts",
    "EncodedWords",
    "Layout",
    "Ragged",
    "SubwordTokenizer",
    "assemble",
    "build_ragged",
    "encode_texts",
    "encode_words",
    "first_pieces",
    "join_rows",
    "shorten_pair",
    "shorten_words",
    "special_layout",
]

logger = logging.getLogger(__name__)

UNSPACED = (
    r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}\p{Yi}"
    r"\p{Tai_Le}\p{New_Tai_Lue}\p{Tai_Tham}\p{Tai_Viet}\p{Javanese}\p{Balinese}\u3000-\u303f\u30fc\uff00-\uffef"
)
"""The first character of a word that no space is expected before: scripts without spaces, and their signs."""
_UNSPACED = regex.compile(f"[{UNSPACED}]")

TRIMMED_FROM = "trimmed_from"
"""The setting of a smaller encoder's tokenizer that names the identity of the whole one."""

_MARKERS = ("▁", "Ġ")
_CACHE_LIMIT = 1_000_000


@dataclass(frozen=True, slots=True)
class EncodedWords:
    """Sentences of words as subwords: ``pieces[i]`` are sentence i's ids, ``words[i]`` the word of each."""

    pieces: Ragged
    words: Ragged

    def __len__(self) -> int:
        return len(self.pieces)


@dataclass(frozen=True, slots=True)
class EncodedTexts:
    """Texts as subwords, with the characters ``starts`` to ``ends`` of the text that each piece covers."""

    pieces: Ragged
    starts: Ragged
    ends: Ragged

    def __len__(self) -> int:
        return len(self.pieces)


class _KnownWords:
    """The cache of words and their subwords, in arrays that double when they are full."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self._values = np.zeros(1024, np.int32)
        self._offsets = np.zeros(1024, np.int64)

    @property
    def pieces(self) -> Ragged:
        """Row i holds the pieces of the i-th word."""
        offsets = self._offsets[: len(self.rows) + 1]
        return Ragged(self._values[: offsets[-1]], offsets)

    def add(self, words: Sequence[str], pieces: Ragged) -> None:
        """Remember new words."""
        count = len(self.rows)
        filled = int(self._offsets[count])
        self._values = _grow(self._values, filled + len(pieces.values))
        self._offsets = _grow(self._offsets, count + 1 + len(words))
        self._values[filled : filled + len(pieces.values)] = pieces.values
        self._offsets[count + 1 : count + 1 + len(words)] = pieces.offsets[1:] + filled
        self.rows.update({word: count + index for index, word in enumerate(words)})


def _grow(array: IntArray, size: int) -> IntArray:
    if size <= len(array):
        return array
    larger = np.zeros(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


class SubwordTokenizer:
    """An encoder's tokenizer for whole data sets; caches the subwords of words."""

    def __init__(self, tokenizer: Any, *, warns: bool = True) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._backend.no_truncation()
        self._backend.no_padding()
        self.unknown = _find_unknown(tokenizer)
        self._control = np.asarray(sorted(set(tokenizer.all_special_ids) - {self.unknown}), np.int64)
        self._blank = {self._backend.token_to_id(marker) for marker in _MARKERS} - {None}
        self._spaces_itself, self._needs_space = _probe_spacing(self._backend)
        self._trimmed = warns and TRIMMED_FROM in getattr(tokenizer, "init_kwargs", {})
        self._warned = False
        self._bare_splitter = _without_prefix(self._backend.pre_tokenizer) if self._spaces_itself else None
        self._known = _KnownWords()

    def encode_words(self, sentences: Sequence[Sequence[str]]) -> EncodedWords:
        """Sentences of words as subwords without special ones; every word has at least one."""
        known = self._known.rows
        new = dict.fromkeys(word for sentence in sentences for word in sentence if word not in known)
        if len(known) + len(new) > _CACHE_LIMIT:
            self._known = _KnownWords()
            known = self._known.rows
            new = dict.fromkeys(word for sentence in sentences for word in sentence)
        self._learn(list(new))
        counts = np.fromiter(map(len, sentences), np.int64, len(sentences))
        rows = np.fromiter((known[word] for s in sentences for word in s), np.int64, int(counts.sum()))
        cut = take_rows(self._known.pieces, rows)
        ends = to_offsets(counts)
        word_number = np.arange(len(rows)) - np.repeat(ends[:-1], counts)
        offsets = cut.offsets[ends]
        words = np.repeat(word_number, cut.lengths).astype(np.int32)
        return EncodedWords(Ragged(cut.values, offsets), Ragged(words, offsets))

    def encode_texts(self, texts: Sequence[str]) -> EncodedTexts:
        """Texts as subwords without special ones, with character offsets that begin after any space."""
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        pieces = build_ragged([encoding.ids for encoding in encodings])
        spans = np.asarray([span for encoding in encodings for span in encoding.offsets], np.int32).reshape(-1, 2)
        starts, ends = spans[:, 0].copy(), spans[:, 1].copy()
        for text, first, last in zip(texts, pieces.offsets[:-1], pieces.offsets[1:], strict=True):
            _trim_spans(text, starts[first:last], ends[first:last])
        pieces = Ragged(self._without_control(pieces.values), pieces.offsets)
        self._warn_of_lost(pieces.values)
        return EncodedTexts(pieces, Ragged(starts, pieces.offsets), Ragged(ends, pieces.offsets))

    def encode_pieces(self, texts: Sequence[str]) -> Ragged:
        """Texts as subwords without special ones and without offsets, which is faster."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        pieces = build_ragged([encoding.ids for encoding in encodings])
        self._warn_of_lost(pieces.values)
        return Ragged(self._without_control(pieces.values), pieces.offsets)

    def _learn(self, words: list[str]) -> None:
        """Tokenize new words and add them to the cache."""
        bare = [word for word in words if is_unspaced(word)]
        spaced = [word for word in words if not is_unspaced(word)]
        rows = self._cut(spaced, spaced=True) + self._cut(bare, spaced=False)
        if not rows:
            return
        fresh = build_ragged(rows)
        values = self._without_control(fresh.values)
        self._warn_of_lost(values)
        self._known.add(spaced + bare, Ragged(values, fresh.offsets))

    def _cut(self, words: list[str], *, spaced: bool) -> list[list[int]]:
        """Pieces of each word; those that hold no character go, unless there is nothing else."""
        if not words:
            return []
        if spaced:
            given = [" " + word for word in words] if self._needs_space else words
            encodings = self._backend.encode_batch(given, add_special_tokens=False)
        else:
            with _splitting_by(self._backend, self._bare_splitter):
                encodings = self._backend.encode_batch(words, add_special_tokens=False)
        rows = []
        for encoding in encodings:
            ids = encoding.ids
            if len(ids) != 1:
                ids = [index for index in ids if index not in self._blank] or ids[:1]
            rows.append(ids or [self.unknown])
        return rows

    def _without_control(self, ids: IntArray) -> IntArray:
        """Text that looks like a special token (``</s>``, ``[SEP]``) must not act as one: it becomes unknown."""
        return np.where(np.isin(ids, self._control), self.unknown, ids).astype(np.int32)

    def _warn_of_lost(self, ids: IntArray) -> None:
        if self._trimmed and not self._warned and bool((ids == self.unknown).any()):
            self._warned = True
            logger.warning(
                "this encoder was trimmed, and reads some characters of the text as unknown. Unless the whole encoder "
                "does not know them either, trim it again on text of this language, or use the whole one."
            )


def encode_words(tokenizer: Any, sentences: Sequence[Sequence[str]]) -> EncodedWords:
    """Sentences of words as subwords, for one call; a :class:`Subwords` remembers words between calls."""
    return SubwordTokenizer(tokenizer).encode_words(sentences)


def encode_texts(tokenizer: Any, texts: Sequence[str]) -> EncodedTexts:
    """Texts as subwords with character offsets."""
    return SubwordTokenizer(tokenizer).encode_texts(texts)


def first_pieces(words: IntArray) -> IntArray:
    """The place of each word's first piece, from the word of each piece of one sentence."""
    return np.flatnonzero(np.diff(words, prepend=-1) != 0)


def is_unspaced(word: str) -> bool:
    """Whether a word begins in a script without spaces."""
    return _UNSPACED.match(word) is not None


def is_byte(piece: str) -> bool:
    """Whether a subword is a byte, for characters without a subword."""
    return len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">")


def _find_unknown(tokenizer: Any) -> int:
    """The id for what cannot be written; where a byte-level tokenizer has none, its mask or pad."""
    for index in (tokenizer.unk_token_id, tokenizer.mask_token_id, tokenizer.pad_token_id):
        if index is not None:
            return int(index)
    raise AssertionError("an encoder's tokenizer without unknown, mask and pad pieces")


def _probe_spacing(backend: Any) -> tuple[bool, bool]:
    """Whether the tokenizer marks a word's beginning by itself, and whether it needs a space to do so."""

    def marked(text: str) -> bool:
        tokens = backend.encode(text, add_special_tokens=False).tokens
        return bool(tokens) and tokens[0].startswith(_MARKERS)

    if marked("a"):
        return True, False
    return False, marked(" a")


def _without_prefix(splitter: Any) -> Any:
    """A pre-tokenizer that is like the given one but puts no mark at a word's beginning."""
    from tokenizers import Tokenizer, models

    def unmark(step: dict[str, Any]) -> dict[str, Any]:
        inner = [unmark(part) for part in step.get("pretokenizers", ())]
        changed = {"prepend_scheme": "never", "add_prefix_space": False, "pretokenizers": inner}
        return step | {key: value for key, value in changed.items() if key in step}

    # Only a whole tokenizer can be read from JSON, so the step travels inside an empty one.
    carrier = json.loads(Tokenizer(models.WordLevel({"a": 0}, "a")).to_str())
    carrier["pre_tokenizer"] = unmark(json.loads(splitter.__getstate__()))
    return Tokenizer.from_str(json.dumps(carrier)).pre_tokenizer


@contextmanager
def _splitting_by(backend: Any, splitter: Any | None) -> Iterator[None]:
    """Use another pre-tokenizer for a while, if one is given."""
    before = backend.pre_tokenizer
    if splitter is not None:
        backend.pre_tokenizer = splitter
    try:
        yield
    finally:
        if splitter is not None:
            backend.pre_tokenizer = before


def _trim_spans(text: str, starts: IntArray, ends: IntArray) -> None:
    """Move offsets off the spaces that some tokenizers count as part of the next piece; in place."""
    if not len(starts) or not any(character.isspace() for character in text):
        return
    space = np.fromiter((c.isspace() for c in text), bool, len(text))
    next_solid = np.minimum.accumulate(np.where(space, len(text), np.arange(len(text)))[::-1])[::-1]
    next_solid = np.append(next_solid, len(text))
    starts[:] = np.minimum(next_solid[starts], ends)


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
    """Where a tokenizer adds special tokens, found by encoding a pair and a single text."""
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
    return Layout(
        **ids,
        **types,
        first_type=pair.type_ids[first[0]],
        second_type=pair.type_ids[second[0]],
        pad=int(tokenizer.pad_token_id),
    )


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
