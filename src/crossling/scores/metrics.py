"""Scores as pure functions of stored predictions, each under a name that says which of its namesakes it is.

"F1" of a tagger is at least four different numbers in the literature; `explain` says which one a name stands
for and which published tables use it. All scores are fractions from 0 to 1. A gold label that training never
saw (code -1) always counts as wrong and is never left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from crossling.errors import UserError, nearest
from crossling.scores.answers import Normalise, answer_f1, answer_matches, normalise_answer, normalise_squad
from crossling.scores.predictions import UNSEEN, Predictions, Scheme
from crossling.scores.spans import Array, SpanCounts, compare_spans, type_by_dash, type_by_suffix

# fmt: off
UPOS = frozenset([
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT",
    "SCONJ", "SYM", "VERB", "X",
])
# fmt: on

MAIN_SCORE: Mapping[str, str] = {
    "pos": "accuracy",
    "ner": "span_f1",
    "nli": "accuracy",
    "paraphrase": "accuracy",
    "sentiment": "macro_f1",
    "qa": "qa_f1",
    "tag": "accuracy",
    "classify": "accuracy",
    "classify_pair": "accuracy",
    "answer": "qa_f1",
}
"""The score that a task's table shows first, by preset or kind."""

_EXPLANATIONS: Mapping[str, str] = {
    "accuracy": (
        "Share of words (of a tagger) or of texts (of a classifier) whose label is right. XNLI's and "
        "PAWS-X's tables use it, those of layer fusion and of cross-lingual adjustment too."
    ),
    "macro_f1": (
        "F1 of each label, averaged with equal weight over every label that occurs among the gold or the "
        "predicted ones (a tagger's O included, counted by word). The multilingual-knowledge paper "
        "reports 'F1-macro' for all its tasks without stating the unit for NER."
    ),
    "token_micro_f1": (
        "F1 over all words pooled, leaving out those that are O on both sides; without an O label it "
        "equals accuracy. The adjustment paper's text calls its NER score 'token-level F1', though its "
        "code printed span_f1."
    ),
    "span_f1": (
        "F1 over whole entities: type and both borders must be right. Tags are read as seqeval does by default and "
        "conlleval does: an I- without a B- before it begins an entity. In seqeval's strict mode, which this is "
        "not, such entities do not count. XTREME's and layer fusion's NER tables use it."
    ),
    "span_precision": ("Share of predicted entities whose type and both borders are right."),
    "span_recall": ("Share of gold entities that were found with the right type and borders."),
    "span_macro_f1": (
        "Entity F1 of each entity type, as span_f1, averaged with equal weight over the types that occur among "
        "the gold or predicted entities. One reading of the multilingual-knowledge paper's NER "
        "'F1-macro'."
    ),
    "xtreme_pos_f1": (
        "The legacy 'POS F1' of XTREME's script run with seqeval 0.0.16 or later: runs of equal "
        "part-of-speech tags count as one entity, and CCONJ and SCONJ as one type. Only for comparison with such "
        "tables."
    ),
    "xtreme_pos_f1_2020": (
        "The legacy 'POS F1' as seqeval 0.0.12 gave it when XTREME's own tables were made: runs of equal "
        "tags count as one entity, and CCONJ and SCONJ stay apart. Only for comparison with such tables."
    ),
    "qa_f1": (
        "F1 between the words of the predicted and the nearest gold answer, averaged over questions; "
        "case, punctuation and the language's articles are ignored and Chinese is compared by character, "
        "as MLQA does. XTREME scores XQuAD and TyDi QA with English rules instead: squad_f1."
    ),
    "exact_match": ("Share of questions whose predicted answer equals a gold one after MLQA's normalisation."),
    "squad_f1": (
        "F1 of answers by the rules of SQuAD's script in every language: case, ASCII punctuation and English articles "
        "are ignored, and words are what spaces separate, so that a Chinese answer is one word. XTREME's tables of "
        "XQuAD and TyDi QA use it."
    ),
    "squad_exact_match": ("Share of questions whose predicted answer equals a gold one by SQuAD's rules."),
}


@dataclass(frozen=True, eq=False)
class Confusion:
    """A confusion matrix, how often each gold label was predicted as each label: `counts[gold, predicted]`."""

    gold: tuple[str, ...]
    predicted: tuple[str, ...]
    counts: Array


def score(predictions: Predictions) -> dict[str, float]:
    """All scores that apply to these predictions, by name."""
    return SCORERS[predictions.kind, predictions.scheme](predictions)


