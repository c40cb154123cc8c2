"""Every score as a quotient of sums over examples, which is what swaps and resampling need.

Accuracy, F1 and means of answers are all `sum(numerator) / sum(denominator)`; a macro average is the mean of
such quotients over labels. So one form serves every score: counts of shape N x L x 2 (examples, labels,
numerator and denominator), and changing the examples of a set only changes their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np

from crossling.errors import UserError, nearest
from crossling.scores.metrics import main_score, per_example
from crossling.scores.predictions import UNSEEN, Predictions
from crossling.scores.spans import Array, compare_spans, type_by_dash, type_by_suffix

BLOCK = 1 << 22
"""Random numbers in memory at once: 16 to 32 MB, however many rounds and rows there are."""
LEAST_SUPPORT = 10
"""Gold items of a label below which its F1 swings with single items: with one word it is 0 or nearly 1."""
SUPPORTED = "_supported"
"""How the name of a macro average over such labels ends."""
Test = Literal["paired t-test", "permutation test"]

_UNSEEN_LABEL = "\0unseen"
_KIND_TASK = {"tags": "tag", "classes": "classify", "answers": "answer"}


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of one run on one set; `labels` are those that a macro average runs over, else one nameless one."""

    labels: tuple[str, ...]
    values: Array
    gold: Array | None = None
    """Gold items of each label, where there is a macro average."""

    def list_rare(self) -> dict[str, int]:
        """Labels that occur and have fewer gold items than `LEAST_SUPPORT`, with their number."""
        if self.gold is None:
            return {}
        occurs = (self.values[..., 1].sum(axis=0) > 0) | (self.gold > 0)
        return {
            "(unseen in training)" if name == _UNSEEN_LABEL else name: int(number)
            for name, number, is_there in zip(self.labels, self.gold, occurs, strict=True)
            if is_there and number < LEAST_SUPPORT
        }


@dataclass(frozen=True)
class Measure:
    """How a score is counted, and the test of a language's difference in it.

    A mean of independent examples is tested by t, as is usual; a quotient of sums has no value for a single
    example whose mean it were, so it is tested by permutation.
    """

    count: Callable[[Predictions], Counts]
    test: Test


def find_measure(predictions: Predictions, score: str) -> Measure:
    """The measure behind a score's name, for predictions of this kind."""
    choices = MEASURES[predictions.kind, predictions.scheme]
    if score not in choices:
        raise UserError(f"{predictions.data}: its predictions have no score {score!r}.{nearest(score, choices)}")
    return choices[score]


def default_score(predictions: Predictions) -> str:
    """The main score of the task that made the predictions, or of their kind where no task is on record."""
    if "score" in predictions.meta:
        return str(predictions.meta["score"])
    task = predictions.meta.get("task")
    return main_score(str(task) if task else _KIND_TASK[predictions.kind], predictions.scheme)


def align(runs: Sequence[Counts]) -> list[Array]:
    """Counts whose labels stand in the same places, for two models may have met their labels in another order."""
    labels = tuple(sorted({label for run in runs for label in run.labels}))
    aligned = []
    for run in runs:
        whole = np.zeros((len(run.values), len(labels), 2))
        whole[:, [labels.index(label) for label in run.labels]] = run.values
        aligned.append(whole)
    return aligned


def divide(totals: Array) -> Array:
    """Scores of sums of counts, of shape ... x L x 2: the mean quotient over labels that occur; 0 if none does."""
    numerator, denominator = totals[..., 0], totals[..., 1]
    occurs = denominator > 0
    quotient = np.divide(numerator, denominator, out=np.zeros(numerator.shape), where=occurs)
    score: Array = quotient.sum(axis=-1) / np.maximum(occurs.sum(axis=-1), 1)
    return score


def find_errors(counts: Array) -> Array:
    """What each example contributes to the error of each run's score, ... x N, from counts ... x N x L x 2.

    To first order, as the delta method has it: a quotient's error is its examples' mean of `numerator - quotient *
    denominator`, by the mean denominator. The contributions of a run add up to 0.
    """
    totals = counts.sum(axis=-3, keepdims=True)
    occurs = totals[..., 1] > 0
    below = np.where(occurs, totals[..., 1], 1.0)
    by_label = occurs * (counts[..., 0] - totals[..., 0] / below * counts[..., 1]) / below
    errors: Array = by_label.sum(axis=-1) / np.maximum(occurs.sum(axis=-1), 1)
    return errors


def flatten(counts: Array) -> Array:
    """R x N x L x 2 counts as N x (R L 2)."""
    return np.moveaxis(counts, 1, 0).reshape(counts.shape[1], -1)


def sum_by_key(values: Array, keys: Array, n_keys: int) -> Array:
    """Values of runs and rows (R x N x ...), summed for each key of rows: K x (R ...)."""
    flat = flatten(values)
    summed = np.zeros((n_keys, flat.shape[1]))
    np.add.at(summed, keys, flat)
    return summed


