"""Recipes: an encoder, the stages that train it, and what to evaluate it on; read from TOML, validated whole.

Top-level keys are validated here; each stage's table is handed to the settings of its kind. All problems are collected
and shown at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar, cast, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    WrapSerializer,
    field_validator,
    model_serializer,
    model_validator,
)

from crossling.errors import RecipeError, nearest
from crossling.limits import LARGEST_BATCH, LARGEST_NUMBER, LARGEST_SEED, MOST_THREADS
from crossling.recipe.overrides import apply_overrides, format_value, read_toml
from crossling.registry import add_plugin, list_kinds, load_kind

if TYPE_CHECKING:
    from crossling.stages import StageSettings as StageTable
    from crossling.tasks import TaskSettings
else:
    StageTable = Any  # validated by the settings of its kind, which this package does not know

M = TypeVar("M", bound=BaseModel)
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]


class FrozenSettings(BaseModel):
    """Frozen, strict settings: an unknown key is an error, and ``"no"`` is never taken for false."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, allow_inf_nan=False
    )


def _write_table(value: Any, write: SerializerFunctionWrapHandler) -> Any:
    return False if value is None else write(value)


FALSE_IS_NONE = BeforeValidator(lambda value: None if value is False else value)
NONE_IS_FALSE = WrapSerializer(_write_table)
"""For a table that a stage may take from the stage before: false says that it has none, also in a stored recipe."""


