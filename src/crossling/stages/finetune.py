"""Fine-tuning: an encoder and a head are trained on a task's labels, in one language or several.

Beside its main task a stage may learn auxiliary ones in the source language (feature augmentation), and replay aligned
words so that translations stay together (continual learning, equation 2 of the adjustment paper).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, field_serializer, field_validator, model_validator

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.data.spec import list_data
from crossling.errors import RecipeError, UserError
from crossling.recipe.recipe import FrozenSettings
from crossling.registry import load_kind
from crossling.stages.word_pairs import (
    PairData,
    PairSettings,
    ReplaySettings,
    build_pair_objective,
    encode_pairs,
    freeze_copy,
    open_pairs,
)
from crossling.tasks import build_task, parse_task
from crossling.training.settings import TrainingSettings

if TYPE_CHECKING:
    import numpy as np

    from crossling.data.batching import Examples
    from crossling.models.model import Model, ModelCard
    from crossling.stages.context import StageContext
    from crossling.training.mixture import Program, Stream

VERSION = 2

DataSpec = str | dict[str, Any]


def _parse_task(value: Any) -> Any:
    try:
        return parse_task(value)
    except UserError as error:
        raise ValueError(str(error)) from None


def _parse_data(value: Any) -> Any:
    found = list_data(value)
    if not found:
        raise ValueError("at least one data set")
    return found


class Auxiliary(FrozenSettings):
    """A task that is learnt beside the main one, from data in the source language."""

    task: Any = Field(json_schema_extra={"family": "tasks"})
    """As the main task's."""
    train: tuple[DataSpec, ...]
    """One data set or a list of them."""

    _valid_task = field_validator("task", mode="before")(_parse_task)
    _valid_train = field_validator("train", mode="before")(_parse_data)

    @field_serializer("task")
    def _dump_task(self, task: Any) -> dict[str, Any]:
        table: dict[str, Any] = task.model_dump(mode="json")
        return table


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

    auxiliary: tuple[Auxiliary, ...] = ()
    """Tasks learnt beside the main one, each with a head of its own; an epoch still counts the main task's examples."""
    auxiliary_temperature: float = Field(default=1.0, ge=1, le=1000)
    """Steps of auxiliary tasks to the main one's: in proportion to their examples to the power of 1 / temperature. 1 as
    sizes are, 1000 all alike."""
    temperature: float = Field(default=1.0, ge=1, le=1000)
    """With training sets in several languages: each is seen in proportion to its number of examples to the power of
    1 / temperature. 1 as they are, 1000 all alike. Examples of smaller ones are repeated; none is left out."""
    replay: ReplaySettings | None = None
    """Continual learning: aligned words in every step."""

    _valid_task = field_validator("task", mode="before")(_parse_task)
    _valid_train = field_validator("train", mode="before")(_parse_data)

    @field_validator("dev", mode="before")
    @classmethod
    def _valid_dev(cls, value: Any) -> Any:
        return None if value is None else list_data(value)[0]

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


def complete_settings(settings: Settings, earlier: list[Any]) -> Settings:
    """What is replayed is what the last adjust stage learnt from, unless the table says otherwise."""
    replay = settings.replay
    if replay is None or replay.parallel:
        return settings
    adjusted = next((stage for stage in reversed(earlier) if stage.kind == "adjust"), None)
    if adjusted is None:
        raise RecipeError("replay.parallel: missing; name parallel text, or put an adjust stage before this one")
    named = {"pull", "stay", *replay.model_fields_set}
    taken = {name: getattr(adjusted, name) for name in PairSettings.model_fields if name not in named}
    return settings.model_copy(update={"replay": replay.model_copy(update=taken)})


