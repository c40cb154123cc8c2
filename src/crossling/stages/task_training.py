"""Training an encoder and a head on a task: what the stages ``finetune`` and ``teach`` share.

Beside its main task a stage may learn auxiliary ones in the source language (feature augmentation), and replay aligned
words so that translations stay together (continual learning, equation 2 of the adjustment paper).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.data.catalogue import open_data
from crossling.data.rows import Rows
from crossling.errors import RecipeError
from crossling.fusions import identify_fusion
from crossling.objectives.aligned_words import ReplaySettings, identify_pairs
from crossling.objectives.consistency import VERSION as CONSISTENCY_VERSION
from crossling.stages import TrainedStage
from crossling.stages.consistent_task import LEXICON, make_consistent_stream, open_lexicons
from crossling.stages.ensemble import find_shared
from crossling.stages.parsing import DataSpec
from crossling.stages.source_vectors import compare_source, describe_change, read_source
from crossling.stages.task_settings import SettingsT, TaskStageSettings
from crossling.stages.word_pairs import PairData, copy_encoder, encode_pairs, freeze_reference, open_pairs
from crossling.tasks import Task, TaskSettings, build_task, learn_labels
from crossling.training.settings import drop_unused

if TYPE_CHECKING:
    from crossling.aligners.lexicon import Lexicon
    from crossling.data.batching import Array, Examples
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import TaskObjective
    from crossling.progress import Progress
    from crossling.stages.context import StageContext
    from crossling.training.mixture import AuxiliaryStream, Mixture, ReplayStream, Stream


@dataclass(frozen=True)
class TaskData:
    """Labelled rows, and what else is learnt beside them."""

    train: tuple[Rows, ...]
    dev: Rows | None
    auxiliary: tuple[tuple[Rows, ...], ...] = ()
    pairs: PairData | None = None
    lexicons: tuple[Lexicon, ...] = ()
    lexicon_text: tuple[Rows, ...] = ()
    """Parallel text that lexicons were made from; they count by their own content."""

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
        if self.lexicons:
            facts["lexicons"] = [lexicon.content for lexicon in self.lexicons]
        return facts

    def reads_per_epoch(self) -> list[tuple[Rows, float]]:
        """Each set that is trained on, and how often it is read in an epoch."""
        tasks = [rows for some in (self.train, *self.auxiliary) for rows in some]
        return [*((rows, 1.0) for rows in tasks), *(self.pairs.reads_per_epoch() if self.pairs else ())]

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role."""
        return [
            *(("train", rows) for rows in self.train),
            *([("dev", self.dev)] if self.dev is not None else []),
            *((f"auxiliary {number}", rows) for number, some in enumerate(self.auxiliary) for rows in some),
            *(("replay", rows) for _, rows in (self.pairs.described() if self.pairs else ())),
            *((LEXICON, rows) for rows in self.lexicon_text),
        ]


def open_task_data(
    settings: TaskStageSettings, *, source: str, store: Path, progress: Progress | None = None
) -> TaskData:
    """Find and open what the stage reads, and see that each task can read its part."""
    train = _open_sets(settings.task, settings.train, store)
    dev = open_dev(settings, source=source, store=store)
    auxiliary = tuple(_open_sets(one.task, one.train, store) for one in settings.auxiliary)
    for number, rows in ((n, rows) for n, some in enumerate(auxiliary) for rows in some):
        if rows.language != source:
            raise RecipeError(
                f"auxiliary.{number}.train = {rows.name} is in {rows.language!r}; auxiliary tasks are learnt in the "
                f"source language, {source!r}"
            )
    pairs = None
    if settings.replay is not None and settings.replay.is_on():
        pairs = open_pairs(settings.replay, source=source, store=store)
        steps = sum(map(len, train)) / settings.batch
        pairs = replace(pairs, pairs_per_epoch=steps * settings.replay.batch)
    lexicons = open_lexicons(settings.consistency, train, store=store, progress=progress)
    return TaskData(train, dev, auxiliary, pairs, *lexicons)


