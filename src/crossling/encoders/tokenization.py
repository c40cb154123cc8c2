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
from functools import cache
from typing import Any

import numpy as np
import regex

from crossling.data.ragged import IntArray, Ragged, build_ragged, join_rows, take_rows, to_offsets
from crossling.errors import EncoderError

__all__ = [
    "EncodedTexts",
    "EncodedWords",
    "Ragged",
    "SubwordTokenizer",
    "build_ragged",
    "encode_texts",
    "encode_words",
    "find_mark",
    "find_padding",
    "first_pieces",
    "join_rows",
    "name_padding",
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

BYTE_MARK = "Ġ"
"""How tokenizers of bytes write a space."""
_MARK = "▁"
_JOINED = regex.compile(r"[\p{M}\p{Hangul_Syllable_Type=V}\p{Hangul_Syllable_Type=T}]+")
"""Characters that normalisation composes with the one before them, or drops."""
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
        self._control = np.asarray(_list_control(tokenizer), np.int64)
        # Without an unknown piece, what looks like a special token is cut like any other text.
        self._cuts_special = tokenizer.unk_token_id is None
        mark = find_mark(self._backend)
        self._blank = {self._backend.token_to_id(mark)} - {None} if mark else set()
        self._spaces_itself, self._needs_space = probe_spacing(self._backend, mark)
        self._trimmed = warns and TRIMMED_FROM in getattr(tokenizer, "init_kwargs", {})
        self._warned = False
        self._bare_steps = _without_prefix(self._backend) if self._spaces_itself else None
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
        with self._reading_text():
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
        with self._reading_text():
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        pieces = build_ragged([encoding.ids for encoding in encodings])
        values = self._without_control(pieces.values)
        self._warn_of_lost(values)
        return Ragged(values, pieces.offsets)

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
        given = [" " + word for word in words] if spaced and self._needs_space else words
        with self._reading_text(), _using_steps(self._backend, None if spaced else self._bare_steps):
            encodings = self._backend.encode_batch(given, add_special_tokens=False)
        rows = []
        for encoding in encodings:
            ids = encoding.ids
            if len(ids) != 1:
                ids = [index for index in ids if index not in self._blank] or ids[:1]
            rows.append(ids or [self.unknown])
        return rows

    @contextmanager
    def _reading_text(self) -> Iterator[None]:
        """Special tokens in text are cut like text, where no unknown piece can take their place."""
        before = self._backend.encode_special_tokens
        self._backend.encode_special_tokens = before or self._cuts_special
        try:
            yield
        finally:
            self._backend.encode_special_tokens = before

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
    """Sentences of words as subwords, for one call; a :class:`SubwordTokenizer` caches words between calls."""
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


@cache
def byte_table() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for: printable ones for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def read_bytes(signs: str, errors: str = "ignore") -> str:
    """What a tokenizer of bytes writes with a sign for each; ``errors`` says what becomes of parts of characters."""
    table = byte_table()
    return bytes(table[sign] for sign in signs if sign in table).decode("utf-8", errors)


def find_mark(backend: Any) -> str | None:
    """How a tokenizer writes the space before a word: ``Ġ`` where its pieces are bytes, ``▁`` as SentencePiece does.

    None for WordPiece. Either sign may be a letter or a symbol to other tokenizers: ``Ġ`` is one of Maltese.
    """
    steps = json.dumps(_read_steps(backend), ensure_ascii=False)
    if '"ByteLevel"' in steps:
        return BYTE_MARK
    return _MARK if _MARK in steps else None


def _read_steps(backend: Any) -> dict[str, Any]:
    """The settings of normalizer and pre-tokenizer."""
    steps = {"normalizer": backend.normalizer, "pre_tokenizer": backend.pre_tokenizer}
    return {name: step and json.loads(step.__getstate__()) for name, step in steps.items()}


def name_padding(tokenizer: Any) -> Any:
    """The tokenizer with a piece that fills batches: where none is named, the end of text, as is usual for decoders.

    Any would do, for no attention is paid to it.
    """
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer


def find_padding(tokenizer: Any) -> int:
    """The piece that fills batches."""
    for name in ("pad_token_id", "eos_token_id", "unk_token_id"):
        if (index := getattr(tokenizer, name)) is not None:
            return int(index)
    raise EncoderError(
        "the tokenizer names none of pad_token, eos_token and unk_token, and something has to fill batches. Name one "
        "of its pieces as pad_token in tokenizer_config.json."
    )


def _find_unknown(tokenizer: Any) -> int:
    """The id for what cannot be written; where a byte-level tokenizer has none, its mask or padding."""
    for index in (tokenizer.unk_token_id, tokenizer.mask_token_id):
        if index is not None:
            return int(index)
    return find_padding(tokenizer)


def _list_control(tokenizer: Any) -> list[int]:
    """Special tokens but the unknown one: the named ones, and those that the tokenizer's file adds as special."""
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    special = {index for index, token in added.items() if token.special}
    return sorted({*tokenizer.all_special_ids, *special} - {tokenizer.unk_token_id})


def probe_spacing(backend: Any, mark: str | None) -> tuple[bool, bool]:
    """Whether the tokenizer marks a word's beginning by itself, and whether it needs a space to do so."""

    def marked(text: str) -> bool:
        tokens = backend.encode(text, add_special_tokens=False).tokens
        return mark is not None and bool(tokens) and tokens[0].startswith(mark)

    if marked("a"):
        return True, False
    return False, marked(" a")


def _without_prefix(backend: Any) -> dict[str, Any]:
    """Normalizer and pre-tokenizer that are like the given ones but put no mark at a word's beginning."""
    from tokenizers import Tokenizer, models

    def unmark(step: dict[str, Any] | None) -> dict[str, Any] | None:
        if step is None or step["type"] == "Prepend":
            return None
        changed: dict[str, Any] = {"prepend_scheme": "never", "add_prefix_space": False}
        changed |= {
            key: [part for part in map(unmark, step[key]) if part]
            for key in ("pretokenizers", "normalizers")
            if key in step
        }
        return step | {key: value for key, value in changed.items() if key in step}

    # Only a whole tokenizer can be read from JSON, so the steps travel inside an empty one.
    carrier = json.loads(Tokenizer(models.WordLevel({"a": 0}, "a")).to_str())
    steps = _read_steps(backend)
    read = Tokenizer.from_str(json.dumps(carrier | {name: unmark(step) for name, step in steps.items()}))
    return {name: getattr(read, name) for name in steps}


@contextmanager
def _using_steps(backend: Any, steps: dict[str, Any] | None) -> Iterator[None]:
    """Use another normalizer and pre-tokenizer for a while, if they are given."""
    before = {name: getattr(backend, name) for name in steps or ()}
    for name, step in (steps or {}).items():
        setattr(backend, name, step)
    try:
        yield
    finally:
        for name, step in before.items():
            setattr(backend, name, step)


def _trim_spans(text: str, starts: IntArray, ends: IntArray) -> None:
    """Move offsets off the spaces that some tokenizers count as part of a piece; in place.

    A piece also gets the accents after it that normalisation made part of its last letter, or dropped.
    """
    if not len(starts):
        return
    if any(character.isspace() for character in text):
        space = np.fromiter((c.isspace() for c in text), bool, len(text))
        next_solid = np.minimum.accumulate(np.where(space, len(text), np.arange(len(text)))[::-1])[::-1]
        next_solid = np.append(next_solid, len(text))
        starts[:] = np.minimum(next_solid[starts], ends)
        last_solid = np.maximum.accumulate(np.where(space, 0, np.arange(1, len(text) + 1)))
        last_solid = np.append(0, last_solid)
        ends[:] = np.maximum(last_solid[ends], starts)
        uncovered = ~np.append(space, True)[ends]
    else:
        uncovered = ends < len(text)
    uncovered &= np.append(starts[1:], len(text)) > ends
    for piece in np.flatnonzero(uncovered).tolist():
        limit = int(starts[piece + 1]) if piece + 1 < len(starts) else len(text)
        if joined := _JOINED.match(text, int(ends[piece]), limit):
            ends[piece] = joined.end()