def split_blocks(rounds: int, width: int) -> Iterator[tuple[int, int]]:
    """Rounds from and to, in blocks that fit into memory."""
    size = max(1, BLOCK // max(width, 1))
    for start in range(0, rounds, size):
        yield start, min(rounds, start + size)


def _pool(numerator: Array, denominator: Array) -> Counts:
    return Counts(("",), np.stack([numerator, denominator], axis=-1)[:, None, :].astype(float))


@dataclass(frozen=True, eq=False)
class _Labels:
    """Words or texts of each label in each example (N x L): labelled rightly, predicted, there."""

    names: tuple[str, ...]
    correct: Array
    predicted: Array
    gold: Array

    def inside(self) -> Array:
        """Which labels are not O."""
        return np.array([name != "O" for name in self.names])


def _count_labels(predictions: Predictions) -> _Labels:
    row = predictions.column("row").astype(np.int64)
    gold, predicted = predictions.column("gold"), predictions.column("predicted")
    names = (*predictions.labels, _UNSEEN_LABEL)
    size, rows = len(names), predictions.n_rows

    def count(codes: Array, chosen: Array) -> Array:
        places = row * size + np.where(codes == UNSEEN, size - 1, codes)
        return np.bincount(places[chosen], minlength=rows * size).reshape(rows, size)

    return _Labels(
        names,
        correct=count(gold, (gold == predicted) & (gold != UNSEEN)),
        predicted=count(predicted, predicted != UNSEEN),
        gold=count(gold, np.ones(len(gold), dtype=bool)),
    )


def _accuracy(predictions: Predictions) -> Counts:
    labels = _count_labels(predictions)
    return _pool(labels.correct.sum(axis=1), labels.gold.sum(axis=1))


def _macro_f1(predictions: Predictions) -> Counts:
    labels = _count_labels(predictions)
    values = np.stack([2.0 * labels.correct, labels.predicted + labels.gold], axis=-1)
    return Counts(labels.names, values, labels.gold.sum(axis=0))


def _token_micro_f1(predictions: Predictions) -> Counts:
    labels = _count_labels(predictions)
    inside = labels.inside()
    return _pool(2 * labels.correct[:, inside].sum(axis=1), (labels.predicted + labels.gold)[:, inside].sum(axis=1))


def _span_f1(predictions: Predictions, type_of: Callable[[str], str] = type_by_suffix) -> Counts:
    counts = compare_spans(predictions, type_of).count_by_row()
    return _pool(2 * counts.correct, counts.predicted + counts.gold)


def _span_precision(predictions: Predictions) -> Counts:
    counts = compare_spans(predictions, type_by_suffix).count_by_row()
    return _pool(counts.correct, counts.predicted)


def _span_recall(predictions: Predictions) -> Counts:
    counts = compare_spans(predictions, type_by_suffix).count_by_row()
    return _pool(counts.correct, counts.gold)


def _span_macro_f1(predictions: Predictions) -> Counts:
    spans = compare_spans(predictions, type_by_suffix)
    rows, size = spans.n_rows, spans.n_types

    def count(types: Array, chosen: Array) -> Array:
        return np.bincount((spans.row * size + types)[chosen], minlength=rows * size).reshape(rows, size)

    predicted = count(spans.predicted.type, spans.predicted.first >= 0)
    gold = count(spans.gold.type, spans.gold.first >= 0)
    correct = count(spans.gold.type, spans.correct)
    # The order in which `compare_spans` numbers the types.
    names = tuple(sorted({type_by_suffix(tag) for tag in (*predictions.labels, f"I-{_UNSEEN_LABEL}", "O")}))
    assert len(names) == size, "a name for every type"
    return Counts(names, np.stack([2.0 * correct, predicted + gold], axis=-1), gold.sum(axis=0))


def _keep_supported(predictions: Predictions, *, count: Callable[[Predictions], Counts]) -> Counts:
    """A macro average over labels with enough gold items only."""
    counts = count(predictions)
    assert counts.gold is not None, "a macro average"
    is_supported = counts.gold >= LEAST_SUPPORT
    if not is_supported.any():
        raise UserError(
            f"{predictions.data}: no label has {LEAST_SUPPORT} gold items, and the score is a mean over those that do; "
            "compare by another score"
        )
    return replace(counts, values=counts.values * is_supported[:, None])


def score_supported(predictions: Predictions) -> dict[str, float]:
    """The macro averages over labels with enough gold items; none where no label has."""
    found = {}
    for name, measure in MEASURES[predictions.kind, predictions.scheme].items():
        if name.endswith(SUPPORTED):
            with suppress(UserError):
                found[name] = float(divide(measure.count(predictions).values.sum(axis=0)))
    return found


def _mean_of_examples(predictions: Predictions, *, name: str) -> Counts:
    values = per_example(predictions, name)
    return _pool(values, np.ones(len(values)))


_WORDS = {
    "accuracy": Measure(_accuracy, "permutation test"),
    "macro_f1": Measure(_macro_f1, "permutation test"),
    "macro_f1_supported": Measure(partial(_keep_supported, count=_macro_f1), "permutation test"),
    "token_micro_f1": Measure(_token_micro_f1, "permutation test"),
}
MEASURES: Mapping[tuple[str, str], Mapping[str, Measure]] = {
    ("tags", "none"): {
        **_WORDS,
        "xtreme_pos_f1": Measure(_span_f1, "permutation test"),
        "xtreme_pos_f1_2020": Measure(partial(_span_f1, type_of=type_by_dash), "permutation test"),
    },
    ("tags", "bio"): {
        **_WORDS,
        "span_f1": Measure(_span_f1, "permutation test"),
        "span_precision": Measure(_span_precision, "permutation test"),
        "span_recall": Measure(_span_recall, "permutation test"),
        "span_macro_f1": Measure(_span_macro_f1, "permutation test"),
        "span_macro_f1_supported": Measure(partial(_keep_supported, count=_span_macro_f1), "permutation test"),
    },
    ("classes", "none"): {
        "accuracy": Measure(_accuracy, "paired t-test"),
        "macro_f1": Measure(_macro_f1, "permutation test"),
        "macro_f1_supported": Measure(partial(_keep_supported, count=_macro_f1), "permutation test"),
    },
    ("answers", "none"): {
        name: Measure(partial(_mean_of_examples, name=name), "paired t-test")
        for name in ("qa_f1", "exact_match", "squad_f1", "squad_exact_match")
    },
}
"""Scores that can be tested, by kind and scheme of the predictions: all of `metrics`, and macro averages over labels
with enough gold items, which tables of single runs leave out."""
