"""The default interval and test of a difference: Student's t over seeds, widened by the sampling of examples.

It is about the mean over all seeds and all examples of the same kind, of which a study has a few seeds and one test
set. The mean score over R seeds then has two sources of variance:

    variance = S / R + C

S is the variance of the score between seeds. C is what seeds share because they are tested on the same examples: the
mean covariance, between two seeds, of the errors that sampling examples makes. (What examples do to one seed alone is
part of S.) S has R - 1 degrees of freedom, C one less than there are examples; the sum has the harmonic mean of both,
weighted by the shares of the variance:

    1 / df = (S / R) / variance / (R - 1) + C / variance / (N - 1)

Satterthwaite's formula has squared shares instead; with three seeds its interval covers 92 % where most of the variance
is between seeds.

The difference of two means over seeds that do not pair, R of one system and Q of the other, has

    variance = B + C,   B = S1 / R + S2 / Q
    1 / df = B / variance / W + C / variance / (N - 1),   W = B² / ((S1 / R)² / (R - 1) + (S2 / Q)² / (Q - 1))

C is here the mean covariance between two seeds of either system, added, less twice that between a seed of one and a
seed of the other. W is Welch's and Satterthwaite's: without squares its interval covers 98 % with three seeds each.

Shapes: R and Q runs (seeds), N examples, L labels, and 2 for numerator and denominator; K keys of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crossling.scores.significance.cells import Cell
from crossling.scores.significance.counts import sum_by_key
from crossling.scores.significance.results import OVER_EXAMPLES, OVER_SEEDS, OVER_UNPAIRED_SEEDS, Estimate
from crossling.scores.significance.rows import Group
from crossling.scores.spans import Array

NEGLIGIBLE = 1e-12
"""Differences and standard errors below it are rounding errors."""


def find_variance(scores: Array, errors: Sequence[Array]) -> tuple[Array, Array]:
    """The variance of a mean over seeds, and its degrees of freedom.

    `scores` (... x R) are one score or difference for each seed, `errors` (... x K x R for each group of languages)
    what each example contributes to their error. With one seed only examples count: the model is taken as given.
    """
    runs, examples = scores.shape[-1], sum(one.shape[-2] - 1 for one in errors)
    # Between two seeds: ... x R x R.
    covariance = sum(np.swapaxes(one, -1, -2) @ one * (one.shape[-2] / max(one.shape[-2] - 1, 1)) for one in errors)
    covariance = np.asarray(covariance)
    own = np.trace(covariance, axis1=-2, axis2=-1)
    if runs > 1:
        between = scores.var(axis=-1, ddof=1) / runs
        shared = np.maximum((covariance.sum(axis=(-2, -1)) - own) / (runs * (runs - 1)), 0.0)
    else:
        between, shared = np.zeros_like(own), own
    variance = between + shared
    rate = between / max(runs - 1, 1) + shared / max(examples, 1)
    return variance, np.divide(variance, rate, out=np.ones_like(variance), where=rate > 0)


def estimate(scores: Array, errors: Sequence[Array], confidence: float) -> Estimate:
    """A mean over seeds with its interval, and the two-sided p of its being 0, by Student's t."""
    test = OVER_SEEDS if len(scores) > 1 else OVER_EXAMPLES
    variance, freedom = map(float, find_variance(scores, errors))
    return _estimate(float(scores.mean()), variance, freedom, confidence, test, len(scores))


def estimate_unpaired(first: tuple[Array, Array], second: tuple[Array, Array], confidence: float) -> Estimate:
    """The difference of two means over seeds that do not pair, with its interval and p.

    `first` and `second` are scores (R) and errors (N x R), each of two seeds or more.
    """
    examples, between, squares = len(first[1]), 0.0, 0.0
    covariance = (first[1].mean(axis=1) - second[1].mean(axis=1)) ** 2
    for scores, errors in (first, second):
        part = float(scores.var(ddof=1)) / len(scores)
        between, squares = between + part, squares + part**2 / (len(scores) - 1)
        covariance -= errors.var(axis=1, ddof=1) / len(scores)  # what examples do to one seed alone is part of B
    shared = max(float(covariance.sum()) * examples / max(examples - 1, 1), 0.0)
    rate = (squares / between if between else 0.0) + shared / max(examples - 1, 1)
    freedom = (between + shared) / rate if rate else 1.0
    value, fewest = float(first[0].mean() - second[0].mean()), min(len(first[0]), len(second[0]))
    return _estimate(value, between + shared, freedom, confidence, OVER_UNPAIRED_SEEDS, fewest)


def _estimate(value: float, variance: float, freedom: float, confidence: float, test: str, runs: int) -> Estimate:
    from scipy.stats import t

    error = float(np.sqrt(variance))
    if error < NEGLIGIBLE:
        return Estimate(value, value, value, 1.0 if abs(value) < NEGLIGIBLE else 0.0, test, runs)
    half = float(t.ppf((1 + confidence) / 2, freedom)) * error
    return Estimate(value, value - half, value + half, float(2 * t.sf(abs(value) / error, freedom)), test, runs)


@dataclass(frozen=True, eq=False)
class Hierarchical:
    """Intervals and tests on one data set."""

    groups: Sequence[Group]
    """Languages that share rows: an example's errors in them are added before they are squared."""
    confidence: float

    def estimate_mean(self, part: Sequence[Cell], system: str) -> Estimate:
        """A system's mean score over languages."""
        return self._estimate(part, _share_runs(part, system, system), [(1, system)])

    def estimate_difference(self, part: Sequence[Cell], system: str, other: str) -> Estimate:
        """The difference between two systems on average over languages, paired by seed and by example."""
        return self._estimate(part, _share_runs(part, system, other), [(1, system), (-1, other)])

    def _estimate(self, part: Sequence[Cell], runs: Sequence[Array], terms: Sequence[tuple[int, str]]) -> Estimate:
        """The sum of signed terms; `runs` (R x 2) of each language are those of the first and the second term."""
        scores: list[Array] = []
        errors: dict[str, Array] = {}
        for cell, places in zip(part, runs, strict=True):
            chosen = [(sign, system, places[:, number]) for number, (sign, system) in enumerate(terms)]
            scores.append(np.sum([sign * cell.scores[system][some] for sign, system, some in chosen], axis=0))
            errors[cell.language] = np.sum([sign * cell.errors[system][some] for sign, system, some in chosen], axis=0)
        grouped = [
            np.sum(
                [sum_by_key(errors[one], keys, group.size) for one, keys in group.keys.items() if one in errors], axis=0
            )
            for group in self.groups
            if not errors.keys().isdisjoint(group.keys)
        ]
        return estimate(np.mean(scores, axis=0), [one / len(part) for one in grouped], self.confidence)


def _share_runs(part: Sequence[Cell], system: str, other: str) -> list[Array]:
    """For each language the runs of two systems (R x 2), of seeds that all languages have.

    Where there is no such seed runs are independent and any pairing is right: that of their order.
    """
    by_seed = []
    for cell in part:
        pairs = zip(*cell.pair_runs(system, other), strict=False)
        by_seed.append({_name_run(cell, system, own): (own, theirs) for own, theirs in pairs})
    common = [seed for seed in by_seed[0] if all(seed in runs for runs in by_seed)]
    least = min(map(len, by_seed))
    return [np.array([runs[seed] for seed in common] or list(runs.values())[:least]) for runs in by_seed]


def _name_run(cell: Cell, system: str, run: int) -> object:
    seed = cell.seeds[system][run]
    return run if seed is None else seed
