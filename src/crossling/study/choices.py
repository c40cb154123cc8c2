"""The choice of an axis's value by a criterion, with the labels that it used on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crossling.criteria.context import ChoiceContext, FinishedCell
from crossling.errors import RecipeError
from crossling.recipe.identity import canonical_json
from crossling.recipe.recipe import load_recipe, parse_kind
from crossling.registry import load_kind
from crossling.store.artefacts import Store
from crossling.study.grid import name_values
from crossling.study.layout import is_finished


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

    def describe(self) -> str:
        """One sentence for the reader."""
        listed = ", ".join(f"{label} {score:.4f}" for label, score in self.scores.items())
        where = f"{self.task}: " if self.task else ""
        return f"{where}{self.name} is {self.chosen}, of {listed}; the choice used {self.labels}."


def make_choices(plan: Mapping[str, Any], out: Path) -> tuple[list[Choice], list[str]]:
    """All choices that the finished cells allow, and a note for each that they do not."""
    choices: list[Choice] = []
    notes: list[str] = []
    for table in plan["settings"]["choose"]:
        for variants in group_variants(plan["variants"], table):
            finished = {variant["label"]: find_finished_cells(plan, variant, out) for variant in variants}
            missing = [label for label, cells in finished.items() if len(cells) < len(plan["settings"]["seeds"])]
            if missing:
                notes.append(f"nothing is chosen for {table['system']} yet: {', '.join(missing)} not finished")
            else:
                choices.append(choose_value(table, variants, finished, plan=plan, out=out))
    return choices, notes


def group_variants(variants: Sequence[dict[str, Any]], table: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Variants that differ in the axis alone."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for variant in variants:
        if variant["system"] == table["system"]:
            others = {key: value for key, value in variant["axes"].items() if key != table["axis"]}
            groups.setdefault(canonical_json([variant["task"], others]), []).append(variant)
    return list(groups.values())


def find_finished_cells(plan: Mapping[str, Any], variant: Mapping[str, Any], out: Path) -> list[FinishedCell]:
    """The seeds of a variant whose results are there."""
    store = Store(Path(plan["store"]))
    return [
        FinishedCell(
            seed=cell["seed"],
            folder=out / cell["name"],
            find_model=partial(store.fetch, cell["stages"][-1]),
            record=store.record(cell["stages"][-1]),
        )
        for cell in plan["cells"]
        if cell["folder"] == variant["folder"] and is_finished(out, cell["name"], cell["identity"])
    ]


def choose_value(
    table: Mapping[str, Any],
    variants: Sequence[Mapping[str, Any]],
    finished: Mapping[str, Sequence[FinishedCell]],
    *,
    plan: Mapping[str, Any],
    out: Path,
) -> Choice:
    """The value that a criterion picks, given the finished cells of each variant by its label."""
    criterion = table["criterion"] if isinstance(table["criterion"], dict) else {"kind": table["criterion"]}
    kind = load_kind("criteria", criterion["kind"])
    problems: list[str] = []
    settings = parse_kind("criteria", criterion, key="choose.criterion", problems=problems)
    if problems:
        raise RecipeError("\n  ".join(["the study's choice is no longer valid", *problems]))
    facts: dict[str, Any] = {}
    scores = {}
    for variant in variants:
        recipe = load_recipe(out / variant["folder"] / "recipe.toml")
        context = ChoiceContext(variant["task"], recipe, Path(plan["store"]), settings, facts)
        scores[variant["label"]] = float(kind.score(finished[variant["label"]], context))
    best = max(variants, key=lambda variant: scores[variant["label"]])
    others = {key: value for key, value in best["axes"].items() if key != table["axis"]}
    name = " ".join([table["system"], *name_values(others), f"(chosen by {criterion['kind']})"])
    return Choice(
        best["task"],
        table["system"],
        table["axis"],
        criterion["kind"],
        kind.LABELS.format(settings=settings),
        scores,
        best["label"],
        best["folder"],
        name,
    )
