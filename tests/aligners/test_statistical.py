"""The compiled statistical aligner against a slow one that spells out the model."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from itertools import pairwise

import numba
import numpy as np
import pytest
from scipy.special import digamma

from crossling.aligners import statistical
from crossling.aligners.corpus import Corpus, build_corpus
from crossling.aligners.statistical import Settings, align, fit_direction, rank_words
from crossling.data.ragged import build_ragged

Sentences = list[list[int]]


class Slow:
    """The model as it is written down; dictionaries, no shortcuts. The empty word is -1."""

    def __init__(self, source: Sentences, target: Sentences, prior: Settings) -> None:
        self.pairs = list(zip(source, target, strict=True))
        self.prior, self.tension = prior, prior.tension
        self.table: dict[int, dict[int, float]] = defaultdict(dict)
        for left, right in self.pairs:
            for word in [-1, *left]:
                self.table[word].update(dict.fromkeys(right, 1.0))

    def positions(self, j: int, m: int, n: int) -> list[float]:
        weights = [math.exp(-self.tension * abs((i + 1) / n - (j + 1) / m)) for i in range(n)]
        return [weight / sum(weights) for weight in weights]

    def sum_swapped(self, j: int, m: int, n: int) -> float:
        """fast_align's sum: target places 1 to m around place j + 1 of n; beyond them it never stops adding."""
        split = (j + 1) * m // n
        ends = m if split <= m else split + 300 * m
        places = [*range(1, split + 1), *range(split + 1, ends + 1)]
        return sum(math.exp(-self.tension * abs(place / m - (j + 1) / n)) for place in places)

    def joint(self, left: list[int], right: list[int], j: int) -> list[float]:
        """Probabilities of target word j coming from nothing, from source word 0, 1, …"""
        places = self.positions(j, len(right), len(left))
        words = [(1 - self.prior.null) * p * self.table[word][right[j]] for p, word in zip(places, left, strict=True)]
        return [self.prior.null * self.table[-1][right[j]], *words]

    def update(self, *, moves_tension: bool) -> None:
        counts = {word: dict.fromkeys(row, 0.0) for word, row in self.table.items()}
        closeness, tokens = 0.0, 0
        for left, right in self.pairs:
            for j, token in enumerate(right):
                joint = self.joint(left, right, j)
                tokens += 1
                for i, (word, value) in enumerate(zip([-1, *left], joint, strict=True)):
                    counts[word][token] += value / sum(joint)
                    if word >= 0:
                        closeness -= value / sum(joint) * abs(i / len(left) - j / len(right))
        for word, row in counts.items():
            total = digamma(sum(row.values()) + self.prior.alpha * len(row))
            self.table[word] = {token: math.exp(digamma(c + self.prior.alpha) - total) for token, c in row.items()}
        for _ in range(8 if moves_tension else 0):
            expected = 0.0
            for left, right in self.pairs:
                for j in range(len(right)):
                    n, m = len(left), len(right)
                    distances = [abs((i + 1) / n - (j + 1) / m) for i in range(n)]
                    weights = [math.exp(-self.tension * distance) for distance in distances]
                    total = self.sum_swapped(j, m, n) if self.prior.fast_align else sum(weights)
                    expected -= sum(w * d for w, d in zip(weights, distances, strict=True)) / total
            self.tension = min(max(self.tension + 20 * (closeness - expected) / tokens, 0.1), 14)

    def joints(self) -> list[list[float]]:
        return [self.joint(left, right, j) for left, right in self.pairs for j in range(len(right))]


def made_up_text(seed: int, *, pairs: int = 25) -> tuple[Sentences, Sentences]:
    """Sentences whose translations have the same words in about the same order, some lost and some swapped."""
    dice = random.Random(seed)
    source, target = [], []
    for _ in range(pairs):
        left = [min(11, int(dice.expovariate(0.35))) for _ in range(dice.randint(1, 9))]
        right = [word + 1 if word % 3 else word for word in left if dice.random() < 0.9] or [0]
        if len(right) > 2:
            k = dice.randrange(len(right) - 1)
            right[k], right[k + 1] = right[k + 1], right[k]
        source.append(left)
        target.append(right)
    return number(source), number(target)


def number(sentences: Sentences) -> Sentences:
    """Words numbered without gaps."""
    ranked = rank_words(build_ragged(sentences), 20)
    return [ranked[row].tolist() for row in range(len(ranked))]


