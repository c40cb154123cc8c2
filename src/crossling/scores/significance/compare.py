"""Systems compared: means, differences, intervals and corrected p-values for each data set and language.

Rows are matched by their ids where they have ids, else by their place, among languages with equally many rows.
That is right for parallel sets (XNLI, XQuAD, PUD) and harmless elsewhere: swapping or drawing unrelated rows
together is as valid as doing it apart, whereas doing it apart for translations of one sentence is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from crossling.data.languages import GROUPINGS, is_same_language
from crossling.errors import UserError, nearest
from crossling.scores.significance.bootstrap import bootstrap, draw_runs
from crossling.scores.significance.cells import Cell, Systems, average_groups, read_cells
from crossling.scores.significance.holm import correct_holm
from crossling.scores.significance.permutation import Pair, p_value, permute
from crossling.scores.significance.results import Comparison, Difference, Result, Settings
from crossling.scores.significance.rows import Group, group_rows
from crossling.scores.significance.t_test import t_test
from crossling.scores.spans import Array


def compare(
    systems: Systems,
    baseline: str,
    *,
    second: str | None = None,
    score: str | Mapping[str, str] | None = None,
    sources: Iterable[str] = ("en",),
    groups: Iterable[str] = (),
    settings: Settings | None = None,
) -> Comparison:
    """Compare systems, given as name -> (data set, language) -> predictions of each seed.

    Every system is tested against the baseline, and against `second` where one is named. `score` names the
    score to compare, for all data sets or for each; by default it is the main score of each one's task.
    `groups` names ways to group languages (`GROUPINGS`), for a line with each group's mean.
    """
    groups, sources = tuple(groups), tuple(sources)
    for name in groups:
        if name not in GROUPINGS:
            raise UserError(f"no way {name!r} to group languages.{nearest(name, GROUPINGS)}")
    for name in filter(None, (baseline, second)):
        if name not in systems:
            raise UserError(f"no system {name!r} to compare with.{nearest(name, systems)}")
    if second == baseline:
        raise UserError(f"the second system to compare with is the baseline itself, {baseline!r}")
    notes: dict[str, None] = {}
    results: list[Result] = []
    for data in dict.fromkeys(data for cells in systems.values() for data, _ in cells):
        chosen = score.get(data) if isinstance(score, Mapping) else score
        table = _DataSet(
            data,
            read_cells(systems, data, chosen, sources),
            baseline,
            second,
            settings or Settings(),
            note=lambda text: notes.setdefault(text),
            groups=groups,
            sources=sources,
        )
        results.extend(table.results())
    return Comparison(baseline, second, tuple(systems), tuple(results), settings or Settings(), tuple(notes))


@dataclass(eq=False)
class _DataSet:
    """The work on one data set: draws are made once for all systems, swaps once for each pair of systems."""

    data: str
    cells: list[Cell]
    baseline: str
    second: str | None
    settings: Settings
    note: Callable[[str], object]
    groups: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    drawn: dict[tuple[str, str], Array] = field(default_factory=dict)
    """Resampled scores of each run by language and system."""

    def results(self) -> list[Result]:
        """Results of all languages, then of averages."""
        self._note_seeds()
        groups = group_rows({cell.language: cell.rows for cell in self.cells})
        self._draw(groups)
        averages = self._choose_averages()
        found: dict[tuple[str, str], Mapping[str, Difference]] = {}
        systems = list(dict.fromkeys(name for cell in self.cells for name in cell.counts))
        for role, other in (("baseline", self.baseline), ("second", self.second)):
            for system in systems:
                if other is not None and system not in (self.baseline, other):
                    found[system, role] = self._compare(system, other, groups, averages)
        results = []
        for title, part in [*((cell.language, [cell]) for cell in self.cells), *averages.items()]:
            for system in systems:
                if all(system in cell.counts for cell in part):
                    differences = [found.get((system, role), {}).get(title) for role in ("baseline", "second")]
                    results.append(self._result(title, part, system, differences, is_average=title in averages))
        return results

    def _choose_averages(self) -> dict[str, list[Cell]]:
        """Averages worth a line, of what every system has: over all languages, over those not trained on, by roles."""
        systems = {name for cell in self.cells for name in cell.counts}
        shared = [cell for cell in self.cells if cell.counts.keys() == systems]
        left_out = [cell.language for cell in self.cells if cell not in shared]
        if left_out:
            self.note(f"{self.data}: averages leave out {', '.join(left_out)}, which not every system has")
        plain = [cell for cell in shared if not cell.roles]
        zero_shot = [cell for cell in plain if not cell.is_source]
        averages = {f"mean of {len(plain)}": plain}
        if len(zero_shot) < len(plain):
            averages[f"mean of {len(zero_shot)} zero-shot"] = zero_shot
        averages |= self._average_roles(shared)
        for grouping in self.groups:
            averages |= average_groups(shared, grouping)
        return {title: part for title, part in averages.items() if len(part) > 1}

    def _average_roles(self, cells: Sequence[Cell]) -> dict[str, list[Cell]]:
        """Means of cells in two languages at once, those with the same role in a source language together.

        Questions in English over Spanish texts ask for other knowledge than Spanish questions over English ones.
        """
        found: dict[str, list[Cell]] = {}
        for cell in cells:
            known = [
                f"{role} in {code}" for role, code in cell.roles if any(is_same_language(code, s) for s in self.sources)
            ]
            if cell.roles:
                found.setdefault(", ".join(known) or "neither in a source language", []).append(cell)
        return {f"mean of {len(part)}, {name}": part for name, part in found.items()}

    def _draw(self, groups: Sequence[Group]) -> None:
        by_language = {cell.language: cell for cell in self.cells}
        for group in groups:
            cells = [by_language[language] for language in group.keys]
            samples = [(list(cell.counts.values()), group.keys[cell.language]) for cell in cells]
            rng = self._generator("draw", min(group.keys))
            drawn = bootstrap(samples, group.size, draws=self.settings.draws, rng=rng)
            for cell, by_system in zip(cells, drawn, strict=True):
                for system, scores in zip(cell.counts, by_system, strict=True):
                    self.drawn[cell.language, system] = scores

    def _draw_means(self, cell: Cell, system: str, runs: list[int]) -> Array:
        """Resampled means over some runs, which are resampled too.

        One stream for every system and language: a seed's model is drawn with all that it predicted.
        """
        weights = draw_runs(len(runs), self.settings.draws, self._generator("runs", str(len(runs))))
        means: Array = (self.drawn[cell.language, system][:, runs] * weights).sum(axis=1)
        return means

    def _compare(
        self, system: str, other: str, groups: Sequence[Group], averages: Mapping[str, list[Cell]]
    ) -> dict[str, Difference]:
        """Differences between two systems in every language that both have, and on average."""
        cells = [cell for cell in self.cells if {system, other} <= cell.counts.keys()]
        observed, null = self._permute(system, other, groups, cells)
        p_values = [
            p_value(observed[cell.language], null[cell.language])
            if cell.test == "permutation test"
            else t_test(*map(cell.example_means, (system, other), cell.pair_runs(system, other)))
            for cell in cells
        ]
        found = {
            cell.language: self._difference([cell], system, other, p=p, corrected=corrected, test=cell.test)
            for cell, p, corrected in zip(cells, p_values, correct_holm(p_values), strict=True)
        }
        for title, part in averages.items():
            if all(cell in cells for cell in part):
                mean = float(np.mean([observed[cell.language] for cell in part]))
                p = p_value(mean, np.mean([null[cell.language] for cell in part], axis=0))
                found[title] = self._difference(part, system, other, p=p, corrected=p, test="permutation test")
        return found

    def _permute(
        self, system: str, other: str, groups: Sequence[Group], cells: Sequence[Cell]
    ) -> tuple[dict[str, float], dict[str, Array]]:
        """Observed and permuted differences by language; those that share rows are swapped together."""
        observed: dict[str, float] = {}
        null: dict[str, Array] = {}
        averaged = len(cells) > 1
        for group in groups:
            chosen = [cell for cell in cells if cell.language in group.keys]
            if not chosen or (not averaged and chosen[0].test != "permutation test"):
                continue  # nothing would read it
            pairs = []
            for cell in chosen:
                own, theirs = cell.pair_runs(system, other)
                counts = cell.counts[system][own], cell.counts[other][theirs]
                pairs.append(Pair(*counts, group.keys[cell.language]))
            # Names in order, so that which of two systems is the baseline does not change p.
            rng = self._generator("swap", min(group.keys), *sorted((system, other)))
            differences, swapped = permute(
                pairs, group.size, rounds=self.settings.rounds, rng=rng, as_published=self.settings.as_published
            )
            for place, cell in enumerate(chosen):
                observed[cell.language] = float(differences[place])
                null[cell.language] = swapped[:, place]
        return observed, null

    def _difference(
        self, part: Sequence[Cell], system: str, other: str, *, p: float, corrected: float, test: str
    ) -> Difference:
        paired = [(cell, *cell.pair_runs(system, other)) for cell in part]
        delta = float(np.mean([c.scores[system][i].mean() - c.scores[other][j].mean() for c, i, j in paired]))
        drawn = np.mean([self._draw_means(c, system, i) - self._draw_means(c, other, j) for c, i, j in paired], axis=0)
        tail = (1 - self.settings.confidence) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail])
        direction = int(np.sign(delta)) if corrected < self.settings.level else 0
        return Difference(other, delta, float(low), float(high), p, corrected, test, direction)

    def _result(
        self,
        title: str,
        part: Sequence[Cell],
        system: str,
        differences: Sequence[Difference | None],
        *,
        is_average: bool,
    ) -> Result:
        scores = [cell.scores[system] for cell in part]
        runs = {len(one) for one in scores}
        spread = float(np.mean(scores, axis=0).std(ddof=1)) if len(runs) == 1 and max(runs) > 1 else None
        return Result(
            data=self.data,
            language=title,
            system=system,
            score=part[0].score,
            mean=float(np.mean([one.mean() for one in scores])),
            spread=spread,
            runs=min(runs),
            examples=sum(cell.examples for cell in part),
            from_baseline=differences[0],
            from_second=differences[1],
            is_average=is_average,
            is_source=not is_average and part[0].is_source,
        )

    def _note_seeds(self) -> None:
        """Say where systems were not trained with the same seeds, and what is then compared."""
        for cell in self.cells:
            numbers = {system: len(counts) for system, counts in cell.counts.items()}
            if len(set(numbers.values())) > 1:
                listed = ", ".join(f"{system} {number}" for system, number in numbers.items())
                self.note(
                    f"{self.data}: systems differ in seeds ({listed}); each mean is over its own, each difference over "
                    "the seeds that both have"
                )
            elif len(set(cell.seeds.values())) > 1:
                self.note(f"{self.data}: systems were trained with different seeds, which are paired in order")

    def _generator(self, *names: str) -> np.random.Generator:
        """A random stream for each purpose, so that adding a system or a set changes no other figure."""
        digest = hashlib.sha256("\0".join((self.data, *names)).encode()).digest()
        return np.random.default_rng([self.settings.seed, int.from_bytes(digest[:8], "big")])
