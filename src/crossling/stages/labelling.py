"""Teachers label text: their predictions become examples that a student learns from.

T teachers, N labels (a word's, or a whole row's), R rows, C classes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from crossling.data.batching import Array
from crossling.data.label_free import build_rows
from crossling.data.records import TEXT_COLUMNS, PlainText, Question, TaggedSentence
from crossling.data.rows import Rows
from crossling.errors import DataError
from crossling.stages.pseudo_labels import (
    NONE,
    Decide,
    Decided,
    Keep,
    Votes,
    begin_spans,
    decide_answers,
    decide_labels,
    group_classes,
    join_linked,
    join_votes,
    keep_rows,
    project_tags,
    score_rows,
    sharpen,
)
from crossling.stages.teachers import gather_answers, gather_votes

if TYPE_CHECKING:
    from crossling.aligners.links import Link
    from crossling.encoders.encoder import Encoder
    from crossling.stages.answer_links import Answer, LinkedContexts
    from crossling.stages.context import StageContext
    from crossling.tasks import Task

CHUNK = 2_000
"""Rows that are encoded at a time."""


class LabellingSettings(Protocol):
    """How labels are decided, which rows are kept, and how they are learnt: a part of the stage's settings."""

    @property
    def decide(self) -> Decide: ...
    @property
    def keep(self) -> Keep: ...
    @property
    def threshold(self) -> float: ...
    @property
    def share(self) -> float: ...
    @property
    def most(self) -> int | None: ...
    @property
    def labels(self) -> str: ...
    @property
    def soft_temperature(self) -> float: ...
    @property
    def weight(self) -> float: ...


@dataclass(frozen=True)
class Unit:
    """What teachers read and what the student learns: the same rows, or translations of them."""

    language: str
    """The student's."""
    read: Rows
    learnt: Rows
    links: Sequence[Sequence[Link]] | None = None
    """Between the words of each row's two sentences, where tags go from one to the other."""
    both: bool = False
    """Whether teachers read the student's rows, too."""
    contexts: Sequence[LinkedContexts | None] | None = None
    """For answers: each row's two contexts with links between them; None: the same context."""

    def carry(self, row: int, answer: Answer) -> Answer | None:
        """An answer to what teachers read as an answer in the student's row; None where no links cover it."""
        contexts = self.contexts[row] if self.contexts is not None else None
        return answer if contexts is None or not answer[1] else contexts.carry(answer)


@dataclass
class Labelled:
    """Rows with the teachers' labels, as columns that the task encodes."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    confidence: list[float] = field(default_factory=list)
    """Of a row: how sure the teachers are of its least sure label; 0 for a row without labels."""
    agree: list[bool] = field(default_factory=list)
    """Whether all teachers predict the same for the whole row."""
    groups: list[tuple[str, str]] = field(default_factory=list)
    """Language and class; taggers and readers have one class."""
    soft: list[Array] = field(default_factory=list)
    """Distributions of each row's labels, labels x classes, where they are learnt."""

    def extend(self, other: Labelled) -> None:
        """Add the rows of another set."""
        for name, values in other.columns.items():
            self.columns.setdefault(name, []).extend(values)
        for name in ("confidence", "agree", "groups", "soft"):
            getattr(self, name).extend(getattr(other, name))


def read_texts(task: Task, rows: Rows, encoder: Encoder) -> Rows:
    """Rows as the task reads them; running text is cut into words for a tagger."""
    if rows.kind is not PlainText or task.record is PlainText:
        return rows
    texts = rows.column("text").to_pylist()
    if task.record is not TaggedSentence:
        columns: dict[str, Any] = {"text": texts, "label": [""] * len(texts)}
        return build_rows(task.record, columns, language=rows.language, name=rows.name)
    from crossling.data.words import cut_by_tokenizer, split_words

    pieces = cut_by_tokenizer(encoder.tokenizer)
    words = [[word.text for word in split_words(text, rows.language, pieces=pieces)] for text in texts]
    return build_untagged_rows(words, language=rows.language, name=rows.name)


def build_untagged_rows(sentences: Sequence[Sequence[str]], *, language: str, name: str) -> Rows:
    """Sentences without tags as rows; those without words are left out."""
    words = [list(sentence) for sentence in sentences if sentence]
    columns = {"words": words, "tags": [[""] * len(sentence) for sentence in words]}
    return build_rows(TaggedSentence, columns, language=language, name=name)