def open_dev(settings: TaskStageSettings, *, source: str, store: Path) -> Rows | None:
    """The dev set, which is in the source language."""
    spec = settings.dev_spec()
    dev = _open_sets(settings.task, (spec,), store, split="dev")[0] if spec is not None else None
    if dev is not None and dev.language != source:
        raise RecipeError(
            f"dev = {dev.name} is in {dev.language!r}, but the source language, {source!r}, selects checkpoints. "
            f"Name a dev set in {source!r}, or set source = {dev.language!r}."
        )
    return dev


def _open_sets(
    settings: TaskSettings, specs: tuple[DataSpec, ...], store: Path, *, split: str = "train"
) -> tuple[Rows, ...]:
    from crossling.inference.evaluate import check_kind

    task = build_task(settings, ())
    return tuple(check_kind(task, open_data(spec, split=split, store=store)) for spec in specs)


def fit_tasks(settings: SettingsT, data: TaskData) -> SettingsT:
    """The settings with all tasks as the labels of their training data ask for."""
    pairs = zip(settings.auxiliary, data.auxiliary, strict=True)
    auxiliary = tuple(one.model_copy(update={"task": _fit(one.task, rows)}) for one, rows in pairs)
    return settings.model_copy(update={"task": _fit(settings.task, data.train), "auxiliary": auxiliary})


def _fit(task: TaskSettings, rows: tuple[Rows, ...]) -> TaskSettings:
    return learn_labels(task, rows).settings if getattr(task, "is_open", False) else task


def identify_task(settings: TaskStageSettings, data: TaskData) -> dict[str, Any]:
    """What the identity of a stage that trains a task is made of; data count by content, not by name."""
    settings = fit_tasks(settings, data)
    table = settings.model_dump(mode="json", exclude={"train", "dev", "auxiliary", "replay", "consistency", "encoder"})
    # What a stage does not use does not count, so that a result stays known when a setting is added.
    used = {
        "select": settings.average == "none",
        "average": settings.average != "none",
        "initial_head": settings.initial_head != "own",
        "auxiliary_temperature": bool(settings.auxiliary),
        "temperature": settings.temperature != 1.0,
    }
    table = {name: value for name, value in drop_unused(table).items() if used.get(name, True)}
    table["fusion"] = identify_fusion(settings.fusion)
    if settings.auxiliary:
        table["auxiliary"] = [one.model_dump(mode="json", exclude={"train"}) for one in settings.auxiliary]
    if settings.replay is not None and settings.replay.is_on():
        table["replay"] = identify_pairs(settings.replay)
    if settings.consistency is not None:
        table["consistency"] = settings.consistency.model_dump(mode="json", exclude={"lexicon"})
        table["consistency"]["version"] = CONSISTENCY_VERSION
    return {"settings": table, "data": data.fingerprints()}


def train_task(
    settings: TaskStageSettings,
    data: TaskData,
    context: StageContext,
    *,
    what: str,
    taught: Examples | None = None,
    initial: Model | None = None,
) -> TrainedStage:
    """Train on a task; with dev data, the model of the best epoch, unless epochs are averaged.

    ``taught``: more examples of the main task. ``initial``: a model whose heads and fusion the new one starts with.
    """
    from crossling.training.loop import fit

    tasks = _name_tasks(settings, data)
    model, mixture = _prepare(settings, data, tasks, context, taught)
    if initial is not None:
        model.heads.load_state_dict(initial.heads.state_dict())
        model.get_submodule("fusion").load_state_dict(initial.get_submodule("fusion").state_dict())
    name, main = next(iter(tasks.items()))
    evaluate = partial(score_dev, model, main, name, data.dev, context) if data.dev is not None else None
    if context.on_start is not None:
        context.on_start(main, context.encoder)
    average = settings.average == "epochs"
    position = fit(model, mixture, settings, context.execution(what), evaluate=evaluate, average=average)
    card = context.describe_model(
        fusion=settings.fusion,
        tasks={
            head: {"settings": task.settings.model_dump(mode="json"), "labels": list(task.labels)}
            for head, task in tasks.items()
        },
    )
    record: dict[str, Any] = {
        "steps": position.step,
        "best_step": position.best_step,
        "dev_score": position.best_score,
        "training_seconds": round(position.seconds, 3),
        "history": position.history,
    }
    if change := _compare_replayed(model, mixture, context):
        record["source_vectors"] = change
    if average:
        record["select"] = f"not applied: the mean of {settings.epochs} epochs"
    return TrainedStage(model, card, record)


