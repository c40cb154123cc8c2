"""Tasks: what is read, which head, which scores. One file per kind; the named tasks are presets of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from crossling.errors import DataError, RecipeError, nearest
from crossling.limits import MOST_LABELS
from crossling.registry import list_kinds, load_kind

if TYPE_CHECKING:
    from crossling.data.batching import Batch, Examples
    from crossling.data.rows import Rows
    from crossling.encoders.encoder import Encoder
    from crossling.objectives import TaskObjective
    from crossling.scores.predictions import Predictions

SplitWords = Callable[[str], Sequence[tuple[str, int, int]]]
"""Words of a text, each with its first character and the one after its last."""
PRESETS: dict[str, dict[str, Any]] = {
    "pos": {"kind": "tag", "scheme": "none", "score": "accuracy"},
    "ner": {"kind": "tag", "scheme": "bio", "score": "span_f1"},
    "nli": {"kind": "classify_pair", "score": "accuracy"},
    "paraphrase": {"kind": "classify_pair", "score": "accuracy"},
    "sentiment": {"kind": "classify", "score": "macro_f1"},
    "qa": {"kind": "answer", "score": "qa_f1"},
}
"""The six named tasks."""


class TaskSettings(Protocol):
    """What the settings of all tasks have.

    A kind whose settings depend on the labels also has ``is_open``: whether its task, which knows them, fills in more.
    """

    @property
    def kind(self) -> str:
        """The task's kind."""

    @property
    def score(self) -> str:
        """The score that selects checkpoints and comes first in tables."""

    def model_dump(self, *, mode: Literal["json", "python"] | str = ...) -> dict[str, Any]:
        """The settings as a table."""


class Task(Protocol):
    """A task with the label set that training fixed. A kind's module defines it, ``Settings`` and ``VERSION``.

    It may define ``ENCODING_SETTINGS``: the settings that ``encode`` reads, where it reads of the encoder nothing but
    the tokenizer, ``max_length``, ``uses_token_types`` and ``is_causal``. Stored examples then serve all models and
    settings that are alike in these; whatever else it read would be an error. Without it they serve one encoder with
    one table of settings.
    """

    record: type
    """The kind of example that it reads, one of those in ``data/records.py``."""
    columns: tuple[str, ...]
    """The columns of rows that count in the identity of encoded examples."""
    labels: tuple[str, ...]

    @property
    def settings(self) -> TaskSettings:
        """Its settings."""

    @staticmethod
    def collect_labels(rows: Iterable[Rows]) -> tuple[str, ...]:
        """The label set of training data, sorted."""

    def build_objective(self, name: str) -> TaskObjective:
        """The loss, and the head that it needs."""

    def encode(
        self, chunks: Iterable[dict[str, list[Any]]], encoder: Encoder, *, labels: Sequence[str]
    ) -> Iterator[dict[str, Any]]:
        """Examples as columns, from columns of rows; a label that is not among ``labels`` is -1."""

    def collect(
        self,
        outputs: Iterable[tuple[Batch, dict[str, Any]]],
        examples: Examples,
        rows: Rows,
        *,
        labels: Sequence[str],
    ) -> Predictions:
        """Predictions for all rows, from the objective's outputs for batches in any order."""

    def read_lines(self, lines: Sequence[str], *, words: bool, name: str) -> list[tuple[int, Any]]:
        """Inputs from the lines of a file, each with the number of its line."""

    def arrange(self, inputs: Sequence[Any], split: SplitWords) -> dict[str, list[Any]]:
        """Inputs as columns of rows to predict."""

    def present(self, predictions: Predictions, inputs: Sequence[Any], split: SplitWords) -> list[dict[str, Any]]:
        """Every input with its prediction, for JSON."""


def resolve_task(task: str | dict[str, Any]) -> dict[str, Any]:
    """The settings table of a task given by name, or by a table that may start from a preset."""
    if isinstance(task, str):
        task = {"preset": task}
    if not isinstance(task, Mapping):
        raise RecipeError(f"{task!r} is no task; write its name, such as ner, or a table with kind")
    table = dict(task)
    if "preset" in table:
        name = str(table.pop("preset"))
        if name in PRESETS:
            return {**PRESETS[name], **table}
        if name in list_kinds("tasks"):
            return {"kind": name, **table}
        raise RecipeError(f"unknown task {name!r}.{nearest(name, [*PRESETS, *list_kinds('tasks')])}")
    return table


def parse_task(task: str | dict[str, Any]) -> TaskSettings:
    """A task's validated settings."""
    table = resolve_task(task)
    settings: TaskSettings = load_kind("tasks", str(table.get("kind"))).Settings.model_validate(table)
    return settings


def build_task(settings: TaskSettings, labels: tuple[str, ...]) -> Task:
    """A task: settings and the label set that training fixed."""
    task: Task = load_kind("tasks", settings.kind).Task(settings, labels)
    return task


def learn_labels(settings: TaskSettings, rows: Iterable[Rows]) -> Task:
    """A task with the label set of training data."""
    return build_task(settings, check_labels(load_kind("tasks", settings.kind).Task.collect_labels(rows)))


def check_labels(labels: tuple[str, ...], name: str = "training data") -> tuple[str, ...]:
    """The labels, unless there are more of them than predictions can be stored with."""
    if len(labels) > MOST_LABELS:
        raise DataError(
            f"{name}: {len(labels):,} different labels, such as {labels[0]!r} and {labels[-1]!r}; at most "
            f"{MOST_LABELS:,} are possible. Is the label's column the right one?"
        )
    return labels


def restore_task(stored: Mapping[str, Any]) -> Task:
    """A task from what a model card holds of it."""
    return build_task(parse_task(stored["settings"]), tuple(stored["labels"]))