def explain(name: str) -> str:
    """What a score is, and which tables use it."""
    if name not in _EXPLANATIONS:
        raise UserError(f"unknown score {name!r}.{nearest(name, _EXPLANATIONS)}")
    return _EXPLANATIONS[name]


def list_scores() -> tuple[str, ...]:
    """Names of all scores there are."""
    return tuple(_EXPLANATIONS)


def title_of(score: str) -> str:
    """A score's name as a heading: `span_f1` becomes `span F1`."""
    special = {"f1": "F1", "qa": "QA", "pos": "POS", "xtreme": "XTREME", "squad": "SQuAD"}
    return " ".join(special.get(word, word) for word in score.split("_"))


def main_score(task: str, scheme: Scheme = "none") -> str:
    """The score to show first for a task; a tagger of spans of any name is judged by its spans."""
    return "span_f1" if scheme == "bio" else MAIN_SCORE.get(task, "accuracy")


def per_example(predictions: Predictions, name: str) -> Array:
    """A score of each example (sentence, text, question) on its own, in row order, for paired tests.

    Means of sentence values are not the pooled score of a set: `span_counts` gives what a bootstrap sums.
    """
    choices = _PER_EXAMPLE[predictions.kind, predictions.scheme]
    if name not in choices:
        raise UserError(f"{name!r} has no value for a single example.{nearest(name, choices)}")
    return choices[name](predictions)


def confusion(predictions: Predictions) -> Confusion:
    """The confusion matrix, with a row for gold labels never seen in training if there are any."""
    if predictions.kind == "answers":
        raise UserError("answers have no labels and so no confusion of them")
    gold, predicted = predictions.column("gold"), predictions.column("predicted")
    size = len(predictions.labels) + 1
    cells = np.bincount((gold + 1).astype(np.int64) * size + (predicted + 1), minlength=size * size)
    counts = np.roll(cells.reshape(size, size), -1, axis=(0, 1))
    rows = size if counts[-1].any() else size - 1
    columns = size if counts[:, -1].any() else size - 1
    return Confusion(
        (*predictions.labels, "(unseen)")[:rows],
        (*predictions.labels, "(none)")[:columns],
        counts[:rows, :columns],
    )


# Words and texts


def _is_right(predictions: Predictions) -> Array:
    gold = predictions.column("gold")
    right: Array = (gold == predictions.column("predicted")) & (gold != UNSEEN)
    return right


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else 0.0


def _f1(correct: Array | float, predicted: Array | float, gold: Array | float) -> Array:
    """F1 of counts, elementwise; 0 where nothing is predicted and nothing is to be found, as in seqeval."""
    both = np.asarray(predicted, dtype=float) + np.asarray(gold, dtype=float)
    quotient: Array = np.divide(2.0 * np.asarray(correct), both, out=np.zeros_like(both), where=both > 0)
    return quotient


def _label_macro_f1(predictions: Predictions) -> float:
    gold, predicted = predictions.column("gold"), predictions.column("predicted")
    size = len(predictions.labels) + 1  # the last one is the unseen label, which no prediction can be
    correct = np.bincount(gold[_is_right(predictions)], minlength=size)
    there = np.bincount(np.where(gold == UNSEEN, size - 1, gold), minlength=size)
    counted = np.bincount(predicted[predicted != UNSEEN], minlength=size)
    return _mean(_f1(correct, counted, there)[there + counted > 0])


def _token_counts(predictions: Predictions) -> SpanCounts:
    """Words that are not O, per sentence."""
    gold, predicted, row = (predictions.column(name) for name in ("gold", "predicted", "row"))
    outside = predictions.labels.index("O") if "O" in predictions.labels else len(predictions.labels)
    inside = {
        "correct": _is_right(predictions) & (gold != outside),
        "predicted": (predicted != outside) & (predicted != UNSEEN),
        "gold": gold != outside,
    }
    rows = predictions.n_rows
    return SpanCounts(**{name: np.bincount(row[mask], minlength=rows) for name, mask in inside.items()})


def _micro_f1(counts: SpanCounts) -> float:
    return float(_f1(counts.correct.sum(), counts.predicted.sum(), counts.gold.sum()))


def _example_f1(counts: SpanCounts) -> Array:
    """F1 of each example; 1 where there was nothing to find and nothing was found."""
    nothing = counts.predicted + counts.gold == 0
    return np.where(nothing, 1.0, _f1(counts.correct, counts.predicted, counts.gold))


