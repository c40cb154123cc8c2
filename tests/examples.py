"""Small rows of every kind of record, made up for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.data.rows import SCHEMAS, Rows
from crossling.recipe.identity import content_hash

_WORDS = ("the", "cat", "sees", "a", "dog", "in", "мир", "нам", "我", "们")


def make_rows(kind: type[Any], count: int = 24, *, language: str = "en", shift: int = 0) -> Rows:
    """Rows whose labels follow from their text, so that a tiny model can learn them."""
    columns = _MAKERS[kind]([(i * 7 + shift) % 30 for i in range(count)])
    table = pa.table(columns, schema=SCHEMAS[kind])
    return Rows(
        table, kind, language=language, name=f"made-{kind.__name__}:{language}", fingerprint=content_hash(columns)
    )


def rows_of(records: Sequence[Any], language: str = "en") -> Rows:
    """Rows of the very records that are given."""
    kind = type(records[0])
    columns = {name: [getattr(record, name) for record in records] for name in SCHEMAS[kind].names}
    table = pa.table(columns, schema=SCHEMAS[kind])
    return Rows(table, kind, language=language, name="made", fingerprint=content_hash([kind.__name__, columns]))


def _sentence(number: int) -> list[str]:
    return [_WORDS[(number + i * (1 + number % 3)) % len(_WORDS)] for i in range(3 + number % 6)]


def _tagged(numbers: list[int]) -> dict[str, list[Any]]:
    words = [_sentence(n) for n in numbers]
    return {"words": words, "tags": [["B-X" if w in ("cat", "dog") else "O" for w in s] for s in words]}


def _texts(numbers: list[int]) -> dict[str, list[Any]]:
    words = [_sentence(n) for n in numbers]
    return {"text": [" ".join(s) for s in words], "label": ["cat" if "cat" in s else "none" for s in words]}


def _pairs(numbers: list[int]) -> dict[str, list[Any]]:
    first, second = [_sentence(n) for n in numbers], [_sentence(n + 1) for n in numbers]
    labels = ["cats" if "cat" in a and "cat" in b else "other" for a, b in zip(first, second, strict=True)]
    return {"first": [" ".join(s) for s in first], "second": [" ".join(s) for s in second], "label": labels}


def _questions(numbers: list[int]) -> dict[str, list[Any]]:
    contexts = [" ".join([*_sentence(n), "cat", *_sentence(n + 2)]) for n in numbers]
    return {
        "id": [str(n) for n in range(len(numbers))],
        "question": ["the cat" if n % 2 else "a dog" for n in numbers],
        "context": contexts,
        "answers": [["cat"] for _ in numbers],
        "starts": [[context.index("cat")] for context in contexts],
    }


_MAKERS: dict[Any, Any] = {
    TaggedSentence: _tagged,
    LabelledText: _texts,
    LabelledPair: _pairs,
    Question: _questions,
}
