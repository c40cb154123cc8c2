"""Weight averaging: one model whose weights are the mean of several seeds' models, which started from the same head.

Such a mean is also called a model soup. Nothing is trained here, and the model costs no more at prediction than one of
its parts. Without a shared head the parts would have learnt to read different directions of the encoder's output, and
their mean would read none.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from crossling.errors import RecipeError
from crossling.stages import StageSettings, TrainedStage
from crossling.stages.ensemble import list_ensemble
from crossling.stages.task_settings import FollowingStageSettings, TaskStageSettings, follow_stage
from crossling.stages.task_training import TaskData, open_dev, score_dev

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.data.rows import Rows
    from crossling.models.model import Model, ModelCard
    from crossling.progress import Progress
    from crossling.stages.context import StageContext

VERSION = 1
Data = TaskData
OWN = {"kind", "models", "dev"}
"""What the table of the stage may name: all else is about training."""


class Settings(FollowingStageSettings):
    """How many models are averaged. All else is as in the stage before."""

    kind: Literal["average"] = "average"
    models: int = Field(default=3, ge=2, le=100)
    """Models of the stage before, each with its own seed: this one's, and seeds that differ from it by multiples of
    1000. Missing ones are trained first."""

    @model_serializer(mode="wrap")
    def _omit_training(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A stored recipe says nothing about training here: the stage before does."""
        return {name: value for name, value in dump(self).items() if name in OWN}


def complete_settings(settings: Settings, earlier: list[StageSettings]) -> Settings:
    """All else is as in the stage before, whose models start from a shared head."""
    before = earlier[-1] if earlier else None
    if not isinstance(before, TaskStageSettings) or before.kind == settings.kind:
        raise RecipeError(
            'kind = "average": the models of the stage before are averaged; put a finetune or teach stage with '
            'initial_head = "shared" before this one'
        )
    if _find_first(earlier).initial_head != "shared":
        raise RecipeError(
            'kind = "average": models that start from different heads cannot be averaged; set initial_head = "shared" '
            "in the stage before, or where its heads come from"
        )
    completed = follow_stage(settings, before)
    for name in sorted(settings.model_fields_set - OWN):
        if getattr(completed, name) != getattr(before, name):
            raise RecipeError(f"{name}: nothing is trained here; leave it out, or set it in the stage before")
    return completed


def _find_first(earlier: list[StageSettings]) -> Any:
    """The settings of the stage that drew the heads: students that go on from a teacher have that teacher's."""
    number = len(earlier) - 1
    while getattr(earlier[number], "start", "base") == "teacher":
        number -= 1
    return earlier[number]


def list_earlier(settings: Settings, seed: int) -> tuple[int, ...]:
    """Seeds of the models that are averaged, this one among them."""
    return list_ensemble(settings.models, seed)


def open_stage_data(settings: Settings, *, source: str, store: Path, progress: Progress | None = None) -> Data:
    """Nothing is learnt; the dev set scores the average and its parts."""
    return TaskData((), open_dev(settings, source=source, store=store))


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the identity that is specific to the stage; the models that are averaged count by their own."""
    return {"data": data.fingerprints()}


def train(settings: Settings, data: Data, context: StageContext) -> TrainedStage:
    """Average the models, read one after the other.

    Each has its whole vocabulary: subwords that it did not learn have the base encoder's rows, and count with them.
    """
    from crossling.models.model import load_weights, update_mean, weights_of

    assert context.load_earlier is not None, "an average stage comes after another"
    seeds = list_earlier(settings, context.seed)
    mean: dict[str, Tensor] | None = None
    scores, changed, model = [], [], None
    for count, seed in enumerate(seeds, 1):
        del model  # two whole models at a time are enough: the mean and this one
        model, card = context.load_earlier(seed)
        if data.dev is not None:
            scores.append(_score(model, card, data.dev, context))
        changed.append(model.encoder.changed_rows)
        mean = update_mean(mean, weights_of(model), count)
    assert mean is not None and model is not None
    load_weights(model, mean)
    score = _score(model, card, data.dev, context) if data.dev is not None else None
    model.trim(np.unique(np.concatenate(changed)))  # rows that no part changed are the base encoder's
    facts: dict[str, Any] = {"seeds": list(seeds)}
    if score is not None:
        parts = float(np.mean(scores))
        facts |= {"dev_scores": scores, "mean_dev_score": parts}
        context.progress.say(f"average of {len(seeds)} models: dev {100 * score:.2f}; its parts {100 * parts:.2f}")
    return TrainedStage(model, card, {"steps": 0, "dev_score": score, "history": [], "averaging": facts})


def _score(model: Model, card: ModelCard, dev: Rows, context: StageContext) -> float:
    """The main score on dev."""
    from crossling.tasks import restore_task

    head, stored = next(iter(card.tasks.items()))
    model.to(context.distributed.device)
    return score_dev(model, restore_task(stored), head, dev, context)
