"""Data augmentation: copies of examples with words cut into other subwords, or replaced by translations.

The first is subword regularisation, the second code-switching. An example is a row of units: words as far as subwords
show them, special tokens, punctuation. Every distinct unit has a few variants that are drawn once, so that a batch of
copies is a lookup. Which variants a copy has depends on seed, epoch and row alone: a run that was stopped continues
with the same copies, whatever the number of processes.

N units of some rows, one after another; D distinct units; L languages that words are translated from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from crossling.data.batching import Array, Examples
from crossling.data.draws import draw_uniform, splitmix64
from crossling.data.ragged import Ragged, take_rows, to_offsets
from crossling.encoders.subword_sampling import SubwordSampler
from crossling.encoders.tokenization import SubwordTokenizer

if TYPE_CHECKING:
    from crossling.aligners.lexicon import Lexicon

NONE = -1
SAMPLES = 8
"""Variants of each kind that a unit has; some of them may be equal."""
ROOM = 1.3
"""How much longer than an example its copy may be. Where it would be longer, the rest of its words stay as they are."""
DEVIATIONS = 3.0
"""Batches are planned for the mean length of a row's copies and this many standard deviations: nearly all fit."""
PLANNED_ROWS = 1 << 16
"""Rows whose lengths are planned at once."""
LONGEST_UNIT = 8
"""Subwords of a unit: a longer word, or a clause in a script without spaces, is several units."""
CUT, TRANSLATE = 11, 12
"""What random numbers are for, so that no two uses draw the same."""


@dataclass(frozen=True)
class Changes:
    """How often words are changed."""

    subwords: float
    """The probability that a word is cut anew."""
    words: float = 0.0
    """The probability that a word with translations is replaced by one of them."""


@dataclass(frozen=True)
class Variants:
    """The distinct units of some examples, and what each can be changed to."""

    pieces: Ragged
    """Subwords: of the D units, then of all their variants."""
    samples: Array
    """The row of the first of a unit's segmentations, D; -1: it has no other."""
    translations: Array
    """The row of the first of a unit's translations from each language, L x D; -1: it has none."""


def cut_units(ids: Ragged, sampler: SubwordSampler, firsts: Ragged | None = None) -> tuple[Ragged, Ragged]:
    """The units of every row by number, and the subwords of each distinct unit.

    A unit begins where a word does (by the mark of the tokenizer, or at the ``firsts`` of a row) and around subwords
    that are never changed.
    """
    flat = ids.values.astype(np.int64)
    stays = sampler.stays[flat]
    begins = sampler.begins[flat] | stays
    begins[1:] |= stays[:-1]
    begins[ids.offsets[:-1][ids.lengths > 0]] = True
    if firsts is not None:
        begins[np.repeat(ids.offsets[:-1], firsts.lengths) + firsts.values] = True
    begins |= _count_inside(begins) % LONGEST_UNIT == 0
    starts = np.flatnonzero(begins)
    keys = splitmix64((flat * LONGEST_UNIT + _count_inside(begins)).astype(np.uint64))
    _, first_at, numbers = np.unique(np.add.reduceat(keys, starts), return_index=True, return_inverse=True)
    distinct = take_rows(Ragged(ids.values, np.append(starts, len(flat))), first_at)
    units = Ragged(numbers.astype(np.int32), np.searchsorted(starts, ids.offsets))
    assert np.array_equal(take_rows(distinct, numbers).values, ids.values), "two units have the same hash"
    return units, distinct


def _count_inside(begins: Array) -> Array:
    """The place of each subword in its unit."""
    starts = np.flatnonzero(begins)
    places: Array = np.arange(len(begins)) - starts[np.cumsum(begins) - 1]
    return places


