"""Fine-tuning: an encoder and a head are trained on a task's labels, in one language or several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from crossling.errors import RecipeError
from crossling.recipe.recipe import EncoderSettings
from crossling.stages import StageSettings, TrainedStage
from crossling.stages.task_settings import TaskStageSettings, complete_replay
from crossling.stages.task_training import TaskData, fit_tasks, identify_task, open_task_data, train_task

if TYPE_CHECKING:
    from crossling.progress import Progress
    from crossling.stages.context import StageContext

VERSION = 2
Data = TaskData


class Settings(TaskStageSettings):
    """A task, the data to learn it from, and how."""

    kind: Literal["finetune"] = "finetune"
    encoder: EncoderSettings | None = None
    """For models that teach (a teach stage comes next): their encoder, where it is not the recipe's. They start from it
    alone; the student starts from the recipe's encoder, as the stages before this one trained it."""

    @model_serializer(mode="wrap")
    def _omit_no_encoder(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = dump(self)
        return table if self.encoder else {name: value for name, value in table.items() if name != "encoder"}


def complete_settings(settings: Settings, earlier: list[StageSettings]) -> Settings:
    """What is replayed is what the last adjust stage learnt from, unless the table says otherwise."""
    return complete_replay(settings, earlier)


def check_following(settings: Settings, following: StageSettings | None) -> None:
    """Refuse an encoder of its own to a stage whose models do not teach."""
    if settings.encoder is None or (following is not None and following.kind == "teach"):
        return
    raise RecipeError(
        f'encoder: an encoder of its own is for teachers, but no stage with kind = "teach" comes next. Name '
        f"{settings.encoder.name!r} under [encoder] instead, or add a teach stage"
    )


def find_start(settings: Settings, stages: Sequence[StageSettings], number: int) -> int:
    """The number of the stage whose encoder it starts from; -1: its own encoder, or the recipe's."""
    return number - 1 if settings.encoder is None else -1


def open_stage_data(settings: Settings, *, source: str, store: Path, progress: Progress | None = None) -> Data:
    """Find and open what the stage reads, and see that each task can read its part."""
    return open_task_data(settings, source=source, store=store, progress=progress)


def resolve_settings(settings: Settings, data: Data) -> Settings:
    """The settings with what depends on the data filled in."""
    return fit_tasks(settings, data)


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the identity that is specific to the stage; data count by content, not by name."""
    return identify_task(settings, data)


def train(settings: Settings, data: Data, context: StageContext) -> TrainedStage:
    """Fine-tune; with dev data, the model of the best epoch."""
    return train_task(settings, data, context, what="fine-tuning")
