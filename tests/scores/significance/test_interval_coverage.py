"""How often intervals hold the true difference, for new seeds and new examples, in simulated studies.

An entity is found where `mean + seed + example + rest` is above 0: a normal effect of the seed, one of the example that
all seeds share, and one of its own. So the true score is known: one integral over seeds. For macro F1 every word has a
label, and one that is not found is taken for the next label.

Shapes: B studies, T languages, R seeds, N examples, L labels, and 2 for numerator and denominator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from made import make_classes
from scipy.special import ndtr
from scipy.stats import t

from crossling.scores.significance import Settings
from crossling.scores.significance.cells import Cell
from crossling.scores.significance.counts import divide, find_errors
from crossling.scores.significance.hierarchical import Hierarchical, find_variance
from crossling.scores.significance.resampling import Resampling
from crossling.scores.significance.rows import Group

Array = np.ndarray[Any, Any]
SPURIOUS = 0.3
"""Predicted entities that are none, for each that is one."""
LABELS = {"macro F1": ((0.5, 0.8), (0.35, 0.0), (0.15, -0.8))}
"""Of each label its share, and what is added to the mean: the rarest, with about 30 gold items, is the hardest."""
NOISE = {"seeds": (0.3, 0.1), "both": (0.17, 0.9), "sentences": (0.01, 0.98)}
"""What dominates: the standard deviation of seeds, and the share of the other variance that seeds have in common."""
MEANS = (0.5, 0.3)


@dataclass(frozen=True)
class Simulation:
    """Many studies of two systems; `languages` have seeds in common, and the first two of them examples, too."""

    seeds: int
    noise: str
    score: str
    languages: int = 1
    examples: int = 80
    studies: int = 1600

    def draw(self, rng: np.random.Generator) -> list[Array]:
        """Counts (B x T x R x N x L x 2) of either system."""
        seed_sd, shared = NOISE[self.noise]
        B, T, R, N = self.studies, self.languages, self.seeds, self.examples
        hard = [self._share_examples(rng.standard_normal((B, T, 1, N))) for _ in range(3)]
        shares, ease = self._labels()
        gold = self._share_examples(rng.multinomial(rng.integers(1, 5, (B, T, 1, N)), shares))
        counts = []
        for mean, own in zip(MEANS, hard[1:], strict=True):
            seed = seed_sd * (0.8 * rng.standard_normal((B, 1, R, 1)) + 0.6 * rng.standard_normal((B, T, R, 1)))
            example = (hard[0] + own) / np.sqrt(2)  # what is hard for one system is rather hard for the other
            level = (mean + seed + np.sqrt(shared) * example)[..., None] + ease
            correct = rng.binomial(gold, ndtr(level / np.sqrt(1 - shared)))
            if self.score == "accuracy":
                top, bottom = correct, np.broadcast_to(gold, correct.shape)
            elif self.score == "F1":
                top, bottom = 2 * correct, gold + correct + rng.binomial(gold, SPURIOUS, correct.shape)
            else:
                top, bottom = 2 * correct, gold + correct + np.roll(gold - correct, 1, axis=-1)
            counts.append(np.stack([top, bottom], axis=-1).astype(float))
        return counts

    def _labels(self) -> Array:
        """Shares and ease of the labels; all scores but macro F1 have one."""
        return np.transpose(LABELS.get(self.score, ((1.0, 0.0),)))

    def _share_examples(self, values: Array) -> Array:
        values[:, 1:2] = values[:, :1]
        return values

    def truth(self) -> Array:
        """The true scores of both systems."""
        seed_sd, _ = NOISE[self.noise]
        seeds, weights = np.polynomial.hermite_e.hermegauss(60)
        shares, ease = self._labels()
        found = shares * ndtr((np.array(MEANS)[:, None] + seed_sd * seeds)[..., None] + ease)
        scores = {
            "accuracy": found,
            "F1": 2 * found / (1 + found + SPURIOUS),
            "macro F1": 2 * found / (shares + found + np.roll(shares - found, 1, axis=-1)),
        }[self.score].mean(axis=-1)
        true: Array = (scores * weights).sum(axis=1) / weights.sum()
        return true

    def coverage(self, signs: tuple[int, int] = (1, -1)) -> float:
        """How often the interval of a difference, or of a mean, on average over languages, holds the true one."""
        counts = self.draw(np.random.default_rng(self.seeds))
        scores = sum(sign * divide(one.sum(axis=-3)) for sign, one in zip(signs, counts, strict=True))
        errors = sum(sign * find_errors(one) for sign, one in zip(signs, counts, strict=True)) / self.languages
        errors = np.swapaxes(errors, -1, -2)  # B x T x N x R
        groups = [errors[:, :2].sum(axis=1), *(errors[:, place] for place in range(2, self.languages))]
        means = scores.mean(axis=1)
        variance, freedom = find_variance(means, groups)
        half = t.ppf(0.975, freedom) * np.sqrt(variance)
        return float(np.mean(np.abs(means.mean(axis=-1) - self.truth() @ signs) <= half))

    def make_cells(self) -> list[Cell]:
        """The first language of each study, as a comparison reads it."""
        first, second = (one[:, 0] for one in self.draw(np.random.default_rng(self.seeds)))
        rows, seeds = make_classes([0], [0]), tuple(range(self.seeds))
        return [
            Cell("de", False, "F1", "permutation test", rows, {"a": a, "b": b}, {"a": seeds, "b": seeds})
            for a, b in zip(first, second, strict=True)
        ]


@pytest.mark.parametrize("score", ["accuracy", "F1", "macro F1"])
@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_interval_covers_the_difference_for_new_seeds_and_examples(seeds: int, noise: str, score: str) -> None:
    assert 0.93 <= Simulation(seeds, noise, score).coverage() <= 0.97


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_interval_of_an_average_covers_where_languages_share_seeds_and_examples(seeds: int, noise: str) -> None:
    assert 0.93 <= Simulation(seeds, noise, "F1", languages=3, examples=40).coverage() <= 0.97


@pytest.mark.parametrize("noise", NOISE)
def test_interval_of_a_mean_covers_the_score_of_new_seeds_on_new_examples(noise: str) -> None:
    assert 0.93 <= Simulation(3, noise, "F1").coverage((1, 0)) <= 0.97


@pytest.mark.parametrize(("kind", "least", "most"), [("hierarchical", 0.93, 0.97), ("bootstrap", 0.5, 0.88)])
def test_bootstrap_falls_short_with_three_seeds_where_the_hierarchical_interval_does_not(
    kind: str, least: float, most: float
) -> None:
    """The same studies by either method, as a comparison calls it: the check can fail."""
    simulation = Simulation(3, "seeds", "accuracy", examples=150, studies=400)
    groups = [Group({"de": np.arange(simulation.examples)}, simulation.examples)]
    settings, held = Settings(rounds=1000, draws=1000), 0
    first, second = simulation.truth()
    for cell in simulation.make_cells():
        method = Hierarchical(groups, 0.95) if kind == "hierarchical" else Resampling("set", [cell], groups, settings)
        one = method.estimate_difference([cell], "a", "b")
        held += one.low <= first - second <= one.high
    assert least <= held / simulation.studies <= most