def draw_variants(
    units: Ragged,
    sampler: SubwordSampler,
    changes: Changes,
    *,
    generator: np.random.Generator,
    lexicons: Mapping[str, Sequence[Lexicon]] | None = None,
    subwords: SubwordTokenizer | None = None,
) -> Variants:
    """Variants of each distinct unit; ``lexicons`` by the language that they translate from, whose words ``subwords``
    cuts."""
    changeable = np.flatnonzero(~sampler.stays[units.values[units.offsets[:-1]]])
    strings = [sampler.spell(units[number].tolist()) for number in changeable.tolist()]
    samples = np.full(len(units), NONE, np.int64)
    translations = np.full((len(lexicons or {}) + 1, len(units)), NONE, np.int64)
    parts, filled = [units], len(units)

    def keep(rows: Ragged, usable: Array, numbers: Array, table: Array) -> None:
        """Keep the variants that are usable, and say in a table where those of each unit begin."""
        nonlocal filled
        table[numbers[usable]] = filled + SAMPLES * np.arange(usable.sum())
        parts.append(take_rows(rows, np.flatnonzero(np.repeat(usable, SAMPLES))))
        filled += len(parts[-1])

    if changes.subwords:
        found = sampler.sample(strings, SAMPLES, generator)
        differs = _differ(found, take_rows(units, np.repeat(changeable, SAMPLES)))
        usable: Array = np.any(differs.reshape(-1, SAMPLES), axis=1)
        usable &= (found.lengths.reshape(-1, SAMPLES) > 0).all(axis=1)
        keep(found, usable, changeable, samples)
    words = [sampler.read(string) for string in strings] if lexicons else []
    for language, some in enumerate((lexicons or {}).values()):
        assert subwords is not None
        numbers, targets = _translate(words, some, generator)
        rows = subwords.encode_words([target.split() for target in targets]).pieces
        unknown = np.concatenate([[0], np.cumsum(rows.values == subwords.unknown)])
        usable = (unknown[rows.offsets[1:]] == unknown[rows.offsets[:-1]]).reshape(-1, SAMPLES).all(axis=1)
        keep(rows, usable, changeable[numbers], translations[language])
    values = np.concatenate([part.values for part in parts]).astype(np.int32)
    return Variants(Ragged(values, to_offsets(np.concatenate([p.lengths for p in parts]))), samples, translations)


def _differ(some: Ragged, others: Ragged) -> Array:
    """Which rows are not the same."""
    differ: Array = some.lengths != others.lengths
    equal = np.flatnonzero(~differ)
    left, right = take_rows(some, equal), take_rows(others, equal)
    wrong = np.concatenate([[0], np.cumsum(left.values != right.values)])
    differ[equal] = wrong[left.offsets[1:]] > wrong[left.offsets[:-1]]
    return differ


def _translate(
    words: Sequence[str], lexicons: Sequence[Lexicon], generator: np.random.Generator
) -> tuple[Array, list[str]]:
    """The numbers of words that have translations, and ``SAMPLES`` of each, drawn by their probabilities."""
    numbers: list[int] = []
    targets: list[str] = []
    for number, word in enumerate(words):
        if not word or any(character.isdigit() for character in word):
            continue
        found = [entry for lexicon in lexicons for entry in lexicon.translations.get(word.lower(), ())]
        if not found:
            continue
        limits = np.cumsum([probability for _, probability in found])
        drawn = np.searchsorted(limits, generator.random(SAMPLES) * limits[-1], side="right")
        numbers.append(number)
        targets += [_match_case(found[min(place, len(found) - 1)][0], word) for place in drawn.tolist()]
    return np.array(numbers, np.int64), targets


def _match_case(target: str, word: str) -> str:
    """A word in lower case, written as another is: in capitals, or with a capital at its beginning."""
    if len(word) > 1 and word.isupper():
        return target.upper()
    return target[:1].upper() + target[1:] if word[:1].isupper() else target


