"""Subword sampling: other segmentations of words into the subwords of an encoder's vocabulary.

For unigram tokenizers every segmentation is drawn with its probability to the power of ``alpha``, normalised
(subword regularisation). For WordPiece the longest match is passed over with probability ``dropout``, then the next
longest, until one is taken; the shortest always is. For BPE every merge is skipped with that probability
(BPE-dropout). What is sampled always joins to the same string as before. Nothing here imports torch.

A word is a path through its characters, from the first to the end; an edge of it is a subword. All words are sampled at
once: W words, E edges of all words, K paths of each.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from crossling.data.ragged import IntArray, Ragged, build_ragged, to_offsets
from crossling.encoders.tokenization import BYTE_MARK, find_mark, is_byte, read_bytes
from crossling.errors import EncoderError

LONGEST = 40
"""Characters of a string that is sampled; longer ones keep their subwords, as products of probabilities underflow."""
CHUNK = 20_000
"""Words that are sampled together, which bounds memory."""
ATTEMPTS = 10


class SubwordSampler:
    """The subwords of a tokenizer: where words begin, and other segmentations of them."""

    def __init__(self, tokenizer: Any, *, alpha: float = 0.2, dropout: float = 0.3) -> None:
        settings = json.loads(tokenizer.backend_tokenizer.to_str())
        model = settings["model"]
        self.kind: str = model["type"]
        self.alpha, self.dropout = alpha, dropout
        self._middle: str = model.get("continuing_subword_prefix") or ""
        self._mark = find_mark(tokenizer.backend_tokenizer) or ""
        """Of a word's beginning; WordPiece marks the middle of words instead, by a prefix."""
        is_marked = bool(self._middle) if self.kind == "WordPiece" else bool(self._mark) and not self._middle
        if not is_marked or self.kind not in _SAMPLERS or model.get("end_of_word_suffix"):
            raise EncoderError(
                f"this encoder has a tokenizer of type {self.kind}; words can be changed where it is a unigram, "
                "WordPiece or BPE tokenizer that marks where words begin. Leave consistency out."
            )
        self._pieces = {index: piece for piece, index in tokenizer.backend_tokenizer.get_vocab().items()}
        control = {*tokenizer.all_special_ids, *(added["id"] for added in settings.get("added_tokens", ()))}
        size = 1 + max(self._pieces)
        self.begins, self.stays = np.zeros(size, bool), np.ones(size, bool)
        """By subword: whether a word begins with it; whether it is a word by itself that is never changed: special
        tokens, bytes, and subwords without a letter or digit."""
        for index, piece in self._pieces.items():
            self.begins[index] = self._begins_word(piece)
            self.stays[index] = index in control or is_byte(piece) or not _has_text(self.read(piece))
        known = {piece: index for index, piece in self._pieces.items() if index not in control and not is_byte(piece)}
        self._first = {piece: index for piece, index in known.items() if piece != self._mark}
        self._later = self._first
        if self._middle:
            self._later = {p.removeprefix(self._middle): i for p, i in known.items() if p.startswith(self._middle)}
            self._first = {p: i for p, i in known.items() if not p.startswith(self._middle)}
        self._longest = max(map(len, (*self._first, *self._later)), default=1)
        self._scores = np.array([score for _, score in model["vocab"]]) if self.kind == "Unigram" else np.zeros(0)
        self._ranks = {_read_merge(merge): rank for rank, merge in enumerate(model.get("merges", ()))}

    def _begins_word(self, piece: str) -> bool:
        return not piece.startswith(self._middle) if self._middle else piece.startswith(self._mark)

    def spell(self, ids: Sequence[int]) -> str:
        """The string that subwords join to: with the mark of a word's beginning, or WordPiece's of its middle."""
        first, *later = (self._pieces[index] for index in ids)
        return str(first) + "".join(piece.removeprefix(self._middle) for piece in later)

    def read(self, string: str) -> str:
        """A string of subwords as a person writes it."""
        if self._middle:
            return string.removeprefix(self._middle)
        if self._mark == BYTE_MARK:
            return read_bytes(string, "replace").strip()
        return string.replace(self._mark, "")

    def sample(self, strings: Sequence[str], count: int, generator: np.random.Generator) -> Ragged:
        """``count`` segmentations of each string, as ids: row ``count * i`` is the first of string i.

        A row is empty where the vocabulary cannot write the string. No segmentation begins with a mark alone.
        """
        rows: list[Ragged] = [build_ragged([])]
        for start in range(0, len(strings), CHUNK):
            rows.append(_SAMPLERS[self.kind](self, strings[start : start + CHUNK], count, generator))
        lengths = np.concatenate([part.lengths for part in rows])
        return Ragged(np.concatenate([part.values for part in rows]), to_offsets(lengths))

    def _sample_unigram(self, strings: Sequence[str], count: int, generator: np.random.Generator) -> Ragged:
        lattice = self._build_lattice(strings)
        return lattice.walk(lattice.weigh_paths(np.exp(self.alpha * self._scores[lattice.piece])), count, generator)

    def _sample_wordpiece(self, strings: Sequence[str], count: int, generator: np.random.Generator) -> Ragged:
        lattice = self._build_lattice(strings)
        return lattice.walk(lattice.drop_matches(self.dropout), count, generator)

    def _build_lattice(self, strings: Sequence[str]) -> _Lattice:
        """All subwords of all strings; of each place in a string, the shortest first."""
        edges: list[tuple[int, int, int, int]] = []
        lengths = np.zeros(len(strings), np.int64)
        for word, string in enumerate(strings):
            known = self._first
            if self._middle and string.startswith(self._middle):
                known, string = self._later, string.removeprefix(self._middle)
            size = len(string)
            if size > LONGEST:
                continue
            lengths[word] = size
            for start in range(size):
                for end in range(start + 1, min(size, start + self._longest) + 1):
                    piece = known.get(string[start:end])
                    if piece is not None:
                        edges.append((word, start, end, piece))
                known = self._later
        columns = np.array(edges, np.int64).reshape(-1, 4).T
        return _Lattice(lengths, *columns)

    def _sample_merges(self, strings: Sequence[str], count: int, generator: np.random.Generator) -> Ragged:
        rows = [self._merge(string, generator) for string in strings for _ in range(count)]
        return build_ragged(rows)

    def _merge(self, string: str, generator: np.random.Generator) -> list[int]:
        """Merges in the order of their ranks, each of them skipped with the probability ``dropout`` every time."""
        for _ in range(ATTEMPTS if len(string) <= LONGEST else 0):
            symbols = list(string)
            while True:
                kept = generator.random(len(symbols)) >= self.dropout
                ranks = [self._ranks.get(pair) for pair in pairwise(symbols)]
                found = [(rank, place) for place, rank in enumerate(ranks) if rank is not None and kept[place]]
                if not found:
                    break
                place = min(found)[1]
                symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
            if all(symbol in self._first for symbol in symbols):
                return [self._first[symbol] for symbol in symbols]
        return []