def _name_tasks(settings: TaskStageSettings, data: TaskData) -> dict[str, Task]:
    """All tasks by the names of their heads, the main one first."""
    tasks = {settings.task.kind: learn_labels(settings.task, data.train)}
    for number, (one, rows) in enumerate(zip(settings.auxiliary, data.auxiliary, strict=True)):
        tasks[f"auxiliary-{number}-{one.task.kind}"] = learn_labels(one.task, rows)
    return tasks


def _prepare(
    settings: TaskStageSettings,
    data: TaskData,
    tasks: dict[str, Task],
    context: StageContext,
    taught: Examples | None,
) -> tuple[Model, Mixture]:
    """The model, its vocabulary trimmed to what is read, and the streams that it learns from."""
    from crossling.data.batching import join_examples
    from crossling.training.mixture import Mixture, Stream

    model, objectives = _build_model(settings, tasks, context)
    (name, task), *others = tasks.items()
    labelled, languages = _encode_main(settings, task, data, context)
    main = Stream(objectives[name], labelled if taught is None else join_examples([labelled, taught]))
    if settings.consistency is not None:
        main = make_consistent_stream(main, settings.consistency, context, lexicons=data.lexicons, languages=languages)
    parts = zip(others, data.auxiliary, strict=True)
    auxiliary = [Stream(objectives[other], _encode(its, rows, context)) for (other, its), rows in parts]
    pairs = encode_pairs(settings.replay, data.pairs, context) if settings.replay and data.pairs else None
    used = None
    if context.should_trim(settings.weight_decay):
        examples = [main.examples, *(one.examples for one in auxiliary), *([pairs] if pairs else [])]
        used = _find_used_ids(task, data, examples, context)
        model.trim(used)
    replay = _build_replay(settings.replay, pairs, model, used, context) if settings.replay and pairs else None
    return model, Mixture(main, tuple(_weigh_auxiliary(one, main, settings) for one in auxiliary), replay)


def _build_model(
    settings: TaskStageSettings, tasks: dict[str, Task], context: StageContext
) -> tuple[Model, dict[str, TaskObjective]]:
    """A model with a head for each task, and their objectives.

    The main head is drawn first, then the fusion: they then start alike whatever else there is, so that systems with
    the same seed are compared from the same start.
    """
    import torch

    from crossling.models.model import build_model

    objectives = {name: task.build_objective(name) for name, task in tasks.items()}
    torch.manual_seed(find_shared(context.seed) if settings.initial_head == "shared" else context.seed)
    main, *others = objectives.values()
    head = main.build_head(context.encoder.width)
    model = build_model(context.encoder, settings.fusion)
    for objective, built in ((main, head), *((one, one.build_head(context.encoder.width)) for one in others)):
        assert built is not None
        model.heads[objective.name] = built
    return model, objectives


def _weigh_auxiliary(stream: Stream, main: Stream, settings: TaskStageSettings) -> AuxiliaryStream:
    from crossling.training.mixture import AuxiliaryStream, share_steps

    return AuxiliaryStream(
        stream, share_steps(len(stream.examples), len(main.examples), settings.auxiliary_temperature)
    )


