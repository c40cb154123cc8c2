"""Parallel text made up for tests."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from crossling import aligners
from crossling.aligners.linked_text import describe_text
from crossling.data.records import LinkedPair, ParallelPair
from crossling.data.rows import SCHEMAS, Rows
from crossling.recipe.identity import content_hash
from crossling.stages.word_pairs import PairData

SOURCE = ("the", "cat", "sees", "a", "dog", "in", "London", "house")
TARGET = ("мир", "нам", "кошка", "не", "мир", "red", "London", "Berlin")


def count_aligned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sentence pairs that an aligner gets at each call from now on."""
    counts: list[int] = []
    original = aligners.align_words

    def align(corpus: Any, *args: Any, **options: Any) -> Any:
        counts.append(len(corpus))
        return original(corpus, *args, **options)

    monkeypatch.setattr(aligners, "align_words", align)
    return counts


def make_linked(count: int = 40, language: str = "en-ru") -> Rows:
    """Sentences whose words are translated one by one, in turned order."""
    columns: dict[str, list[Any]] = {"source": [], "target": [], "links": []}
    for number in range(count):
        places = [(number + 3 * i) % len(SOURCE) for i in range(3 + number % 4)]
        columns["source"].append([SOURCE[place] for place in places])
        columns["target"].append([TARGET[place] for place in reversed(places)])
        columns["links"].append([[i, len(places) - 1 - i] for i in range(len(places))])
    table = pa.table(columns, schema=SCHEMAS[LinkedPair])
    return Rows(table, LinkedPair, language=language, name=f"made:{language}", fingerprint=content_hash(columns))


def make_raw(pairs: list[tuple[str, str]], language: str = "en-ru") -> Rows:
    """Sentences and translations as running text."""
    columns = {"source": [s for s, _ in pairs], "target": [t for _, t in pairs]}
    table = pa.table(columns, schema=SCHEMAS[ParallelPair])
    return Rows(table, ParallelPair, language=language, name=f"raw:{language}", fingerprint=content_hash(columns))


def describe(*rows: Rows, links: str = "") -> PairData:
    """Rows as a stage opens them."""
    return PairData(tuple(describe_text(part, part.language.split("-")[1], links=links) for part in rows))
