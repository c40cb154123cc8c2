"""Records from the values of JSON objects and hub tables, with checks: the record, or what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from crossling.data.readers.text_files import find_fault
from crossling.data.records import LinkedPair, Question, Record, TaggedSentence

TEXT_LISTS = {(TaggedSentence, "words"), (LinkedPair, "source"), (LinkedPair, "target")}
MAY_BE_EMPTY = {(Question, "answers"), (Question, "starts"), (LinkedPair, "links")}


def build_record(kind: type[Record], values: Mapping[str, Any], *, labels: Mapping[str, str]) -> Record | str:
    """The record, or a text that says why there is none. ``labels`` renames labels and tags."""
    built: dict[str, Any] = {}
    for field in fields(kind):
        if values.get(field.name) is None:
            return f"{field.name} is missing"
        try:
            built[field.name] = _convert(kind, field.name, values[field.name], labels)
        except ValueError as error:
            return f"{field.name} {error}"
    fault = _find_mismatch(kind, built)
    return fault if fault else kind(**built)


def _convert(kind: type[Record], name: str, value: Any, labels: Mapping[str, str]) -> Any:
    if name == "label":
        label = _to_label(value)
        return labels.get(label, label)
    if name == "tags":
        return tuple(labels.get(tag, tag) for tag in map(_to_label, _to_list(value)))
    if name == "starts":
        return tuple(map(_to_number, _to_list(value)))
    if name == "links":
        return tuple(map(_to_link, _to_list(value)))
    if (kind, name) in TEXT_LISTS or name == "answers":
        texts = tuple(map(_to_text, _to_list(value)))
        if not texts and (kind, name) not in MAY_BE_EMPTY:
            raise ValueError("is empty")
        return texts
    return str(value) if name == "id" and isinstance(value, int) else _to_text(value)


def _to_list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"is not a list but {_show(value)}")
    return list(value)


def _to_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is not text but {_show(value)}")
    fault = find_fault(value)
    if fault:
        raise ValueError(f"has {fault}")
    if not value.strip():
        raise ValueError("is empty")
    return value


def _to_label(value: Any) -> str:
    """Labels are text, trimmed; whole numbers (stars, 0/1) count as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _to_text(value).strip()


def _to_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"has {_show(value)} instead of a whole number")
    return value


def _to_link(value: Any) -> tuple[int, int]:
    items = _to_list(value)
    if len(items) != 2:
        raise ValueError(f"has {_show(value)} instead of a pair of numbers")
    return _to_number(items[0]), _to_number(items[1])


def _find_mismatch(kind: type[Record], built: Mapping[str, Any]) -> str:
    """Why fields do not fit together, or nothing."""
    if kind is TaggedSentence and len(built["words"]) != len(built["tags"]):
        return f"{len(built['words'])} words but {len(built['tags'])} tags"
    if kind is LinkedPair:
        return _find_stray_link(built["links"], len(built["source"]), len(built["target"]))
    if kind is Question:
        return find_wrong_answer(built["context"], built["answers"], built["starts"])
    return ""


def _find_stray_link(links: tuple[tuple[int, int], ...], sources: int, targets: int) -> str:
    for source, target in links:
        if not (0 <= source < sources and 0 <= target < targets):
            return f"the link {source}-{target} leads outside {sources} and {targets} words"
    return ""


def find_wrong_answer(context: str, answers: tuple[str, ...], starts: tuple[int, ...]) -> str:
    """What is wrong with a question's answers, or nothing: each must be in the context at its start."""
    if len(answers) != len(starts):
        return f"{len(answers)} answers but {len(starts)} starts"
    for answer, start in zip(answers, starts, strict=True):
        if start < 0 or context[start : start + len(answer)] != answer:
            there = context[start : start + len(answer)] if 0 <= start < len(context) else ""
            return f"the answer {_show(answer)} is not at character {start}, where {_show(there)} is"
    return ""


def _show(value: Any) -> str:
    text = ascii(value) if isinstance(value, str) and find_fault(value) else repr(value)
    return text if len(text) <= 60 else text[:60] + "…"
