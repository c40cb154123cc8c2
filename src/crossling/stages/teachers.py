"""What teachers predict for the rows that they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.data.batching import Array
from crossling.data.records import TaggedSentence
from crossling.data.rows import Rows
from crossling.errors import DataError
from crossling.stages.pseudo_labels import Votes
from crossling.tasks import restore_task

if TYPE_CHECKING:
    from crossling.data.batching import Batch, Examples
    from crossling.models.model import Model, ModelCard
    from crossling.stages.answer_links import Answer
    from crossling.stages.context import StageContext
    from crossling.tasks import Task

BATCH = 128
"""Rows that a teacher reads at a time."""


class ClassProbabilities:
    """Reads the probabilities of all classes from a model."""

    def __init__(self, objective: Any) -> None:
        self.objective = objective

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> dict[str, Array]:
        arrays: dict[str, Array] = self.objective.collate(examples, plan, size=size)
        return arrays

    def predict(self, model: Model, batch: dict[str, Any]) -> dict[str, Any]:
        return {"probabilities": self.objective.logits(model, batch).float().softmax(-1)}


def gather_votes(sets: Mapping[str, Rows], task: Task, seeds: Sequence[int], context: StageContext) -> dict[str, Votes]:
    """What all teachers predict, by the fingerprint of what they read."""
    best: dict[str, list[Array]] = {name: [] for name in sets}
    total: dict[str, Array] = {}
    for seed in seeds:
        model, head, own = _load_teacher(seed, task, context)
        for name, rows in sets.items():
            probabilities_NC = predict_probabilities(model, own, rows, head=head, context=context)
            best[name].append(probabilities_NC.argmax(1).astype(np.int16))
            total[name] = total[name] + probabilities_NC if name in total else probabilities_NC
    return {name: Votes(np.stack(best[name]), total[name] / len(seeds)) for name in sets}


def _load_teacher(seed: int, task: Task, context: StageContext) -> tuple[Model, str, Task]:
    """The teacher of a seed on the device, the name of its main head, and its task: it reads as it has learnt to, with
    its own length and pooling."""
    assert context.load_earlier is not None
    model, card = context.load_earlier(seed)
    head = check_teacher(card, task)
    return model.to(context.distributed.device), head, restore_task(card.tasks[head])


def check_teacher(card: ModelCard, task: Task) -> str:
    """The name of a teacher's main head; its labels must be the student's."""
    head, stored = next(iter(card.tasks.items()))
    if tuple(stored["labels"]) != task.labels:
        raise DataError(
            f"train: its labels are {', '.join(task.labels)}, but the teachers know {', '.join(stored['labels'])}; "
            "the student learns the teachers' labels, so leave train as it was in the stage before"
        )
    return head


def predict_probabilities(model: Model, task: Task, rows: Rows, *, head: str, context: StageContext) -> Array:
    """The probabilities of all classes for every word or row, N x C."""
    from crossling.inference.evaluate import encode_rows, plan_stream
    from crossling.training.loop import predict_examples

    distributed = context.distributed
    examples = encode_rows(task, [rows], model.encoder, cache=context.encoded, labels=task.labels)
    context.progress.begin(f"teacher reads {rows.name}", len(examples))
    outputs = predict_examples(
        model,
        ClassProbabilities(task.build_objective(head)),
        examples,
        distributed=distributed,
        plan=plan_stream(examples.lengths, BATCH, distributed.device),
        progress=context.progress,
    )
    tagged = rows.kind is TaggedSentence
    counts_R = [len(words) for words in rows.column("words").to_pylist()] if tagged else [1] * len(rows)
    starts_R = np.append(0, np.cumsum(counts_R)).astype(np.int64)
    found_NC = np.zeros((starts_R[-1], len(task.labels)), np.float32)
    for batch, arrays in outputs:
        for place, example in enumerate(batch.rows.tolist()):
            if not tagged:
                found_NC[example] = arrays["probabilities"][place]
                continue
            firsts = examples.get("firsts", example)
            begin = starts_R[examples.get("row", example)[0]] + examples.get("word_from", example)[0]
            found_NC[begin : begin + len(firsts)] = arrays["probabilities"][place, firsts]
    context.progress.end()
    return found_NC


def gather_answers(
    sets: Mapping[str, Rows], task: Task, seeds: Sequence[int], context: StageContext
) -> dict[str, list[list[tuple[Answer, float]]]]:
    """Each teacher's answers and how sure it is of them, by the fingerprint of what they read."""
    from crossling.inference.evaluate import predict_rows

    found: dict[str, list[list[tuple[Answer, float]]]] = {name: [] for name in sets}
    for seed in seeds:
        model, head, own = _load_teacher(seed, task, context)
        for name, rows in sets.items():
            table = predict_rows(
                model,
                own,
                rows,
                head=head,
                distributed=context.distributed,
                cache=context.encoded,
                batch=BATCH,
                progress=context.progress,
            ).table.to_pydict()
            answers = zip(table["start"], table["predicted"], strict=True)
            found[name].append(list(zip(answers, table["confidence"], strict=True)))
    return found
