"""What model probing and head probing share: their tasks and data, and the way from a model to probes' answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, model_validator

from crossling.analyses.settings import AnalysisSettings, Languages
from crossling.data.catalogue import open_data
from crossling.data.records import LabelledPair, LabelledText, TaggedSentence
from crossling.data.rows import Rows
from crossling.errors import DataError, UserError
from crossling.limits import LARGEST_NUMBER, LARGEST_SEED, MOST_COUNTED
from crossling.recipe.recipe import FrozenSettings
from crossling.registry import load_kind
from crossling.scores.predictions import UNSEEN
from crossling.scores.significance.counts import LEAST_SUPPORT
from crossling.tasks import learn_labels, parse_task

if TYPE_CHECKING:
    from crossling.analyses import AnalysisContext
    from crossling.analyses._probes.features import Extract, LabelledPositions
    from crossling.models.model import Model, ModelCard

Array = np.ndarray[Any, np.dtype[Any]]
SETS = {"pos": "ud", "ner": "panx", "nli": "xnli", "paraphrase": "pawsx", "sentiment": "marc"}
"""The data set of a named task, where none is named."""
ALL = "all"
"""The name of all languages' tests taken together."""
EVERYTHING = 0
"""The number of the sample that has every training sentence once."""
HELD_BYTES = 2 << 30
"""Features that are held in memory by default."""
PROBED = (TaggedSentence, LabelledText, LabelledPair)
"""What has labels at words or at texts; an answer is neither."""


class ProbeTaskSettings(FrozenSettings):
    """A task that features are probed for: what teaches the probe, and what it is scored on."""

    task: Any = None
    """As in a recipe: a name or a table; default: the name under which it stands."""
    on: str | dict[str, Any] = ""
    """The data set that probes are scored on; default: the task's usual one."""
    train: str | dict[str, Any] | None = None
    """What teaches the probe, in the source language; default: the same set's training part."""
    languages: tuple[str, ...] = ()
    """Default: those of the analysis."""
    split: str = "test"
    """What of the data set is scored."""


def parse_tasks(value: Any) -> Any:
    """``pos,sentiment=umsab`` or a list of such names as a table for each task."""
    if isinstance(value, str):
        value = tuple(item.strip() for item in value.split(",") if item.strip())
    if isinstance(value, list | tuple):
        items = [str(item).partition("=") for item in value]
        value = {name.strip(): {"on": data.strip()} if sign else {} for name, sign, data in items}
    if not isinstance(value, Mapping) or not value:
        raise ValueError('name at least one task, such as ["pos", "ner"]')
    return dict(value)


class ProbingSettings(AnalysisSettings):
    """Tasks, languages and the training of probes."""

    tasks: Annotated[dict[str, ProbeTaskSettings], BeforeValidator(parse_tasks)]
    """Names of tasks, each with a data set if not the usual one: pos,ner,sentiment=umsab; or a table for each:
    { paraphrase = { train = "pawsx:en:dev[:1400]", split = "dev[1600:]" } }."""
    languages: Languages = ()
    """Codes of the languages whose tests are scored, together and each: en,de."""
    rows: int | None = Field(default=None, ge=1, le=MOST_COUNTED)
    """The most training rows of a task, drawn at random; default: all."""
    test_rows: int | None = Field(default=None, ge=1, le=MOST_COUNTED)
    """The most rows of each test, drawn at random; default: all."""
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED)
    """Draws rows and samples."""
    samples: int = Field(default=0, ge=0, le=100)
    """Bootstrap samples of the training rows that probes are also trained on, for the spread of their scores."""
    l2: float = Field(default=1.0, gt=0, le=LARGEST_NUMBER)
    """Penalty on squared weights, as against the summed loss: scikit-learn's 1 / C."""
    tolerance: float = Field(default=1e-5, gt=0, le=LARGEST_NUMBER)
    """Training ends when no partial derivative of the mean loss is larger."""
    memory: int | None = Field(default=None, ge=0, le=1 << 50, exclude=True)
    """Megabytes of features to hold where they are computed with; more are read from disk in every pass, which does not
    change a result. Default: 2,048, on a GPU half of what is free there."""
    against: str = Field(default="", exclude=True)
    """The model that others are compared with; default: the encoder that each was before training."""

    @model_validator(mode="after")
    def _complete(self) -> ProbingSettings:
        for name, probed in self.tasks.items():
            kind = _parse(name, probed)
            if load_kind("tasks", kind.kind).Task.record not in PROBED:
                raise ValueError(f"tasks.{name}: probes give labels to words or texts, and answers are neither")
            if not _find_set(name, probed):
                raise ValueError(f'tasks.{name}.on: missing; the data set to score on, such as "ud"')
            if isinstance(_find_set(name, probed), str) and not (probed.languages or self.languages):
                raise ValueError('languages: missing; the codes to score, such as ["en", "de"]')
        return self


