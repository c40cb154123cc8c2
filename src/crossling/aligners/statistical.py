"""The statistical aligner: the model of fast_align (Dyer et al. 2013), learnt from the text itself in both directions.

It is IBM model 2 with positions that prefer the diagonal. Target word j of m is aligned to no word with probability
``null``, else to source word i of n with a probability proportional to exp(-tension * |i/n - j/m|); the word itself
follows the source word's translation distribution. That is learnt by variational Bayes under a sparse Dirichlet prior,
the tension by gradient steps.

Both steps of EM go through the table of word pairs that occur together (``word_table.py``) in its order, one source
word after the other. The E step copies what it finds to the word pairs of a block of sentences, and goes through those.
Expected counts need no table, because they are summed one source word at a time; so the result does not depend on the
number of threads, nor on the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numba import prange
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from crossling.aligners import AlignerSettings
from crossling.aligners.compiled import compiled, compiled_parallel
from crossling.aligners.links import link_best
from crossling.aligners.symmetrize import Symmetrization, symmetrize
from crossling.aligners.word_table import FloatArray, WordTable, build_table, find_occurrences, look_up
from crossling.data.ragged import IntArray, Ragged, to_offsets
from crossling.limits import LARGEST_NUMBER

if TYPE_CHECKING:
    from crossling.aligners.corpus import Corpus
    from crossling.aligners.links import Links
    from crossling.progress import Progress

VERSION = 1
BLOCK = 1 << 25
"""Word pairs of sentences whose probabilities are held at once, in 128 MB."""
TENSION_STEPS, TENSION_RATE, TENSION_RANGE = 8, 20.0, (0.1, 14.0)
SMALLEST = 1e-38
"""The lowest probability, so that no word of a sentence is impossible in single precision."""


class Settings(AlignerSettings):
    """The statistical aligner."""

    kind: Literal["statistical"] = "statistical"
    symmetrize: Symmetrization = "grow-diag-final-and"
    """How the two directions become one."""
    iterations: int = Field(default=5, ge=1, le=10_000)
    """Passes over the text; the last one links."""
    alpha: float = Field(default=0.01, gt=0, le=LARGEST_NUMBER)
    """The Dirichlet prior of word translations; less makes them sparser."""
    null: float = Field(default=0.08, gt=0, lt=1)
    """The prior probability that a word has no counterpart."""
    tension: float = Field(default=4.0, gt=0, le=LARGEST_NUMBER)
    """How strongly links prefer the diagonal at first; it is learnt from the second iteration on."""
    fast_align: bool = False
    """The links of the program fast_align and its tool atools: the tension is learnt by the program's derivative, in
    which the two lengths are swapped, and links grow from left to right. Default: the derivative of the model."""

    @model_serializer(mode="wrap")
    def _omit_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the setting a table is that of versions that had none, and so are the identities of results."""
        table: dict[str, Any] = dump(self)
        return table if self.fast_align else {name: value for name, value in table.items() if name != "fast_align"}


