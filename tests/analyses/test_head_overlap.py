"""Heads that two models have among their best, and how many of them the encoder that both began as explains."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from crossling.analyses.head_overlap import (
    OverlapTest,
    compare_models,
    compare_seeds,
    measure_top_k_overlap,
    pair_seeds,
    permute_scores,
    weigh_top_k,
)
from crossling.errors import DataError

LAYERS, HEADS, TOP = 12, 12, 40
RANDOM = TOP * TOP / (LAYERS * HEADS)
"""The hypergeometric mean: 11.1 of 40."""


def test_top_k_overlap_matches_hand_example() -> None:
    own = np.array([[9.0, 8.0, 7.0, 6.0], [1.0, 2.0, 3.0, 4.0]])
    baseline = np.array([[1.0, 8.0, 9.0, 7.0], [6.0, 2.0, 3.0, 4.0]])
    found = measure_top_k_overlap(own, baseline, 4)
    assert found.shared == 3, "heads 2, 3 and 4 of the first layer"
    assert found.ranks.count == 3
    assert found.ranks.rho == pytest.approx(0.5), "over the shared heads alone: 8 7 6 beside 8 9 7"
    assert measure_top_k_overlap(own, own, 4).shared == 4
    assert measure_top_k_overlap(own, -own, 4).shared == 0
    with pytest.raises(DataError, match="the encoder has 8 heads"):
        measure_top_k_overlap(own, own, 9)


def test_equal_heads_at_the_edge_count_by_their_chance_to_be_drawn() -> None:
    """Against drawing them at random many times."""
    rng = np.random.default_rng(0)
    first, second = (np.array([3.0, 1.0, 1.0, 1.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0, 2.0, 1.0, 0.0]))
    assert weigh_top_k(first, 3).tolist() == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3, 0, 1])
    drawn = []
    for _ in range(4_000):
        best = [set(np.lexsort((rng.random(6), -values))[:3].tolist()) for values in (first, second)]
        drawn.append(len(best[0] & best[1]))
    assert measure_top_k_overlap(first, second, 3).shared == pytest.approx(np.mean(drawn), abs=0.04)
    assert weigh_top_k(np.array([0.1 + 0.2, 0.3, 0.0]), 1).tolist() == [0.5, 0.5, 0.0], "rounding errors break no tie"


def test_equal_heads_are_not_preferred_for_their_place() -> None:
    """All heads of two models equal: by index, all of the best would be shared."""
    assert measure_top_k_overlap(np.zeros((12, 12)), np.zeros((12, 12)), TOP).shared == pytest.approx(RANDOM)


def test_seeds_of_one_model_are_the_ceiling() -> None:
    maps = {
        1: np.array([[4.0, 3.0, 2.0, 1.0]]),
        2: np.array([[4.0, 1.0, 3.0, 2.0]]),
        3: np.array([[1.0, 2.0, 3.0, 4.0]]),
    }
    assert compare_seeds(maps, 2) == pytest.approx((1 + 0 + 1) / 3)
    assert math.isnan(compare_seeds({1: maps[1]}, 2))


def test_different_seeds_are_paired() -> None:
    assert pair_seeds([1, 2], [1, 2]) == [(0, 1), (1, 0)]
    assert pair_seeds([1], [1]) == [(0, 0)], "where there are no others"
    assert len(pair_seeds([1, 2], [3, 4, 5])) == 6


def compare(own: Any, other: Any, base: Any, **settings: Any) -> OverlapTest:
    chosen = {"null": "residuals", "permutations": 199, "seed": 0, "tops": [TOP], "subtract": True, **settings}
    (found,) = compare_models(own, other, base=base, baseline_base=base, **chosen)
    return found


def simulate(rng: np.random.Generator, *, dependence: float, layers: float = 0.0) -> tuple[Any, Any, Any]:
    """Two models of two seeds that have nothing in common but their base, and, with ``layers``, what layers gain."""
    base = rng.normal(size=(LAYERS, HEADS))
    upper = layers * np.arange(LAYERS)[:, None]

    def train() -> dict[int, Any]:
        own = rng.normal(size=(LAYERS, HEADS))
        return {seed: dependence * base + upper + own + 0.3 * rng.normal(size=own.shape) for seed in (1, 2)}

    return train(), train(), base


@pytest.mark.parametrize("dependence", [0.0, 0.5, 1.0])
def test_models_that_are_independent_given_their_base_share_what_the_null_expects(dependence: float) -> None:
    rng = np.random.default_rng(1)
    found = [compare(*simulate(rng, dependence=dependence)) for _ in range(120)]
    shared = np.mean([one.shared for one in found])
    error = np.std([one.shared for one in found]) / math.sqrt(len(found))
    assert np.mean([one.expected for one in found]) == pytest.approx(shared, abs=3 * error)
    assert np.mean([one.p < 0.1 for one in found]) < 0.2, "as many small p-values as there should be"
    if dependence < 1:
        assert shared > RANDOM + 2 + 3 * error, "random rankings share fewer: nothing is subtracted from both"
    else:
        assert shared == pytest.approx(RANDOM, abs=3 * error)


def test_permuted_scores_are_right_only_where_training_forgot_the_base() -> None:
    rng = np.random.default_rng(2)
    for dependence, is_right in ((0.0, True), (0.6, False)):
        found = [compare(*simulate(rng, dependence=dependence), null="scores") for _ in range(60)]
        shared, expected = (np.mean([getattr(one, name) for one in found]) for name in ("shared", "expected"))
        assert (abs(shared - expected) < 0.8) == is_right, (shared, expected)


def test_within_layers_sharing_layers_is_no_sharing_of_heads() -> None:
    rng = np.random.default_rng(3)
    pairs = [simulate(rng, dependence=0.5, layers=0.5) for _ in range(30)]
    whole, within = ([compare(*one, null=null) for one in pairs] for null in ("residuals", "residuals_in_layers"))
    shared = np.mean([one.shared for one in whole])
    assert np.mean([one.expected for one in within]) == pytest.approx(shared, abs=1)
    assert np.mean([one.expected for one in whole]) < shared - 5
    assert np.mean([one.p for one in whole]) < 0.01


def test_models_that_share_heads_are_found() -> None:
    rng = np.random.default_rng(4)
    own, other, base = simulate(rng, dependence=0.5)
    common = 2 * rng.normal(size=base.shape)
    found = compare({s: v + common for s, v in own.items()}, {s: v + common for s, v in other.items()}, base)
    assert found.p == 1 / 200 and found.expected + 5 < found.shared < found.ceiling


def test_all_seeds_are_permuted_alike_and_without_a_base_nothing_is_explained() -> None:
    scores = np.arange(24.0).reshape(2, 3, 4)
    drawn = permute_scores(scores, None, null="residuals", permutations=50, generator=np.random.default_rng(0))
    assert drawn.shape == (50, 2, 12)
    np.testing.assert_allclose(drawn[:, 1] - drawn[:, 0], 12)
    np.testing.assert_allclose(np.sort(drawn[:, 0]), np.tile(np.arange(12.0), (50, 1)))
    generator = np.random.default_rng(0)
    inside = permute_scores(scores, None, null="residuals_in_layers", permutations=50, generator=generator)
    np.testing.assert_allclose(np.sort(inside[:, 0].reshape(50, 3, 4), axis=2), np.tile(scores[0], (50, 1, 1)))
