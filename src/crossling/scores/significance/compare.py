"""Systems compared: means, differences, intervals and corrected p-values for each data set and language.

`hierarchical` has the default interval and its test, `resampling` those of older results.

Rows are matched by their ids where they have ids, else by their place, among languages with equally many rows.
That is right for parallel sets (XNLI, XQuAD, PUD) and harmless elsewhere: swapping or drawing unrelated rows
together is as valid as doing it apart, whereas doing it apart for translations of one sentence is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crossling.data.languages import GROUPINGS, is_same_language
from crossling.errors import UserError, nearest
from crossling.scores.significance.cells import Cell, Systems, average_groups, read_cells
from crossling.scores.significance.hierarchical import Hierarchical
from crossling.scores.significance.holm import correct_results
from crossling.scores.significance.rare_labels import describe_rare_labels
from crossling.scores.significance.resampling import Resampling
from crossling.scores.significance.results import Comparison, Difference, Estimate, Result, Settings
from crossling.scores.significance.rows import group_rows


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
    settings = settings or Settings()
    notes: dict[str, None] = {}
    results: list[Result] = []
    for data in dict.fromkeys(data for cells in systems.values() for data, _ in cells):
        chosen = score.get(data) if isinstance(score, Mapping) else score
        table = _DataSet(
            data,
            read_cells(systems, data, chosen, sources),
            baseline,
            second,
            settings,
            note=lambda text: notes.setdefault(text),
            groups=groups,
            sources=sources,
        )
        results.extend(table.results())
    corrected = correct_results(results, settings)
    return Comparison(baseline, second, tuple(systems), corrected, settings, tuple(notes))


@dataclass(eq=False)
class _DataSet:
    """The work on one data set."""

    data: str
    cells: list[Cell]
    baseline: str
    second: str | None
    settings: Settings
    note: Callable[[str], object]
    groups: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @cached_property
    def systems(self) -> list[str]:
        """All systems that have predictions for the data set."""
        return list(dict.fromkeys(name for cell in self.cells for name in cell.counts))

    def results(self) -> list[Result]:
        """Results of all languages, then of averages."""
        self._note_seeds()
        if rare := describe_rare_labels(
            self.data, self.cells[0].score, {cell.language: cell.rare for cell in self.cells}
        ):
            self.note(rare)
        if not any(scores.any() for cell in self.cells for scores in cell.scores.values()):
            self.note(
                f"{self.data}: every {self.cells[0].score} of {', '.join(self.systems)} is 0: nothing right was found, "
                "so that differences say nothing"
            )
        groups = group_rows({cell.language: cell.rows for cell in self.cells})
        method = (
            Hierarchical(groups, self.settings.confidence)
            if self.settings.interval == "hierarchical"
            else Resampling(self.data, self.cells, groups, self.settings)
        )
        averages = self._choose_averages()
        found = self._compare(method, averages)
        results = []
        for title, part in [*((cell.language, [cell]) for cell in self.cells), *averages.items()]:
            for system in self.systems:
                if all(system in cell.counts for cell in part):
                    mean = method.estimate_mean(part, system)
                    differences = [found.get((system, role, title)) for role in ("baseline", "second")]
                    results.append(self._result(title, part, system, mean, differences, is_average=title in averages))
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

    def _compare(
        self, method: Hierarchical | Resampling, averages: Mapping[str, list[Cell]]
    ) -> dict[tuple[str, str, str], Difference]:
        """Differences by system, role of the other and line, not corrected yet."""
        found: dict[tuple[str, str, str], Difference] = {}
        for role, other in (("baseline", self.baseline), ("second", self.second)):
            for title, part in [*((cell.language, [cell]) for cell in self.cells), *averages.items()]:
                for system in self.systems:
                    if other is None or system in (self.baseline, other):
                        continue
                    if all({system, other} <= cell.counts.keys() for cell in part):
                        one = method.estimate_difference(part, system, other)
                        found[system, role, title] = Difference(
                            other, one.value, one.low, one.high, one.p, one.p, one.test, 0, one.seeds
                        )
        return found

    def _result(
        self,
        title: str,
        part: Sequence[Cell],
        system: str,
        mean: Estimate,
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
            low=max(mean.low, 0.0),  # no score lies outside
            high=min(mean.high, 1.0),
        )

    def _note_seeds(self) -> None:
        """Say where systems were not trained with the same seeds, and what is then compared."""
        for cell in self.cells:
            numbers = {system: len(counts) for system, counts in cell.counts.items()}
            if len(set(numbers.values())) > 1:
                listed = ", ".join(f"{system} {number}" for system, number in numbers.items())
                self.note(
                    f"{self.data}: systems differ in seeds ({listed}); each mean is over its own, each difference over "
                    "the seeds that both have, or in order where they have none in common"
                )
            elif len(set(cell.seeds.values())) > 1:
                self.note(f"{self.data}: systems were trained with different seeds, which are paired in order")
