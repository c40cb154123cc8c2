"""Unlabelled text: the texts of any rows as encoded examples.

Sentences of words are tokenized word by word, as for a tagger, running text as a whole. A text that is longer than an
example becomes several, split between words where possible; nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from crossling.data.batching import Array, Examples, write_examples
from crossling.data.ragged import Ragged, join_rows
from crossling.data.records import TEXT_COLUMNS, LinkedPair, ParallelPair, Question
from crossling.data.rows import Rows
from crossling.data.words import Pieces, cut_by_tokenizer, split_words
from crossling.encoders.special_tokens import Layout, assemble, shorten_pair, special_layout
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.files import is_intact
from crossling.recipe.identity import content_hash

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder

VERSION = 1
CHUNK = 2_000
"""Rows that are encoded at a time."""


@dataclass(frozen=True)
class Chunking:
    """How text is cut into examples."""

    length: int = 128
    """Maximum number of subwords in an example, special ones included."""
    pairs: Literal["apart", "together"] = "apart"
    """Two texts of a row are an example each, or one example, cut off where they are too long together."""
    words: bool = False
    """Keep the number of the word that each subword belongs to."""


@dataclass(frozen=True)
class TextExamples:
    """Encoded texts; an example's ``language`` is a place in ``languages``."""

    examples: Examples
    languages: tuple[str, ...]


def list_languages(rows: Rows) -> tuple[str, ...]:
    """The language of each of a row's texts: a translation's two sides have their own."""
    fields = TEXT_COLUMNS[rows.kind]
    if rows.kind not in (ParallelPair, LinkedPair):
        return (rows.language,) * len(fields)
    source, _, target = rows.language.partition("-")
    return source, target or source


def encode_unlabelled(rows: Sequence[Rows], encoder: Encoder, chunking: Chunking, *, cache: Path) -> TextExamples:
    """All texts of some sets as examples, from the cache where they were encoded before."""
    languages = tuple(dict.fromkeys(code for part in rows for code in _example_languages(part, chunking)))
    facts = {
        "rows": [[part.language, part.fingerprint] for part in rows],
        "encoder": encoder.identity,
        "reading": asdict(chunking),
        "version": VERSION,
    }
    path = cache / f"{content_hash(facts)}.arrow"
    if is_intact(path):
        return TextExamples(Examples(path), languages)
    cutter = _Cutter(encoder, chunking)
    chunks = (chunk for part in rows for chunk in _encode_part(part, cutter, languages))
    return TextExamples(write_examples(path, chunks), languages)


def sample_texts(rows: Rows, encoder: Encoder, chunking: Chunking) -> Iterator[Array]:
    """The subwords of every example of a few rows, without the cache."""
    languages = tuple(dict.fromkeys(_example_languages(rows, chunking)))
    for chunk in _encode_part(rows, _Cutter(encoder, chunking), languages):
        yield from (np.asarray(chunk["ids"][row]) for row in range(len(chunk["ids"])))


def _example_languages(rows: Rows, chunking: Chunking) -> tuple[str, ...]:
    """The languages of these rows' examples; a pair that stays together has both."""
    return (rows.language,) if chunking.pairs == "together" else list_languages(rows)


def _encode_part(rows: Rows, cutter: _Cutter, languages: Sequence[str]) -> Iterator[dict[str, Any]]:
    fields, codes = TEXT_COLUMNS[rows.kind], list_languages(rows)
    last = ""
    for chunk in rows.chunks(CHUNK):
        if len(fields) == 2 and cutter.chunking.pairs == "together":
            sides = [cutter.cut(chunk[field], code) for field, code in zip(fields, codes, strict=True)]
            yield cutter.join(sides[0], sides[1], languages.index(rows.language))
            continue
        for field, code in zip(fields, codes, strict=True):
            texts = chunk[field]
            if rows.kind is Question and field == "context":  # questions about one context follow one another
                texts, last = [t for before, t in pairwise([last, *texts]) if t != before], texts[-1]
            yield cutter.window(cutter.cut(texts, code), languages.index(code))


@dataclass(frozen=True)
class _Pieces:
    """Subwords of texts, and the word of each."""

    ids: Ragged
    words: Ragged


