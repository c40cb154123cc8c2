"""Translation probabilities of the word pairs that occur together, and where each source word occurs.

Probabilities are stored row by row, each with its column number, in eight bytes. EM goes through the table in its
order, one source word after the other with all of its occurrences: a search in it for every two words of a sentence
would miss the caches, the more often the more text there is. Both are named tuples, which compiled functions take.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import prange

from crossling.aligners.compiled import compiled_parallel
from crossling.data.ragged import IntArray, Ragged, to_offsets

CHUNKS = 128
"""Parts of about equal work that source words are split into; a fixed number, for the same sums on any machine."""

FloatArray = np.ndarray[Any, np.dtype[Any]]


class WordTable(NamedTuple):
    """Probabilities of target words given source words, for pairs that occur together; row 0 is the empty word."""

    rows: IntArray
    columns: IntArray
    values: FloatArray

    def probability(self, source: int, target: int) -> float:
        """The probability of a target word given a source word; 0 for a pair that was never seen."""
        start, end = self.rows[source], self.rows[source + 1]
        place = start + int(np.searchsorted(self.columns[start:end], target))
        return float(self.values[place]) if place < end and self.columns[place] == target else 0.0


class Occurrences(NamedTuple):
    """Where each source word stands: word w has the entries ``starts[w]`` to ``starts[w + 1]``, by sentence."""

    starts: IntArray
    sentences: IntArray
    positions: IntArray
    chunks: IntArray
    """The first source word of each chunk; at last their number."""


def find_occurrences(source: Ragged, target: Ragged, words: int) -> Occurrences:
    """Occurrences of source words, which are numbered from 1: 0 is the empty word."""
    order = np.argsort(source.values, kind="stable")
    sentences = np.repeat(np.arange(len(source), dtype=np.int32), source.lengths)[order]
    positions = (order - source.offsets[sentences]).astype(np.int32)
    counts = np.bincount(source.values, minlength=words - 1)
    starts = to_offsets(np.concatenate([[0], counts]))
    work = np.bincount(source.values[order] + 1, weights=target.lengths[sentences], minlength=words)
    chunks = np.searchsorted(np.cumsum(work), np.linspace(0, work.sum(), CHUNKS + 1)[1:-1])
    return Occurrences(starts, sentences, positions, np.concatenate([[0], chunks, [words]]))


def build_table(target: Ragged, found: Occurrences, target_words: int) -> WordTable:
    """The word pairs that occur together, each with the same value 1."""
    counts = np.zeros(len(found.starts) - 1, np.int64)
    none = np.zeros(0, np.int32)
    _collect_columns(found, (target.values, target.offsets), target_words, (counts, counts, none))
    rows = to_offsets(counts)
    columns = np.empty(int(rows[-1]), np.int32)
    _collect_columns(found, (target.values, target.offsets), target_words, (counts, rows, columns))
    return WordTable(rows, columns, np.ones(len(columns), np.float32))


@compiled_parallel
def _collect_columns(found: Any, target: Any, target_words: int, out: Any) -> None:
    """Count the distinct target words of each source word; where there is room for them, write them, sorted."""
    starts, sentences, _, chunks = found
    tokens, offsets = target
    counts, rows, columns = out
    for chunk in prange(len(chunks) - 1):
        seen = np.full(target_words, -1, np.int32)
        for word in range(chunks[chunk], chunks[chunk + 1]):
            count = 0
            if word == 0:
                count = target_words
                if len(columns):
                    for number in range(target_words):
                        columns[rows[0] + number] = number
            before = -1
            for entry in range(starts[word], starts[word + 1]):
                sentence = sentences[entry]
                if sentence == before:
                    continue
                before = sentence
                for place in range(offsets[sentence], offsets[sentence + 1]):
                    token = tokens[place]
                    if seen[token] != word:
                        seen[token] = word
                        if len(columns):
                            columns[rows[word] + count] = token
                        count += 1
            counts[word] = count
            if len(columns) and word:
                columns[rows[word] : rows[word] + count].sort()


@compiled_parallel
def look_up(texts: Any, table: Any, found: Any, entries: IntArray, block: Any) -> None:
    """Write the probability of every target word of a block of sentences given every source word of its sentence.

    It goes through source words, not sentences: a row of the table is read once, in order, and spread out to be indexed
    by target words. ``entries`` has the next occurrence of each source word, and is moved on.
    """
    _, target, target_offsets = texts
    rows, columns, values = table
    starts, sentences, positions, chunks = found
    cells, held, first, last = block
    base = cells[first]
    for chunk in prange(len(chunks) - 1):
        row = np.empty(rows[1] - rows[0], np.float32)
        for word in range(chunks[chunk], chunks[chunk + 1]):
            entry, end = entries[word], starts[word + 1]
            if entry == end or sentences[entry] >= last:
                continue
            for place in range(rows[word], rows[word + 1]):
                row[columns[place]] = values[place]
            while entry < end and sentences[entry] < last:
                sentence = sentences[entry]
                begin = target_offsets[sentence]
                size = target_offsets[sentence + 1] - begin
                to = cells[sentence] - base + positions[entry] * size
                for k in range(size):
                    held[to + k] = row[target[begin + k]]
                entry += 1
            entries[word] = entry