def align(corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus, learnt from all of it."""
    source = rank_words(corpus.source.tokens, len(corpus.source.vocabulary))
    target = rank_words(corpus.target.tokens, len(corpus.target.vocabulary))

    def report(tension: float) -> None:
        if progress is not None:
            progress.advance(1, tension=f"{tension:.2f}")

    if progress is not None:
        progress.begin("aligning words", 2 * settings.iterations)
    # One direction after the other, keeping only its links, so that one table is in memory at a time.
    forward = fit_direction(source, target, settings, report=report).best
    backward = fit_direction(target, source, settings, report=report).best
    if progress is not None:
        progress.end()
    return symmetrize(
        link_best(forward, target.offsets),
        link_best(backward, source.offsets, turned=True),
        corpus,
        how=settings.symmetrize,
        left_to_right=settings.fast_align,
    )


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction: the links that it found, and what it learnt."""

    best: IntArray
    """For each target word of the corpus its source word's position, or -1."""
    table: WordTable
    tension: float


def rank_words(tokens: Ragged, vocabulary: int) -> Ragged:
    """Number words by falling frequency: what belongs to frequent ones then lies together, and stays in the caches."""
    counts = np.bincount(tokens.values, minlength=vocabulary)
    ranks = np.empty(vocabulary, np.int32)
    ranks[np.argsort(-counts, kind="stable")] = np.arange(vocabulary, dtype=np.int32)
    return Ragged(ranks[tokens.values], tokens.offsets)


def fit_direction(
    source: Ragged, target: Ragged, settings: Settings, *, report: Callable[[float], None] | None = None
) -> Direction:
    """Learn one direction by EM and link every target word; the last iteration only links.

    Words are numbers from 0 without gaps, as :func:`rank_words` returns them. ``report`` gets the tension after each
    iteration.
    """
    source_words, target_words = int(source.values.max()) + 2, int(target.values.max()) + 1
    found = find_occurrences(source, target, source_words)
    table = build_table(target, found, target_words)
    sizes, size_counts = np.unique(np.stack([source.lengths, target.lengths], 1), axis=0, return_counts=True)
    texts = (source.offsets, target.values, target.offsets)
    cells = to_offsets(source.lengths * target.lengths)
    blocks = _split_blocks(cells)
    held = np.empty(int(np.diff(cells[blocks]).max()), np.float32)
    tension = settings.tension
    scales = np.empty(len(target.values))
    empty = np.empty(int(np.diff(target.offsets[blocks]).max()))

    def read_blocks() -> Iterator[tuple[int, int]]:
        """Each block of sentences, once the probabilities of its word pairs are in ``held``."""
        entries = found.starts[:-1].copy()
        for first, last in pairwise(blocks):
            look_up(texts, table, found, entries, (cells, held, first, last))
            yield first, last

    for iteration in range(settings.iterations - 1):
        counts = np.zeros(target_words)
        for first, last in read_blocks():
            _normalize_words(texts, table, (cells, held, first, last), (settings.null, tension), (scales, empty))
            tokens = target.values[target.offsets[first] : target.offsets[last]]
            np.add.at(counts, tokens, empty[: len(tokens)])  # in their order: the same sums wherever blocks end
        empirical = _update_table(texts, table, found, (settings.alpha, tension), (scales, counts))
        if iteration:
            lengths = (sizes, size_counts)
            tension = _update_tension(tension, empirical / len(target.values), lengths, swapped=settings.fast_align)
        if report is not None:
            report(tension)
    best = np.empty(len(target.values), np.int32)
    for first, last in read_blocks():
        _link_words(texts, table, (cells, held, first, last), (settings.null, tension, settings.fast_align), best)
    if report is not None:
        report(tension)
    return Direction(best, table, tension)


def _split_blocks(cells: IntArray) -> list[int]:
    """The first sentence of each block of at most ``BLOCK`` word pairs, or of one sentence; at last their number."""
    blocks = [0]
    while blocks[-1] < len(cells) - 1:
        end = int(np.searchsorted(cells, cells[blocks[-1]] + BLOCK, side="right")) - 1
        blocks.append(max(end, blocks[-1] + 1))
    return blocks


@compiled
def _weigh(place: int, size: int, other: int, tension: float, weights: FloatArray) -> float:
    """exp(-tension * |k/other - place/size|) for k = 1 to other, and their sum; two exponentials, the rest products."""
    fall = math.exp(-tension / other)
    split = place * other // size
    total = 0.0
    weight = math.exp(-tension * (place / size - split / other))
    for k in range(split - 1, -1, -1):
        weights[k] = weight
        total += weight
        weight *= fall
    weight = math.exp(-tension * ((split + 1) / other - place / size))
    for k in range(split, other):
        weights[k] = weight
        total += weight
        weight *= fall
    return total


@compiled_parallel
def _normalize_words(texts: Any, table: Any, block: Any, prior: Any, out: Any) -> None:
    """E step: for each target word of a block, the factor that turns probabilities into alignment posteriors, and the
    posterior of the empty word."""
    source_offsets, target, target_offsets = texts
    rows, _, values = table
    cells, held, opening, closing = block
    null, tension = prior
    scales, empty = out
    for sentence in prange(opening, closing):
        start = cells[sentence] - cells[opening]
        first, last = source_offsets[sentence], source_offsets[sentence + 1]
        begin, end = target_offsets[sentence], target_offsets[sentence + 1]
        weights = np.empty(last - first)
        for place in range(begin, end):
            share = (1 - null) / _weigh(place - begin + 1, end - begin, last - first, tension, weights)
            token = target[place]
            total = 0.0
            for k in range(last - first):
                total += weights[k] * held[start + k * (end - begin) + place - begin]
            total = total * share + null * values[rows[0] + token]
            scales[place] = share / total
            empty[place - target_offsets[opening]] = values[rows[0] + token] * (null / total)


@compiled_parallel
def _update_table(texts: Any, table: Any, occurrences: Any, prior: Any, found: Any) -> float:
    """M step: sum each source word's expected counts and replace its distribution; the empty word has its counts.

    Returns the expected closeness to the diagonal, summed over target words.
    """
    source_offsets, target, target_offsets = texts
    rows, columns, values = table
    starts, sentences, positions, chunks = occurrences
    alpha, tension = prior
    scales, empty_counts = found
    target_words = rows[1] - rows[0]
    closeness = np.zeros(len(chunks) - 1)
    longest = np.max(target_offsets[1:] - target_offsets[:-1])
    for chunk in prange(len(chunks) - 1):
        counts = np.empty(target_words)
        old = np.empty(target_words, np.float32)
        weights = np.empty(longest)
        close = 0.0
        for word in range(chunks[chunk], chunks[chunk + 1]):
            for place in range(rows[word], rows[word + 1]):
                counts[columns[place]] = 0.0 if word else empty_counts[columns[place]]
                old[columns[place]] = values[place]
            for entry in range(starts[word], starts[word + 1]):
                sentence = sentences[entry]
                begin, end = target_offsets[sentence], target_offsets[sentence + 1]
                size = source_offsets[sentence + 1] - source_offsets[sentence]
                own = positions[entry] + 1
                _weigh(own, size, end - begin, tension, weights)
                for k in range(end - begin):
                    posterior = old[target[begin + k]] * weights[k] * scales[begin + k]
                    counts[target[begin + k]] += posterior
                    # Here alone the target position counts from 0, as fast_align has it: links with it err less.
                    close -= posterior * abs(own / size - k / (end - begin))
            _normalize_row(word, table, counts, alpha)
        closeness[chunk] = close
    return closeness.sum()  # type: ignore[no-any-return]


@compiled
def _normalize_row(word: int, table: Any, counts: FloatArray, alpha: float) -> None:
    """A source word's distribution from its expected counts: the exponential of the expected logarithm."""
    rows, columns, values = table
    total = alpha * (rows[word + 1] - rows[word])
    for place in range(rows[word], rows[word + 1]):
        total += counts[columns[place]]
    whole = _digamma(total)
    for place in range(rows[word], rows[word + 1]):
        count = counts[columns[place]] + alpha
        # Most counts are too small for all but the lowest probability: below 0.46, digamma(x) < -1/x.
        if count < 0.46 and 1 / count + whole > 88:  # exp(-88) < SMALLEST
            values[place] = SMALLEST
        else:
            values[place] = max(SMALLEST, math.exp(_digamma(count) - whole))


@compiled
def _digamma(x: float) -> float:
    """The derivative of log gamma: the recurrence up to 7, from there the asymptotic series."""
    result = 0.0
    while x < 7:
        result -= 1 / x
        x += 1
    x -= 0.5
    square = 1 / (x * x)
    series = square * (1 / 24 - square * (7 / 960 - square * (31 / 8064 - square * (127 / 30720))))
    return result + math.log(x) + series


def _update_tension(tension: float, empirical: float, lengths: tuple[IntArray, IntArray], *, swapped: bool) -> float:
    """Gradient steps on the likelihood: how close to the diagonal links are, less how close the model expects them."""
    for _ in range(TENSION_STEPS):
        tension += TENSION_RATE * (empirical - _expect_closeness(lengths, tension, swapped))
        tension = min(max(tension, TENSION_RANGE[0]), TENSION_RANGE[1])
    return tension


@compiled_parallel
def _expect_closeness(lengths: Any, tension: float, swapped: bool) -> float:
    """The mean closeness to the diagonal of a target word's source under the position model alone."""
    sizes, size_counts = lengths
    sums = np.zeros(len(sizes))
    for number in prange(len(sizes)):
        size, length = sizes[number]
        weights = np.empty(size)
        for place in range(1, length + 1):
            total = _weigh(place, length, size, tension, weights)
            if swapped:
                total = _sum_swapped(place, size, length, tension)
            near = 0.0
            for k in range(size):
                near -= weights[k] * abs((k + 1) / size - place / length)
            sums[number] += near / total
    return (sums * size_counts).sum() / (sizes[:, 1] * size_counts).sum()  # type: ignore[no-any-return]


@compiled
def _sum_swapped(place: int, size: int, other: int, tension: float) -> float:
    """What fast_align divides by in its derivative: the sum of :func:`_weigh` with target and source lengths swapped.

    Two geometric series, away from the diagonal on either side. A place beyond ``size`` has the diagonal after the last
    word; the program counts the words there in an unsigned number, which makes the series endless.
    """
    fall = math.exp(-tension / other)
    split = place * other // size
    above = math.exp(-tension * ((split + 1) / other - place / size)) / (1 - fall)
    below = math.exp(-tension * (place / size - split / other)) * (1 - fall**split) / (1 - fall)
    if split <= other:
        above *= 1 - fall ** (other - split)
    return above + below


@compiled_parallel
def _link_words(texts: Any, table: Any, block: Any, prior: Any, best: IntArray) -> None:
    """For each target word of a block the most probable source word, or -1 for none; of equals the first."""
    source_offsets, target, target_offsets = texts
    rows, _, values = table
    cells, held, opening, closing = block
    null, tension, spelt_out = prior
    for sentence in prange(opening, closing):
        start = cells[sentence] - cells[opening]
        first, last = source_offsets[sentence], source_offsets[sentence + 1]
        begin, end = target_offsets[sentence], target_offsets[sentence + 1]
        weights = np.empty(last - first)
        for place in range(begin, end):
            share = (1 - null) / _weigh(place - begin + 1, end - begin, last - first, tension, weights)
            if spelt_out:  # words as far before the diagonal as after it: rounding decides between them
                for k in range(last - first):
                    distance = abs((k + 1) / (last - first) - (place - begin + 1) / (end - begin))
                    weights[k] = math.exp(-distance * tension)
            token = target[place]
            highest = null * values[rows[0] + token]
            best[place] = -1
            for k in range(last - first):
                probability = share * weights[k] * held[start + k * (end - begin) + place - begin]
                if probability > highest:
                    highest = probability
                    best[place] = k
