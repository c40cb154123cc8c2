"""Intervals of differences from a base: how seeds pair, what one seed allows, and how often they hold the truth.

Shapes: B studies, R seeds, N examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import t, ttest_1samp, ttest_ind, ttest_rel

from crossling.analyses.intervals import OVER_PAIRED_SEEDS, describe_intervals, estimate_differences
from crossling.analyses.models import AnalysedModel, AnalysedModels, Pretrained, pretrained_model
from crossling.scores.significance.results import OVER_EXAMPLES, OVER_SEEDS, OVER_UNPAIRED_SEEDS, Estimate

Array = np.ndarray[Any, Any]
Seeds = tuple[int | None, ...]
EXAMPLES = 60


def make_table(name: str, seeds: Seeds, values_BRN: Array) -> pa.Table:
    """A model's table: its figure is the mean of values of examples; the column ``study`` tells studies apart."""
    B, R, N = values_BRN.shape
    figures_BR = values_BRN.mean(axis=-1)
    errors = (values_BRN - figures_BR[..., None]).ravel() / N
    columns = {"task": [""] * (B * R), "model": [name] * (B * R), "seed": pa.array(list(seeds) * B, pa.int64())}
    lists = pa.ListArray.from_arrays(np.arange(0, B * R * N + 1, N), errors)
    return pa.table({**columns, "study": np.repeat(np.arange(B), R), "value": figures_BR.ravel(), "errors": lists})


def compare(
    ours: tuple[Seeds, Array], theirs: tuple[Seeds, Array], *, pretrained: tuple[str, ...] = ()
) -> dict[tuple[Any, ...], Estimate]:
    """The differences of a model from its base, each given as seeds and values."""
    table = pa.concat_tables([make_table("tuned", *ours), make_table("base", *theirs)])
    return estimate_differences(table, {"tuned": "base"}, pretrained, value="value", by=("study",))


def vary_seeds(seeds: Seeds, *, salt: int) -> tuple[Seeds, Array]:
    """One study in which seeds differ and examples do not, so that only seeds count."""
    figures = np.random.default_rng(salt).standard_normal((1, len(seeds), 1))
    return seeds, np.repeat(figures, EXAMPLES, axis=-1)


def vary_all(seeds: Seeds, *, salt: int) -> tuple[Seeds, Array]:
    """One study in which seeds and examples count alike."""
    rng, R, N = np.random.default_rng(salt), len(seeds), EXAMPLES
    effects = 0.1 * rng.standard_normal((1, R, 1)) + rng.standard_normal((1, 1, N))
    return seeds, effects + rng.standard_normal((1, R, N))


def test_same_seeds_are_paired_whatever_their_order() -> None:
    """Against the paired t-test of scipy, over seeds."""
    (seeds, ours), (_, theirs) = (vary_seeds((1, 2, 3, 4), salt=salt) for salt in (1, 2))
    shuffled = [2, 0, 3, 1]
    (one,) = compare((seeds, ours), (tuple(seeds[place] for place in shuffled), theirs[:, shuffled])).values()
    wanted = ttest_rel(ours.mean(axis=-1)[0], theirs.mean(axis=-1)[0])
    interval = wanted.confidence_interval(0.95)
    assert (one.low, one.high, one.p) == pytest.approx((interval.low, interval.high, wanted.pvalue))
    assert (one.test, one.seeds) == (OVER_PAIRED_SEEDS, 4)


def test_errors_of_examples_are_paired_with_those_of_the_same_seed() -> None:
    """A base that differs by a constant, seed by seed, leaves nothing that could be otherwise."""
    seeds, ours = vary_all((1, 2, 3), salt=1)
    (one,) = compare((seeds, ours), ((3, 1, 2), ours[:, [2, 0, 1]] - 0.5)).values()
    assert (one.low, one.value, one.high) == pytest.approx((0.5, 0.5, 0.5))
    (other,) = compare((seeds, ours), ((4, 5, 6), ours - 0.5)).values()
    assert other.value == pytest.approx(0.5) and other.high - other.low > 0.1


