"""Intervals and tests by resampling, as in results before the hierarchical interval: so that these can be made again.

The interval is a paired bootstrap over seeds and examples, which with few seeds covers less than it says. The test, a
permutation of examples or a t-test over them, takes the trained models as given.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from crossling.scores.significance.bootstrap import bootstrap, draw_runs
from crossling.scores.significance.cells import Cell
from crossling.scores.significance.permutation import Pair, p_value, permute
from crossling.scores.significance.results import Estimate, Settings
from crossling.scores.significance.rows import Group
from crossling.scores.significance.t_test import t_test
from crossling.scores.spans import Array


@dataclass(eq=False)
class Resampling:
    """Intervals and tests on one data set: draws are made once for all systems, swaps once for each pair of systems."""

    data: str
    cells: Sequence[Cell]
    groups: Sequence[Group]
    settings: Settings
    swapped: dict[tuple[str, str], dict[str, tuple[float, Array]]] = field(default_factory=dict)
    """For each pair of systems: by language the observed and the permuted differences."""

    def estimate_mean(self, part: Sequence[Cell], system: str) -> Estimate:
        """A system's mean score over languages, without a test."""
        runs = [list(range(len(cell.seeds[system]))) for cell in part]
        value = float(np.mean([cell.scores[system].mean() for cell in part]))
        drawn = [self._draw_means(cell, system, some) for cell, some in zip(part, runs, strict=True)]
        return self._estimate(value, np.mean(drawn, axis=0), p=1.0, test="", runs=min(map(len, runs)))

    def estimate_difference(self, part: Sequence[Cell], system: str, other: str) -> Estimate:
        """The difference between two systems, on average over languages."""
        paired = [(cell, *cell.pair_runs(system, other)) for cell in part]
        value = float(np.mean([c.scores[system][i].mean() - c.scores[other][j].mean() for c, i, j in paired]))
        drawn = np.mean([self._draw_means(c, system, i) - self._draw_means(c, other, j) for c, i, j in paired], axis=0)
        test = part[0].test if len(part) == 1 else "permutation test"
        if test == "permutation test":
            swapped = self._permute(system, other)
            observed, null = zip(*(swapped[cell.language] for cell in part), strict=True)
            p = p_value(float(np.mean(observed)), np.mean(null, axis=0))
        else:
            p = t_test(*map(part[0].example_means, (system, other), part[0].pair_runs(system, other)))
        return self._estimate(value, drawn, p=p, test=test, runs=min(len(i) for _, i, _ in paired))

    def _estimate(self, value: float, drawn: Array, *, p: float, test: str, runs: int) -> Estimate:
        tail = (1 - self.settings.confidence) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail])
        return Estimate(value, float(low), float(high), p, test, runs)

    @cached_property
    def drawn(self) -> dict[tuple[str, str], Array]:
        """Resampled scores of each run by language and system."""
        by_language = {cell.language: cell for cell in self.cells}
        found = {}
        for group in self.groups:
            cells = [by_language[language] for language in group.keys]
            samples = [(list(cell.counts.values()), group.keys[cell.language]) for cell in cells]
            rng = self._generator("draw", min(group.keys))
            drawn = bootstrap(samples, group.size, draws=self.settings.draws, rng=rng)
            for cell, by_system in zip(cells, drawn, strict=True):
                for system, scores in zip(cell.counts, by_system, strict=True):
                    found[cell.language, system] = scores
        return found

    def _draw_means(self, cell: Cell, system: str, runs: list[int]) -> Array:
        """Resampled means over some runs, which are resampled too.

        One stream for every system and language: a seed's model is drawn with all that it predicted.
        """
        weights = draw_runs(len(runs), self.settings.draws, self._generator("runs", str(len(runs))))
        means: Array = (self.drawn[cell.language, system][:, runs] * weights).sum(axis=1)
        return means

    def _permute(self, system: str, other: str) -> dict[str, tuple[float, Array]]:
        """Observed and permuted differences by language; those that share rows are swapped together."""
        if (system, other) not in self.swapped:
            found = self.swapped[system, other] = {}
            for group in self.groups:
                cells = [c for c in self.cells if c.language in group.keys and {system, other} <= c.counts.keys()]
                if not cells:
                    continue
                pairs = []
                for cell in cells:
                    own, theirs = cell.pair_runs(system, other)
                    counts = cell.counts[system][own], cell.counts[other][theirs]
                    pairs.append(Pair(*counts, group.keys[cell.language]))
                # Names in order, so that which of two systems is the baseline does not change p.
                rng = self._generator("swap", min(group.keys), *sorted((system, other)))
                observed, null = permute(
                    pairs, group.size, rounds=self.settings.rounds, rng=rng, as_published=self.settings.as_published
                )
                found |= {c.language: (float(observed[n]), null[:, n]) for n, c in enumerate(cells)}
        return self.swapped[system, other]

    def _generator(self, *names: str) -> np.random.Generator:
        """A random stream for each purpose, so that adding a system or a set changes no other figure."""
        digest = hashlib.sha256("\0".join((self.data, *names)).encode()).digest()
        return np.random.default_rng([self.settings.seed, int.from_bytes(digest[:8], "big")])