def _sentence_accuracy(predictions: Predictions) -> Array:
    row, rows = predictions.column("row"), predictions.n_rows
    words = np.bincount(row, minlength=rows)
    right = np.bincount(row, weights=_is_right(predictions), minlength=rows)
    return np.divide(right, words, out=np.ones(rows), where=words > 0)


def span_counts(predictions: Predictions) -> SpanCounts:
    """Entities per sentence: found rightly, predicted, there to find; sum over sentences for their F1."""
    return compare_spans(predictions, type_by_suffix).count_by_row()


def _score_spans(predictions: Predictions) -> dict[str, float]:
    by_type = compare_spans(predictions, type_by_suffix).count_by_type()
    correct, predicted, gold = (int(part.sum()) for part in (by_type.correct, by_type.predicted, by_type.gold))
    occurring = by_type.predicted + by_type.gold > 0
    return {
        "span_f1": _micro_f1(by_type),
        "span_macro_f1": _mean(_f1(by_type.correct, by_type.predicted, by_type.gold)[occurring]),
        **_score_words(predictions),
        "span_precision": correct / predicted if predicted else 0.0,
        "span_recall": correct / gold if gold else 0.0,
    }


def _score_words(predictions: Predictions) -> dict[str, float]:
    return {
        "accuracy": _mean(_is_right(predictions)),
        "macro_f1": _label_macro_f1(predictions),
        "token_micro_f1": _micro_f1(_token_counts(predictions)),
    }


def _score_tags(predictions: Predictions) -> dict[str, float]:
    scores = _score_words(predictions)
    if predictions.labels and UPOS.issuperset(predictions.labels):
        for name, type_of in (("xtreme_pos_f1", type_by_suffix), ("xtreme_pos_f1_2020", type_by_dash)):
            scores[name] = _micro_f1(compare_spans(predictions, type_of).count_by_row())
    return scores


def _score_classes(predictions: Predictions) -> dict[str, float]:
    return {"accuracy": _mean(_is_right(predictions)), "macro_f1": _label_macro_f1(predictions)}


def _answer_f1s(predictions: Predictions, rules: Normalise = normalise_answer) -> Array:
    pairs, language = _answer_pairs(predictions), predictions.language
    return np.array([answer_f1(answer, gold, language=language, rules=rules) for answer, gold in pairs])


def _answer_matches(predictions: Predictions, rules: Normalise = normalise_answer) -> Array:
    pairs, language = _answer_pairs(predictions), predictions.language
    return np.array([float(answer_matches(answer, gold, language=language, rules=rules)) for answer, gold in pairs])


def _answer_pairs(predictions: Predictions) -> list[tuple[str, list[str]]]:
    columns = (predictions.table.column(name).to_pylist() for name in ("predicted", "gold"))
    return list(zip(*columns, strict=True))


def _score_answers(predictions: Predictions) -> dict[str, float]:
    return {name: _mean(values(predictions)) for name, values in _ANSWER_VALUES.items()}


def _class_accuracy(predictions: Predictions) -> Array:
    return _is_right(predictions).astype(float)


SCORERS: Mapping[tuple[str, str], Callable[[Predictions], dict[str, float]]] = {
    ("tags", "none"): _score_tags,
    ("tags", "bio"): _score_spans,
    ("classes", "none"): _score_classes,
    ("answers", "none"): _score_answers,
}
"""What scores predictions of each kind and scheme."""

_WORD_VALUES: Mapping[str, Callable[[Predictions], Array]] = {
    "accuracy": _sentence_accuracy,
    "token_micro_f1": lambda predictions: _example_f1(_token_counts(predictions)),
}
_ANSWER_VALUES: Mapping[str, Callable[[Predictions], Array]] = {
    "qa_f1": _answer_f1s,
    "exact_match": _answer_matches,
    "squad_f1": partial(_answer_f1s, rules=normalise_squad),
    "squad_exact_match": partial(_answer_matches, rules=normalise_squad),
}
_PER_EXAMPLE: Mapping[tuple[str, str], Mapping[str, Callable[[Predictions], Array]]] = {
    ("tags", "none"): _WORD_VALUES,
    ("tags", "bio"): {**_WORD_VALUES, "span_f1": lambda predictions: _example_f1(span_counts(predictions))},
    ("classes", "none"): {"accuracy": _class_accuracy},
    ("answers", "none"): _ANSWER_VALUES,
}