def _build_replay(
    settings: ReplaySettings, pairs: Examples, model: Model, used: Array | None, context: StageContext
) -> ReplayStream:
    from crossling.objectives.aligned_words import Objective
    from crossling.training.mixture import ReplayStream, Stream

    reference = _find_reference(settings, model, used, context) if settings.stay else None
    objective = Objective("replay", settings, model.encoder, reference=reference)
    return ReplayStream(Stream(objective, pairs), settings.batch)


def _compare_replayed(model: Model, mixture: Mixture, context: StageContext) -> dict[str, Any]:
    """What became of the source words that were replayed, compared with the encoder that they were held to."""
    from crossling.objectives.aligned_words import Objective

    stream = mixture.replay.stream if mixture.replay is not None else None
    if stream is None or not isinstance(stream.objective, Objective) or stream.objective.reference is None:
        return {}
    read = partial(read_source, model, stream.objective, stream.examples, context.distributed)
    change = compare_source(read(encoder=stream.objective.reference), read())
    context.progress.say(describe_change(change, context.source))
    return change


def _find_reference(settings: ReplaySettings, model: Model, used: Array | None, context: StageContext) -> Encoder:
    """The encoder that source words are compared with; its vocabulary is the model's."""
    from crossling.encoders.vocabulary import trim_encoder

    if settings.reference == "start" or context.base is None:
        return freeze_reference(copy_encoder(model.encoder), context.distributed)
    base = context.base()
    if used is not None:
        trim_encoder(base, used)
    return freeze_reference(base, context.distributed)


def _encode(task: Task, rows: tuple[Rows, ...], context: StageContext) -> Examples:
    from crossling.inference.evaluate import encode_rows

    return encode_rows(task, rows, context.encoder, cache=context.encoded, labels=task.labels)


def _encode_main(
    settings: TaskStageSettings, task: Task, data: TaskData, context: StageContext
) -> tuple[Examples, list[str]]:
    """The main task's examples, those of small languages repeated by the temperature, and the language of each."""
    import numpy as np

    from crossling.data.batching import ExampleSubset, JoinedExamples, join_examples
    from crossling.stages.masked_training import repeat_rows

    parts = [_encode(task, (rows,), context) for rows in data.train]
    languages = sorted({rows.language for rows in data.train})
    codes = [languages.index(rows.language) for rows in data.train]
    numbers = np.repeat(codes, [len(part) for part in parts])
    if settings.temperature == 1.0:
        return join_examples(parts), [languages[number] for number in numbers]
    repeated = repeat_rows(numbers, settings.temperature, context.seed)
    return ExampleSubset(JoinedExamples(parts), repeated), [languages[number] for number in numbers[repeated]]


def _find_used_ids(task: Task, data: TaskData, examples: list[Examples], context: StageContext) -> Array:
    """All subwords that training and dev data have, and those that an earlier stage changed: a saved model takes all
    others from the base encoder."""
    import numpy as np

    from crossling.inference.evaluate import encode_rows

    used = [*(some.distinct_ids() for some in examples), context.encoder.changed_rows]
    if data.dev is not None:
        labels = (*task.labels, *sorted(set(task.collect_labels([data.dev])) - set(task.labels)))
        dev = encode_rows(task, [data.dev], context.encoder, cache=context.encoded, labels=labels)
        used.append(dev.distinct_ids())
    return np.unique(np.concatenate(used))


def score_dev(model: Model, task: Task, head: str, dev: Rows, context: StageContext) -> float:
    """The task's main score on dev, by the main process alone."""
    from crossling.inference.evaluate import predict_rows
    from crossling.scores.metrics import score

    if not context.distributed.is_main:
        return 0.0
    predictions = predict_rows(model, task, dev, head=head, distributed=context.distributed, cache=context.encoded)
    return score(predictions)[task.settings.score]
