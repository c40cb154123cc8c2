"""A table drawn up at a scale: its cells, the recipes of the systems that they need, and the study file of all."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from crossling.errors import RecipeError, UserError, nearest
from crossling.files import write_atomic
from crossling.papers.definitions import (
    Address,
    ExtendDefinition,
    PaperDefinition,
    ScaleName,
    SystemDefinition,
    TableDefinition,
    fill,
    find_address,
    load_definition,
    split_label,
)
from crossling.papers.published import Figure, PublishedTable, find_table
from crossling.recipe.identity import content_hash
from crossling.recipe.overrides import parse_value, set_path, to_toml
from crossling.recipe.recipe import parse_kind
from crossling.study.folder import name_file
from crossling.study.grid import Study, load_study

SCALES: tuple[ScaleName, ...] = ("small", "full")
NO_EVIDENCE = (
    "Small scale: a few made-up sentences, one epoch, a small encoder. It shows that the table can be made, and is no "
    "evidence for or against the paper."
)
TEXT_OF_EXTENSION = "text"
"""Stands for a file that is named when the study is written."""
ENVELOPE = ("seeds", "source", "encoder", "stage", "evaluate", "run")
"""The first words of a recipe's keys."""

Variant = tuple[str, str]
"""A task and a system."""


@dataclass(frozen=True)
class Cell:
    """A figure of the paper, and where ours comes from."""

    row: str
    column: str
    figure: Figure
    address: Address | None
    """None: it is not run."""


@dataclass(frozen=True)
class Draft:
    """All that is needed to make a table again."""

    table: PublishedTable
    scale: ScaleName
    cells: tuple[Cell, ...]
    seeds: tuple[int, ...]
    baseline: str
    recipes: Mapping[Variant, dict[str, Any]]
    """Whole recipes, by task and system."""
    scores: Mapping[str, str]
    """By task, the score that the paper's figures are."""
    analyses: Mapping[str, dict[str, Any]]
    extend: ExtendDefinition | None
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """What its folder and its study are called."""
        return name_file("reproduce", self.table.paper, str(self.table.number), self.scale)

    @property
    def encoder(self) -> str:
        """The encoder that all systems start from; of an extended one, what it was before."""
        name: str = next(iter(self.recipes.values()))["encoder"]["name"]
        return name

    @property
    def extended(self) -> str:
        """What an encoder with a larger vocabulary is called in the folder, and its text; others have other names."""
        assert self.extend is not None
        facts = [self.encoder, self.extend.text, self.extend.language, self.extend.pieces]
        return f"extended-{content_hash(facts)[:8]}"

    def list_variants(self, analysis: str) -> list[Variant]:
        """The systems that an analysis looks at, those that others are held against among them."""
        found: dict[Variant, None] = {}
        for cell in self.cells:
            if cell.address and cell.address.analysis == analysis:
                found |= dict.fromkeys(list_needed(cell.address))
        return list(found)


@dataclass
class _Overrides:
    """What ``--set`` asks for, sorted by what it is a setting of."""

    seeds: tuple[int, ...] = ()
    analysis: dict[str, Any] = field(default_factory=dict)
    extend: dict[str, Any] = field(default_factory=dict)
    recipe: dict[str, Any] = field(default_factory=dict)


def draw_up(name: str, scale: str, overrides: Iterable[str] = (), *, rows: Sequence[str] = ()) -> Draft:
    """A table at a scale, or some of its rows, by their label, their group or their name within it.

    ``overrides`` are ``key=value``: ``seeds``, a key of all recipes or of a task's (``SA.finetune.train``), of the
    analyses (``analysis.rows``), or of how an encoder is extended (``extend.pieces``).
    """
    table = find_table(name)
    chosen = choose_rows(table, rows)
    size = _name_scale(scale)
    paper = load_definition(table.paper)
    definition = paper.tables[str(table.number)]
    cells = tuple(
        Cell(row, column, figure, find_address(definition, row, column, scale=size) if row in chosen else None)
        for (row, column), figure in table.figures.items()
    )
    asked = _sort_overrides(tuple(overrides))
    extend = _choose_extension(definition, size, asked.extend)
    needed = dict.fromkeys(v for cell in cells if cell.address for v in list_needed(cell.address))
    if not needed:
        raise UserError(
            f"--rows {' '.join(rows)}: nothing of {table.name} would be trained at {scale} scale; name more"
        )
    recipes = {
        variant: _build_recipe(paper, definition, variant, scale=size, extend=extend, more=asked.recipe)
        for variant in needed
    }
    of_scale = paper.scales[size]
    more = (NO_EVIDENCE, *definition.small.notes) if size == "small" else of_scale.notes
    return Draft(
        table,
        size,
        cells,
        asked.seeds or of_scale.seeds,
        paper.baseline,
        recipes,
        {task: paper.find_task(task)[0].score for task, _ in needed},
        _choose_analyses(definition, size, asked.analysis),
        extend,
        (*more, *definition.notes),
    )


