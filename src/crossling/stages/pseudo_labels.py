"""Labels from an ensemble of teachers: what they decide, how sure they are, which rows are kept.

T teachers, N labels (a word's, or a whole row's), R rows, C classes. Pure functions of arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from crossling.data.batching import Array

NONE = -1
"""The label of a word or row that gets none."""
Decide = Literal["mean", "vote", "agreement"]
Keep = Literal["all", "agreement", "confidence"]


@dataclass(frozen=True)
class Votes:
    """What teachers predict for some labels."""

    best: Array
    """Each teacher's class, T x N."""
    mean: Array
    """The mean of their probabilities, N x C."""


@dataclass(frozen=True)
class Decided:
    """What an ensemble decides for some labels."""

    labels: Array
    """Classes, N; -1 where there is none."""
    confidence: Array
    """The mean probability of the class, N; 0 where there is none."""
    agree: Array
    """Whether all teachers predict the same class, N."""


def decide_labels(votes: Votes, how: Decide) -> Decided:
    """The class with the highest mean probability, with the most votes (a tie goes to the more probable one), or the
    one that all teachers predict, and none where they differ."""
    best_TN, mean_NC = votes.best, votes.mean
    agree_N = (best_TN == best_TN[:1]).all(0)
    if how == "mean":
        labels_N = mean_NC.argmax(1)
    else:
        counts_NC = np.zeros(mean_NC.shape, np.int64)
        for best_N in best_TN:
            counts_NC[np.arange(len(best_N)), best_N] += 1
        most_NC = counts_NC == counts_NC.max(1, keepdims=True, initial=0)
        labels_N = np.where(most_NC, mean_NC, -1.0).argmax(1)
        if how == "agreement":
            labels_N = np.where(agree_N, labels_N, NONE)
    confidence_N = np.where(labels_N == NONE, 0.0, mean_NC[np.arange(len(mean_NC)), labels_N])
    return Decided(labels_N, confidence_N, agree_N)


def join_votes(one: Votes, other: Votes) -> Votes:
    """The votes of an ensemble on two readings of the same labels: twice as many teachers."""
    return Votes(np.concatenate([one.best, other.best]), (one.mean + other.mean) / 2)


def join_linked(own: Votes, source: Votes, sources_N: Array) -> Votes:
    """Votes on the words of a translation: at a linked word its own and the source word's, else its own twice.

    ``sources_N`` are the source words, -1 where there is none.
    """
    linked_N = sources_N != NONE
    best_TN = np.where(linked_N, source.best[:, sources_N], own.best)
    return join_votes(own, Votes(best_TN, np.where(linked_N[:, None], source.mean[sources_N], own.mean)))


def group_classes(votes: Votes, groups_C: Array) -> Votes:
    """Votes on groups of classes, such as the types of spans: a group is as probable as its classes together."""
    mean_NG = votes.mean @ np.eye(int(groups_C.max()) + 1)[groups_C]
    return Votes(groups_C[votes.best], mean_NG)


def sharpen(mean_NC: Array, temperature: float) -> Array:
    """Distributions with a temperature: below 1 they are sharper, above 1 flatter."""
    scaled_NC = np.log(np.maximum(mean_NC, 1e-12)) / temperature
    powers_NC = np.exp(scaled_NC - scaled_NC.max(1, keepdims=True))
    return np.asarray(powers_NC / powers_NC.sum(1, keepdims=True))


def score_rows(decided: Decided, rows_N: Array, count: int) -> tuple[Array, Array]:
    """For each of ``count`` rows the confidence of its least sure label (0 where it has none), and whether teachers
    agree on all of its labels; ``rows_N`` says which row a label is of."""
    labelled_N = decided.labels != NONE
    confidence_R = np.full(count, np.inf)
    np.minimum.at(confidence_R, rows_N[labelled_N], decided.confidence[labelled_N])
    agree_R = np.ones(count, bool)
    np.logical_and.at(agree_R, rows_N, decided.agree)
    return np.where(np.isinf(confidence_R), 0.0, confidence_R), agree_R