_SAMPLERS: dict[str, Callable[[SubwordSampler, Sequence[str], int, np.random.Generator], Ragged]] = {
    "Unigram": SubwordSampler._sample_unigram,
    "WordPiece": SubwordSampler._sample_wordpiece,
    "BPE": SubwordSampler._sample_merges,
}


@dataclass(frozen=True)
class _Lattice:
    """The subwords of some strings as edges between places of their characters, by string and start."""

    lengths: IntArray
    """Characters of each string, W; 0 for one that is not sampled."""
    word: IntArray
    start: IntArray
    end: IntArray
    piece: IntArray

    def weigh_paths(self, weight_E: IntArray) -> IntArray:
        """The probability of each edge at its start, where a path is as probable as the product of its weights.

        Backward filtering: the weight of all paths from a place to the end is the sum over the edges that leave it.
        """
        words, places = len(self.lengths), int(self.lengths.max(initial=0)) + 1
        rest_PW = np.zeros((places, words))
        rest_PW[self.lengths, np.arange(words)] = 1.0
        order = np.argsort(self.start, kind="stable")
        bounds = np.searchsorted(self.start[order], np.arange(places + 1))
        for place in range(places - 2, -1, -1):
            edges = order[bounds[place] : bounds[place + 1]]
            through = weight_E[edges] * rest_PW[self.end[edges], self.word[edges]]
            rest_PW[place] += np.bincount(self.word[edges], through, minlength=words)
        whole = rest_PW[self.start, self.word]
        return np.divide(weight_E * rest_PW[self.end, self.word], whole, out=np.zeros(len(whole)), where=whole > 0)

    def drop_matches(self, dropout: float) -> IntArray:
        """The probability of each edge at its start, where the longest that leads to the end is taken unless it is
        dropped, then the next longest; the shortest is never dropped."""
        leads = self.weigh_paths(np.ones(len(self.word))) > 0
        key = self.word * (LONGEST + 1) + self.start
        shorter: IntArray = np.cumsum(leads) - leads
        firsts = np.searchsorted(key, key)
        shorter -= shorter[firsts]  # viable edges at the same start that are shorter
        totals = np.bincount(key[leads], minlength=int(key.max(initial=0)) + 1)
        longer = totals[key] - shorter - 1
        taken = np.where(shorter == 0, 1.0, 1.0 - dropout)
        return np.where(leads, dropout ** np.maximum(longer, 0) * taken, 0.0)

    def walk(self, chance_E: IntArray, count: int, generator: np.random.Generator) -> Ragged:
        """``count`` paths of each string, by the probability of every edge at its start; empty where there is none."""
        width, possible = LONGEST + 1, chance_E > 0
        end, piece, chance_E = self.end[possible], self.piece[possible], chance_E[possible]
        key = self.word[possible] * width + self.start[possible]
        bounds = np.searchsorted(key, np.arange(len(self.lengths) * width + 1))
        sums = np.concatenate([[0.0], np.cumsum(chance_E)])
        word = np.repeat(np.arange(len(self.lengths)), count)
        can_end = (bounds[1:] > bounds[:-1])[word * width]
        place, steps = np.zeros(len(word), np.int64), np.zeros(len(word), np.int64)
        taken = np.zeros((len(word), width), np.int32)
        active = np.flatnonzero(can_end)
        while len(active):
            at = word[active] * width + place[active]
            low, high = bounds[at], bounds[at + 1]
            aim = sums[low] + generator.random(len(active)) * (sums[high] - sums[low])
            edge = np.clip(np.searchsorted(sums, aim, side="right") - 1, low, high - 1)
            taken[active, steps[active]] = piece[edge]
            place[active] = end[edge]
            steps[active] += 1
            active = active[place[active] < self.lengths[word[active]]]
        return Ragged(taken[np.arange(width)[None, :] < steps[:, None]], to_offsets(steps))


def _has_text(text: str) -> bool:
    """Whether there is more than punctuation, symbols and spaces; part of a character counts as text."""
    return any(unicodedata.category(character)[0] in "LMN" or character == "\ufffd" for character in text)


def _read_merge(merge: Any) -> tuple[str, str]:
    """A merge is a pair, or in older files two words with a space between."""
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right
