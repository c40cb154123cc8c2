"""Label Studio's JSON export: annotated spans, classes or answers as rows to train on."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, find_fault, load_json
from crossling.data.records import LabelledPair, LabelledText, Question, Record, TaggedSentence
from crossling.data.words import split_words
from crossling.errors import DataError

VERSION = 1
Kind = Literal["spans", "classes", "pairs", "answers"]
RECORDS: dict[Kind, type[Record]] = {
    "spans": TaggedSentence,
    "classes": LabelledText,
    "pairs": LabelledPair,
    "answers": Question,
}
Annotated = tuple[str, dict[str, Any], list[dict[str, Any]]]
"""The place of a task, its data, and the result of its annotation."""


class Settings(ReaderSettings):
    """One file of tasks, as "Export > JSON" writes it."""

    path: FilePath
    """The file, plain or gzipped."""
    reads: Kind | Literal["auto"] = "auto"
    """spans: labelled parts of a text, as words with B- and I- tags. classes: a choice for each text. pairs: a choice
    for each pair of texts. answers: a labelled part of a context for each question. auto: as the first annotated task
    is; pairs and answers by the names of their data (first and second, premise and hypothesis, question and
    context)."""
    text: str = "text"
    """The key of a task's data that holds the text."""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as set, or as the first annotated task is."""
    return RECORDS[_choose_kind(settings)]


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """One row a task; tasks that nobody annotated, or that were skipped, are left out and counted."""
    kind = _choose_kind(settings)
    for place, data, result in _list_annotated(settings, bad):
        found = _READ[kind](data, result, settings.text)
        if isinstance(found, str):
            bad.add(place, found)
        else:
            yield found


def _choose_kind(settings: Settings) -> Kind:
    if settings.reads != "auto":
        return settings.reads
    for _, data, result in _list_annotated(settings, BadRows("skip")):
        spans = any(entry.get("type") == "labels" for entry in result)
        if "question" in data and "context" in data:
            return "answers"
        if _find_pair(data) is not None:
            return "pairs"
        return "spans" if spans or not result else "classes"
    raise DataError(f"{settings.path}: no task is annotated; annotate some in Label Studio, then export as JSON")


def _list_annotated(settings: Settings, bad: BadRows) -> Iterator[Annotated]:
    tasks = load_json(settings.path)
    if not isinstance(tasks, list):
        raise DataError(f"{settings.path}: not a list of tasks; export from Label Studio as JSON")
    for number, task in enumerate(tasks):
        place = f"{settings.path}: task {number}"
        if not isinstance(task, dict) or not isinstance(task.get("data"), dict):
            bad.add(place, "has no data", fix="export from Label Studio as JSON, not as JSON-MIN")
            continue
        annotations = task.get("annotations")
        if annotations is not None and not _are_tables(annotations):
            bad.add(place, "annotations is not a list of annotations")
            continue
        done = next((one for one in annotations or () if not one.get("was_cancelled")), None)
        if done is None:
            bad.drop("not annotated")
        elif _are_tables(done.get("result")):
            yield place, task["data"], done["result"]
        else:
            bad.add(place, "the annotation has no list result")


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(entry, dict) for entry in value)


def _find_pair(data: dict[str, Any]) -> tuple[str, str] | None:
    pairs = (("first", "second"), ("premise", "hypothesis"), ("sentence1", "sentence2"))
    return next((pair for pair in pairs if pair[0] in data and pair[1] in data), None)


def _find_text(data: dict[str, Any], key: str) -> tuple[str, str]:
    """A text of a task's data, and what is wrong with it."""
    text = data.get(key)
    if not isinstance(text, str) or not text.strip():
        return "", f"data has no text under {key!r}; it has {', '.join(map(str, data)) or 'nothing'}"
    return text, f"{key} has {find_fault(text)}" if find_fault(text) else ""


