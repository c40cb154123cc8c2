"""Studies: systems over tasks, axes and seeds; read from TOML, validated whole, laid out as cells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from crossling.errors import RecipeError, UserError, nearest
from crossling.limits import MOST_COLUMNS
from crossling.recipe.identity import content_hash
from crossling.recipe.overrides import apply_overrides, read_toml, set_path
from crossling.recipe.recipe import FrozenSettings, Recipe, Seed, parse_kind, parse_recipe, validate_table

STUDY_KEYS = ("seeds", "baseline", "second", "set", "tasks", "systems", "choose")


class TaskSettings(FrozenSettings):
    """A recipe for every system that names none."""

    recipe: str
    """A recipe file, relative to the study's."""
    baseline: str | None = None
    """The system that this task's are compared with, where it is not the study's."""
    second: str | None = None
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys of the recipe, dotted and quoted, and their values for every system."""


class SystemSettings(FrozenSettings):
    """A recipe with a few keys set, perhaps over the values of some axes."""

    recipe: str | dict[str, str] | None = None
    """A recipe file; a table of them by task; or none: every task's own."""
    tasks: tuple[str, ...] = ()
    """The tasks that the system takes part in; default: all."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys of the recipe, dotted and quoted, and their values."""
    axes: dict[str, tuple[Any, ...]] = Field(default_factory=dict)
    """Keys of the recipe and the values that each takes in turn."""
    stages: tuple[Annotated[int, Field(ge=0, le=MOST_COLUMNS)], ...] = ()
    """The stages of the recipe that are run, by number; default: all."""

    @field_validator("axes")
    @classmethod
    def _some_values(cls, value: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
        for key, values in value.items():
            shown = [json.dumps(v, sort_keys=True) for v in values]
            if not shown or len(set(shown)) < len(shown):
                raise ValueError(f"{key!r} needs one or more values, all different")
        return value


class ChooseSettings(FrozenSettings):
    """An axis whose value is picked by a criterion, so that no target label picks it unseen."""

    system: str
    axis: str
    criterion: Any = "source_dev"
    """A criterion's name, or a table with its kind and settings."""

    @property
    def criterion_table(self) -> Any:
        """The criterion as a table."""
        return {"kind": self.criterion} if isinstance(self.criterion, str) else self.criterion


class StudySettings(FrozenSettings):
    """A study file."""

    seeds: tuple[Seed, ...] = Field(min_length=1)
    baseline: str
    second: str | None = None
    """Another system that all are compared with, for a second mark."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys of every recipe, dotted and quoted, and their values; those of a task and of a system come after."""
    tasks: dict[str, TaskSettings] = Field(default_factory=dict)
    systems: dict[str, SystemSettings] = Field(min_length=1)
    choose: tuple[ChooseSettings, ...] = ()
    small: dict[str, Any] = Field(default_factory=dict, exclude=True)
    """Tables of a study that replace those above at small scale: fewer seeds, less data, a smaller encoder."""

    @field_validator("seeds")
    @classmethod
    def _different_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value) or min(value) < 0:
            raise ValueError("seeds are different, and none is negative")
        return value

    @field_validator("choose", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return (value,) if isinstance(value, Mapping) else value


@dataclass(frozen=True)
class Variant:
    """A system with a value for each of its axes, on one task: a recipe, run with several seeds."""

    task: str
    """Empty in a study of one task."""
    system: str
    axes: Mapping[str, Any]
    recipe: Recipe
    label: str
    """The name in tables."""

    @property
    def folder(self) -> str:
        """Where its results lie, below the study's."""
        parts = [*([self.task] if self.task else []), self.system, *name_values(self.axes)]
        return "/".join(map(_file_name, parts))


@dataclass(frozen=True)
class Cell:
    """One seed of a variant: the unit that succeeds or fails."""

    variant: Variant
    seed: int

    @property
    def name(self) -> str:
        """Its folder below the study's: predictions and marker lie there."""
        return f"{self.variant.folder}/seed-{self.seed}"


@dataclass(frozen=True)
class Study:
    """A validated study."""

    name: str
    settings: StudySettings
    variants: tuple[Variant, ...]
    overrides: tuple[str, ...] = ()

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells: one seed of everything first, so that systems can be compared early."""
        return tuple(Cell(variant, seed) for seed in self.settings.seeds for variant in self.variants)

    @property
    def identity(self) -> str:
        """A hash of what the study asks for."""
        recipes = [[variant.folder, variant.recipe.model_dump(mode="json")] for variant in self.variants]
        return content_hash([self.settings.model_dump(mode="json"), recipes])


def load_study(path: str | Path, overrides: Iterable[str] = (), *, small: bool = False) -> Study:
    """Read a study file and the recipes that it names, at small scale if asked; all problems are reported at once.

    Overrides of the study's own keys (``seeds=[1]``) change the study; all others are set in every recipe.
    """
    tables = read_toml(Path(path))
    return parse_study(merge_tables(tables, tables.get("small", {})) if small else tables, Path(path), overrides)


def merge_tables(tables: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables with those of ``more`` in them; a value that is not a table is replaced."""
    merged = dict(tables)
    for key, value in more.items():
        inside = merged.get(key)
        if isinstance(inside, Mapping) and isinstance(value, Mapping):
            value = merge_tables(inside, value)
        merged[key] = value
    return merged


def parse_study(tables: Mapping[str, Any], path: Path, overrides: Iterable[str] = ()) -> Study:
    """Validate the tables of a study file; recipes are found relative to its path."""
    overrides = tuple(overrides)
    own = [text for text in overrides if text.split("=")[0].split(".")[0].strip() in STUDY_KEYS]
    tables = apply_overrides(dict(tables), own)
    if "stage" in tables or "encoder" in tables:
        raise RecipeError(f"{path}: is a recipe, not a study: crossling run {path}")
    problems: list[str] = []
    # Recipes are checked even where the study itself is wrong, as far as it can be read: one look shows everything.
    settings = validate_table(StudySettings, tables, "", problems) or _salvage(tables)
    if settings is None:
        raise _to_error(path, problems)
    if all(len(getattr(settings, key)) == len(tables.get(key, ())) for key in ("tasks", "systems")):
        _check_names(settings, problems)
    everywhere = [text for text in overrides if text not in own]
    variants = list(_expand(settings, path.parent, everywhere, problems))
    for choice in settings.choose:  # after recipes, whose plugins may define a criterion
        parse_kind("criteria", choice.criterion_table, key="choose.criterion", problems=problems)
    if problems:
        raise _to_error(path, problems)
    _check_folders(variants, path)
    return Study(path.stem, settings, tuple(variants), overrides)


def _salvage(tables: Mapping[str, Any]) -> StudySettings | None:
    """The tasks and systems of a study file that are valid, with values that raise no complaint for the rest."""
    valid: dict[str, dict[str, Any]] = {}
    for key, model in (("tasks", TaskSettings), ("systems", SystemSettings)):
        table = tables.get(key)
        entries = table.items() if isinstance(table, Mapping) else ()
        found = {name: validate_table(model, entry, "", []) for name, entry in entries if isinstance(entry, Mapping)}
        valid[key] = {name: entry for name, entry in found.items() if entry is not None}
    if not valid["systems"]:
        return None
    alone = [name for name, system in valid["systems"].items() if not system.axes] or list(valid["systems"])
    named, everywhere = tables.get("baseline"), tables.get("set")
    return StudySettings(
        seeds=(1,),
        baseline=named if isinstance(named, str) else alone[0],
        set=dict(everywhere) if isinstance(everywhere, Mapping) else {},
        tasks=valid["tasks"],
        systems=valid["systems"],
    )


def _to_error(path: Path, problems: list[str]) -> RecipeError:
    distinct = list(dict.fromkeys(problems))
    count = "1 problem" if len(distinct) == 1 else f"{len(distinct)} problems"
    return RecipeError(f"{path}: {count}\n" + "\n".join(f"  {problem}" for problem in distinct))


def _check_names(settings: StudySettings, problems: list[str]) -> None:
    """Names that refer to other tables of the study."""
    systems, tasks = settings.systems, settings.tasks
    named = [("baseline", settings.baseline), ("second", settings.second)]
    for task, table in tasks.items():
        named += [(f"tasks.{task}.baseline", table.baseline), (f"tasks.{task}.second", table.second)]
    chosen = {choice.system for choice in settings.choose}
    for key, name in named:
        if name is not None and name not in systems:
            problems.append(f"{key} = {name!r}: no such system.{nearest(name, systems)}")
        elif name is not None and systems[name].axes and name not in chosen:
            problems.append(f"{key} = {name!r}: has axes, so it is several; name another, or pick by [choose]")
    for name, system in systems.items():
        _check_system(name, system, settings, problems)
    for choice in settings.choose:
        if choice.system not in systems:
            problems.append(f"choose.system = {choice.system!r}: no such system.{nearest(choice.system, systems)}")
        elif choice.axis not in systems[choice.system].axes:
            axes = systems[choice.system].axes
            problems.append(
                f"choose.axis = {choice.axis!r}: not an axis of {choice.system}.{nearest(choice.axis, axes)}"
            )


def _check_system(name: str, system: SystemSettings, settings: StudySettings, problems: list[str]) -> None:
    key, tasks = f"systems.{name}", settings.tasks
    own = list(system.recipe) if isinstance(system.recipe, dict) else []
    for task in (*system.tasks, *own):
        if task not in tasks:
            problems.append(f"{key}: {task!r} is no task of the study.{nearest(task, tasks)}")
    if not tasks and not isinstance(system.recipe, str):
        problems.append(f'{key}.recipe: missing; name a recipe file, or give the study tasks: [tasks.ner] recipe = "…"')
    if len(tasks) > 1 and isinstance(system.recipe, str) and len(system.tasks) != 1:
        problems.append(f'{key}.recipe: which task is it for? Add tasks = ["{next(iter(tasks))}"], or a table by task')
    if system.set.keys() & system.axes.keys():
        both = ", ".join(sorted(system.set.keys() & system.axes.keys()))
        problems.append(f"{key}: {both} is both set and an axis")


def _expand(settings: StudySettings, folder: Path, overrides: list[str], problems: list[str]) -> Iterator[Variant]:
    """Every task with every system that takes part in it, over all values of its axes."""
    for task in tuple(settings.tasks) or ("",):
        shared = {**settings.set, **(settings.tasks[task].set if task else {})}
        for name, system in settings.systems.items():
            if system.tasks and task not in system.tasks:
                continue
            key = f"systems.{name}" + (f" ({task})" if task else "")
            file = _recipe_of(settings, system, task)
            if file is None:
                continue  # reported with the names
            path = folder / file
            for values in product(*system.axes.values()):
                axes = dict(zip(system.axes, values, strict=True))
                try:
                    tables = read_toml(path)
                    for place, value in {**shared, **system.set, **axes}.items():
                        set_path(tables, place, json.loads(json.dumps(value)), label="")
                    tables = {**apply_overrides(tables, overrides), "seeds": list(settings.seeds)}
                    # Last, so that a stage has the number that it has in the file, whatever is left out.
                    tables = _keep_stages(tables, system.stages)
                    recipe = parse_recipe(tables, where=str(path), folder=path.parent)
                    if not recipe.stage:
                        raise RecipeError(f"{path}: has no [[stage]] to train")
                except UserError as error:
                    problems.append(f"{key}: {error}")
                    continue
                # Scores on text that was learnt from are not zero-shot ones, so every table says it.
                learnt = any(getattr(stage, "transductive", False) for stage in recipe.stage)
                label = " ".join([name, *name_values(axes), *(["(transductive)"] if learnt else [])])
                yield Variant(task, name, axes, recipe, label)


def _keep_stages(tables: dict[str, Any], numbers: tuple[int, ...]) -> dict[str, Any]:
    """A recipe with some of its stages, or as it is where none is named."""
    stages = tables.get("stage", [])
    if not numbers or not isinstance(stages, list):
        return tables
    wrong = next((number for number in numbers if not 0 <= number < len(stages)), None)
    if wrong is not None:
        raise RecipeError(f"stages: {wrong} is not one of the {len(stages)} stages, 0 to {len(stages) - 1}")
    return {**tables, "stage": [stages[number] for number in numbers]}


def _recipe_of(settings: StudySettings, system: SystemSettings, task: str) -> str | None:
    if isinstance(system.recipe, str):
        return system.recipe
    own = system.recipe or {}
    return own.get(task) or (settings.tasks[task].recipe if task in settings.tasks else None)


def name_values(axes: Mapping[str, Any]) -> list[str]:
    """The value of each axis; of a key its last part, where that distinguishes the axes."""
    short = {key: key.rpartition(".")[2] for key in axes}
    if len(set(short.values())) < len(short):
        short = {key: key for key in axes}
    return [f"{short[key]}={_show_value(value)}" for key, value in axes.items()]


def _check_folders(variants: list[Variant], path: Path) -> None:
    folders: dict[str, Variant] = {}
    for variant in variants:
        other = folders.setdefault(variant.folder.casefold(), variant)
        if other is not variant:
            raise RecipeError(
                f"{path}: {other.label!r} and {variant.label!r} would share the folder {variant.folder}; rename one"
            )
    if any(outer in folders for folder in folders for outer in accumulate(folder.split("/")[:-1], "{}/{}".format)):
        raise RecipeError(f"{path}: a system has the name of a task; rename one")


def _show_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_show_value(inside)}" for key, inside in value.items())
    if isinstance(value, list | tuple):
        return ",".join(_show_value(inside) for inside in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "-_.@=," else "-" for c in text).strip("-.") or "-"