def label_units(
    units: Sequence[Unit], task: Task, settings: LabellingSettings, seeds: Sequence[int], context: StageContext
) -> tuple[Labelled, dict[str, Any]]:
    """Kept rows of all units with the teachers' labels, and a record of how many were kept by language."""
    found = Labelled()
    label = _label_answers if task.record is Question else _label_classes
    for unit, labelled in zip(units, label(units, task, settings, seeds, context), strict=True):
        assert len(labelled.confidence) == len(unit.learnt)
        found.extend(labelled)
    kept = keep_rows(
        np.array(found.confidence),
        np.array(found.agree, bool),
        found.groups,
        keep=settings.keep,
        threshold=settings.threshold,
        share=settings.share,
        most=settings.most,
    )
    if not len(kept):
        raise DataError(
            f"{units[0].read.name}: the teachers agree on too little, or are too unsure: no row was kept. Lower "
            'threshold, or set keep = "all".'
        )
    return _choose(found, kept.tolist()), describe_kept(found, kept.tolist(), task)


def _choose(labelled: Labelled, rows: Sequence[int]) -> Labelled:
    def pick(values: list[Any]) -> list[Any]:
        return [values[row] for row in rows] if values else []

    return Labelled(
        {name: pick(values) for name, values in labelled.columns.items()},
        pick(labelled.confidence),
        pick(labelled.agree),
        pick(labelled.groups),
        pick(labelled.soft),
    )


def describe_kept(labelled: Labelled, kept: Sequence[int], task: Task) -> dict[str, Any]:
    """By language: rows offered and kept, the share on which all teachers agree, and how often each class is learnt."""
    column = {"words": "tags"}.get(task.columns[0], "label")
    chosen = set(kept)
    languages: dict[str, dict[str, Any]] = {}
    for row, (language, _) in enumerate(labelled.groups):
        facts = languages.setdefault(language, {"offered": 0, "kept": 0, "agreement": 0, "classes": Counter()})
        facts["offered"] += 1
        facts["agreement"] += labelled.agree[row]
        facts["kept"] += row in chosen
        if row in chosen and column in labelled.columns:
            value = labelled.columns[column][row]
            facts["classes"].update([value] if isinstance(value, str) else [tag for tag in value if tag])
    for facts in languages.values():
        facts["agreement"] = round(facts["agreement"] / facts["offered"], 4)
        facts["classes"] = dict(sorted(facts["classes"].items()))
    return languages


def report_kept(languages: Mapping[str, Mapping[str, Any]], say: Callable[[str], None]) -> None:
    """Report, a line for each language, how many rows were kept and which labels they have."""
    for language, facts in languages.items():
        total = sum(facts["classes"].values()) or 1
        classes = ", ".join(f"{name} {100 * count / total:.0f} %" for name, count in facts["classes"].items())
        say(
            f"{language}: {facts['kept']:,} of {facts['offered']:,} rows kept; all teachers agree on "
            f"{100 * facts['agreement']:.1f} %" + (f"; {classes}" if classes else "")
        )


def encode_labelled(
    labelled: Labelled, task: Task, encoder: Encoder, settings: LabellingSettings
) -> Iterator[dict[str, Any]]:
    """Examples of labelled rows; with weights or soft labels each has its targets (see ``objectives/inputs.py``)."""
    count = len(labelled.confidence)
    chunks = (
        {name: values[start : start + CHUNK] for name, values in labelled.columns.items()}
        for start in range(0, count, CHUNK)
    )
    weighted = settings.weight != 1.0 or bool(labelled.soft)
    row = 0
    for chunk in task.encode(chunks, encoder, labels=task.labels):
        if weighted:
            chunk["targets"] = list(_list_targets(chunk, row, labelled.soft, settings.weight, len(task.labels)))
        row += len(chunk["ids"])
        yield chunk