def _parse(name: str, probed: ProbeTaskSettings) -> Any:
    """A task's own settings."""
    try:
        return parse_task(probed.task or name)
    except UserError as error:
        raise ValueError(f"tasks.{name}: {error}") from None


def _find_set(name: str, probed: ProbeTaskSettings) -> str | dict[str, Any]:
    return probed.on or SETS.get(name, "")


@dataclass(frozen=True)
class ProbeTask:
    """A task with its rows."""

    name: str
    task: Any
    train: Rows
    tests: Mapping[str, Rows]
    """By language."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Those of the training rows, which a probe can give, then those that only tests have."""
        unseen = set(self.task.collect_labels(self.tests.values())) - set(self.task.labels)
        return (*self.task.labels, *sorted(unseen))

    @property
    def of_words(self) -> bool:
        return bool(self.task.record is TaggedSentence)


@dataclass(frozen=True)
class Data:
    """The rows of all tasks."""

    probed: tuple[ProbeTask, ...]

    def fingerprints(self) -> list[str]:
        """What of the data affects the result."""
        return [
            f"{one.name} {one.train.fingerprint} "
            + " ".join(f"{language} {rows.fingerprint}" for language, rows in one.tests.items())
            for one in self.probed
        ]


def open_probing_data(settings: ProbingSettings, *, source: str, store: Path) -> Data:
    """Find and open the rows of all tasks."""
    return Data(tuple(_open(name, one, settings, source, store) for name, one in settings.tasks.items()))


def _open(name: str, probed: ProbeTaskSettings, settings: ProbingSettings, source: str, store: Path) -> ProbeTask:
    from crossling.inference.evaluate import check_kind

    on = _find_set(name, probed)
    train = probed.train or (f"{on}:{source}" if isinstance(on, str) else None)
    if train is None:
        raise DataError(f"tasks.{name}.train: missing; beside custom files, name what teaches the probe")
    rows = open_data(_limit(train, settings.rows, settings.seed), split="train", store=store)
    if rows.language != source:
        raise DataError(f"tasks.{name}.train = {rows.name} is in {rows.language!r}; probes learn from {source!r} alone")
    task = learn_labels(_parse(name, probed), [rows])
    tests = {}
    for spec in [on] if isinstance(on, dict) else [f"{on}:{code}" for code in probed.languages or settings.languages]:
        test = open_data(_limit(spec, settings.test_rows, settings.seed), split=probed.split, store=store)
        tests[test.language if isinstance(spec, dict) else spec.removeprefix(f"{on}:")] = test
    for part in (rows, *tests.values()):
        check_kind(task, part)
    if len(task.labels) < 2:
        raise DataError(f"{rows.name}: all of its labels are {task.labels[0]!r}; a probe needs two to distinguish")
    return ProbeTask(name, task, rows, tests)


def _limit(spec: str | dict[str, Any], rows: int | None, seed: int) -> str | dict[str, Any]:
    if rows is None:
        return spec
    table = {"data": spec} if isinstance(spec, str) else dict(spec)
    return {**table, "limit": rows, "sample_seed": seed}


@dataclass(frozen=True)
class ProbePredictions:
    """What the probes of a task say of one language's test."""

    language: str
    data: str
    positions: LabelledPositions
    predicted: Array
    """Codes: N examples x G groups x R samples, the first of which has every training row."""
    rows: int


