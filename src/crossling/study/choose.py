"""The choice of an axis's value by a criterion, and how good the choices turn out to be.

A criterion sees no labels of the languages that a study is tested in. Afterwards its choices are ranked by the scores
in those languages.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from crossling.criteria import ChoiceContext, FinishedCell, load_criterion
from crossling.errors import ArtefactError, RecipeError
from crossling.files import write_atomic
from crossling.recipe.identity import canonical_json
from crossling.recipe.recipe import load_recipe, parse_kind
from crossling.report.table import Table
from crossling.store.artefacts import Store
from crossling.study.cell_scores import CellScores, score_cells
from crossling.study.folder import PICKS, PlannedVariant, StudyPlan, is_finished, read_plan
from crossling.study.grid import ChooseSettings, name_values


@dataclass(frozen=True)
class Choice:
    """One value of an axis, picked for one task (and, where a system has more axes, for each of their values)."""

    task: str
    system: str
    axis: str
    criterion: str
    labels: str
    """What labels the criterion looked at."""
    scores: Mapping[str, float]
    """What it gave each value's variant."""
    chosen: str
    """The label of the variant."""
    folder: str
    name: str
    """The name in tables."""

    @property
    def tied(self) -> list[str]:
        """All variants with the best value, the chosen one among them."""
        return list_best(self.scores)

    def describe(self) -> str:
        """One sentence for the reader."""
        listed = ", ".join(f"{label} {score:.4f}" for label, score in self.scores.items())
        where = f"{self.task}: " if self.task else ""
        ties = f"; {' and '.join(self.tied)} are equal, and the first was taken" if len(self.tied) > 1 else ""
        return f"{where}{self.name} is {self.chosen}, of {listed}{ties}; the choice used {self.labels}."


def make_choices(plan: StudyPlan, out: Path) -> tuple[list[Choice], list[str]]:
    """All choices that the finished cells allow, and a note for each that they do not."""
    choices: list[Choice] = []
    notes: list[str] = []
    for choose in plan.settings.choose:
        for variants in group_variants(plan.variants, choose.system, choose.axis):
            finished = {variant.label: find_finished_cells(plan, variant, out) for variant in variants}
            missing = [label for label, cells in finished.items() if len(cells) < len(plan.settings.seeds)]
            if missing:
                notes.append(f"nothing is chosen for {choose.system} yet: {', '.join(missing)} not finished")
            else:
                choices.append(choose_value(choose, variants, finished, plan=plan, out=out))
    return choices, notes


def group_variants(variants: Sequence[PlannedVariant], system: str, axis: str) -> list[list[PlannedVariant]]:
    """Variants of a system that differ in the axis alone."""
    groups: dict[str, list[PlannedVariant]] = {}
    for variant in variants:
        if variant.system == system:
            others = {key: value for key, value in variant.axes.items() if key != axis}
            groups.setdefault(canonical_json([variant.task, others]), []).append(variant)
    return list(groups.values())


def find_finished_cells(plan: StudyPlan, variant: PlannedVariant, out: Path) -> list[FinishedCell]:
    """The seeds of a variant whose results are there."""
    store = Store(plan.store)
    return [
        FinishedCell(
            seed=cell.seed,
            folder=out / cell.name,
            find_model=partial(store.fetch, cell.stages[-1]),
            record=store.record(cell.stages[-1]),
        )
        for cell in plan.cells
        if cell.folder == variant.folder and is_finished(out, cell)
    ]