def _find_choice(result: list[dict[str, Any]]) -> tuple[str, str]:
    """The class that was chosen, and what is wrong with it."""
    chosen = [entry["value"].get("choices") for entry in result if isinstance(entry.get("value"), dict)]
    names = [name for some in chosen if isinstance(some, list) for name in some]
    if len(names) != 1 or not isinstance(names[0], str) or not names[0].strip() or find_fault(names[0]):
        return "", f"{len(names)} choices where one class is due"
    return names[0], ""


def _find_spans(result: list[dict[str, Any]], text: str) -> list[tuple[int, int, str]] | str:
    """Labelled parts of a text by place, or what is wrong with them."""
    spans: list[tuple[int, int, str]] = []
    for entry in result:
        value = entry.get("value")
        if entry.get("type") != "labels" or not isinstance(value, dict):
            continue
        start, end, labels = value.get("start"), value.get("end"), value.get("labels")
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
            return f"a span from {start!r} to {end!r} does not lie in the text of {len(text)} characters"
        if not isinstance(labels, list) or len(labels) != 1 or not isinstance(labels[0], str) or not labels[0].strip():
            return f"the span from {start} to {end} has no single label"
        if find_fault(labels[0]):
            return f"the label of the span from {start} to {end} has {find_fault(labels[0])}"
        spans.append((start, end, labels[0]))
    spans.sort()
    crossing = next((b for a, b in pairwise(spans) if b[0] < a[1]), None)
    return spans if crossing is None else f"the span from {crossing[0]} to {crossing[1]} overlaps another"


def _read_spans(data: dict[str, Any], result: list[dict[str, Any]], key: str) -> TaggedSentence | str:
    text, wrong = _find_text(data, key)
    spans = wrong or _find_spans(result, text)
    if isinstance(spans, str):
        return spans
    words: list[str] = []
    tags: list[str] = []
    before, met = None, set()
    for word, start in _split_at(text, spans):
        span = next((span for span in spans if span[0] <= start < span[1]), None)
        tags.append("O" if span is None else f"{'I' if span == before else 'B'}-{span[2]}")
        words.append(word)
        met.add(span)
        before = span
    lost = next((span for span in spans if span not in met), None)
    if not words or lost:
        return f"the span from {lost[0]} to {lost[1]} holds no word" if lost else "the text has no word"
    return TaggedSentence(tuple(words), tuple(tags))


def _split_at(text: str, spans: list[tuple[int, int, str]]) -> Iterator[tuple[str, int]]:
    """Words and their places, cut where a span begins or ends inside one."""
    edges = sorted({edge for start, end, _ in spans for edge in (start, end)})
    for word in split_words(text):
        cuts = [word.start, *(edge for edge in edges if word.start < edge < word.end), word.end]
        yield from ((text[a:b], a) for a, b in pairwise(cuts))


def _read_class(data: dict[str, Any], result: list[dict[str, Any]], key: str) -> LabelledText | str:
    text, wrong = _find_text(data, key)
    label, unclear = _find_choice(result)
    return wrong or unclear or LabelledText(text, label)


def _read_pair(data: dict[str, Any], result: list[dict[str, Any]], key: str) -> LabelledPair | str:
    names = _find_pair(data)
    if names is None:
        return "data has no pair of texts, such as first and second"
    (first, wrong), (second, wrong_too) = (_find_text(data, name) for name in names)
    label, unclear = _find_choice(result)
    return wrong or wrong_too or unclear or LabelledPair(first, second, label)


def _read_answer(data: dict[str, Any], result: list[dict[str, Any]], key: str) -> Question | str:
    (question, wrong), (context, wrong_too) = (_find_text(data, name) for name in ("question", "context"))
    spans = wrong or wrong_too or _find_spans(result, context)
    if isinstance(spans, str):
        return spans
    identity = str(data.get("id", "")) or question
    answers = tuple(context[start:end] for start, end, _ in spans)
    return Question(identity, question, context, answers, tuple(start for start, _, _ in spans))


_READ = {"spans": _read_spans, "classes": _read_class, "pairs": _read_pair, "answers": _read_answer}
