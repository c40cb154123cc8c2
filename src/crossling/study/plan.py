"""A study planned: for every cell the identities of its stages and of its predictions, before anything is trained."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crossling.errors import DataError, UserError
from crossling.files import read_json, write_atomic
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import Recipe, RunSettings
from crossling.store.artefacts import Store
from crossling.study.encoders import Encoders
from crossling.study.grid import Study, Variant
from crossling.study.hardware import describe_machine
from crossling.study.layout import COMPLETE, PLAN, is_finished, prediction_path
from crossling.study.run import Runner
from crossling.training.distributed import Distributed, setup_distributed


@dataclass(frozen=True)
class PlannedCell:
    """A cell and what it will be known by."""

    name: str
    """Its folder below the study's."""
    folder: str
    """Its variant's."""
    task: str
    system: str
    label: str
    seed: int
    stages: tuple[str, ...]
    identity: str
    """Of its predictions."""


Join = Callable[[RunSettings], Distributed]


def plan_study(
    study: Study, store: Store, out: Path, *, join: Join = setup_distributed
) -> tuple[list[PlannedCell], dict[str, Runner]]:
    """Open all data and work out identities; whatever is missing for any variant is told at once.

    Gives the cells in the order of work, and by folder what each variant would run. ``join`` says what a run finds
    where it will be run: device and precision count in identities.
    """
    runners: dict[str, Runner] = {}
    problems: list[str] = []
    encoders = Encoders()
    for variant in study.variants:
        try:
            distributed = join(variant.recipe.run)
            runner = Runner(variant.recipe, store, out / variant.folder, distributed, encoders=encoders)
            runner.check_targets()
            runners[variant.folder] = runner
        except UserError as error:
            problems.append(f"{variant.folder}: {error}")
    if problems:
        raise DataError("\n  ".join([f"{len(problems)} of {len(study.variants)} variants cannot be run", *problems]))
    cells = []
    for cell in study.cells:
        join(cell.variant.recipe.run)  # the number of threads counts in identities
        cells.append(_plan_cell(cell.variant, cell.seed, cell.name, runners[cell.variant.folder]))
    return cells, runners


def _plan_cell(variant: Variant, seed: int, name: str, runner: Runner) -> PlannedCell:
    return PlannedCell(
        name,
        variant.folder,
        variant.task,
        variant.system,
        variant.label,
        seed,
        runner.identify_stages(seed),
        runner.identify_predictions(seed),
    )


def fix_threads(study: Study, threads: int) -> Study:
    """The study with a number of CPU threads where a recipe names none: it is part of what results are known by."""

    def fix(recipe: Recipe) -> Recipe:
        if recipe.run.threads is not None:
            return recipe
        return recipe.model_copy(update={"run": recipe.run.model_copy(update={"threads": threads})})

    variants = tuple(_with_recipe(variant, fix(variant.recipe)) for variant in study.variants)
    return Study(study.name, study.settings, variants, study.overrides, study.criteria)


def _with_recipe(variant: Variant, recipe: Recipe) -> Variant:
    return Variant(variant.task, variant.system, variant.axes, recipe, variant.label)


def write_plan(
    study: Study,
    cells: Sequence[PlannedCell],
    out: Path,
    *,
    store: Store,
    facts: Mapping[str, Any],
    command: str,
    runners: Mapping[str, Runner],
) -> None:
    """Lay out the study's folder: the plan, and for each variant what the folder of a run has."""
    stages: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        stages.setdefault(cell.folder, {})[str(cell.seed)] = list(cell.stages)
    run = {"store": str(store.root.resolve()), "command": command}
    for variant in study.variants:
        folder, runner = out / variant.folder, runners[variant.folder]
        write_atomic(folder / "recipe.toml", to_toml(variant.recipe.model_dump(mode="json")))
        own = {
            "encoder": runner.encoders.label(variant.recipe.encoder),
            "data": runner.describe_data(),
            "machine": describe_machine(runner.distributed),
        }
        text = json.dumps({**run, **own, "stages": stages[variant.folder]}, indent=1, ensure_ascii=False)
        write_atomic(folder / "run.json", text)
    plan = {
        "name": study.name,
        "identity": study.identity,
        "settings": study.settings.model_dump(mode="json"),
        "overrides": list(study.overrides),
        "store": run["store"],
        "command": command,
        **facts,
        "variants": [
            {
                "task": variant.task,
                "system": variant.system,
                "axes": dict(variant.axes),
                "label": variant.label,
                "folder": variant.folder,
            }
            for variant in study.variants
        ],
        "cells": [asdict(cell) for cell in cells],
    }
    write_atomic(out / PLAN, json.dumps(plan, indent=1, ensure_ascii=False))


def find_finished(
    cells: Iterable[PlannedCell], runners: Mapping[str, Runner], out: Path, *, clean: bool = True
) -> set[str]:
    """Names of the cells whose results are all there; ``clean`` takes away a marker of other work."""
    finished = set()
    for cell in cells:
        runner, path = runners[cell.folder], out / cell.name / COMPLETE
        files = (prediction_path(runner.out, cell.seed, entry, language) for entry, language, _ in runner.targets)
        marker = read_json(path)
        if marker is None:
            continue  # not there; another runner may be writing it at this moment
        if is_finished(out, cell.name, cell.identity) and all(file.is_file() for file in files):
            finished.add(cell.name)
        elif clean:
            path.unlink(missing_ok=True)
    return finished


@dataclass(frozen=True)
class Shared:
    """How much training cells have in common."""

    stages: int
    distinct: int
    existing: int
    serving_several: int


def count_shared(cells: Sequence[PlannedCell], store: Store) -> Shared:
    """Stages of all cells, how many of them are different, already trained, and used by several cells."""
    uses = Counter(identity for cell in cells for identity in cell.stages)
    return Shared(
        stages=sum(uses.values()),
        distinct=len(uses),
        existing=sum(store.is_complete(identity) for identity in uses),
        serving_several=sum(count > 1 for count in uses.values()),
    )