@pytest.mark.parametrize(
    ("seed", "pairs", "fast_align"), [(0, 25, False), (1, 300, False), (2, 25, True), (3, 300, True)]
)
def test_compiled_model_equals_plain_python(seed: int, pairs: int, fast_align: bool) -> None:
    source, target = made_up_text(seed, pairs=pairs)
    settings = Settings(fast_align=fast_align)
    slow = Slow(source, target, settings)
    for iteration in range(4):
        slow.update(moves_tension=iteration > 0)
    found = fit_direction(build_ragged(source), build_ragged(target), settings)
    assert found.tension == pytest.approx(slow.tension, abs=1e-5)
    for word, row in slow.table.items():
        for token, value in row.items():
            assert found.table.probability(word + 1, token) == pytest.approx(value, abs=1e-5)
    for best, joint in zip(found.best, slow.joints(), strict=True):
        assert joint[best + 1] == pytest.approx(max(joint), rel=1e-5)  # of equals it may be either


def test_settings_without_fast_align_are_those_of_older_versions() -> None:
    assert "fast_align" not in Settings().model_dump()
    assert Settings(**Settings(fast_align=True).model_dump()).fast_align


def test_only_cooccurring_pairs_are_stored() -> None:
    found = fit_direction(build_ragged([[0, 1, 0], [2]]), build_ragged([[0, 1], [2, 0]]), Settings())
    table = found.table
    assert [table.columns[a:b].tolist() for a, b in pairwise(table.rows)] == [
        [0, 1, 2],
        [0, 1],
        [0, 1],
        [0, 2],
    ]
    assert table.columns.itemsize + table.values.itemsize <= 12
    assert table.probability(1, 2) == 0


def test_result_does_not_depend_on_threads() -> None:
    source, target = (build_ragged(side) for side in made_up_text(3))
    before = numba.get_num_threads()
    results = []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            results.append(fit_direction(source, target, Settings()))
    finally:
        numba.set_num_threads(before)
    for other in results[1:]:
        assert np.array_equal(results[0].table.values, other.table.values)
        assert results[0].tension == other.tension


@pytest.mark.parametrize("block", [1, 200])
def test_result_does_not_depend_on_blocks(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = (build_ragged(side) for side in made_up_text(4, pairs=300))
    whole = fit_direction(source, target, Settings())
    monkeypatch.setattr(statistical, "BLOCK", block)  # the first: each pair of sentences is a block
    found = fit_direction(source, target, Settings())
    assert np.array_equal(found.table.values, whole.table.values)
    assert np.array_equal(found.best, whole.best)
    assert found.tension == whole.tension


@pytest.mark.parametrize("alpha", [0.01, 0.0001, 0.3, 2.0])
def test_distribution_is_the_exponential_of_digamma(alpha: float) -> None:
    """Small counts, whose digamma is not computed, have the lowest probability, and no others have."""
    counts = np.concatenate([np.zeros(1), np.logspace(-12, 3, 500)])
    table = (np.array([0, 501]), np.arange(501, dtype=np.int32), np.empty(501, np.float32))
    statistical._normalize_row(0, table, counts, alpha)
    expected = np.exp(digamma(counts + alpha) - digamma((counts + alpha).sum()))
    assert table[2] == pytest.approx(np.maximum(expected, statistical.SMALLEST), rel=1e-6)


def test_frequent_words_have_small_numbers() -> None:
    assert rank_words(build_ragged([[0, 2], [2, 1, 1], [2]]), 4).values.tolist() == [2, 0, 0, 1, 1, 0]


def small_text() -> Corpus:
    lines = [
        ("the house", "das Haus"),
        ("the book", "das Buch"),
        ("a book", "ein Buch"),
        ("a house", "ein Haus"),
        ("a red house", "ein rotes Haus"),
        ("the red book", "das rote Buch"),
    ]
    return build_corpus([(left.split(), right.split()) for left, right in lines])


def test_words_that_occur_together_are_linked() -> None:
    links = align(small_text(), Settings())
    assert list(links)[:4] == [[(0, 0), (1, 1)]] * 4
    assert links[4] == [(0, 0), (1, 1), (2, 2)]


def test_swapped_sides_give_swapped_links() -> None:
    corpus = small_text()
    there = align(corpus, Settings(symmetrize="intersection"))
    back = align(Corpus(corpus.target, corpus.source), Settings(symmetrize="intersection"))
    assert [[(j, i) for i, j in row] for row in there] == [sorted(row) for row in back]


def test_progress_is_reported() -> None:
    calls: list[tuple[str, object]] = []

    class Listener:
        def begin(self, what: str, total: int, done: int = 0) -> None:
            calls.append(("begin", total))

        def advance(self, steps: int = 1, **facts: str) -> None:
            calls.append(("advance", steps))

        def end(self) -> None:
            calls.append(("end", None))

        def say(self, line: str) -> None:
            pass

    align(small_text(), Settings(iterations=3), progress=Listener())
    assert calls == [("begin", 6), *[("advance", 1)] * 6, ("end", None)]