class VariedExamples(Examples):
    """Examples of which copies can be made; each is as long as its copy may be."""

    def __init__(
        self,
        examples: Examples,
        units: Ragged,
        variants: Variants,
        changes: Changes,
        *,
        seed: int,
        limit: int,
        languages: Array | None = None,
    ) -> None:
        """``languages``: for each row the language, among those of the translations, that it is in; -1: none.
        ``limit``: the longest input that the encoder reads."""
        self.path, self.columns = examples.path, examples.columns
        self._all, self._units, self._variants, self._changes, self._seed = examples, units, variants, changes, seed
        self._languages = np.full(len(examples), NONE) if languages is None else languages
        longest = np.minimum(np.ceil(ROOM * examples.lengths), np.maximum(examples.lengths, limit))
        self.lengths = np.minimum(np.ceil(self._plan_lengths()), longest).astype(np.int32)

    def get(self, column: str, row: int) -> Array:
        """The values of one example's column; ``units`` are the numbers of its subwords' units, counted from 0."""
        if column != "units":
            return self._all.get(column, row)
        lengths = self._count_pieces(self._units[row])
        return np.repeat(np.arange(len(lengths)), lengths)

    def scalars(self, column: str) -> Array:
        """All values of a scalar column."""
        return self._all.scalars(column)

    def distinct_ids(self) -> Array:
        """The subwords of examples and of all copies that can be made, sorted."""
        return np.unique(self._variants.pieces.values)

    def _count_pieces(self, variants: Array) -> Array:
        offsets = self._variants.pieces.offsets
        counts: Array = offsets[variants + 1] - offsets[variants]
        return counts

    def _plan_lengths(self) -> Array:
        """Lengths that almost all copies of each row fit into."""
        means, variances = self._describe_growth()
        planned: Array = self._all.lengths.astype(np.float64)
        for start in range(0, len(planned), PLANNED_ROWS):
            rows = np.arange(start, min(start + PLANNED_ROWS, len(planned)))
            units = take_rows(self._units, rows)
            places = np.repeat(self._languages[rows], units.lengths), units.values
            growth, variance = (_sum_rows(table[places], units.offsets) for table in (means, variances))
            planned[rows] += np.maximum(growth + DEVIATIONS * np.sqrt(np.maximum(variance, 0)), 0)
        return planned

    def _describe_growth(self) -> tuple[Array, Array]:
        """By the language of a row and the unit: mean and variance of the subwords by which a copy of it is longer."""
        lengths, count = self._variants.pieces.lengths, len(self._variants.samples)

        def describe(first: Array) -> tuple[Array, Array, Array]:
            """Of each unit: whether it has variants, and the means of their growth and of its square."""
            has: Array = first != NONE
            growth = np.zeros((*first.shape, SAMPLES))
            own = np.broadcast_to(lengths[:count], first.shape)
            growth[has] = lengths[first[has][:, None] + np.arange(SAMPLES)] - own[has][:, None]
            return has, growth.mean(-1), np.square(growth).mean(-1)

        words, subwords = self._changes.words, self._changes.subwords
        _, *cut = describe(self._variants.samples)
        has, *translated = describe(self._variants.translations)
        # A word that is replaced is not cut anew.
        mean, square = (words * t + (1 - words * has) * subwords * c for t, c in zip(translated, cut, strict=True))
        return mean, square - np.square(mean)

    def copy(self, rows: Array, epoch: int) -> CopiedExamples:
        """Copies of some rows, as they are in an epoch."""
        units = take_rows(self._units, rows)
        chosen = self._choose(units, rows, epoch)
        offsets, before = units.offsets, self._count_pieces(units.values)
        room = np.repeat(self.lengths[rows] - self._all.lengths[rows], units.lengths)
        exceeds = _sum_within(self._count_pieces(chosen) - before, offsets) > room
        chosen = np.where(_sum_within(exceeds, offsets) > 0, units.values, chosen)
        pieces = take_rows(self._variants.pieces, chosen)
        old, new = _sum_within(before, offsets) - before, _sum_within(pieces.lengths, offsets) - pieces.lengths
        moved = _Units(offsets, old, new, pieces.lengths, chosen != units.values)
        return CopiedExamples(self._all, rows, Ragged(pieces.values, pieces.offsets[offsets]), moved)

    def _choose(self, units: Ragged, rows: Array, epoch: int) -> Array:
        """A variant for each unit, or the unit itself."""
        counts = units.lengths
        most = int(counts.max(initial=0))
        inside = np.arange(most)[None, :] < counts[:, None]

        def change(chosen: Array, first: Array, purpose: int, probability: float) -> Array:
            # A number below the probability is uniform up to it, and so picks one of the variants, too.
            which = draw_uniform(self._seed, epoch, purpose, rows, most)[inside] * (SAMPLES / probability)
            return np.where((first != NONE) & (which < SAMPLES), first + which.astype(np.int64), chosen)

        chosen: Array = units.values.astype(np.int64)
        if self._changes.subwords:
            chosen = change(chosen, self._variants.samples[units.values], CUT, self._changes.subwords)
        if self._changes.words:
            first = self._variants.translations[np.repeat(self._languages[rows], counts), units.values]
            chosen = change(chosen, first, TRANSLATE, self._changes.words)
        return chosen