class _Cutter:
    """An encoder's tokenizer, and how its pieces become examples."""

    def __init__(self, encoder: Encoder, chunking: Chunking) -> None:
        self.chunking = chunking
        self.layout: Layout = special_layout(encoder.tokenizer)
        self.length = min(chunking.length, encoder.max_length)
        self.uses_types = encoder.uses_token_types
        self._subwords = SubwordTokenizer(encoder.tokenizer)
        self._pieces: Pieces = cut_by_tokenizer(encoder.tokenizer)

    def cut(self, texts: Sequence[Any], language: str) -> _Pieces:
        """Texts, or sentences of words, as subwords."""
        if texts and not isinstance(texts[0], str):
            encoded = self._subwords.encode_words(texts)
            return _Pieces(encoded.pieces, encoded.words)
        cut = self._subwords.encode_texts(texts)
        if self.chunking.words:
            words = [self._find_words(*item, language) for item in zip(texts, _list_rows(cut.starts), strict=True)]
            numbers = np.concatenate(words) if words else np.zeros(0, np.int64)
        else:  # where to cut is all that must be known of words: where there is a space
            numbers = np.cumsum(cut.starts.values > np.append(-1, cut.ends.values[:-1]))
        return _Pieces(cut.pieces, Ragged(numbers.astype(np.int32), cut.pieces.offsets))

    def _find_words(self, text: str, starts: Array, language: str) -> Array:
        """The number of the word in which each piece begins."""
        places = [word.start for word in split_words(text, language, pieces=self._pieces)]
        numbers: Array = np.maximum(np.searchsorted(np.asarray(places, np.int64), starts, side="right") - 1, 0)
        return numbers

    def window(self, cut: _Pieces, language: int) -> dict[str, Any]:
        """Examples of single texts; those that are too long become several."""
        room = self.length - self.layout.single_extra
        offsets = cut.ids.offsets
        cuts = [offsets]
        for row in np.flatnonzero(cut.ids.lengths > room):
            cuts.append(offsets[row] + np.asarray(_cut_windows(cut.words[int(row)], room), np.int64))
        edges = np.unique(np.concatenate(cuts))  # a text without subwords is gone with its two equal edges
        ids, words = Ragged(cut.ids.values, edges), Ragged(cut.words.values, edges)
        return self._finish(ids, None, words, None, language)

    def join(self, first: _Pieces, second: _Pieces, language: int) -> dict[str, Any]:
        """Examples of two texts each."""
        room = self.length - self.layout.pair_extra
        kept = [
            shorten_pair(int(a), int(b), room=room) for a, b in zip(first.ids.lengths, second.ids.lengths, strict=True)
        ]
        counts = np.asarray(kept, np.int64).reshape(-1, 2)
        left, right = _shorten(first, counts[:, 0]), _shorten(second, counts[:, 1])
        # Words of the second text go on counting where the first's end.
        most = int(left.words.values.max(initial=0)) + 1
        return self._finish(
            left.ids, right.ids, left.words, Ragged(right.words.values + most, right.words.offsets), language
        )

    def _finish(
        self, first: Ragged, second: Ragged | None, words: Ragged, more: Ragged | None, language: int
    ) -> dict[str, Any]:
        """Add special tokens, and the columns that the encoder and the chunking need."""
        ids, types = assemble(self.layout, first, second)
        chunk: dict[str, Any] = {"ids": ids, "language": np.full(len(ids), language, np.int32)}
        if self.uses_types:
            chunk["types"] = types
        if self.chunking.words:
            chunk["words"] = _surround(self.layout, words, more)
        return chunk


def _list_rows(ragged: Ragged) -> list[Array]:
    return [ragged[row] for row in range(len(ragged))]


def _cut_windows(words: Array, room: int) -> list[int]:
    """Where to cut a text that is too long: before a word if one begins in the second half of the room."""
    cuts, start = [], 0
    while len(words) - start > room:
        begins = np.flatnonzero(np.diff(words[start : start + room + 1])) + 1
        best = int(begins[-1]) if len(begins) and begins[-1] > room // 2 else room
        start += best
        cuts.append(start)
    return cuts


def _shorten(cut: _Pieces, counts: Array) -> _Pieces:
    """The first ``counts[i]`` pieces of each text i."""
    inside = np.arange(len(cut.ids.values)) - np.repeat(cut.ids.offsets[:-1], cut.ids.lengths)
    kept = inside < np.repeat(counts, cut.ids.lengths)
    offsets = np.append(0, np.cumsum(counts))
    return _Pieces(Ragged(cut.ids.values[kept], offsets), Ragged(cut.words.values[kept], offsets))


def _surround(layout: Layout, first: Ragged, second: Ragged | None) -> Ragged:
    """Numbers of words with -1 where the special pieces are."""

    def blank(width: int) -> Ragged:
        return Ragged(np.full(len(first) * width, -1, np.int32), np.arange(len(first) + 1) * width)

    if second is None:
        return join_rows([blank(len(layout.prefix)), first, blank(len(layout.single_suffix))])
    between = blank(len(layout.middle))
    return join_rows([blank(len(layout.prefix)), first, between, second, blank(len(layout.suffix))])
