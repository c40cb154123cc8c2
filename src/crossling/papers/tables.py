"""A table of a paper as a part of the paper's study: the systems that it needs, and where the figure of a cell is from.

``PAPER.toml`` is a study like any other, with a small scale. ``PAPER-tables.toml`` says which of its systems,
languages and scores the cells of a table are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field

from crossling.analyses.settings import AnalysisSettings, parse_settings
from crossling.errors import RecipeError, UserError, nearest
from crossling.papers.published import FOLDER, PublishedTable, PublishedValue, find_table, read_data
from crossling.recipe.identity import content_hash
from crossling.recipe.overrides import apply_overrides, parse_value, read_toml
from crossling.recipe.recipe import FrozenSettings, Recipe, validate_table
from crossling.study.folder import name_file
from crossling.study.grid import STUDY_KEYS, Study, merge_tables, parse_study

ScaleName = Literal["small", "full"]
NO_EVIDENCE = (
    "Small scale: a few made-up sentences, one epoch, a small encoder. It shows that the table can be made, and is no "
    "evidence for or against the paper."
)

PRETRAINED = "pretrained"
"""The name of the encoder before fine-tuning, among the models of an analysis."""

SystemKey = tuple[str, str]
"""A task and a system of the study."""


class CellSource(FrozenSettings):
    """Where the figure of a cell comes from."""

    task: str = ""
    system: str = ""
    systems: tuple[str, ...] = ()
    """Systems among which one is the best."""
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
    score: str = ""
    """Default: the score of the recipe's task."""
    measure: str = "score"
    """A function of measures.py."""
    analysis: str = ""
    """The analysis that the figure is of, by its name in the table's mapping."""
    pretrained: bool = False
    """The encoder before fine-tuning, not a system."""
    after: str = ""
    """The number of the system's stage after which its model is analysed; default: the last."""
    probe: str = ""
    against: str = ""
    """TASK: SYSTEM that heads are compared with."""
    top: str = ""
    """How many heads are the best, of mBERT's 144."""

    @property
    def model(self) -> str:
        """The name of its model in an analysis."""
        return (
            PRETRAINED if self.pretrained else f"{self.task}: {self.system}" + (self.after and f", stage {self.after}")
        )

    @property
    def needs(self) -> list[SystemKey]:
        """The systems that the figure is made of."""
        names = [] if self.pretrained else [self.system, *self.systems, self.less]
        task, _, system = self.against.partition(": ")
        return [(self.task, name) for name in names if name] + ([(task, system)] if system else [])


class Extension(FrozenSettings):
    """An encoder with a larger vocabulary, made before anything is trained."""

    text: str
    """Parallel text, of which the side in the language is read."""
    language: str
    pieces: int


class SmallScale(FrozenSettings):
    """What of a table is run at small scale; default: all of it."""

    tasks: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    analyses: dict[str, dict[str, Any]] = Field(default_factory=dict)
    extend: Extension | None = None
    notes: tuple[str, ...] = ()


class TableMapping(FrozenSettings):
    """Sources of a table's cells: for all cells, then by group of rows, by row and by column."""

    cells: dict[str, Any]
    """Strings may name {row}, {column}, and the parts of a row called "GROUP: NAME / VARIANT"."""
    groups: dict[str, dict[str, Any]] = Field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """By a row's whole label, or by its name within a group."""
    columns: dict[str, dict[str, Any]] = Field(default_factory=dict)
    set: dict[str, Any] = Field(default_factory=dict)
    """Keys of all recipes at full scale."""
    analyses: dict[str, dict[str, Any]] = Field(default_factory=dict)
    extend: Extension | None = None
    small: SmallScale = SmallScale()
    notes: tuple[str, ...] = ()


class PaperMapping(FrozenSettings):
    """All tables of a paper."""

    notes: tuple[str, ...]
    """On the full scale."""
    tables: dict[str, TableMapping]
    figures: dict[str, TableMapping] = Field(default_factory=dict)
    facts: dict[str, dict[str, str]] = Field(default_factory=dict)
    """For a cell of Table 1 the data whose rows are counted; * stands for every language of the study."""


@dataclass(frozen=True)
class Cell:
    """A figure of the paper, and where ours comes from."""

    row: str
    column: str
    figure: PublishedValue
    source: CellSource | None
    """None: it is not run."""


