"""Paired tests and intervals for scores that are quotients of sums over examples.

Shapes: R runs (seeds), N examples, L labels, and 2 for numerator and denominator; K keys of rows, T languages.
Languages whose rows are translations of each other have the same keys and are swapped and drawn together, for
what is hard in one language is hard in the others, and an average over them knows less than its rows suggest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crossling.errors import UserError
from crossling.scores.significance.counts import divide
from crossling.scores.spans import Array

BLOCK = 1 << 22
"""Random numbers held at once: 16 to 32 MB, however many rounds and rows there are."""
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


def t_test(first: Array, second: Array) -> float:
    """Two-sided p of a paired t-test; 1 where the examples do not differ or are fewer than two."""
    from scipy.stats import ttest_rel

    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if len(difference) < 2 or not np.any(np.abs(difference) > 1e-12):
        return 1.0
    if np.ptp(difference) <= 1e-12:  # no variance: the statistic is infinite
        return 0.0
    return float(ttest_rel(first, second).pvalue)


def correct_holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction: the chance of even one false difference among all stays below the level."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return tuple(corrected.tolist())


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
    gains_KC = np.concatenate([_sum_by_key(pair.second - pair.first, pair.keys, n_keys) for pair in pairs], axis=1)
    gains_KC = gains_KC[gains_KC.any(axis=1)]  # to swap equal rows changes nothing
    whole = np.array_equal(gains_KC, np.round(gains_KC)) and np.abs(gains_KC).sum(axis=0).max(initial=0) < EXACT
    gains_KC = gains_KC.astype(np.float32 if whole else np.float64)
    null = np.empty((rounds, len(pairs)))
    for start, stop in _blocks(rounds, len(gains_KC)):
        moved_BC = _draw_swaps(stop - start, len(gains_KC), rng).astype(gains_KC.dtype) @ gains_KC
        column = 0
        for language, pair in enumerate(pairs):
            totals = pair.first.sum(axis=1), pair.second.sum(axis=1)  # R x L x 2
            moved = moved_BC[:, column : column + totals[0].size].astype(float).reshape(-1, *totals[0].shape)
            null[start:stop, language] = (divide(totals[0] + moved) - divide(totals[1] - moved)).mean(axis=-1)
            column += totals[0].size
    return np.array([pair.observed for pair in pairs]), null


def bootstrap(
    samples: Sequence[tuple[Sequence[Array], Array]], n_keys: int, *, draws: int, rng: np.random.Generator
) -> list[list[Array]]:
    """Scores (draws x R) of systems in languages when rows are drawn with replacement.

    `samples` holds for each language the counts of each system, and the keys of its rows. All systems, runs
    and languages see the same draw, which makes their differences paired.
    """
    scores = [[np.empty((draws, len(counts))) for counts in systems] for systems, _ in samples]
    flat = [(np.concatenate([_flatten(counts) for counts in systems], axis=1), keys) for systems, keys in samples]
    for start, stop in _blocks(draws, n_keys):
        offsets = np.arange(stop - start)[:, None] * n_keys
        drawn = rng.integers(0, n_keys, size=(stop - start, n_keys)) + offsets
        times_BK = np.bincount(drawn.ravel(), minlength=(stop - start) * n_keys).reshape(-1, n_keys).astype(float)
        for language, (systems, _) in enumerate(samples):
            values_NC, keys = flat[language]
            times_BN = times_BK if np.array_equal(keys, np.arange(n_keys)) else times_BK[:, keys]
            totals_BC = times_BN @ values_NC
            column = 0
            for system, counts in enumerate(systems):
                shape = (counts.shape[0], *counts.shape[2:])
                width = int(np.prod(shape))
                totals = totals_BC[:, column : column + width].reshape(-1, *shape)
                scores[language][system][start:stop] = divide(totals)
                column += width
    return scores


def draw_runs(runs: int, draws: int, rng: np.random.Generator) -> Array:
    """Weights (draws x R) of runs drawn with replacement.

    With few seeds this understates their spread a little (three draws of three have two thirds of its variance).
    """
    weights: Array = rng.multinomial(runs, np.full(runs, 1 / runs), size=draws) / runs
    return weights


def _blocks(rounds: int, width: int) -> Iterator[tuple[int, int]]:
    size = max(1, BLOCK // max(width, 1))
    for start in range(0, rounds, size):
        yield start, min(rounds, start + size)


def _draw_swaps(rounds: int, width: int, rng: np.random.Generator) -> Array:
    """Fair coins, rounds x width, one bit each."""
    row_bytes = -(-width // 8)
    packed = np.frombuffer(rng.bytes(rounds * row_bytes), dtype=np.uint8).reshape(rounds, row_bytes)
    return np.unpackbits(packed, axis=1, count=width)


def _flatten(counts: Array) -> Array:
    """R x N x L x 2 counts as N x (R L 2)."""
    return np.moveaxis(counts, 1, 0).reshape(counts.shape[1], -1)


def _sum_by_key(counts: Array, keys: Array, n_keys: int) -> Array:
    """Counts of each key, as K x (R L 2)."""
    flat = _flatten(counts)
    summed = np.zeros((n_keys, flat.shape[1]))
    np.add.at(summed, keys, flat)
    return summed
