"""Predictions of all systems counted, one data set in one language at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from crossling.data.languages import group_of, is_same_language
from crossling.scores.predictions import Predictions
from crossling.scores.significance.counts import align, default_score, divide, find_errors, find_measure
from crossling.scores.significance.rows import check_same_rows, sort_runs
from crossling.scores.spans import Array

Systems = Mapping[str, Mapping[tuple[str, str], Sequence[Predictions]]]
"""By name: by data set and language, the predictions of each seed."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One data set in one language: the counts (R x N x L x 2) of every system that has predictions for it."""

    language: str
    is_source: bool
    score: str
    test: str
    rows: Predictions
    """Any run's predictions: rows and gold labels are the same in all."""
    counts: Mapping[str, Array]
    seeds: Mapping[str, tuple[object, ...]]
    rare: Mapping[str, int] = field(default_factory=dict)
    """Labels of a macro average that have few gold items, with their number."""

    @cached_property
    def roles(self) -> tuple[tuple[str, str], ...]:
        """Role and language where there are two, as in ``context=es,question=en``; empty for one language."""
        parts = [part.partition("=") for part in self.language.split(",")]
        return tuple((role, code) for role, equals, code in parts if equals)

    @cached_property
    def scores(self) -> Mapping[str, Array]:
        """Each system's score in each run."""
        return {name: divide(counts.sum(axis=1)) for name, counts in self.counts.items()}

    @cached_property
    def errors(self) -> Mapping[str, Array]:
        """What each example contributes to the error of each system's score in each run (R x N)."""
        return {name: find_errors(counts) for name, counts in self.counts.items()}

    @property
    def examples(self) -> int:
        return int(next(iter(self.counts.values())).shape[1])

    def pair_runs(self, system: str, other: str) -> tuple[list[int], list[int]]:
        """The runs of two systems that are set against each other: those of seeds that both have.

        Where they have no seed in common, all of both.
        """
        seeds = self.seeds[system], self.seeds[other]
        common = [seed for seed in seeds[0] if seed is not None and seed in seeds[1]]
        if not common:
            return list(range(len(seeds[0]))), list(range(len(seeds[1])))
        return [seeds[0].index(seed) for seed in common], [seeds[1].index(seed) for seed in common]

    def example_means(self, system: str, runs: list[int]) -> Array:
        """The value of each example, averaged over runs; only where the score is a mean of examples."""
        totals = self.counts[system][runs].sum(axis=0)[:, 0]
        there = totals[:, 1] > 0
        means: Array = totals[there, 0] / totals[there, 1]
        return means


def read_cells(systems: Systems, data: str, score: str | None, sources: tuple[str, ...]) -> list[Cell]:
    """Count what every system predicted for a data set: source languages first, the others by code."""
    languages = dict.fromkeys(language for cells in systems.values() for name, language in cells if name == data)
    cells = []
    for language in languages:
        runs = {
            system: sort_runs(cells[data, language], where=f"{system}, {data}, {language}")
            for system, cells in systems.items()
            if (data, language) in cells
        }
        check_same_rows(runs, where=f"{data}, {language}")
        first = next(iter(runs.values()))[0]
        name = score or default_score(first)
        measure = find_measure(first, name)
        counted = [measure.count(run) for some in runs.values() for run in some]
        rare = {label: number for one in counted for label, number in one.list_rare().items()}
        aligned = iter(align(counted))
        counts = {system: np.stack([next(aligned) for _ in some]) for system, some in runs.items()}
        seeds = {system: tuple(run.meta.get("seed") for run in some) for system, some in runs.items()}
        is_source = any(is_same_language(first.language, source) for source in sources)
        cells.append(Cell(language, is_source, name, measure.test, first, counts, seeds, rare))
    return sorted(cells, key=lambda cell: (not cell.is_source, cell.language))


def average_groups(cells: Sequence[Cell], grouping: str) -> dict[str, list[Cell]]:
    """The languages of each group, and without those trained on where it has such."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        if not cell.roles:
            groups.setdefault(group_of(cell.rows.language, grouping), []).append(cell)
    found = {}
    for name, part in groups.items():
        targets = [cell for cell in part if not cell.is_source]
        found[f"{name}: mean of {len(part)}"] = part
        if 0 < len(targets) < len(part):
            found[f"{name}: mean of {len(targets)} zero-shot"] = targets
    return found