class EncoderSettings(FrozenSettings):
    """Which encoder a recipe starts from."""

    name: str
    """A hub name, a folder, or multilingual-e5-small or gemma-3-270m, which need no network."""
    revision: str | None = None
    """The hub's branch, tag or commit."""
    trim: bool | Literal["auto"] = "auto"
    """Keep only the subword rows that a stage's data uses while it trains; auto: unless weight decay would touch the
    others."""
    attention: Literal["bidirectional", "causal"] | None = None
    """Whether subwords see those after them: of models that were trained to continue text (Gemma, Qwen) either way;
    default: as the model was trained."""

    @model_serializer(mode="wrap")
    def _omit_default_attention(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = dump(self)
        return table if self.attention else {name: value for name, value in table.items() if name != "attention"}


class EvaluateSettings(FrozenSettings):
    """One data set to predict and score, in some languages."""

    on: str | dict[str, Any]
    """A data set's name, or a table with format, path and language for custom files."""
    languages: tuple[str, ...] = ()
    """Language codes, or one alone; for mlqa also context=es,question=en. A table without a language is read once for
    each: {language} in a path stands for the code."""
    name: str = ""
    """The name in tables; entries of the same name share one. Default: the data set's, or the file's."""
    split: str = "test"
    """The split, or rows of it: dev[1600:]."""
    batch: int = Field(default=128, ge=1, le=LARGEST_BATCH)
    """Examples in a batch; scores do not depend on it."""

    @field_validator("languages", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _some_language(self) -> Self:
        own = self._own_language()
        if not own and not self.languages:
            table = "" if isinstance(self.on, str) else ', or language = "sw" in the table'
            raise ValueError(f'languages: missing; the codes to score, such as ["de", "hi"]{table}')
        if own and self.languages and self.languages != (own,):
            raise ValueError(f"languages: the table itself names a language, {own!r}; leave one of them out")
        if not own and isinstance(self.on, dict) and "format" in self.on and len(self.languages) > 1:
            values = [value for key, value in self.on.items() if key != "format"]
            if not any("{language}" in value for value in values if isinstance(value, str)):
                raise ValueError(
                    'languages: one file for several; write {language} in path, as in "news-{language}.tsv"'
                )
        return self

    def _own_language(self) -> str:
        """The language that a table names: ``language``, or that of ``data = "panx:hi"``."""
        if isinstance(self.on, str):
            return ""
        return str(self.on.get("language") or str(self.on.get("data", "")).partition(":")[2].partition(":")[0])

    def specs(self) -> tuple[tuple[str, str | dict[str, Any]], ...]:
        """``(language, data set)`` for every language."""
        if isinstance(self.on, str):
            return tuple((language, f"{self.on}:{language}") for language in self.languages)
        if own := self._own_language():
            return ((own, dict(self.on)),)
        return tuple((language, _fill_language(self.on, language)) for language in self.languages)

    @model_serializer(mode="wrap")
    def _omit_empty_name(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tables: dict[str, Any] = dump(self)
        return tables if self.name else {key: value for key, value in tables.items() if key != "name"}


def _fill_language(table: Mapping[str, Any], language: str) -> dict[str, Any]:
    """A data table for one language: its code in paths, and as the language or after the set's name."""
    filled = {k: v.replace("{language}", language) if isinstance(v, str) else v for k, v in table.items()}
    return {**filled, "data": f"{filled['data']}:{language}"} if "data" in filled else {**filled, "language": language}


Precision = Literal["auto", "float32", "bfloat16"]


class RunSettings(FrozenSettings):
    """Where and how a run executes. Precision and threads change bits, so they count in identities."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where torch sees one."""
    precision: Precision = "auto"
    """Of matrix products. auto: bfloat16 on a GPU that has it, float32 elsewhere. A CPU with AVX-512 BF16 or AMX can
    compute in bfloat16, too; on others it is an error."""
    threads: int | None = Field(default=None, ge=1, le=MOST_THREADS)
    """CPU threads; default: what torch chooses for this machine."""
    deterministic: bool = False
    """On a GPU: the same bits again, slower. A CPU always gives them."""
    checkpoint_seconds: float = Field(default=120.0, ge=0, le=LARGEST_NUMBER)
    """Seconds between checkpoints, from which a killed run continues; does not change a result."""
    track: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Experiment trackers that losses and scores are also sent to."""

    @field_validator("track", mode="before")
    @classmethod
    def _tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value


class Recipe(FrozenSettings):
    """A whole recipe, resolved: every default filled in."""

    seeds: tuple[Seed, ...] = (1,)
    source: str = "en"
    """The language that labels come from, and that selects checkpoints."""
    encoder: EncoderSettings
    stage: tuple[StageTable, ...] = ()
    evaluate: tuple[EvaluateSettings, ...] = ()
    run: RunSettings = RunSettings()
    plugins: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Custom kinds: Python files by family, ``{ fusions = ["gated.py"] }``, relative to the recipe. They are run."""

    @property
    def task(self) -> TaskSettings | None:
        """The settings of the task that the last stage learns; none where it learns no task."""
        return getattr(self.stage[-1], "task", None) if self.stage else None

    def encoder_of(self, number: int) -> EncoderSettings:
        """The encoder that a stage's model has: the stage's own, else the recipe's."""
        return self.own_encoder(number) or self.encoder

    def own_encoder(self, number: int) -> EncoderSettings | None:
        """The encoder that a stage names for its own models, which teach a student of the recipe's."""
        own = getattr(self.stage[number], "encoder", None)
        return own if isinstance(own, EncoderSettings) else None

    @property
    def encoders(self) -> tuple[EncoderSettings, ...]:
        """All encoders, each once, the recipe's first."""
        return tuple(dict.fromkeys((self.encoder, *map(self.encoder_of, range(len(self.stage))))))

    @property
    def main_score(self) -> str:
        """The score that selects checkpoints and comes first in tables; empty where no task is learnt."""
        return self.task.score if self.task else ""

    @field_validator("seeds", "stage", "evaluate", mode="before")
    @classmethod
    def _tuples(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("seeds")
    @classmethod
    def _some_seed(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or len(set(value)) != len(value):
            raise ValueError("one or more different seeds")
        return value

    @field_validator("source")
    @classmethod
    def _some_code(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,39}", value):
            raise ValueError('the code of a language, such as "en"')
        return value

    @model_serializer(mode="wrap")
    def _omit_empty_plugins(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        tables: dict[str, Any] = dump(self)
        return tables if self.plugins else {name: value for name, value in tables.items() if name != "plugins"}


def load_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe file, apply ``key=value`` overrides, validate."""
    path = Path(path)
    return parse_recipe(apply_overrides(read_toml(path), overrides), where=str(path), folder=path.parent)


def parse_recipe(tables: Mapping[str, Any], *, where: str = "recipe", folder: Path | None = None) -> Recipe:
    """Validate nested tables into a :class:`Recipe`, or raise one error that lists every problem.

    Plugins are loaded first, from ``folder`` where their paths are relative.
    """
    problems: list[str] = []
    stages, top_level = [], dict(tables)
    top_level["plugins"] = load_plugins(tables.get("plugins", {}), folder or Path(), problems)
    raw_stages = top_level.get("stage", [])
    if isinstance(raw_stages, list):
        for number, table in enumerate(raw_stages):
            stages.append(parse_kind("stages", table, key=f"stage.{number}", problems=problems))
        top_level["stage"] = ()
        _complete_stages(stages, problems)
    recipe = validate_table(Recipe, top_level, "", problems)
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RecipeError(f"{where}: {count}\n" + "\n".join(f"  {problem}" for problem in problems))
    assert recipe is not None
    return recipe.model_copy(update={"stage": tuple(stages)})


def load_plugins(table: object, folder: Path, problems: list[str]) -> dict[str, list[str]]:
    """Add the plugins of a recipe to the registry; returns the table with absolute paths."""
    if not isinstance(table, Mapping):
        problems.append(f'plugins = {table!r}: must be a table of files by family: {{ fusions = ["gated.py"] }}')
        return {}
    resolved: dict[str, list[str]] = {}
    for family, files in table.items():
        for file in files if isinstance(files, list | tuple) else [files]:
            try:
                resolved.setdefault(family, []).append(str(add_plugin(family, folder / str(file))))
            except RecipeError as error:
                problems.append(f"plugins.{family}: {error}")
    return resolved


def reload_plugins(recipe: Path) -> None:
    """Load the plugins of a stored recipe, for what was trained with them."""
    problems: list[str] = []
    load_plugins(read_toml(recipe).get("plugins", {}), recipe.parent, problems)
    if problems:
        raise RecipeError("\n  ".join([f"{recipe}: a plugin cannot be loaded", *problems]))


def _complete_stages(stages: list[Any], problems: list[str]) -> None:
    """Let each stage take over, from those before it, what its own table leaves open."""
    for number, settings in enumerate(stages):
        if settings is None or None in stages[:number]:
            continue
        complete = getattr(load_kind("stages", settings.kind), "complete_settings", None)
        try:
            stages[number] = complete(settings, stages[:number]) if complete else settings
        except RecipeError as error:
            problems.append(f"stage.{number}.{error}")
    if None in stages:
        return
    for number, settings in enumerate(stages):
        check = getattr(load_kind("stages", settings.kind), "check_following", None)
        try:
            if check:
                check(settings, stages[number + 1] if number + 1 < len(stages) else None)
        except RecipeError as error:
            problems.append(f"stage.{number}.{error}")


def parse_kind(family: str, table: Any, *, key: str, problems: list[str], kind: str | None = None) -> Any:
    """Validate one table with the settings of the kind that it names; problems are appended, not raised."""
    if not isinstance(table, Mapping):
        problems.append(f"{key} = {table!r}: must be a table")
        return None
    kind = kind or table.get("kind")
    if kind is None:
        problems.append(f"{key}.kind: missing; one of {', '.join(list_kinds(family))}")
        return None
    if kind not in list_kinds(family):
        problems.append(f"{key}.kind = {kind!r}: unknown.{nearest(kind, list_kinds(family))}")
        return None
    return validate_table(load_kind(family, str(kind)).Settings, table, key, problems)


def validate_table(model: type[M], table: Mapping[str, Any], key: str, problems: list[str]) -> M | None:
    """A table as settings; what is wrong with it is appended to ``problems``, a line for each fault."""
    try:
        return model.model_validate(freeze(table))
    except ValidationError as error:
        lines: dict[str, str] = {}
        for detail in error.errors():
            place, what = describe_problem(model, cast("dict[str, Any]", detail), key, table)
            # A union yields one error for each of its members: one line for one fault.
            lines[place] = f"{lines[place]}, or: {what}" if place in lines else what
        problems += [f"{place}: {what}" for place, what in lines.items()]
        return None


def freeze(value: Any) -> Any:
    """TOML's lists as tuples, since a list in a frozen model could still be changed."""
    if isinstance(value, Mapping):
        return {k: freeze(v) for k, v in value.items()}
    return tuple(freeze(v) for v in value) if isinstance(value, list | tuple) else value


def describe_problem(
    model: type[BaseModel], error: dict[str, Any], key: str, table: Mapping[str, Any]
) -> tuple[str, str]:
    """One validation error of a table as its place (key and value) and what is wrong, with the nearest valid name."""
    place = [str(part) for part in error["loc"] if not _is_union_tag(part)]
    full = ".".join(([key] if key else []) + place)
    if error["type"] == "extra_forbidden":
        return full, f"unknown key.{nearest(place[-1], _fields_at(model, place[:-1], table))}"
    if error["type"] == "missing":
        return full, "missing"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "literal_error":
        choices = [c.strip().strip("'") for c in str(error["ctx"]["expected"]).replace(" or ", ", ").split(",")]
        return f"{full} = {error['input']!r}", f"unknown.{nearest(error['input'], choices)}"
    if error["type"] == "tuple_type":
        message = f"must be a list{_show_list(model, place, error['input'])}"
    if isinstance(error["input"], Mapping):
        return full, message
    return f"{full} = {error['input']!r}", f"{message[0].lower()}{message[1:]}"


def _show_list(model: type[BaseModel], place: list[str], value: Any) -> str:
    """An example of the list that belongs where ``value`` is."""
    field = model.model_fields.get(place[0]) if len(place) == 1 else None
    if field and int in _list_types(field.annotation):
        return ", such as [1, 2, 3]"
    return f", such as {format_value([value])}" if isinstance(value, str) else ""


def _list_types(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _list_types(part)


def _is_union_tag(part: object) -> bool:
    return isinstance(part, str) and (
        part.startswith(("literal[", "function-", "tuple[", "dict[", "constrained-")) or part in ("str", "bool")
    )


def _fields_at(model: type[BaseModel], place: list[str], table: Any) -> list[str]:
    """The valid keys of the part of a table that ``place`` leads to, as far as annotations say."""
    current: Any = model
    for part in place:
        if part.isdigit():  # of a list, or of what may stand alone in place of one
            if isinstance(table, list | tuple):
                table = table[int(part)] if int(part) < len(table) else None
            continue
        table = table.get(part) if isinstance(table, Mapping) else None
        field = current.model_fields.get(part)
        extra = field.json_schema_extra if field else None
        if isinstance(extra, dict) and "family" in extra:
            return _family_fields(str(extra["family"]), table)
        current = next(_find_models(field.annotation), None) if field else None
        if current is None:
            return []
    return list(current.model_fields)


def _find_models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The settings that an annotation allows, inside unions and lists."""
    for part in _list_types(annotation):
        if isinstance(part, type) and issubclass(part, BaseModel):
            yield part


def _family_fields(family: str, table: Any) -> list[str]:
    """The keys of the kind that a table names; of all kinds of the family where it names a preset, or none."""
    kind = table.get("kind") if isinstance(table, Mapping) else None
    kinds = [kind] if kind in list_kinds(family) else list_kinds(family)
    return sorted({name for kind in kinds for name in load_kind(family, str(kind)).Settings.model_fields})