@pytest.mark.parametrize("others", [(4, 5, 6), (7, 8, 9, 10, 11), (2, 3, 4), (1, 2)])
def test_other_seeds_are_compared_by_welchs_t_test(others: Seeds) -> None:
    """Also where some are the same: all of them count."""
    (seeds, ours), (_, theirs) = vary_seeds((1, 2, 3), salt=1), vary_seeds(others, salt=2)
    (one,) = compare((seeds, ours), (others, theirs)).values()
    wanted = ttest_ind(ours.mean(axis=-1)[0], theirs.mean(axis=-1)[0], equal_var=False)
    interval = wanted.confidence_interval(0.95)
    assert (one.low, one.high, one.p) == pytest.approx((interval.low, interval.high, wanted.pvalue))
    assert (one.test, one.seeds) == (OVER_UNPAIRED_SEEDS, min(3, len(others)))


def test_interval_over_other_seeds_is_that_of_plain_loops() -> None:
    sides = [vary_all((1, 2, 3), salt=1), vary_all((4, 5, 6, 7), salt=2)]
    (one,) = compare(*sides).values()
    between, squares, shared, means = 0.0, 0.0, 0.0, []
    first, second = (values[0] for _, values in sides)
    for some in (first, second):
        R = len(some)
        between += some.mean(axis=1).var(ddof=1) / R
        squares += (some.mean(axis=1).var(ddof=1) / R) ** 2 / (R - 1)
        shared += np.mean([np.cov(a, b)[0, 1] for a, b in combinations(some, 2)]) / EXAMPLES
        means.append(some.mean())
    shared -= 2 * np.mean([np.cov(a, b)[0, 1] for a, b in product(first, second)]) / EXAMPLES
    variance = between + shared
    freedom = variance / (squares / between + shared / (EXAMPLES - 1))
    half = t.ppf(0.975, freedom) * np.sqrt(variance)
    value = means[0] - means[1]
    assert shared > 0.1 * variance
    assert (one.value, one.low, one.high) == pytest.approx((value, value - half, value + half))


@pytest.mark.parametrize("reverse", [False, True])
def test_seeds_count_beside_a_pretrained_encoder_which_has_none(reverse: bool) -> None:
    """Against the t-test of scipy of one mean."""
    (seeds, ours), (_, theirs) = vary_seeds((1, 2, 3), salt=1), vary_seeds((None,), salt=2)
    wanted = ttest_1samp((ours - theirs).mean(axis=-1)[0], 0).confidence_interval(0.95)
    if reverse:
        (one,) = compare(((None,), theirs), (seeds, ours), pretrained=("tuned",)).values()
        assert (one.low, one.high) == pytest.approx((-wanted.high, -wanted.low))
    else:
        (one,) = compare((seeds, ours), ((None,), theirs), pretrained=("base",)).values()
        assert (one.low, one.high) == pytest.approx((wanted.low, wanted.high))
    assert (one.test, one.seeds) == (OVER_SEEDS, 3)


@pytest.mark.parametrize(
    ("seeds", "others"), [((1, 2, 3), (1,)), ((1, 2, 3), (None,)), ((1,), (1, 2, 3)), ((1,), (1,)), ((None,), (None,))]
)
def test_one_seed_of_a_trained_model_leaves_an_interval_over_examples(seeds: Seeds, others: Seeds) -> None:
    """Against the paired t-test of scipy, over examples."""
    (_, ours), (_, theirs) = vary_all(seeds, salt=1), vary_all(others, salt=2)
    found = compare((seeds, ours), (others, theirs))
    (one,) = found.values()
    wanted = ttest_rel(ours[0].mean(axis=0), theirs[0].mean(axis=0)).confidence_interval(0.95)
    assert (one.low, one.high) == pytest.approx((wanted.low, wanted.high))
    assert (one.test, one.seeds) == (OVER_EXAMPLES, 1)
    assert "nothing about the next one" in describe_intervals(found, what="result")


def test_models_measured_on_other_examples_have_no_interval() -> None:
    seeds, ours = vary_all((1, 2), salt=1)
    assert compare((seeds, ours), (seeds, ours[..., 1:])) == {}


def test_the_sentence_says_what_each_interval_is_over() -> None:
    def describe(seeds: Seeds, others: Seeds, *pretrained: str) -> str:
        found = compare(vary_all(seeds, salt=1), vary_all(others, salt=2), pretrained=pretrained)
        return describe_intervals(found, what="result")

    start = "In square brackets: the 95 % interval of the result, by Student's t, paired by example with what it is"
    one = "over the test's examples alone: with one seed of either it says nothing about the next one."
    few = " With two seeds it may cover 91 %."
    for said, end in (
        (describe((1, 2), (1, 2)), f"over pairs of the same seed (2) and the test's examples.{few}"),
        (describe((1, 2, 3), (1, 2, 3)), "over pairs of the same seed (3) and the test's examples."),
        (
            describe((1, 2, 3), (4, 5)),
            f"over seeds of both (at least 2), which are not paired, and the test's examples.{few}",
        ),
        (
            describe((1, 2), (None,), "base"),
            f"over seeds (2), of which a pretrained encoder has none, and the test's examples.{few}",
        ),
        (describe((1, 2), (None,)), one),
        (describe((1,), (None,), "base"), one),
        (describe((None,), (None,), "base", "tuned"), "over the test's examples."),
    ):
        assert said == f"{start} compared with, {end}"