def _sum_within(values: Array, offsets: Array) -> Array:
    """The sum of the values of a row up to each of them."""
    sums = np.concatenate([[0], np.cumsum(values)])
    inside: Array = sums[1:] - np.repeat(sums[offsets[:-1]], np.diff(offsets))
    return inside


def _sum_rows(values: Array, offsets: Array) -> Array:
    """The sum of the values of each row."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    rows: Array = sums[offsets[1:]] - sums[offsets[:-1]]
    return rows


class CopiedExamples(Examples):
    """Changed copies of some examples, by the examples' row numbers; places in them are those of the copies."""

    def __init__(self, examples: Examples, rows: Array, ids: Ragged, units: _Units) -> None:
        self.path, self.columns, self.lengths = examples.path, examples.columns, ids.lengths
        self._all, self._rows = examples, rows.tolist()
        self._places = {row: place for place, row in enumerate(self._rows)}
        self._units, self._moved = units, {"ids": ids}

    def get(self, column: str, row: int) -> Array:
        """The values of one copy's column."""
        if column not in _MOVED:
            return self._all.get(column, row)
        if column not in self._moved:
            self._moved[column] = self._move(column)
        return self._moved[column][self._places[row]]

    def _move(self, column: str) -> Ragged:
        """A column of all copies. An answer that begins or ends within a changed word has all of that word."""
        units = self._units
        if column == "units":
            inside = np.arange(len(units.after)) - np.repeat(units.offsets[:-1], np.diff(units.offsets))
            return Ragged(np.repeat(inside, units.after), self._moved["ids"].offsets)
        given = [self._all.get(column, row) for row in self._rows]
        values, counts = np.concatenate(given), np.array([len(one) for one in given])
        if column == "types":
            before = np.repeat(to_offsets(counts)[:-1], np.diff(units.offsets))
            return Ragged(np.repeat(values[before + units.old], units.after), self._moved["ids"].offsets)
        if column == "starts":  # where the context begins, and the special tokens after it
            begins = np.array([self._all.get("context_from", row)[0] for row in self._rows])
            ends = units.find(begins + counts, np.arange(len(counts)))
            lengths = units.new[ends] - units.new[units.find(begins, np.arange(len(counts)))]
            return Ragged(np.zeros(int(lengths.sum()), np.int32), to_offsets(lengths))
        found = units.find(values, np.repeat(np.arange(len(counts)), counts))
        end = units.after[found] - 1 if column == "last" else 0
        moved = units.new[found] + np.where(units.changed[found], end, values - units.old[found])
        return Ragged(moved, to_offsets(counts))


_MOVED = ("ids", "units", "types", "starts", "firsts", "context_from", "first", "last")
"""Columns that differ between an example and its copy: subwords, and places of them."""


@dataclass(frozen=True)
class _Units:
    """The units of copies, one row after another."""

    offsets: Array
    old: Array
    """Where each begins in the example."""
    new: Array
    """Where each begins in the copy."""
    after: Array
    """Its subwords in the copy."""
    changed: Array

    def find(self, places: Array, rows: Array) -> Array:
        """The units in which places of examples lie; ``rows``: which of the copies each is about."""
        found: Array = np.searchsorted(self._order, rows * FAR + places, side="right") - 1
        return found

    @cached_property
    def _order(self) -> Array:
        numbers = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        order: Array = numbers * FAR + self.old
        return order


FAR = 2**32
"""More than there are places in an example, so that rows and places are in one order."""
