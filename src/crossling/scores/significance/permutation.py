"""The paired permutation test, for scores that are quotients of sums over examples.

Shapes: R runs (seeds), N examples, L labels, and 2 for numerator and denominator; K keys of rows, T languages.
Languages whose rows are translations of each other have the same keys and are swapped together, for what is hard in
one language is hard in the others, and an average over them has less evidence than its rows suggest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossling.errors import UserError
from crossling.scores.significance.counts import divide, split_blocks, sum_by_key
from crossling.scores.spans import Array

EXACT = float(1 << 24)
"""Below it, sums of whole numbers are exact in single precision."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Counts of two systems on the same rows (R x N x L x 2 each), and the key of each row (N)."""

    first: Array
    second: Array
    keys: Array

    @property
    def observed(self) -> float:
        """Difference of the mean scores over runs."""
        scores = [divide(counts.sum(axis=1)).mean() for counts in (self.first, self.second)]
        return float(scores[0] - scores[1])


def p_value(observed: float, null: Array) -> float:
    """Two-sided p = (1 + k) / (1 + n), where k of n random swaps differ at least as much as what was observed.

    The observed assignment is one of those possible, hence the ones; p is never 0.
    """
    margin = 1e-10  # equal statistics differ in their last bits when summed in another order
    exceeding = int(np.count_nonzero(np.abs(null) >= abs(observed) - margin))
    return (1 + exceeding) / (1 + len(null))


def match_runs(pair: Pair) -> Pair:
    """A pair with equally many runs: itself, or the mean counts of each system's own runs."""
    if len(pair.first) == len(pair.second):
        return pair
    first, second = (counts.mean(axis=0, keepdims=True) for counts in (pair.first, pair.second))
    return Pair(first, second, pair.keys)


def concatenate_runs(pair: Pair, n_keys: int) -> Pair:
    """All runs as one long set, each row of each run with a key of its own.

    This is the form in the adjustment paper. It takes seeds for independent data, which they are not: they
    share sentences, so its p is too small.
    """
    runs = len(pair.first)
    if len(pair.second) != runs:
        raise UserError(
            "the published form of the permutation test needs as many seeds of one system as of the other, "
            f"not {runs} and {len(pair.second)}"
        )
    first, second = (counts.reshape(1, -1, *counts.shape[2:]) for counts in (pair.first, pair.second))
    return Pair(first, second, np.concatenate([pair.keys + run * n_keys for run in range(runs)]))


def permute(
    pairs: Sequence[Pair], n_keys: int, *, rounds: int, rng: np.random.Generator, as_published: bool = False
) -> tuple[Array, Array]:
    """Differences between two systems in T languages: observed (T), and when rows are swapped (rounds x T).

    A row's outputs are swapped in all runs and in all languages that have its key. Sums after a swap are the
    sums before it plus what the swapped rows bring, so a block of rounds is one product of a matrix of zeros
    and ones with the rows' differences.
    """
    if as_published:
        runs = max(len(pair.first) for pair in pairs)
        pairs, n_keys = [concatenate_runs(pair, n_keys) for pair in pairs], runs * n_keys
    pairs = [match_runs(pair) for pair in pairs]
    gains_KC = np.concatenate([sum_by_key(pair.second - pair.first, pair.keys, n_keys) for pair in pairs], axis=1)
    gains_KC = gains_KC[gains_KC.any(axis=1)]  # to swap equal rows changes nothing
    whole = np.array_equal(gains_KC, np.round(gains_KC)) and np.abs(gains_KC).sum(axis=0).max(initial=0) < EXACT
    gains_KC = gains_KC.astype(np.float32 if whole else np.float64)
    null = np.empty((rounds, len(pairs)))
    for start, stop in split_blocks(rounds, len(gains_KC)):
        moved_BC = _draw_swaps(stop - start, len(gains_KC), rng).astype(gains_KC.dtype) @ gains_KC
        column = 0
        for language, pair in enumerate(pairs):
            totals = pair.first.sum(axis=1), pair.second.sum(axis=1)  # R x L x 2
            moved = moved_BC[:, column : column + totals[0].size].astype(float).reshape(-1, *totals[0].shape)
            null[start:stop, language] = (divide(totals[0] + moved) - divide(totals[1] - moved)).mean(axis=-1)
            column += totals[0].size
    return np.array([pair.observed for pair in pairs]), null


def _draw_swaps(rounds: int, width: int, rng: np.random.Generator) -> Array:
    """Fair coins, rounds x width, one bit each."""
    row_bytes = -(-width // 8)
    packed = np.frombuffer(rng.bytes(rounds * row_bytes), dtype=np.uint8).reshape(rounds, row_bytes)
    return np.unpackbits(packed, axis=1, count=width)
