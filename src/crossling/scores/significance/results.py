"""What a comparison of systems finds, and how it tests: scores, differences, marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from crossling.errors import UserError, nearest

LEAST_ROUNDS = 1_000
Interval = Literal["hierarchical", "bootstrap"]
OVER_SEEDS, OVER_EXAMPLES = "t-test over seeds and examples", "t-test over examples"
"""Tests that belong to the hierarchical interval: with several seeds, and with one."""
OVER_UNPAIRED_SEEDS = "Welch's t-test over seeds and examples"
"""That of two systems whose seeds do not pair, as analyses have them; comparisons pair all."""

MARKS: Mapping[tuple[str, int], str] = {
    ("baseline", 1): "▲",
    ("baseline", -1): "▼",
    ("second", 1): "△",
    ("second", -1): "▽",
}
"""Shown beside a score that differs: from which system, and which way."""


@dataclass(frozen=True)
class Settings:
    """How differences are tested; the same settings on the same predictions give the same table."""

    interval: Interval = "hierarchical"
    """`hierarchical`: Student's t for new seeds and new examples, Holm's correction over systems and languages.
    `bootstrap`: a paired bootstrap over seeds and examples, which covers less than it says with few seeds, and tests
    over examples with the trained models taken as given, corrected over languages alone."""
    rounds: int = 10_000
    """Random swaps of a permutation test (`bootstrap`)."""
    draws: int = 2_000
    """Resamples behind an interval (`bootstrap`)."""
    level: float = 0.05
    """Corrected p below which a difference is marked."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    as_published: bool = False
    """Tests as in the adjustment paper: in permutations runs are concatenated and each sentence of each is swapped on
    its own; p-values are not corrected."""

    def __post_init__(self) -> None:
        if self.interval not in get_args(Interval):
            raise UserError(f"no interval {self.interval!r}.{nearest(self.interval, get_args(Interval))}")
        if self.rounds < LEAST_ROUNDS or self.draws < LEAST_ROUNDS:
            raise UserError(f"rounds = {self.rounds}, draws = {self.draws}: fewer than {LEAST_ROUNDS} are too coarse")
        if not (0 < self.level < 1 and 0 < self.confidence < 1):
            raise UserError(f"level = {self.level}, confidence = {self.confidence}: both lie between 0 and 1")
        if self.as_published and self.interval != "bootstrap":
            raise UserError("as_published is a form of the permutation test, which belongs to interval = 'bootstrap'")


PUBLISHED = Settings(interval="bootstrap", rounds=1_000, as_published=True)
"""As the adjustment paper tested: a paired t-test of examples' means over seeds, or a permutation test of 1,000 rounds;
p < 0.05, two-sided."""


@dataclass(frozen=True)
class Estimate:
    """A mean score or a difference with its interval, and the test of its being 0."""

    value: float
    low: float
    high: float
    p: float
    test: str
    seeds: int


@dataclass(frozen=True)
class Difference:
    """A system's mean score less another's, as fractions."""

    against: str
    delta: float
    low: float
    high: float
    p: float
    corrected_p: float
    """After Holm's correction over `tests` tests."""
    test: str
    direction: int
    """1 better, -1 worse, 0 not significant."""
    seeds: int = 0
    """Seeds that both systems have; 0 where older versions did not record it."""
    tests: int = 0
    """How many tests p is corrected over: of a language those of all systems in all languages, of an average those of
    all systems; 0 where older versions did not record it."""


@dataclass(frozen=True)
class Result:
    """A system's score in one language, or on average over several."""

    data: str
    language: str
    """As in the recipe, or what the average is over."""
    system: str
    score: str
    mean: float
    spread: float | None
    """Sample standard deviation over seeds; none with fewer than two, or where languages have unequal seeds."""
    runs: int
    """Seeds; for an average the fewest of any language."""
    examples: int
    from_baseline: Difference | None = None
    from_second: Difference | None = None
    is_average: bool = False
    is_source: bool = False
    low: float | None = None
    """The lower end of the mean's interval; none where older versions did not record it."""
    high: float | None = None

    @property
    def mark(self) -> str:
        """Signs of the differences that are significant."""
        found = (("baseline", self.from_baseline), ("second", self.from_second))
        return "".join(MARKS.get((name, one.direction), "") for name, one in found if one)


@dataclass(frozen=True)
class Comparison:
    """All results, in the order of data sets, languages (source first, then averages) and systems."""

    baseline: str
    second: str | None
    systems: tuple[str, ...]
    results: tuple[Result, ...]
    settings: Settings
    notes: tuple[str, ...] = ()
    """Sentences that a reader must not miss, such as languages left out of an average."""

    @property
    def data_sets(self) -> tuple[str, ...]:
        """Data sets in the order of their first result."""
        return tuple(dict.fromkeys(result.data for result in self.results))