def choose_rows(table: PublishedTable, wanted: Sequence[str]) -> set[str]:
    """The rows that are meant; all where none is named."""
    names = {row: {row, *split_label(row).values()} - {""} for row in table.rows}
    for text in wanted:
        if not any(text in some for some in names.values()):
            raise UserError(
                f"--rows {text!r}: {table.name} has no such row.{nearest(text, set().union(*names.values()))}"
            )
    return {row for row, some in names.items() if not wanted or some & set(wanted)}


def _name_scale(text: str) -> ScaleName:
    for scale in SCALES:
        if text == scale:
            return scale
    raise UserError(f"--scale {text}: unknown.{nearest(text, SCALES)}")


def list_needed(address: Address) -> list[Variant]:
    """The systems that a cell's figure is made of."""
    names = [address.system, *address.systems, address.less]
    own = [(address.task, name) for name in names if name and not address.original]
    against = [tuple(address.against.split(": "))] if address.against else []
    return [*own, *cast("list[Variant]", against)]


def _sort_overrides(overrides: Sequence[str]) -> _Overrides:
    asked = _Overrides()
    for text in overrides:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise RecipeError(f"--set {text!r}: write key=value, such as finetune.epochs=2")
        head, _, rest = key.partition(".")
        if key == "seeds":
            seeds = parse_value(value)
            asked.seeds = tuple(seeds) if isinstance(seeds, list) else (seeds,)
        elif head in ("analysis", "extend") and rest:
            getattr(asked, head)[rest] = parse_value(value)
        else:
            asked.recipe[key] = parse_value(value)
    return asked


def _build_recipe(
    paper: PaperDefinition,
    definition: TableDefinition,
    variant: Variant,
    *,
    scale: ScaleName,
    extend: ExtendDefinition | None,
    more: Mapping[str, Any],
) -> dict[str, Any]:
    """The whole recipe of a task and a system: settings of the scale, the task, the system, and the user's, in turn."""
    task, language = paper.find_task(variant[0])
    system: SystemDefinition = definition.systems.get(variant[1]) or paper.systems[variant[1]]
    small = scale == "small"
    recipe: dict[str, Any] = _copy(task.recipe)
    if extend is not None:
        text = {"format": "text", "path": TEXT_OF_EXTENSION, "language": extend.language}
        recipe["stage"].insert(0, {"kind": "adapt", "train": text, **_copy(extend.adapt)})
    layers: list[Mapping[str, Any]] = [
        paper.scales[scale].set,
        task.only.get(language, {}),
        *([task.small] if small else [definition.set]),
        system.set,
        *([system.small] if small else []),
    ]
    for settings in layers:
        _apply(recipe, settings, label="")
    own = _choose_own(paper, variant[0], more)
    # What a system takes from elsewhere in its recipe follows what is set there.
    _apply(recipe, {key: value for key, value in own.items() if not _is_reference(system.set.get(key))}, label="--set ")
    recipe = fill(recipe, {"language": language})
    recipe = _refer(recipe, recipe)
    kinds = system.stages or tuple(stage["kind"] for stage in recipe["stage"])
    recipe["stage"] = [stage for stage in recipe["stage"] if stage["kind"] in kinds]
    return recipe