def keep_rows(
    confidence_R: Array,
    agree_R: Array,
    groups_R: Sequence[object],
    *,
    keep: Keep,
    threshold: float,
    share: float,
    most: int | None,
) -> Array:
    """Numbers of the rows to learn from, in order.

    Of those that pass ``keep``, the most confident share of each group, at most ``most`` of it: with a language and a
    class as the group, no class of a language crowds out the others.
    """
    passes_R = confidence_R > 0
    if keep == "agreement":
        passes_R &= agree_R
    elif keep == "confidence":
        passes_R &= confidence_R >= threshold
    members: dict[object, list[int]] = {}
    for row in np.flatnonzero(passes_R).tolist():
        members.setdefault(groups_R[row], []).append(row)
    kept: list[int] = []
    for rows in members.values():
        number = int(np.ceil(share * len(rows) - 1e-9))
        kept += sorted(rows, key=lambda row: (-confidence_R[row], row))[: number if most is None else min(number, most)]
    return np.array(sorted(kept), np.int64)


def decide_answers(
    answers_T: Sequence[tuple[int, str]], confidences_T: Sequence[float], how: Decide
) -> tuple[tuple[int, str] | None, float, bool]:
    """One question's answer (its start and text), how sure the teachers are of it, and whether they all give it.

    The answer with the most votes; a tie goes to the more confident one. No answer, where that is it or ``how`` asks
    for more.
    """
    votes: dict[tuple[int, str], float] = {}
    for answer, confidence in zip(answers_T, confidences_T, strict=True):
        votes[answer] = votes.get(answer, 0.0) + 1.0 + confidence / (1 + len(answers_T))
    best = max(votes, key=lambda answer: votes[answer])
    agree = len(votes) == 1
    sure = sum(c for a, c in zip(answers_T, confidences_T, strict=True) if a == best) / len(answers_T)
    if not best[1] or (how == "agreement" and not agree):
        return None, 0.0, agree
    return best, sure, agree


def project_tags(
    tags: Sequence[str], links: Sequence[tuple[int, int]], words: int, *, spans: bool
) -> tuple[list[str], list[int]]:
    """Tags of a sentence's words over links to the ``words`` words of its translation, and each one's source word.

    A word that is not linked, or linked to words with different tags, has none: an empty tag, and source -1. Of spans
    (B-, I-) the first word in the translation begins the span, whatever the order of words was in the source.
    """
    units = name_spans(tags) if spans else [(tag, 0) for tag in tags]
    linked: list[list[int]] = [[] for _ in range(words)]
    for source, target in sorted(links):
        if tags[source]:
            linked[target].append(source)
    found: list[str] = []
    sources: list[int] = []
    begun: set[tuple[str, int]] = set()
    for candidates in linked:
        if len({units[source] for source in candidates}) != 1:
            found.append("")
            sources.append(NONE)
            continue
        unit = units[candidates[0]]
        outside = not spans or unit[0] == "O"
        found.append(unit[0] if outside else f"{'I' if unit in begun else 'B'}-{unit[0]}")
        sources.append(candidates[0])
        begun.add(unit)
    return found, sources


def begin_spans(types: Sequence[str], own: Sequence[str], sources: Sequence[int], tags: Sequence[str]) -> list[str]:
    """Tags (B-, I-) of words whose types of spans are decided; an empty type, an empty tag.

    A word goes on with the span before it where that has its type, unless the words come from different spans of the
    source sentence, or, where one of the two words is not linked, the word's ``own`` tag begins a span. ``tags`` are
    the source's, and ``sources`` each word's source word. So an I- never follows a word of another type.
    """
    units = name_spans(tags)
    found: list[str] = []
    for place, label in enumerate(types):
        if label in ("", "O"):
            found.append(label)
            continue
        before = types[place - 1] if place else "O"
        linked = [units[source] for source in sources[max(0, place - 1) : place + 1] if source != NONE]
        both = [unit for unit in linked if unit[0] == label]
        apart = both[0] != both[1] if len(both) == 2 else own[place].startswith("B-")
        goes_on = own[place] == f"I-{label}" if before == "" else before == label and not apart
        found.append(f"{'I' if goes_on else 'B'}-{label}")
    return found


def name_spans(tags: Sequence[str]) -> list[tuple[str, int]]:
    """For every word the type of its span and the place where the span begins; ("O", 0) outside."""
    units: list[tuple[str, int]] = []
    for place, tag in enumerate(tags):
        prefix, _, label = tag.partition("-")
        if not label:
            units.append((tag, 0))
        elif prefix == "I" and units and units[-1][0] == label and tags[place - 1] != "O":
            units.append(units[-1])
        else:
            units.append((label, place))
    return units