@dataclass(frozen=True)
class TablePlan:
    """All that is needed to make a table again."""

    table: PublishedTable
    scale: ScaleName
    cells: tuple[Cell, ...]
    study: Study
    """The systems that the cells need."""
    analyses: Mapping[str, AnalysisSettings]
    extend: Extension | None
    notes: tuple[str, ...]

    @property
    def encoder(self) -> str:
        """The pretrained encoder of all systems; of an extended one, what it was before."""
        return self.study.variants[0].recipe.encoder.name

    @property
    def extended(self) -> str:
        """The name of the extended encoder's folder and of its text; other settings give another name."""
        assert self.extend is not None
        facts = [self.encoder, self.extend.text, self.extend.language, self.extend.pieces]
        return f"extended-{content_hash(facts)[:8]}"

    def find_recipe(self, key: SystemKey) -> Recipe:
        """The recipe of a system."""
        return next(v.recipe for v in self.study.variants if (v.task, v.system) == key)

    def find_score(self, source: CellSource) -> str:
        """The score that the paper's figure is."""
        return source.score or self.find_recipe(source.needs[0]).main_score

    def list_analysed(self, analysis: str) -> dict[str, tuple[SystemKey, str]]:
        """The models that an analysis is of, by name: their systems, those that others are compared with among them,
        and the stage after which they are analysed."""
        found: dict[str, tuple[SystemKey, str]] = {}
        for source in (cell.source for cell in self.cells if cell.source and cell.source.analysis == analysis):
            if not source.pretrained:
                found.setdefault(source.model, ((source.task, source.system), source.after))
            if source.against:
                task, _, system = source.against.partition(": ")
                found.setdefault(source.against, ((task, system), ""))
        return found

    def place_extension(self, folder: Path) -> Study:
        """The study with the paths of the extended encoder and its text in a folder."""
        if self.extend is None:
            return self.study
        place = folder.resolve() / self.extended
        text = {"format": "text", "path": f"{place}.txt", "language": self.extend.language}

        def put(recipe: Recipe) -> Recipe:
            adapt, *others = recipe.stage
            stages = (adapt.model_copy(update={"train": (text,)}), *others)
            encoder = recipe.encoder.model_copy(update={"name": str(place)})
            return recipe.model_copy(update={"encoder": encoder, "stage": stages})

        return replace(self.study, variants=tuple(replace(v, recipe=put(v.recipe)) for v in self.study.variants))


def plan_table(name: str, scale: str, overrides: Iterable[str] = (), *, rows: Sequence[str] = ()) -> TablePlan:
    """A table at a scale, or some of its rows, by their label, their group or their name within it.

    ``overrides`` are those of a study, with a stage by its number or its kind (``finetune.epochs=1``); of one task
    (``SA.finetune.epochs=1``); of the analyses (``analysis.rows=64``); of the larger vocabulary (``extend.pieces=50``).
    """
    table, size = find_table(name), _parse_scale(scale)
    paper = load_mapping(table.paper)
    mapping, small = (paper.tables | paper.figures)[str(table.number)], size == "small"
    chosen = choose_rows(table, rows)
    cells = tuple(
        Cell(row, column, figure, find_source(mapping, row, column, small=small) if row in chosen else None)
        for (row, column), figure in table.figures.items()
    )
    needed = list(dict.fromkeys(key for cell in cells if cell.source for key in cell.source.needs))
    if not needed:
        raise UserError(
            f"--rows {' '.join(rows)}: nothing of {table.name} would be trained at {scale} scale; name more"
        )
    path = FOLDER / f"{table.paper}.toml"
    tables = merge_tables(read_toml(path), {"set": mapping.set})
    tables = merge_tables(tables, tables.pop("small") if small else {})
    asked = _sort_overrides(overrides, tables["tasks"])
    tables = select_systems(merge_tables(tables, {"tasks": asked.tasks}), needed)
    return TablePlan(
        table,
        size,
        cells,
        replace(
            parse_study(tables, path, asked.study), name=name_file("reproduce", table.paper, str(table.number), scale)
        ),
        _choose_analyses(mapping, asked.analysis, small=small),
        _choose_extension(mapping, asked.extend, small=small),
        (*((NO_EVIDENCE, *mapping.small.notes) if small else paper.notes), *mapping.notes),
    )


def _parse_scale(text: str) -> ScaleName:
    if text == "small":
        return "small"
    if text == "full":
        return "full"
    raise UserError(f"--scale {text}: unknown.{nearest(text, get_args(ScaleName))}")


@cache
def load_mapping(paper: str) -> PaperMapping:
    """The mapping of a paper's tables, validated."""
    problems: list[str] = []
    found = validate_table(PaperMapping, read_data(f"{paper}-tables.toml"), "", problems)
    assert found is not None, problems
    return found


def choose_rows(table: PublishedTable, wanted: Sequence[str]) -> set[str]:
    """The rows that are meant; all where none is named."""
    names = {row: {row, *split_label(row).values()} - {""} for row in table.rows}
    for text in wanted:
        if not any(text in some for some in names.values()):
            raise UserError(
                f"--rows {text!r}: {table.name} has no such row.{nearest(text, set().union(*names.values()))}"
            )
    return {row for row, some in names.items() if not wanted or some & set(wanted)}


