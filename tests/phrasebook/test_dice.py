"""Chance is the same everywhere and fair enough."""

from __future__ import annotations

from collections import Counter

from crossling.phrasebook.dice import Dice


def test_draws_depend_on_the_seed_alone() -> None:
    first, second = Dice("ner", "train", 7), Dice("ner", "train", 7)
    assert [first.below(1000) for _ in range(20)] == [second.below(1000) for _ in range(20)]
    assert len({Dice(*seed).below(10**9) for seed in (("a", 12), ("a", 1, 2), ("a1", 2), ("a12",))}) == 4
    assert Dice("phrasebook").below(10**6) == 39_501


def test_picks_are_even() -> None:
    dice = Dice("even")
    counts = Counter(dice.pick("abcd") for _ in range(8000))
    assert set(counts) == set("abcd") and all(1850 < count < 2150 for count in counts.values())


def test_samples_repeat_nothing_and_shuffles_lose_nothing() -> None:
    dice = Dice("sample")
    for _ in range(200):
        assert len(set(dice.sample(range(9), 5))) == 5
        assert sorted(dice.shuffle("hello")) == sorted("hello")