def choose_value(
    choose: ChooseSettings,
    variants: Sequence[PlannedVariant],
    finished: Mapping[str, Sequence[FinishedCell]],
    *,
    plan: StudyPlan,
    out: Path,
) -> Choice:
    """The value that a criterion picks, given the finished cells of each variant by its label."""
    criterion = choose.criterion_table
    recipes = {variant.label: load_recipe(out / variant.folder / "recipe.toml") for variant in variants}
    kind = load_criterion(criterion["kind"])
    problems: list[str] = []
    settings = parse_kind("criteria", criterion, key="choose.criterion", problems=problems)
    if problems:
        raise RecipeError("\n  ".join(["the study's choice is no longer valid", *problems]))
    facts: dict[str, Any] = {}
    scores = {}
    for variant in variants:
        context = ChoiceContext(variant.task, recipes[variant.label], plan.store, settings, facts)
        scores[variant.label] = float(kind.score(finished[variant.label], context))
    first = list_best(scores)[0]
    best = next(variant for variant in variants if variant.label == first)
    others = {key: value for key, value in best.axes.items() if key != choose.axis}
    name = " ".join([choose.system, *name_values(others), f"(chosen by {criterion['kind']})"])
    return Choice(
        best.task,
        choose.system,
        choose.axis,
        criterion["kind"],
        kind.LABELS.format(settings=settings),
        scores,
        best.label,
        best.folder,
        name,
    )


def list_best(scores: Mapping[str, float]) -> list[str]:
    """The variants with the highest value of a criterion, in their order; one without a value is never among them."""
    known = {label: value for label, value in scores.items() if not math.isnan(value)}
    if not known:
        raise ArtefactError(f"the criterion has no value for any of {', '.join(scores)}; nothing can be chosen by it")
    return [label for label, value in known.items() if value == max(known.values())]


BEST = 3
"""A pick among this many best ones counts as good."""
CHANCE = "by chance"
"""The name of a random choice in the table of criteria."""


@dataclass(frozen=True)
class Pick:
    """One value that a criterion picked, and how it did."""

    criterion: str
    task: str
    system: str
    """With the values of its other axes, where it has more."""
    seed: int | None
    """The one seed whose models the criterion saw; none: all."""
    chosen: str
    rank: float
    """Among all values, 1 the best; equal scores share a rank. Where the criterion has several values first, their mean
    rank, for which of them is taken says nothing of the criterion; so with regret."""
    values: int
    regret: float
    """How far the pick is below the best, as a fraction."""
    good: float
    """Whether it is among the best three; of tied ones, the share."""


@dataclass(frozen=True)
class CriterionRecord:
    """A criterion's picks, summed up."""

    criterion: str
    picks: int
    mean_rank: float
    share_of_best: float
    """How often it picked among the best three."""
    mean_regret: float


@dataclass(frozen=True)
class Judgement:
    """What ``crossling study choices`` shows."""

    picks: tuple[Pick, ...]
    records: tuple[CriterionRecord, ...]
    notes: tuple[str, ...] = ()

    def list_picks(self) -> Table:
        """Every pick, a row each."""
        head = ("criterion", "task", "system", "seed", "chosen", "rank", "values", "regret")
        rows = []
        for pick in self.picks:
            seed = "all" if pick.seed is None else str(pick.seed)
            known = (pick.criterion, pick.task, pick.system, seed, pick.chosen, f"{pick.rank:g}", str(pick.values))
            rows.append((*known, f"{100 * pick.regret:.3f}"))
        note = "Rank and regret (points below the best) by the mean score over languages not trained on."
        return Table("How good the choices were", head, tuple(rows), names=5, notes=(note,), stem="picks")

    def write(self, out: Path) -> Path:
        """Write all picks into the study's folder: for a spreadsheet, and for the report."""
        table = self.list_picks()
        write_atomic(out / PICKS, json.dumps(table.to_json(), indent=1, ensure_ascii=False))
        write_atomic((out / PICKS).with_suffix(".csv"), table.to_csv())
        return (out / PICKS).with_suffix(".csv")


def rank_pick(scores: Mapping[str, float], chosen: str) -> tuple[int, float]:
    """The rank of a value among all by their scores, and how far it is below the best."""
    own = scores[chosen]
    return 1 + sum(score > own for score in scores.values()), max(scores.values()) - own


def expect_random(scores: Mapping[str, float]) -> tuple[float, float, float]:
    """What a random pick has on average: rank, chance of the best three, regret."""
    return average_outcomes(scores, list(scores))


def average_outcomes(scores: Mapping[str, float], picks: Sequence[str]) -> tuple[float, float, float]:
    """Rank, share among the best three and regret, on average over values that are as likely to be picked."""
    ranks, regrets = zip(*(rank_pick(scores, label) for label in picks), strict=True)
    return fmean(ranks), fmean(rank <= BEST for rank in ranks), fmean(regrets)


