"""The permutation test compared with the enumeration of all swaps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
from made import Sentences, as_predictions, count_runs, make_gold, make_runs

from crossling.errors import UserError
from crossling.scores.metrics import score
from crossling.scores.significance import counts as counting
from crossling.scores.significance import permutation
from crossling.scores.significance.permutation import Pair, p_value, permute

ROWS = 7


def test_p_value_counts_the_observed_and_both_signs() -> None:
    null = np.array([0.1, -0.3, 0.3, 0.2, -0.5])
    assert p_value(0.3, null) == pytest.approx((1 + 3) / (1 + 5))
    assert p_value(-0.3, null) == p_value(0.3, null)
    assert p_value(0.9, null) == pytest.approx(1 / 6)
    assert p_value(0.1 + 0.2, null) == pytest.approx(4 / 6)  # which is not 0.3 to the last bit


def enumerate_swaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `permute` go through all swaps instead of drawing them.

    Rows that swap to no effect are left out of what it draws for, so it goes round all swaps of the others a
    whole number of times.
    """
    state: dict[int, Iterator[Any]] = {}

    def draw(rounds: int, width: int, _: Any) -> Any:
        swaps = state.setdefault(width, cycle(product((0, 1), repeat=width)))
        return np.array([next(swaps) for _ in range(rounds)], dtype=np.uint8)

    monkeypatch.setattr(permutation, "_draw_swaps", draw)


def swap_and_score(
    gold: Sentences, first: list[Sentences], second: list[Sentences], swaps: Any, *, scheme: str, name: str
) -> float:
    """Swap whole sentences between systems, score every run with `metrics`, and subtract the means."""
    means = []
    for own, others in ((first, second), (second, first)):
        values = []
        for run, (mine, other) in enumerate(zip(own, others, strict=True)):
            mixed = [other[row] if swaps[run][row] else mine[row] for row in range(len(gold))]
            values.append(score(as_predictions(gold, mixed, scheme))[name])
        means.append(np.mean(values))
    return float(means[0] - means[1])


CASES = [
    ("bio", "span_f1"),
    ("bio", "span_macro_f1"),
    ("none", "accuracy"),
    ("none", "macro_f1"),
    ("classes", "macro_f1"),
]


@pytest.mark.parametrize(("scheme", "name"), CASES)
@pytest.mark.parametrize("block", [1 << 22, 50])
def test_permutation_is_the_exact_enumeration(
    scheme: str, name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "BLOCK", block)
    enumerate_swaps(monkeypatch)
    gold = [np.resize(g, len(g) + 1) if len(g) else np.array([1]) for g in make_gold(5, ROWS)]
    second = make_runs(gold, wrong=0.8, seeds=(3, 4))
    first = make_runs(gold, wrong=0.4, seeds=(1, 2))
    counts = count_runs(gold, [first, second], scheme=scheme, name=name)
    pair = Pair(*counts, np.arange(ROWS))
    observed, null = permute([pair], ROWS, rounds=2**ROWS, rng=np.random.default_rng(0))
    expected = [
        swap_and_score(gold, first, second, [swaps] * 2, scheme=scheme, name=name)
        for swaps in product((0, 1), repeat=ROWS)
    ]
    assert observed[0] == pytest.approx(expected[0], abs=1e-12)
    assert len(set(np.round(expected, 9))) > 4
    assert sorted(null[:, 0]) == pytest.approx(sorted(expected), abs=1e-12)


def test_drawn_swaps_approach_the_exact_p() -> None:
    gold = [g for g in make_gold(8, 40) if len(g) > 2][:9]
    first, second = make_runs(gold, wrong=0.3, seeds=(1, 2)), make_runs(gold, wrong=0.5, seeds=(3, 4))
    pair = Pair(*count_runs(gold, [first, second], scheme="bio", name="span_f1"), np.arange(9))
    exact = [
        swap_and_score(gold, first, second, [swaps] * 2, scheme="bio", name="span_f1")
        for swaps in product((0, 1), repeat=9)
    ]
    p_exact = np.mean(np.abs(exact) >= abs(pair.observed) - 1e-10)
    assert 0.01 < p_exact < 0.6
    observed, null = permute([pair], 9, rounds=20_000, rng=np.random.default_rng(1))
    error = np.sqrt(p_exact * (1 - p_exact) / 20_000)
    assert p_value(observed[0], null[:, 0]) == pytest.approx(p_exact, abs=4 * error)


def test_published_form_swaps_every_sentence_of_every_seed_on_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    enumerate_swaps(monkeypatch)
    rows = 4
    gold = [np.array([1, 2, 0, 3])] * rows
    second = make_runs(gold, wrong=0.6, seeds=(3, 4))
    first = make_runs(gold, wrong=0.3, seeds=(1, 2))
    pair = Pair(*count_runs(gold, [first, second], scheme="none", name="macro_f1"), np.arange(rows))
    observed, null = permute([pair], rows, rounds=2 ** (2 * rows), rng=np.random.default_rng(0), as_published=True)
    long_gold, long_first, long_second = gold * 2, [first[0] + first[1]], [second[0] + second[1]]
    expected = [
        swap_and_score(long_gold, long_first, long_second, [swaps], scheme="none", name="macro_f1")
        for swaps in product((0, 1), repeat=2 * rows)
    ]
    assert observed[0] == pytest.approx(expected[0])
    assert sorted(null[:, 0]) == pytest.approx(sorted(expected), abs=1e-12)