def test_the_sentence_names_models_where_intervals_are_over_different_seeds() -> None:
    models: dict[str, Seeds] = {"same": (1, 2), "longer": (1, 2, 3), "single": (1,), "base": (1, 2)}
    parts = [make_table(name, *vary_all(seeds, salt=salt)) for salt, (name, seeds) in enumerate(models.items())]
    bases = dict.fromkeys(("same", "longer", "single"), "base")
    found = estimate_differences(pa.concat_tables(parts), bases, (), value="value", by=("study",))
    said = describe_intervals(found, what="difference")
    assert "of same over pairs of the same seed (2)" in said
    assert "; of longer over seeds of both (at least 2)" in said
    assert "; of single over the test's examples alone" in said


def test_encoders_before_training_are_told_from_saved_models() -> None:
    """Neither has a seed, but a saved model is one of the seeds that could have been."""
    encoder = Pretrained("mbert")
    saved = AnalysedModel("", "saved", None, Path("saved"), "en", Path("store"), encoder)
    assert AnalysedModels((saved, pretrained_model(encoder))).pretrained == {"mbert"}


NOISE = {"seeds": (0.3, 0.3), "examples": (0.02, 1.0)}
"""What dominates: the standard deviations of seeds and of examples."""


@dataclass(frozen=True)
class Simulation:
    """Studies of a model and its base, both with normal effects of seeds and of examples; the true difference is 0."""

    seeds: Seeds
    base: Seeds
    noise: str
    studies: int = 1000

    def draw(self) -> list[Array]:
        """Values (B x R x N) of the model and of its base; a fifth of the variance of a seed is common to both."""
        rng, (seed_sd, example_sd) = np.random.default_rng(len(self.seeds)), NOISE[self.noise]
        B, N = self.studies, EXAMPLES
        known = {seed: rng.standard_normal((B, 1)) for seed in dict.fromkeys((*self.seeds, *self.base))}
        hard = rng.standard_normal((B, 1, N))
        found = []
        for seeds in (self.seeds, self.base):
            common = np.stack([known[seed] for seed in seeds], axis=1)
            seed = seed_sd * (np.sqrt(0.2) * common + np.sqrt(0.8) * rng.standard_normal(common.shape))
            example = example_sd * (hard + rng.standard_normal((B, 1, N))) / np.sqrt(2)
            found.append(seed + example + 0.5 * rng.standard_normal((B, len(seeds), N)))
        return found

    def coverage(self, *, given: bool = False) -> float:
        """How often the interval holds the true difference for new seeds and new examples.

        With `given`, the mean of the base's seeds is given, as one encoder that was not trained.
        """
        ours, theirs = self.draw()
        base = ((None,), theirs.mean(axis=1, keepdims=True)) if given else (self.base, theirs)
        found = compare((self.seeds, ours), base, pretrained=("base",) if given else ())
        return float(np.mean([one.low <= 0 <= one.high for one in found.values()]))


def list_seeds(count: int, *, first: int = 1) -> Seeds:
    return tuple(range(first, first + count))


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.parametrize("first", [1, 101], ids=["paired", "unpaired"])
@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_interval_covers_the_difference_for_new_seeds_of_model_and_base(seeds: int, first: int, noise: str) -> None:
    assert 0.93 <= Simulation(list_seeds(seeds), list_seeds(seeds, first=first), noise).coverage() <= 0.97


def test_interval_covers_where_the_base_has_more_seeds() -> None:
    assert 0.93 <= Simulation(list_seeds(3), list_seeds(6, first=101), "seeds").coverage() <= 0.97


@pytest.mark.parametrize("seeds", [3, 5])
def test_interval_falls_short_where_the_mean_of_the_bases_seeds_is_taken_as_given(seeds: int) -> None:
    """The check can fail."""
    simulation = Simulation(list_seeds(seeds), list_seeds(seeds, first=101), "seeds")
    assert 0.8 <= simulation.coverage(given=True) <= 0.925