def _list_targets(
    chunk: dict[str, Any], first: int, soft: Sequence[Array], weight: float, classes: int
) -> Iterator[Array]:
    """For each example of a chunk its weighted distributions, flat; nothing but zeros for a word without a label."""
    for place in range(len(chunk["ids"])):
        labels_N = np.atleast_1d(chunk["gold"][place])
        if soft and "row" in chunk:
            begin = chunk["word_from"][place]
            targets_NC = soft[chunk["row"][place]][begin : begin + len(labels_N)]
        else:
            targets_NC = soft[first + place] if soft else np.eye(classes)[labels_N]
        yield (weight * np.where(labels_N[:, None] >= 0, targets_NC, 0.0)).astype(np.float16).reshape(-1)


def _label_classes(
    units: Sequence[Unit], task: Task, settings: LabellingSettings, seeds: Sequence[int], context: StageContext
) -> Iterator[Labelled]:
    """Rows of each unit with a tag for every word, or a class."""
    votes = gather_votes(_list_read(units), task, seeds, context)
    label = label_sentences if task.record is TaggedSentence else label_texts
    for unit in units:
        given, own = votes[unit.read.fingerprint], votes[unit.learnt.fingerprint] if unit.both else None
        yield label(unit, given, own, task, settings)


def _name_labels(labels_N: Array, names: Sequence[str]) -> list[str]:
    found: list[str] = np.array([*names, ""], object)[labels_N].tolist()
    return found


def _soften(votes: Votes, settings: LabellingSettings) -> Array | None:
    return sharpen(votes.mean, settings.soft_temperature) if settings.labels == "soft" else None


def label_texts(unit: Unit, given: Votes, own: Votes | None, task: Task, settings: LabellingSettings) -> Labelled:
    """The student's texts with the class that teachers give to what they read, on one side or on both."""
    given = join_votes(given, own) if own is not None else given
    decided, soft_NC = decide_labels(given, settings.decide), _soften(given, settings)
    names = _name_labels(decided.labels, task.labels)
    return Labelled(
        {**{name: unit.learnt.column(name).to_pylist() for name in TEXT_COLUMNS[unit.learnt.kind]}, "label": names},
        decided.confidence.tolist(),
        decided.agree.tolist(),
        [(unit.language, name) for name in names],
        [] if soft_NC is None else list(soft_NC[:, None]),
    )


def label_sentences(unit: Unit, given: Votes, own: Votes | None, task: Task, settings: LabellingSettings) -> Labelled:
    """Sentences with a tag for every word that has one, over links where the student's sentence is a translation."""
    if own is not None:
        return _label_both_sides(unit, given, own, task, settings)
    decided, soft_NC = decide_labels(given, settings.decide), _soften(given, settings)
    starts_R = _list_starts(unit.read)
    confidence_R, agree_R = _score_sentences(decided, starts_R)
    tags = _cut(_name_labels(decided.labels, task.labels), starts_R)
    sources = [list(range(len(words))) for words in tags]
    if unit.links is not None:
        for row, (words, links) in enumerate(zip(unit.learnt.column("words").to_pylist(), unit.links, strict=True)):
            tags[row], sources[row] = project_tags(tags[row], links, len(words), spans=_has_spans(task))
            sure = [decided.confidence[starts_R[row] + source] for source in sources[row] if source != NONE]
            confidence_R[row] = min(sure, default=0.0)
    soft = [] if soft_NC is None else [soft_NC[s + np.array(of)] for s, of in zip(starts_R[:-1], sources, strict=True)]
    return _collect_sentences(unit, tags, confidence_R, agree_R, soft)


def _label_both_sides(unit: Unit, given: Votes, own: Votes, task: Task, settings: LabellingSettings) -> Labelled:
    """Sentences whose words are tagged by what teachers read in them and in the source words that they are linked to.

    Of spans the types are decided so; where one begins follows from the source's spans and from the own tags.
    """
    assert unit.links is not None
    how: Decide = "vote" if settings.decide == "agreement" else settings.decide
    starts_R, source_starts_R = _list_starts(unit.learnt), _list_starts(unit.read)
    source_tags = _cut(_name_labels(decide_labels(given, how).labels, task.labels), source_starts_R)
    lengths_R = np.diff(starts_R).tolist()
    sources = [
        project_tags(tags, links, words, spans=_has_spans(task))[1]
        for tags, links, words in zip(source_tags, unit.links, lengths_R, strict=True)
    ]
    shifts_N = np.repeat(source_starts_R[:-1], lengths_R)
    sources_N = np.array([source for of in sources for source in of], np.int64)
    sources_N = np.where(sources_N == NONE, NONE, sources_N + shifts_N)
    names: tuple[str, ...] = task.labels
    own_tags = _cut(_name_labels(decide_labels(own, how).labels, names), starts_R)
    if _has_spans(task):
        names = tuple(dict.fromkeys(label.partition("-")[2] or label for label in task.labels))
        groups_C = np.array([names.index(label.partition("-")[2] or label) for label in task.labels])
        given, own = group_classes(given, groups_C), group_classes(own, groups_C)
    joined = join_linked(own, given, sources_N)
    decided, soft_NC = decide_labels(joined, settings.decide), _soften(joined, settings)
    tags = _cut(_name_labels(decided.labels, names), starts_R)
    if _has_spans(task):
        tags = [begin_spans(*one) for one in zip(tags, own_tags, sources, source_tags, strict=True)]
    soft = [] if soft_NC is None else [soft_NC[begin:end] for begin, end in pairwise(starts_R.tolist())]
    return _collect_sentences(unit, tags, *_score_sentences(decided, starts_R), soft)


