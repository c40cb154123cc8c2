"""How the papers' tables are made again, as the package's data say it: tasks, systems, and which cell is what."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from pydantic import Field

from crossling.papers.published import read_data
from crossling.recipe.recipe import FrozenSettings, validate_table

ScaleName = Literal["small", "full"]


class Address(FrozenSettings):
    """Where the figure of a cell comes from."""

    task: str = ""
    system: str = ""
    systems: tuple[str, ...] = ()
    """The systems among which one is the best."""
    less: str = ""
    """A system whose score is subtracted."""
    evaluate: int = 0
    """Which of the recipe's sets is scored."""
    languages: tuple[str, ...] = ()
    """As the set has them; default: all, averaged."""
    language: str = ""
    """Fills {language} in the other fields."""
    group: str = ""
    """A group of languages to average: avg_enf, avg_noenf."""
    measure: str = "score"
    analysis: str = ""
    """The analysis that the figure is of, by its name in the table's definition."""
    original: bool = False
    """The encoder as it was, not a system."""
    probe: str = ""
    against: str = ""
    top: str = ""


class ScaleDefinition(FrozenSettings):
    """What all recipes of a paper have in common."""

    seeds: tuple[int, ...]
    set: dict[str, Any]
    notes: tuple[str, ...] = ()


class TaskDefinition(FrozenSettings):
    """A task: its recipe with all stages that any system has."""

    score: str
    """The score that the paper's figures are, as far as it tells."""
    recipe: dict[str, Any]
    languages: tuple[str, ...] = ()
    """A task for each of them, TASK-LANGUAGE; default: one task."""
    only: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings of one language's task."""
    small: dict[str, Any] = Field(default_factory=dict)


class SystemDefinition(FrozenSettings):
    """What is done with a task's recipe."""

    stages: tuple[str, ...] = ()
    """Kinds of the stages that are carried out; default: all."""
    set: dict[str, Any] = Field(default_factory=dict)
    small: dict[str, Any] = Field(default_factory=dict)
    """Settings at small scale, beside or in place of ``set``."""


class ExtendDefinition(FrozenSettings):
    """An encoder with a larger vocabulary, made before anything is trained, and adapted to text first of all."""

    text: str
    """Parallel text, of which the side in the language is read."""
    language: str
    pieces: int
    adapt: dict[str, Any] = Field(default_factory=dict)
    """Settings of the stage that teaches the encoder its new subwords."""


class SmallDefinition(FrozenSettings):
    """What is different about a table at small scale."""

    rows: tuple[str, ...] = ()
    """Those that are run; default: all."""
    columns: tuple[str, ...] = ()
    replace: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """For rows, other values of addresses."""
    analyses: dict[str, dict[str, Any]] = Field(default_factory=dict)
    extend: ExtendDefinition | None = None
    notes: tuple[str, ...] = ()


class TableDefinition(FrozenSettings):
    """A table: addresses of its cells, by all cells, by group of rows, by row and by column."""

    cells: dict[str, Any]
    """Strings may name {row}, {column}, and of a row called "GROUP: NAME / VARIANT" each part."""
    groups: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By a row's whole label, or by its name within a group."""
    columns: dict[str, dict[str, Any]] = Field(default_factory=dict)
    set: dict[str, Any] = Field(default_factory=dict)
    """Settings of all recipes at full scale."""
    systems: dict[str, SystemDefinition] = Field(default_factory=dict)
    """Systems that mean something else here than in the other tables."""
    analyses: dict[str, dict[str, Any]] = Field(default_factory=dict)
    extend: ExtendDefinition | None = None
    small: SmallDefinition = SmallDefinition()
    notes: tuple[str, ...] = ()


class PaperDefinition(FrozenSettings):
    """How a paper's tables are made."""

    baseline: str
    scales: dict[str, ScaleDefinition]
    tasks: dict[str, TaskDefinition]
    systems: dict[str, SystemDefinition]
    tables: dict[str, TableDefinition]

    def find_task(self, name: str) -> tuple[TaskDefinition, str]:
        """The definition of a task, and the language that its name ends with, if it is one of several."""
        if name in self.tasks:
            return self.tasks[name], ""
        family, _, language = name.rpartition("-")
        assert language in self.tasks[family].languages, name
        return self.tasks[family], language


@cache
def load_definition(paper: str) -> PaperDefinition:
    """The definition of a paper, validated."""
    problems: list[str] = []
    found = validate_table(PaperDefinition, read_data(f"{paper}.toml"), "", problems)
    assert found is not None, problems
    return found


def find_address(definition: TableDefinition, row: str, column: str, *, scale: ScaleName) -> Address | None:
    """Where a cell's figure comes from at a scale; none where the scale leaves the cell out."""
    small = definition.small if scale == "small" else SmallDefinition()
    if (small.rows and row not in small.rows) or (small.columns and column not in small.columns):
        return None
    names = split_label(row) | {"row": row, "column": column}
    merged = {
        **definition.cells,
        **definition.groups.get(names["group"], {}),
        **definition.rows.get(names["name"], {}),
        **definition.rows.get(row, {}),
        **small.replace.get(row, {}),
        **definition.columns.get(column, {}),
    }
    names["language"] = str(merged.get("language", "{language}"))
    problems: list[str] = []
    address = validate_table(Address, fill(merged, names), "", problems)
    assert address is not None, f"{row}, {column}: {problems}"
    return address


def split_label(row: str) -> dict[str, str]:
    """The parts of ``GROUP: NAME / VARIANT``."""
    head, _, variant = row.partition(" / ")
    group, colon, name = head.rpartition(": ")
    return {"group": group if colon else "", "name": name, "variant": variant}


def fill(value: Any, names: Mapping[str, str]) -> Any:
    """A value with {name} replaced in all of its strings; other braces stay."""
    if isinstance(value, Mapping):
        return {key: fill(inside, names) for key, inside in value.items()}
    if isinstance(value, list | tuple):
        return [fill(inside, names) for inside in value]
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
    return value
