"""Fine-tuning: an encoder and a head are trained on a task's labels, in one language or several."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.data.spec import parse_spec
from crossling.errors import RecipeError, UserError
from crossling.registry import load_kind
from crossling.tasks import build_task, parse_task
from crossling.training.settings import TrainingSettings

if TYPE_CHECKING:
    from crossling.model import Model, ModelCard
    from crossling.stages._context import StageContext

VERSION = 2

DataSpec = str | dict[str, Any]


class Settings(TrainingSettings):
    """A task, the data to learn it from, and how."""

    kind: Literal["finetune"] = "finetune"
    task: Any = Field(json_schema_extra={"family": "tasks"})
    """pos, ner, nli, paraphrase, sentiment, qa; or a table: { preset = "ner", length = 256 }, { kind = "tag" }."""
    train: tuple[DataSpec, ...]
    """One data set or a list of them: xnli:en, or a table with format, path and language."""
    dev: DataSpec | None = None
    """What selects the checkpoint, in the source language; default: the dev split of the first training set."""
    fusion: dict[str, Any] = Field(default_factory=lambda: {"kind": "last"}, json_schema_extra={"family": "fusions"})
    """How the encoder's layers become what the head reads."""
    select: Literal["best", "last"] = "best"
    """Keep the epoch that is best on dev, or the last one."""

    @field_validator("task", mode="before")
    @classmethod
    def _valid_task(cls, value: Any) -> Any:
        try:
            return parse_task(value)
        except UserError as error:
            raise ValueError(str(error)) from None

    @field_validator("train", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        many = value if isinstance(value, list | tuple) else (value,)
        if not many:
            raise ValueError("at least one data set")
        for spec in many:
            _check_spec(spec)
        return tuple(many)

    @field_validator("dev", mode="before")
    @classmethod
    def _valid_dev(cls, value: Any) -> Any:
        if value is not None:
            _check_spec(value)
        return value

    @field_validator("fusion", mode="before")
    @classmethod
    def _valid_fusion(cls, value: Any) -> Any:
        try:
            table = {"kind": value} if isinstance(value, str) else dict(value)
            settings = load_kind("fusions", str(table.get("kind"))).Settings.model_validate(table)
        except UserError as error:
            raise ValueError(str(error)) from None
        return settings.model_dump()

    @field_serializer("task")
    def _dump_task(self, task: Any) -> dict[str, Any]:
        table: dict[str, Any] = task.model_dump(mode="json")
        return table

    @model_validator(mode="after")
    def _some_dev(self) -> Self:
        if self.select == "best" and self.dev is None and self._first_name() is None:
            raise ValueError('dev: missing; name what selects the checkpoint, or set select = "last"')
        return self

    def dev_spec(self) -> DataSpec | None:
        """What selects the checkpoint."""
        if self.dev is not None or self.select == "last":
            return self.dev
        first = self._first_name()
        assert first is not None
        name, _, rest = first.partition(":")
        return f"{name}:{rest.split(':')[0]}"

    def _first_name(self) -> str | None:
        """The name of the first training set; files of one's own have none."""
        first = self.train[0]
        named = first if isinstance(first, str) else first.get("data")
        return named if isinstance(named, str) else None


def _check_spec(spec: Any) -> None:
    if isinstance(spec, str):
        try:
            parse_spec(spec)
        except UserError as error:
            raise ValueError(str(error)) from None
    elif not isinstance(spec, dict):
        raise ValueError('a data set is "name:language" or a table with format, path and language')


@dataclass(frozen=True)
class Data:
    """The rows that a fine-tuning reads."""

    train: tuple[Rows, ...]
    dev: Rows | None

    def fingerprints(self) -> dict[str, Any]:
        """What of the data affects the result."""
        return {
            "train": [[rows.language, rows.fingerprint] for rows in self.train],
            "dev": self.dev.fingerprint if self.dev is not None else None,
        }

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role, for people."""
        return [("train", rows) for rows in self.train] + ([("dev", self.dev)] if self.dev is not None else [])


def open_stage_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open what the stage reads."""
    train = tuple(open_data(spec, split="train", store=store) for spec in settings.train)
    spec = settings.dev_spec()
    dev = open_data(spec, split="dev", store=store) if spec is not None else None
    if dev is not None and dev.language != source:
        raise RecipeError(
            f"dev = {dev.name} is in {dev.language!r}, but the source language, {source!r}, selects checkpoints. "
            f"Name a dev set in {source!r}, or set source = {dev.language!r}."
        )
    return Data(train, dev)


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the stage's identity that only it knows; data count by content, not by name."""
    return {
        "settings": settings.model_dump(mode="json", exclude={"train", "dev"}),
        "data": data.fingerprints(),
    }


def train(settings: Settings, data: Data, context: StageContext) -> tuple[Model, ModelCard, dict[str, Any]]:
    """Train; gives the model, what is needed to build it again, and a record of how training went."""
    import torch

    from crossling.evaluation import check_kind, encode_rows
    from crossling.model import ModelCard, build_model
    from crossling.training.loop import Execution, Stream, fit

    task = _make_task(settings, data)
    for rows in (*data.train, *([data.dev] if data.dev is not None else [])):
        check_kind(task, rows)
    name = settings.task.kind
    objective = task.build_objective(name)
    # The head is drawn first: it then starts alike whatever the fusion, and systems that share a seed are compared
    # under the same luck.
    torch.manual_seed(context.seed)
    head = objective.build_head(context.encoder.width)
    model = build_model(context.encoder, settings.fusion)
    model.heads[name] = head
    examples = encode_rows(task, data.train, context.encoder, cache=context.encoded, labels=task.labels)
    if _should_trim(settings, context):
        model.trim(_used_ids(task, data, examples, context))
    execution = Execution(
        context.world,
        context.seed,
        context.work,
        checkpoint_seconds=context.checkpoint_seconds,
        progress=context.progress,
        track=context.track,
        what=f"fine-tuning (seed {context.seed})",
    )
    evaluate = partial(_score_dev, model, task, name, data.dev, context) if data.dev is not None else None
    position = fit(model, Stream(objective, examples), settings, execution, evaluate=evaluate)
    card = ModelCard(
        encoder=context.encoder_settings.name,
        encoder_identity=context.encoder.identity,
        revision=context.encoder_settings.revision,
        fusion=settings.fusion,
        tasks={name: {"settings": settings.task.model_dump(mode="json"), "labels": list(task.labels)}},
        source=context.source,
    )
    record = {
        "steps": position.step,
        "best_step": position.best_step,
        "dev_score": position.best_score,
        "training_seconds": round(position.seconds, 3),
        "history": position.history,
    }
    return model, card, record


def _make_task(settings: Settings, data: Data) -> Any:
    kind = load_kind("tasks", settings.task.kind).Task
    return build_task(settings.task, kind.collect_labels(data.train))


def _should_trim(settings: Settings, context: StageContext) -> bool:
    """Rows that no gradient reaches stay as they are only where weight decay does not move them either."""
    wanted = context.encoder_settings.trim
    return settings.weight_decay == 0 if wanted == "auto" else wanted


def _used_ids(task: Any, data: Data, examples: Any, context: StageContext) -> Any:
    import numpy as np

    from crossling.evaluation import encode_rows

    # What an earlier stage changed is kept as well: a saved model takes all other rows from the base encoder.
    used = [examples.distinct_ids(), context.encoder.changed_rows]
    if data.dev is not None:
        labels = (*task.labels, *sorted(set(task.collect_labels([data.dev])) - set(task.labels)))
        dev = encode_rows(task, [data.dev], context.encoder, cache=context.encoded, labels=labels)
        used.append(dev.distinct_ids())
    return np.unique(np.concatenate(used))


def _score_dev(model: Model, task: Any, head: str, dev: Rows, context: StageContext) -> float:
    """The task's main score on dev, by the leading process alone."""
    from crossling.evaluation import predict_rows
    from crossling.metrics import score

    if not context.world.leads:
        return 0.0
    predictions = predict_rows(model, task, dev, head=head, world=context.world, cache=context.encoded)
    return score(predictions)[task.settings.score]
