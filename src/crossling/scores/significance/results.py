"""What a comparison of systems finds, and how it tests: scores, differences, marks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crossling.errors import UserError

LEAST_ROUNDS = 1_000

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

    rounds: int = 10_000
    """Random swaps of a permutation test."""
    draws: int = 2_000
    """Resamples behind an interval."""
    level: float = 0.05
    """Corrected p below which a difference is marked."""
    confidence: float = 0.95
    """Coverage of the intervals."""
    seed: int = 0
    as_published: bool = False
    """Permutation test as in the adjustment paper: runs concatenated, each sentence of each swapped on its own."""

    def __post_init__(self) -> None:
        if self.rounds < LEAST_ROUNDS or self.draws < LEAST_ROUNDS:
            raise UserError(f"rounds = {self.rounds}, draws = {self.draws}: fewer than {LEAST_ROUNDS} are too coarse")
        if not (0 < self.level < 1 and 0 < self.confidence < 1):
            raise UserError(f"level = {self.level}, confidence = {self.confidence}: both lie between 0 and 1")


@dataclass(frozen=True)
class Difference:
    """A system's mean score less another's, as fractions."""

    against: str
    delta: float
    low: float
    high: float
    p: float
    corrected_p: float
    """After Holm over the data set's languages; an average is one test and is not corrected."""
    test: str
    direction: int
    """1 better, -1 worse, 0 not significant."""


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