def summarise_picks(picks: Iterable[Pick]) -> list[CriterionRecord]:
    """For each criterion its mean rank, how often it picked among the best three, and its mean regret."""
    by_criterion: dict[str, list[Pick]] = {}
    for pick in picks:
        by_criterion.setdefault(pick.criterion, []).append(pick)
    return [
        CriterionRecord(
            criterion,
            len(some),
            fmean(pick.rank for pick in some),
            fmean(pick.good for pick in some),
            fmean(pick.regret for pick in some),
        )
        for criterion, some in by_criterion.items()
    ]


def judge_choices(out: Path) -> Judgement:
    """Judge every [choose] of a study: picked with one seed's models, and with all; judged by the mean of all seeds.

    The scores are means over the languages not trained on. A random choice is listed beside the criteria.
    """
    plan = read_plan(out)
    if not plan.settings.choose:
        raise ArtefactError(f"{out}: the study has no [choose] table, so there is nothing to judge")
    cells = score_cells(plan, out)
    picks: list[Pick] = []
    notes: list[str] = []
    random_picks: dict[str, tuple[float, float, float]] = {}
    for choose in plan.settings.choose:
        for variants in group_variants(plan.variants, choose.system, choose.axis):
            scores = _mean_scores(variants, cells, seeds=len(plan.settings.seeds))
            if scores is None:
                notes.append(f"{choose.system}: not judged yet; some of its cells are not finished, or have no target")
                continue
            found = _pick(choose, variants, scores, plan=plan, out=out)
            random_picks[f"{found[0].task} {found[0].system} {choose.axis}"] = expect_random(scores)
            picks += found
    records = (*_summarise_by_seeds(picks), *_describe_random(list(random_picks.values())))
    return Judgement(tuple(picks), records, tuple(notes))


def _mean_scores(
    variants: Sequence[PlannedVariant], cells: Sequence[CellScores], *, seeds: int
) -> dict[str, float] | None:
    """Each variant's mean over seeds, by label; none where something is missing."""
    found: dict[str, float] = {}
    for variant in variants:
        values = [cell.zero_shot for cell in cells if cell.folder == variant.folder]
        known = [value for value in values if value is not None]
        if len(known) < seeds:
            return None
        found[variant.label] = fmean(known)
    return found


def _pick(
    choose: ChooseSettings,
    variants: Sequence[PlannedVariant],
    scores: Mapping[str, float],
    *,
    plan: StudyPlan,
    out: Path,
) -> list[Pick]:
    """What the criterion picks with all seeds' models, and with each one's alone."""
    finished = {variant.label: find_finished_cells(plan, variant, out) for variant in variants}
    seeds = plan.settings.seeds
    picks = []
    for seed in (None, *(seeds if len(seeds) > 1 else ())):
        seen = {label: [cell for cell in some if seed in (None, cell.seed)] for label, some in finished.items()}
        choice = choose_value(choose, variants, seen, plan=plan, out=out)
        rank, good, regret = average_outcomes(scores, choice.tied)
        system = choice.name.removesuffix(f" (chosen by {choice.criterion})")
        picks.append(Pick(choice.criterion, choice.task, system, seed, choice.chosen, rank, len(scores), regret, good))
    return picks


def _summarise_by_seeds(picks: Sequence[Pick]) -> list[CriterionRecord]:
    """Picks with one seed's models, and with all seeds', are not mixed."""
    by_seeds = {
        "all seeds": [pick for pick in picks if pick.seed is None],
        "one seed": [pick for pick in picks if pick.seed is not None],
    }
    return [
        replace(record, criterion=f"{record.criterion}, {seeds}")
        for seeds, some in by_seeds.items()
        for record in summarise_picks(some)
    ]


def _describe_random(expected: Sequence[tuple[float, float, float]]) -> list[CriterionRecord]:
    if not expected:
        return []
    rank, share, regret = (fmean(values) for values in zip(*expected, strict=True))
    return [CriterionRecord(CHANCE, len(expected), rank, share, regret)]
