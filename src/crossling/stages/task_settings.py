"""Settings of the stages that learn a task: fine-tuning, and teaching, which follows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, TypeVar, cast

from pydantic import Field, field_validator, model_validator

from crossling.data.spec import list_data
from crossling.errors import RecipeError, UserError
from crossling.objectives.aligned_words import AdjustmentSettings, ReplaySettings
from crossling.objectives.consistency import ConsistencySettings
from crossling.recipe.recipe import FALSE_IS_NONE, NONE_IS_FALSE, FrozenSettings
from crossling.registry import load_kind
from crossling.stages import StageSettings
from crossling.stages.parsing import DataSpec, DataSpecs, ParsedTask


class Auxiliary(FrozenSettings):
    """A task that is learnt beside the main one, from data in the source language."""

    task: ParsedTask = Field(json_schema_extra={"family": "tasks"})
    """As the main task's."""
    train: DataSpecs
    """One data set or a list of them."""


class TaskStageSettings(StageSettings):
    """A task, the data to learn it from, and how."""

    task: ParsedTask = Field(json_schema_extra={"family": "tasks"})
    """pos, ner, nli, paraphrase, sentiment, qa; or a table: { preset = "ner", length = 256 }, { kind = "tag" }."""
    train: DataSpecs
    """One data set or a list of them: xnli:en, or a table with format, path and language."""
    dev: DataSpec | None = None
    """What selects the checkpoint, in the source language; default: the dev split of the first training set."""
    fusion: dict[str, Any] = Field(default_factory=lambda: {"kind": "last"}, json_schema_extra={"family": "fusions"})
    """How the encoder's layers become what the head reads."""
    select: Literal["best", "last"] = "best"
    """Keep the epoch that is best on dev, or the last one."""
    average: Literal["none", "epochs"] = "none"
    """epochs: the weights are the mean of those after every epoch; dev then scores this mean and selects nothing."""
    initial_head: Literal["own", "shared"] = "own"
    """What draws the first weights of heads and fusion: the run's seed, or (shared) its remainder by 1000, so that
    seeds 1, 1001 and 2001 start alike and their models can be averaged. Order and dropout are by the seed."""

    auxiliary: tuple[Auxiliary, ...] = ()
    """Tasks learnt beside the main one, each with its own head; an epoch still counts the main task's examples."""
    auxiliary_temperature: float = Field(default=1.0, ge=1, le=1000)
    """Steps of auxiliary tasks to the main one's: in proportion to their examples to the power of 1 / temperature. 1 as
    sizes are, 1000 all alike."""
    temperature: float = Field(default=1.0, ge=1, le=1000)
    """With training sets in several languages: each is seen in proportion to its number of examples to the power of
    1 / temperature. 1 as they are, 1000 all alike. Examples of smaller ones are repeated; none is left out."""
    replay: ReplaySettings | None = None
    """Continual learning: aligned words in every step."""
    consistency: Annotated[ConsistencySettings | None, FALSE_IS_NONE, NONE_IS_FALSE] = None
    """Consistency training: changed copies of the main task's examples should get the same answers; false: none, where
    the stage before has it."""

    @field_validator("dev", mode="before")
    @classmethod
    def _valid_dev(cls, value: Any) -> Any:
        if value is not None and not (found := list_data(value)):
            raise ValueError("at least one data set")
        return None if value is None else found[0]

    @field_validator("fusion", mode="before")
    @classmethod
    def _valid_fusion(cls, value: Any) -> Any:
        try:
            if not isinstance(value, str | dict):
                raise ValueError(f'{value!r} is no fusion; write a table such as {{ kind = "dlfa", layer = 8 }}')
            table = {"kind": value} if isinstance(value, str) else dict(value)
            settings = load_kind("fusions", str(table.get("kind"))).Settings.model_validate(table)
        except UserError as error:
            raise ValueError(str(error)) from None
        return settings.model_dump()

    @model_validator(mode="after")
    def _some_dev(self) -> Self:
        selects = self.select == "best" and self.average == "none"
        if self.train and selects and self.dev is None and self._first_name() is None:
            raise ValueError('dev: missing, and train has no dev split; name one to select by, or set select = "last"')
        return self

    def dev_spec(self) -> DataSpec | None:
        """What selects the checkpoint."""
        if self.dev is not None or self.select == "last":
            return self.dev
        first = self._first_name()
        if first is None:  # a mean of epochs needs none
            return None
        name, _, rest = first.partition(":")
        return f"{name}:{rest.split(':')[0]}"

    def _first_name(self) -> str | None:
        """The name of the first training set; custom files have none."""
        first = self.train[0]
        named = first if isinstance(first, str) else first.get("data")
        return named if isinstance(named, str) else None


SettingsT = TypeVar("SettingsT", bound=TaskStageSettings)


class FollowingStageSettings(TaskStageSettings):
    """Settings of a stage that takes what its table does not name from the task stage before it."""

    task: ParsedTask = Field(default=cast("Any", None), json_schema_extra={"family": "tasks"})
    """Default: as in the stage before, like everything that a finetune stage has."""
    train: DataSpecs = ()
    """Labelled data; default: as in the stage before."""

    @model_validator(mode="before")
    @classmethod
    def _leave_open(cls, data: Any) -> Any:
        """A task or training set of nothing is one that the stage before has."""
        if not isinstance(data, dict):
            return data
        return {name: value for name, value in data.items() if name not in ("task", "train") or value}


def follow_stage(settings: SettingsT, before: TaskStageSettings) -> SettingsT:
    """All that the table does not name is as in the stage before."""
    named = {"kind", *settings.model_fields_set}
    shared = set(type(before).model_fields) & set(type(settings).model_fields)
    return settings.model_copy(update={name: getattr(before, name) for name in shared - named})


def complete_replay(settings: SettingsT, earlier: list[StageSettings]) -> SettingsT:
    """What is replayed is what the last adjust stage learnt from, unless the table says otherwise."""
    replay = settings.replay
    if replay is None or replay.parallel:
        return settings
    adjusted = next((stage for stage in reversed(earlier) if stage.kind == "adjust"), None)
    if adjusted is None:
        raise RecipeError("replay.parallel: missing; name parallel text, or put an adjust stage before this one")
    named = {"pull", "stay", *replay.model_fields_set}
    taken = {name: getattr(adjusted, name) for name in AdjustmentSettings.model_fields if name not in named}
    return settings.model_copy(update={"replay": replay.model_copy(update=taken)})