def _has_spans(task: Task) -> bool:
    return getattr(task.settings, "scheme", "none") == "bio"


def _list_starts(rows: Rows) -> Array:
    """Where each sentence's first word stands among all words, and their number."""
    return np.append(0, np.cumsum([len(words) for words in rows.column("words").to_pylist()])).astype(np.int64)


def _cut(names: Sequence[str], starts_R: Array) -> list[list[str]]:
    return [list(names[begin:end]) for begin, end in pairwise(starts_R.tolist())]


def _score_sentences(decided: Decided, starts_R: Array) -> tuple[Array, Array]:
    count = len(starts_R) - 1
    return score_rows(decided, np.repeat(np.arange(count), np.diff(starts_R)), count)


def _collect_sentences(
    unit: Unit, tags: list[list[str]], confidence_R: Array, agree_R: Array, soft: list[Array]
) -> Labelled:
    columns = {"words": unit.learnt.column("words").to_pylist(), "tags": tags}
    return Labelled(columns, confidence_R.tolist(), agree_R.tolist(), [(unit.language, "")] * len(tags), soft)


def _list_read(units: Sequence[Unit]) -> dict[str, Rows]:
    """All that teachers read, by its fingerprint: a source with many translations is read once."""
    return {rows.fingerprint: rows for unit in units for rows in (unit.read, *([unit.learnt] if unit.both else []))}


def _label_answers(
    units: Sequence[Unit], task: Task, settings: LabellingSettings, seeds: Sequence[int], context: StageContext
) -> Iterator[Labelled]:
    """Questions of each unit with the answer that the teachers give."""
    given = gather_answers(_list_read(units), task, seeds, context)
    for unit in units:
        own = given[unit.learnt.fingerprint] if unit.both else None
        read = given[unit.read.fingerprint]
        decided = [decide_answer(unit, row, read, own, settings.decide) for row in range(len(unit.read))]
        columns = {name: unit.learnt.column(name).to_pylist() for name in ("id", "question", "context")}
        columns["answers"] = [[best[1]] if best else [] for best, _, _ in decided]
        columns["starts"] = [[best[0]] if best else [] for best, _, _ in decided]
        yield Labelled(
            columns,
            [sure for _, sure, _ in decided],
            [agree for _, _, agree in decided],
            [(unit.language, "")] * len(decided),
        )


def decide_answer(
    unit: Unit,
    row: int,
    read: Sequence[Sequence[tuple[Answer, float]]],
    own: Sequence[Sequence[tuple[Answer, float]]] | None,
    how: Decide,
) -> tuple[Answer | None, float, bool]:
    """The answer in the student's row: the teachers' on what they read, carried over; with both sides all those that
    can be carried over, and the teachers' own."""
    answers, sure = zip(*(teacher[row] for teacher in read), strict=True)
    if own is None:
        best, confidence, agree = decide_answers(answers, sure, how)
        carried = unit.carry(row, best) if best else None
        return carried, confidence if carried else 0.0, agree
    votes = [(unit.carry(row, answer), one) for answer, one in zip(answers, sure, strict=True)]
    known = [(answer, one) for answer, one in votes if answer is not None] + [teacher[row] for teacher in own]
    return decide_answers([answer for answer, _ in known], [one for _, one in known], how)
