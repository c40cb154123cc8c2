"""Pairs of words that mean the same, and pairs that do not, drawn from linked parallel text once for all models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossling.aligners.linked_text import Sentences, Words
from crossling.aligners.links import Link
from crossling.errors import DataError

ATTEMPTS = 50
"""How often a word is drawn anew that turns out to be related."""

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class WordPositions:
    """Words by sentence and number within it."""

    sentence: Array
    word: Array

    def __len__(self) -> int:
        return len(self.sentence)

    def take(self, chosen: Array) -> WordPositions:
        """Some of them, in the given order."""
        return WordPositions(self.sentence[chosen], self.word[chosen])


@dataclass(frozen=True)
class WordPairs:
    """Source word i is related to target word i.

    Unrelated pairs are made of the very words that the related ones are made of, so that the two differ in nothing but
    how words are put together.
    """

    sentences: Sentences
    source: WordPositions
    target: WordPositions
    unrelated: Array
    """Two columns: the number of a source word, and that of a target word which has nothing to do with it."""
    same_sentence: Array
    """The same of words of one sentence pair, whose context does not distinguish them."""

    def __len__(self) -> int:
        return len(self.source)


def draw_pairs(
    sentences: Sentences,
    links: Sequence[Sequence[Link]],
    *,
    count: int,
    drop_identical: bool,
    seed: int,
    name: str,
) -> WordPairs:
    """At most ``count`` of all links, at random, and for each source word random target words that are not related.

    A pair is unrelated if its words are not the same string and are linked nowhere in the text; capitals do not count.
    Its words stand in different sentence pairs, or in one.
    """
    places = [
        (number, source, target)
        for number, found in enumerate(links)
        for source, target in found
        if not (drop_identical and sentences.source[number][source] == sentences.target[number][target])
    ]
    if not places:
        which = " between words that differ" if drop_identical else ""
        raise DataError(f"{name}: no links{which} in {len(sentences.rows):,} sentence pairs; nothing can be measured")
    table = np.asarray(places, np.int64)
    generator = np.random.default_rng([seed, 1])
    chosen = np.sort(generator.permutation(len(table))[:count])
    source, target = (WordPositions(table[chosen, 0], table[chosen, column]) for column in (1, 2))
    relations = _Relations(sentences, links)
    unrelated = _draw_unrelated(relations, source, target, lambda some: generator.integers(len(target), size=len(some)))
    if not len(unrelated):
        raise DataError(f"{name}: every word is related to every other one; take more sentences")
    inside = _draw_within(target, np.random.default_rng([seed, 2]))
    same_sentence = _draw_unrelated(relations, source, target, inside, one_sentence=True)
    return WordPairs(sentences, source, target, unrelated, same_sentence)


def _draw_within(target: WordPositions, generator: np.random.Generator) -> Callable[[Array], Array]:
    """Draws, for given pairs, a random target word of the same sentence pair; pairs are in the order of sentences."""
    first, after = (np.searchsorted(target.sentence, target.sentence, side=side) for side in ("left", "right"))
    return lambda some: first[some] + generator.integers(after[some] - first[some])


def _draw_unrelated(
    relations: _Relations,
    source: WordPositions,
    target: WordPositions,
    draw: Callable[[Array], Array],
    *,
    one_sentence: bool = False,
) -> Array:
    """For each source word a target word that it is not related to; the few go without one that find none."""
    found = np.full(len(source), -1, np.int64)
    pending = np.arange(len(source))
    for _ in range(ATTEMPTS):
        drawn = draw(pending)
        unrelated = ~relations.hold(source.take(pending), target.take(drawn), one_sentence=one_sentence)
        found[pending[unrelated]] = drawn[unrelated]
        pending = pending[~unrelated]
        if not len(pending):
            break
    matched = np.flatnonzero(found >= 0)
    return np.stack([matched, found[matched]], 1)


class _Relations:
    """Which words are related: linked somewhere in the text, the same, or, if asked for, of one sentence pair."""

    def __init__(self, sentences: Sentences, links: Sequence[Sequence[Link]]) -> None:
        self._numbers: dict[str, int] = {}
        self._sides = [self._number(side) for side in (sentences.source, sentences.target)]
        sources, targets = self._sides
        pairs = {(sources[n][i], targets[n][j]) for n, found in enumerate(links) for i, j in found}
        self._linked = np.asarray(sorted(self._join(*pair) for pair in pairs), np.int64)

    def _number(self, side: Sequence[Words]) -> list[list[int]]:
        numbers = self._numbers
        return [[numbers.setdefault(word.casefold(), len(numbers)) for word in words] for words in side]

    def _join(self, source: Any, target: Any) -> Any:
        return source * np.int64(1 << 32) + target

    def hold(self, source: WordPositions, target: WordPositions, *, one_sentence: bool = False) -> Array:
        """Whether source word i and target word i are related; with ``one_sentence`` they may share a sentence pair."""
        left, right = (
            np.asarray([side[n][w] for n, w in zip(places.sentence.tolist(), places.word.tolist(), strict=True)])
            for side, places in zip(self._sides, (source, target), strict=True)
        )
        linked = np.isin(self._join(left.astype(np.int64), right.astype(np.int64)), self._linked)
        found: Array = linked | (left == right)
        return found if one_sentence else found | (source.sentence == target.sentence)