def test_languages_that_share_rows_are_swapped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    enumerate_swaps(monkeypatch)
    rng = np.random.default_rng(2)
    values = rng.random((2, 2, 1, 4, 1, 1)) + 0.1  # language, system, run, example, label
    counts = np.concatenate([values, np.ones_like(values)], axis=-1)
    keys = [np.array([0, 1, 2, 3]), np.array([2, 3, 4, 5])]
    pairs = [Pair(counts[0, 0], counts[0, 1], keys[0]), Pair(counts[1, 0], counts[1, 1], keys[1])]
    _, null = permute(pairs, 6, rounds=64, rng=rng)
    for swaps, found in zip(product((0, 1), repeat=6), null, strict=True):
        for language in range(2):
            signs = 1 - 2 * np.array(swaps)[keys[language]]
            difference = values[language, 0].ravel() - values[language, 1].ravel()
            assert found[language] == pytest.approx((signs * difference).mean(), rel=1e-12, abs=1e-14)


def test_sums_too_long_for_single_precision_stay_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    enumerate_swaps(monkeypatch)
    right = np.array([[2**25 + 1, 5, 2**24 + 1], [4, 2**26 + 3, 7]], dtype=float)
    counts = np.stack([right, np.full_like(right, 2**27)], axis=-1)[:, None, :, None]
    _, null = permute([Pair(*counts, np.arange(3))], 3, rounds=8, rng=np.random.default_rng(0))
    for swaps, found in zip(product((0, 1), repeat=3), null[:, 0], strict=True):
        difference = ((1 - 2 * np.array(swaps)) * (right[0] - right[1])).sum()
        assert found * 3 * 2**27 == pytest.approx(difference, abs=1e-6)


def test_copied_seeds_change_p_only_in_the_published_form() -> None:
    gold = make_gold(4, 60)
    first, second = (make_runs(gold, wrong=wrong, seeds=(seed,)) for wrong, seed in ((0.3, 1), (0.4, 2)))
    once = Pair(*count_runs(gold, [first, second], scheme="bio", name="span_f1"), np.arange(60))
    thrice = Pair(*count_runs(gold, [first * 3, second * 3], scheme="bio", name="span_f1"), np.arange(60))

    def test(pair: Pair, **form: Any) -> float:
        observed, null = permute([pair], 60, rounds=2000, rng=np.random.default_rng(0), **form)
        return p_value(observed[0], null[:, 0])

    assert test(thrice) == test(once)
    assert test(once, as_published=True) == test(once)
    assert test(thrice, as_published=True) < test(once)


def test_joint_swaps_keep_the_level_and_the_published_form_does_not() -> None:
    """Of 300 comparisons of equal systems about 5 % may come out below .05, with correlated seeds too."""
    rng = np.random.default_rng(0)
    below = {False: 0, True: 0}
    for _ in range(300):
        habits = rng.random((2, 1, 40)) < 0.7  # what a system gets right, in nearly all of its seeds
        right = np.where(rng.random((2, 3, 40)) < 0.2, rng.random((2, 3, 40)) < 0.7, habits)
        counts = np.stack([right, np.ones_like(right)], axis=-1).astype(float)[:, :, :, None]
        pair = Pair(counts[0], counts[1], np.arange(40))
        for as_published in below:
            observed, null = permute([pair], 40, rounds=400, rng=rng, as_published=as_published)
            below[as_published] += p_value(observed[0], null[:, 0]) < 0.05
    assert below[False] <= 27  # 15 expected; 3 standard deviations
    assert below[True] > 45


def test_unequal_seeds_use_mean_counts_and_cannot_be_concatenated() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 5, (3, 9, 1, 2)) + 1.0, rng.integers(0, 5, (2, 9, 1, 2)) + 1.0
    keys = np.arange(9)
    means = Pair(first.mean(axis=0)[None], second.mean(axis=0)[None], keys)
    found = permute([Pair(first, second, keys)], 9, rounds=100, rng=np.random.default_rng(2))
    wanted = permute([means], 9, rounds=100, rng=np.random.default_rng(2))
    assert np.allclose(found[1], wanted[1])
    assert found[0] == pytest.approx(wanted[0])
    with pytest.raises(UserError, match="3 and 2"):
        permute([Pair(first, second, keys)], 9, rounds=100, rng=rng, as_published=True)


def test_equal_systems_do_not_differ() -> None:
    counts = np.ones((2, 5, 1, 2))
    observed, null = permute([Pair(counts, counts, np.arange(5))], 5, rounds=1000, rng=np.random.default_rng(0))
    assert p_value(observed[0], null[:, 0]) == 1.0