@dataclass(frozen=True)
class Data:
    """The rows that a fine-tuning reads."""

    train: tuple[Rows, ...]
    dev: Rows | None
    auxiliary: tuple[tuple[Rows, ...], ...] = ()
    pairs: PairData | None = None

    def fingerprints(self) -> dict[str, Any]:
        """What of the data affects the result."""
        facts: dict[str, Any] = {
            "train": [[rows.language, rows.fingerprint] for rows in self.train],
            "dev": self.dev.fingerprint if self.dev is not None else None,
        }
        if self.auxiliary:
            facts["auxiliary"] = [[rows.fingerprint for rows in some] for some in self.auxiliary]
        if self.pairs is not None:
            facts["pairs"] = self.pairs.fingerprints()
        return facts

    def efforts(self) -> list[tuple[Rows, float]]:
        """Each set that is trained on, and how often it is read in an epoch."""
        tasks = [rows for some in (self.train, *self.auxiliary) for rows in some]
        return [*((rows, 1.0) for rows in tasks), *(self.pairs.efforts() if self.pairs else ())]

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role, for people."""
        return [
            *(("train", rows) for rows in self.train),
            *([("dev", self.dev)] if self.dev is not None else []),
            *((f"auxiliary {number}", rows) for number, some in enumerate(self.auxiliary) for rows in some),
            *(("replay", rows) for _, rows in (self.pairs.described() if self.pairs else ())),
        ]


def open_stage_data(settings: Settings, *, source: str, store: Path) -> Data:
    """Find and open what the stage reads, and see that each task can read its part."""
    train = _open_task_data(settings.task, settings.train, store)
    spec = settings.dev_spec()
    dev = _open_task_data(settings.task, (spec,), store, split="dev")[0] if spec is not None else None
    if dev is not None and dev.language != source:
        raise RecipeError(
            f"dev = {dev.name} is in {dev.language!r}, but the source language, {source!r}, selects checkpoints. "
            f"Name a dev set in {source!r}, or set source = {dev.language!r}."
        )
    auxiliary = tuple(_open_task_data(one.task, one.train, store) for one in settings.auxiliary)
    for number, rows in ((n, rows) for n, some in enumerate(auxiliary) for rows in some):
        if rows.language != source:
            raise RecipeError(
                f"auxiliary.{number}.train = {rows.name} is in {rows.language!r}; auxiliary tasks are learnt in the "
                f"source language, {source!r}"
            )
    steps = sum(map(len, train)) / settings.batch
    pairs = None
    if settings.replay is not None and _replays(settings):
        pairs = open_pairs(settings.replay, source=source, store=store)
        pairs = replace(pairs, times=steps * settings.replay.batch)
    return Data(train, dev, auxiliary, pairs)


def _open_task_data(task: Any, specs: tuple[DataSpec, ...], store: Path, *, split: str = "train") -> tuple[Rows, ...]:
    from crossling.inference.evaluate import check_kind

    reader = build_task(task, ())
    return tuple(check_kind(reader, open_data(spec, split=split, store=store)) for spec in specs)


def _replays(settings: Settings) -> bool:
    """With both weights 0 there is nothing to replay."""
    return settings.replay is not None and bool(settings.replay.pull or settings.replay.stay)


def identity_inputs(settings: Settings, data: Data) -> dict[str, Any]:
    """The part of the stage's identity that only it knows; data count by content, not by name."""
    table = settings.model_dump(mode="json", exclude={"train", "dev", "auxiliary", "replay"})
    # What a stage does not use does not count, so that a result stays known when a setting is added.
    unused = {"auxiliary_temperature": settings.auxiliary, "temperature": settings.temperature != 1.0}
    table = {name: value for name, value in table.items() if unused.get(name, True)}
    if settings.auxiliary:
        table["auxiliary"] = [one.model_dump(mode="json", exclude={"train"}) for one in settings.auxiliary]
    if settings.replay is not None and _replays(settings):
        table["replay"] = settings.replay.model_dump(mode="json", exclude={"parallel", "links"})
    return {"settings": table, "data": data.fingerprints()}


def train(settings: Settings, data: Data, context: StageContext) -> tuple[Model, ModelCard, dict[str, Any]]:
    """Train; gives the model, what is needed to build it again, and a record of how training went."""
    from crossling.models.model import ModelCard
    from crossling.training.loop import Execution, fit

    work = _prepare(settings, data, context)
    execution = Execution(
        context.distributed,
        context.seed,
        context.work,
        checkpoint_seconds=context.checkpoint_seconds,
        progress=context.progress,
        track=context.track,
        what=f"fine-tuning (seed {context.seed})",
    )
    name, main = next(iter(work.tasks.items()))
    evaluate = partial(_score_dev, work.model, main, name, data.dev, context) if data.dev is not None else None
    if context.on_start is not None:
        context.on_start(main, context.encoder)
    position = fit(work.model, work.program, settings, execution, evaluate=evaluate)
    card = ModelCard(
        encoder=context.encoder_settings.name,
        encoder_identity=context.encoder.identity,
        revision=context.encoder_settings.revision,
        fusion=settings.fusion,
        tasks={
            head: {"settings": task.settings.model_dump(mode="json"), "labels": list(task.labels)}
            for head, task in work.tasks.items()
        },
        source=context.source,
    )
    record = {
        "steps": position.step,
        "best_step": position.best_step,
        "dev_score": position.best_score,
        "training_seconds": round(position.seconds, 3),
        "history": position.history,
    }
    return work.model, card, record


@dataclass(frozen=True)
class _Work:
    """What is trained, and on what."""

    model: Model
    tasks: dict[str, Any]
    """By head, the main one first."""
    program: Program