def _choose_own(paper: PaperDefinition, task: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are for all tasks, and those that are for this one."""
    found = {}
    for key, value in settings.items():
        head, _, rest = key.partition(".")
        if head not in paper.tasks:
            found[key] = value
        elif paper.find_task(task)[0] is paper.tasks[head]:
            found[rest] = value
    return found


def _copy(value: Any) -> Any:
    """Package data are frozen; a copy can be changed."""
    return json.loads(json.dumps(value))


def _apply(recipe: dict[str, Any], settings: Mapping[str, Any], *, label: str) -> None:
    kinds = [stage["kind"] for stage in recipe["stage"]]
    for key, value in settings.items():
        head, dot, rest = key.partition(".")
        if head in kinds and dot:
            key = f"stage.{kinds.index(head)}.{rest}"
        elif head not in ENVELOPE:
            raise RecipeError(f"{label}{key}: unknown.{nearest(head, [*ENVELOPE, *kinds, 'analysis', 'extend'])}")
        set_path(recipe, key, _copy(value), label=label)


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("=")


def _refer(value: Any, recipe: Mapping[str, Any]) -> Any:
    """A recipe with every ``=stage.key`` replaced by what stands there."""
    if isinstance(value, dict):
        return {key: _refer(inside, recipe) for key, inside in value.items()}
    if isinstance(value, list):
        return [_refer(inside, recipe) for inside in value]
    if _is_reference(value):
        kind, _, key = value[1:].partition(".")
        return _copy(next(stage[key] for stage in recipe["stage"] if stage["kind"] == kind))
    return value


def _choose_extension(
    definition: TableDefinition, scale: ScaleName, more: Mapping[str, Any]
) -> ExtendDefinition | None:
    found = (definition.small.extend if scale == "small" else None) or definition.extend
    if found is None or not more:
        return found
    unknown = sorted(set(more) - {"text", "language", "pieces"})
    if unknown:
        raise RecipeError(f"--set extend.{unknown[0]}: unknown. Valid: extend.text, extend.language, extend.pieces.")
    return found.model_copy(update=dict(more))


def _choose_analyses(
    definition: TableDefinition, scale: ScaleName, more: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The settings of the table's analyses, which are checked before anything is trained."""
    chosen = (definition.small.analyses if scale == "small" else {}) or definition.analyses
    found = {}
    for name, settings in chosen.items():
        table = _copy(settings)
        for key, value in more.items():
            set_path(table, key, value)
        problems: list[str] = []
        parse_kind("analyses", table, key=f"analysis.{name}", problems=problems)
        if problems:
            raise RecipeError("\n  ".join(problems))
        found[name] = table
    return found


def write_study(draft: Draft, folder: Path) -> Study:
    """Write the study file and the recipes of all its systems into a folder, and read them as a study."""
    for variant, recipe in draft.recipes.items():
        write_atomic(folder / _recipe_file(variant), to_toml(_place(recipe, draft, folder)))
    path = folder / f"{draft.name}.toml"
    write_atomic(path, _tell_study(draft))
    return load_study(path)


def _recipe_file(variant: Variant) -> str:
    return f"recipes/{name_file(*variant)}.toml"


def _place(recipe: dict[str, Any], draft: Draft, folder: Path) -> dict[str, Any]:
    """A recipe with the paths of what is made in the folder before it is run."""
    if draft.extend is None:
        return recipe
    placed = _copy(recipe)
    placed["encoder"]["name"] = str(folder.resolve() / draft.extended)
    for stage in placed["stage"]:
        if stage["kind"] == "adapt":
            stage["train"]["path"] = str(folder.resolve() / f"{draft.extended}.txt")
    return cast("dict[str, Any]", placed)


def _tell_study(draft: Draft) -> str:
    """The study file: every system names its recipe for each task that it takes part in."""
    systems: dict[str, dict[str, str]] = {}
    tasks: dict[str, list[str]] = {}
    for task, system in draft.recipes:
        systems.setdefault(system, {})[task] = _recipe_file((task, system))
        tasks.setdefault(task, []).append(system)
    baseline = draft.baseline if draft.baseline in systems else next(iter(systems))
    tables: dict[str, Any] = {"seeds": list(draft.seeds), "baseline": baseline}
    for task, names in tasks.items():
        own = {} if baseline in names else {"baseline": names[0]}
        tables[f'tasks."{task}"'] = {"recipe": systems[names[0]][task], **own}
    for system, recipes in systems.items():
        tables[f'systems."{system}"'] = {"tasks": list(recipes), "recipe": recipes}
    head = f"# {draft.table.name} at {draft.scale} scale: {draft.table.holds}.\n"
    return head + to_toml(tables)