def probe_task(
    model: Model,
    probed: ProbeTask,
    *,
    extract: Extract,
    key: Sequence[Any],
    groups: int,
    settings: ProbingSettings,
    context: AnalysisContext,
    keep: bool,
) -> Iterator[ProbePredictions]:
    """Train the probes of a task on a model's features and let them answer every test; ``keep``: features, on disk."""
    import torch

    from crossling.analyses._probes.features import collect_features, find_folder
    from crossling.analyses._probes.training import apply_probes, train_probes

    folder = find_folder(model.encoder, context.store)
    labels, files = probed.labels, []

    def collect(rows: Rows) -> Any:
        found = collect_features(
            model,
            probed.task,
            rows,
            extract=extract,
            key=key,
            groups=groups,
            labels=labels,
            folder=folder,
            context=context,
        )
        files.append(found[0].path)
        return found

    try:
        features, positions = collect(probed.train)
        context.progress.begin(f"training probes for {probed.name} on {len(positions):,} examples", groups)
        weights_RN = draw_samples(positions.row, len(probed.train), settings.samples, seed=settings.seed)
        probes = train_probes(
            features,
            torch.from_numpy(positions.gold),
            classes=len(probed.task.labels),
            weights_RN=torch.from_numpy(weights_RN) if settings.samples else None,
            l2=settings.l2,
            tolerance=settings.tolerance,
            memory=choose_memory(settings.memory, context.distributed.device),
            finished=context.progress.advance,
        )
        context.progress.end()
        for language, rows in probed.tests.items():
            features, positions = collect(rows)
            yield ProbePredictions(language, rows.name, positions, apply_probes(probes, features).numpy(), len(rows))
    finally:
        if not keep:
            for path in files:
                path.unlink(missing_ok=True)


def choose_memory(megabytes: int | None, device: Any) -> int:
    """Bytes of features to hold."""
    import torch

    if megabytes is not None:
        return megabytes << 20
    return int(torch.cuda.mem_get_info(device)[0]) // 2 if device.type == "cuda" else HELD_BYTES


def draw_samples(row_N: Array, rows: int, samples: int, *, seed: int) -> Array:
    """How often each sample has each example: everything once, then bootstrap samples of whole rows."""
    counts = [np.ones(len(row_N), np.float32)]
    for number in range(samples):
        drawn = np.random.default_rng([seed, number]).integers(rows, size=rows)
        counts.append(np.bincount(drawn, minlength=rows)[row_N].astype(np.float32))
    return np.stack(counts)


def is_own(card: ModelCard, probed: ProbeTask) -> bool:
    """Whether a model was trained for this very task: one of the same kind, with the same labels.

    A label or two may be missing, for rare ones do not occur in every part of the data.
    """
    labels = set(probed.task.labels)
    return any(
        stored["settings"].get("kind") == probed.task.settings.kind
        and 2 * len(labels & set(stored["labels"])) > len(labels | set(stored["labels"]))
        for stored in card.tasks.values()
    )


def count_confusions(gold_N: Array, predicted_NP: Array, labels: int) -> Array:
    """How often each probe gave each label to each gold one: P x (labels + 1) x labels, unseen gold last."""
    probes = predicted_NP.shape[1]
    gold_N = np.where(gold_N == UNSEEN, labels, gold_N).astype(np.int64)
    counts = np.empty((probes, labels + 1, labels), np.int64)
    for number in range(probes):
        cells = np.bincount(gold_N * labels + predicted_NP[:, number], minlength=(labels + 1) * labels)
        counts[number] = cells.reshape(labels + 1, labels)
    return counts


def score_confusions(counts: Array) -> dict[str, Array]:
    """Each probe's macro F1 and accuracy, as :mod:`crossling.scores` defines them."""
    labels = counts.shape[-1]
    right = np.zeros(counts.shape[:-1])
    right[..., :labels] = np.diagonal(counts[..., :labels, :], axis1=-2, axis2=-1)
    gold, predicted = counts.sum(-1), np.zeros(counts.shape[:-1])
    predicted[..., :labels] = counts.sum(-2)
    both = gold + predicted
    f1 = np.divide(2 * right, both, out=np.zeros_like(right), where=both > 0)
    supported = gold >= LEAST_SUPPORT
    return {
        "macro_f1": f1.sum(-1) / np.maximum((both > 0).sum(-1), 1),
        "macro_f1_supported": (f1 * supported).sum(-1) / np.maximum(supported.sum(-1), 1),
        "accuracy": right.sum(-1) / np.maximum(gold.sum(-1), 1),
    }