def _prepare(settings: Settings, data: Data, context: StageContext) -> _Work:
    """Model, streams and vocabulary; the heads and the fusion are drawn in an order that makes systems comparable."""
    import torch

    from crossling.models.model import build_model
    from crossling.training.mixture import Auxiliary as AuxiliaryStream
    from crossling.training.mixture import Program, Replay, Stream, share_steps

    tasks = {settings.task.kind: _make_task(settings.task, data.train)}
    for number, (one, rows) in enumerate(zip(settings.auxiliary, data.auxiliary, strict=True)):
        tasks[f"auxiliary-{number}-{one.task.kind}"] = _make_task(one.task, rows)
    objectives = {name: task.build_objective(name) for name, task in tasks.items()}
    # The main head is drawn first, then the fusion: they then start alike whatever else there is, and systems that
    # share a seed are compared under the same luck.
    torch.manual_seed(context.seed)
    main, *others = tasks
    head = objectives[main].build_head(context.encoder.width)
    model = build_model(context.encoder, settings.fusion)
    model.heads[main] = head
    for name in others:
        model.heads[name] = objectives[name].build_head(context.encoder.width)
    streams = {main: Stream(objectives[main], _encode_main(settings, tasks[main], data, context))}
    for name, rows in zip(others, data.auxiliary, strict=True):
        streams[name] = Stream(objectives[name], _encode(tasks[name], rows, context))
    pairs = encode_pairs(settings.replay, data.pairs, context) if settings.replay and data.pairs else None
    used = None
    if context.should_trim(settings.weight_decay):
        used = _used_ids(
            tasks[main], data, [*(s.examples for s in streams.values()), *([pairs] if pairs else [])], context
        )
        model.trim(used)
    replay = None
    if pairs is not None and settings.replay is not None:
        reference = _find_reference(settings.replay, model, used, context)
        objective = build_pair_objective(
            "replay", settings.replay, model.encoder, reference, context.distributed.precision
        )
        replay = Replay(Stream(objective, pairs), settings.replay.batch)
    auxiliary = tuple(
        AuxiliaryStream(streams[name], _share(streams, name, main, settings, share_steps)) for name in others
    )
    return _Work(model, tasks, Program(streams[main], auxiliary, replay))


def _share(streams: dict[str, Stream], name: str, main: str, settings: Settings, share_steps: Any) -> float:
    sizes = [len(streams[key].examples) for key in (name, main)]
    share: float = share_steps(*sizes, settings.auxiliary_temperature)
    return share


def _make_task(settings: Any, rows: tuple[Rows, ...]) -> Any:
    kind = load_kind("tasks", settings.kind).Task
    return build_task(settings, kind.collect_labels(rows))


def _encode(task: Any, rows: tuple[Rows, ...], context: StageContext) -> Examples:
    from crossling.inference.evaluate import encode_rows

    return encode_rows(task, rows, context.encoder, cache=context.encoded, labels=task.labels)


def _encode_main(settings: Settings, task: Any, data: Data, context: StageContext) -> Examples:
    """The main task's examples, those of small languages repeated where a temperature asks for it."""
    if settings.temperature == 1.0:
        return _encode(task, data.train, context)
    import numpy as np

    from crossling.data.batching import ExampleSubset, JoinedExamples
    from crossling.stages.masked_training import repeat_rows

    parts = [_encode(task, (rows,), context) for rows in data.train]
    languages = sorted({rows.language for rows in data.train})
    codes = [languages.index(rows.language) for rows in data.train]
    numbers = np.repeat(codes, [len(part) for part in parts])
    return ExampleSubset(JoinedExamples(parts), repeat_rows(numbers, settings.temperature, context.seed))


def _used_ids(
    task: Any, data: Data, examples: list[Examples], context: StageContext
) -> np.ndarray[Any, np.dtype[np.int64]]:
    import numpy as np

    from crossling.inference.evaluate import encode_rows

    # What an earlier stage changed is kept as well: a saved model takes all other rows from the base encoder.
    used = [*(some.distinct_ids() for some in examples), context.encoder.changed_rows]
    if data.dev is not None:
        labels = (*task.labels, *sorted(set(task.collect_labels([data.dev])) - set(task.labels)))
        dev = encode_rows(task, [data.dev], context.encoder, cache=context.encoded, labels=labels)
        used.append(dev.distinct_ids())
    return np.unique(np.concatenate(used))


def _find_reference(settings: ReplaySettings, model: Model, used: Any, context: StageContext) -> Any:
    """The encoder that source words are held to, with the vocabulary that the model has."""
    from crossling.encoders.trimming import trim_encoder

    if not settings.stay:
        return None
    if settings.reference == "start" or context.base is None:
        return freeze_copy(model.encoder).to(context.distributed.device)
    base = context.base()
    if used is not None:
        trim_encoder(base, used)
    return base.eval().requires_grad_(False).to(context.distributed.device)


def _score_dev(model: Model, task: Any, head: str, dev: Rows, context: StageContext) -> float:
    """The task's main score on dev, by the leading process alone."""
    from crossling.inference.evaluate import predict_rows
    from crossling.scores.metrics import score

    if not context.distributed.is_main:
        return 0.0
    predictions = predict_rows(model, task, dev, head=head, distributed=context.distributed, cache=context.encoded)
    return score(predictions)[task.settings.score]