def find_source(mapping: TableMapping, row: str, column: str, *, small: bool) -> CellSource | None:
    """Where a cell's figure comes from; none where small scale leaves the cell out."""
    names = split_label(row) | {"row": row, "column": column}
    merged = {
        **mapping.cells,
        **mapping.groups.get(names["group"], {}),
        **mapping.rows.get(names["name"], {}),
        **mapping.rows.get(row, {}),
        **mapping.columns.get(column, {}),
    }
    names["language"] = str(merged.get("language", ""))
    source = CellSource.model_validate({key: fill(value, names) for key, value in merged.items()})
    return _leave_out(source, column, mapping.small) if small else source


def _leave_out(source: CellSource, column: str, small: SmallScale) -> CellSource | None:
    """A source with the systems that are run at small scale, if any is."""
    alone = source.system if not source.pretrained else ""
    pairs = ((column, small.columns), (source.task, small.tasks), (alone, small.systems))
    if any(name and kept and name not in kept for name, kept in pairs):
        return None
    kept = tuple(name for name in source.systems if name in small.systems or not small.systems)
    return source.model_copy(update={"systems": kept})


def split_label(row: str) -> dict[str, str]:
    """The parts of ``GROUP: NAME / VARIANT``."""
    head, _, variant = row.partition(" / ")
    group, colon, name = head.rpartition(": ")
    return {"group": group if colon else "", "name": name, "variant": variant}


def fill(value: Any, names: Mapping[str, str]) -> Any:
    """A string, or a tuple of them, with {name} replaced; other braces stay."""
    if isinstance(value, tuple):
        return tuple(fill(inside, names) for inside in value)
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace(f"{{{name}}}", text)
    return value


def select_systems(tables: Mapping[str, Any], needed: Sequence[SystemKey]) -> dict[str, Any]:
    """A study's tables with these systems alone; a task without the baseline is compared with its first system."""
    systems = {
        name: {**tables["systems"][name], "tasks": [task for task, system in needed if system == name]}
        for _, name in needed
    }
    baseline = tables["baseline"] if tables["baseline"] in systems else needed[0][1]
    tasks: dict[str, Any] = {}
    for task, system in needed:
        own = {} if (task, baseline) in needed else {"baseline": system}
        tasks.setdefault(task, {**tables["tasks"][task], **own})
    return {**tables, "baseline": baseline, "tasks": tasks, "systems": systems}


@dataclass
class _Overrides:
    """What ``--set`` gives, sorted by what it is a setting of."""

    study: list[str] = field(default_factory=list)
    tasks: dict[str, Any] = field(default_factory=dict)
    analysis: list[str] = field(default_factory=list)
    extend: list[str] = field(default_factory=list)


def _sort_overrides(overrides: Iterable[str], tasks: Mapping[str, Any]) -> _Overrides:
    recipe = read_toml(FOLDER / next(iter(tasks.values()))["recipe"])
    kinds = [stage["kind"] for stage in recipe["stage"]]
    asked = _Overrides()
    for text in overrides:
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not key:
            raise RecipeError(f"--set {text!r}: write key=value, such as finetune.epochs=2")
        head, _, rest = key.partition(".")
        named = [task for task in tasks if head in (task, task.rpartition("-")[0])]
        if head in ("analysis", "extend") and rest:
            getattr(asked, head).append(f"{rest}={value}")
        elif named and rest:
            values = dict.fromkeys(_number_stages(rest, kinds), parse_value(value))
            asked.tasks = merge_tables(asked.tasks, {task: {"set": values} for task in named})
        else:
            asked.study += [f"{place}={value}" for place in _number_stages(key, kinds)]
    return asked


def _number_stages(key: str, kinds: Sequence[str]) -> list[str]:
    """``finetune.epochs`` as the key of every stage of that kind; other keys as they are."""
    head, _, rest = key.partition(".")
    if head in kinds and rest:
        return [f"stage.{number}.{rest}" for number, kind in enumerate(kinds) if kind == head]
    known = dict.fromkeys([*Recipe.model_fields, *STUDY_KEYS])
    if head not in known:
        raise RecipeError(f"--set {key}: unknown.{nearest(head, [*known, *kinds, 'analysis', 'extend'])}")
    return [key]


def _choose_extension(mapping: TableMapping, overrides: Sequence[str], *, small: bool) -> Extension | None:
    found = mapping.small.extend if small else mapping.extend
    if found is None or not overrides:
        return found
    problems: list[str] = []
    changed = validate_table(Extension, apply_overrides(found.model_dump(), overrides), "extend", problems)
    if changed is None:
        raise RecipeError("\n  ".join(f"--set {problem}" for problem in problems))
    return changed


def _choose_analyses(mapping: TableMapping, overrides: Sequence[str], *, small: bool) -> dict[str, AnalysisSettings]:
    """The table's analyses, which are validated before anything is trained."""
    chosen = (small and mapping.small.analyses) or mapping.analyses
    return {name: parse_settings(apply_overrides(table, overrides)) for name, table in chosen.items()}
