"""SQuAD's JSON: SQuAD 1.1 and 2.0, XQuAD, MLQA, TyDi QA's gold passages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossling.data.readers.json_records import find_wrong_answer
from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, find_fault, load_json
from crossling.data.records import Question
from crossling.errors import DataError

VERSION = 1


class Settings(ReaderSettings):
    """One file of questions."""

    path: FilePath
    """The file, plain or gzipped."""
    hidden_answers: bool = False
    """Read questions whose answers were removed (empty, as in some test sets) as questions without answers.
    They can be answered but not scored."""


def record_kind(settings: Settings) -> type[Question]:
    """What the rows are."""
    return Question


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Question]:
    """One row a question; every answer must be in the context at its start."""
    document = load_json(settings.path)
    for place, paragraph in _walk(document, settings.path, bad):
        questions = paragraph.get("qas")
        if not isinstance(questions, list):
            bad.add(place, "the paragraph has no list qas")
            continue
        for i, entry in enumerate(questions):
            found = _read_question(entry, paragraph.get("context"), settings.hidden_answers)
            if isinstance(found, str):
                bad.add(f"{place}.qas[{i}]", found)
            else:
                yield found


def _walk(document: Any, path: Path, bad: BadRows) -> Iterator[tuple[str, dict[str, Any]]]:
    """Paragraphs and their places; anything else is a broken row."""
    articles = document.get("data") if isinstance(document, dict) else None
    if not isinstance(articles, list):
        raise DataError(f"{path}: not SQuAD's format: there is no list data at the top")
    for i, article in enumerate(articles):
        paragraphs = article.get("paragraphs") if isinstance(article, dict) else None
        if not isinstance(paragraphs, list):
            bad.add(f"{path}: data[{i}]", "the article has no list paragraphs")
            continue
        for j, paragraph in enumerate(paragraphs):
            place = f"{path}: data[{i}].paragraphs[{j}]"
            if isinstance(paragraph, dict):
                yield place, paragraph
            else:
                bad.add(place, "not a paragraph")


def _read_question(entry: Any, context: Any, hidden_answers: bool) -> Question | str:
    """The question, or what is wrong with it."""
    if not isinstance(entry, dict):
        return "not a question"
    identity = entry.get("id")
    identity = str(identity) if isinstance(identity, int) else identity
    for name, value in (("id", identity), ("question", entry.get("question")), ("context", context)):
        if not isinstance(value, str) or not value.strip():
            return f"{name} is missing or empty"
        fault = find_fault(value)
        if fault:
            return f"{name} has {fault}"
    answers = _read_answers(entry, hidden_answers)
    if isinstance(answers, str):
        return answers
    texts, starts = answers
    wrong = find_wrong_answer(context, texts, starts)
    return wrong or Question(str(identity), entry["question"], context, texts, starts)


def _read_answers(entry: dict[str, Any], hidden_answers: bool) -> tuple[tuple[str, ...], tuple[int, ...]] | str:
    answers = entry.get("answers")
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        return "answers is not a list of answers"
    texts = [answer.get("text") for answer in answers]
    starts = [answer.get("answer_start") for answer in answers]
    if not any(texts):
        if hidden_answers or (entry.get("is_impossible") is True and not texts):
            return (), ()
        return "there is no answer (removed, as in a test set?); hidden_answers = true reads such questions"
    for text, start in zip(texts, starts, strict=True):
        if not isinstance(text, str) or not text.strip():
            return "an answer's text is missing or empty"
        if find_fault(text):
            return f"an answer has {find_fault(text)}"
        if not isinstance(start, int) or isinstance(start, bool):
            return f"the answer {text[:60]!r} has no answer_start"
    return tuple(map(str, texts)), tuple(map(int, starts))
