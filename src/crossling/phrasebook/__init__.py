"""The embedded corpus: the same sentences in eight languages, generated, with every kind of gold label."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crossling.data.records import LinkedPair, Record

LANGUAGES = ("en", "de", "es", "fr", "ru", "hi", "vi", "zh")
TASKS = ("pos", "ner", "nli", "paraphrase", "sentiment", "qa", "parallel")
SPLITS = ("train", "dev", "test")
ROWS = {"train": 2000, "dev": 400, "test": 400}
VERSION = 1
"""Changes whenever any row changes; part of the fingerprint of whatever was trained on this corpus."""


def generate(task: str, language: str, split: str, *, rows: int | None = None) -> Iterator[Record]:
    """The rows of a task; row i is the same item in every language. ``parallel`` pairs English with the language."""
    from crossling.phrasebook.corpus import generate_rows

    return generate_rows(task, language, split, rows=rows)


def generate_parallel(source: str, target: str, split: str, *, rows: int | None = None) -> Iterator[LinkedPair]:
    """Sentences in two languages with gold word links."""
    from crossling.phrasebook.corpus import generate_pairs

    return generate_pairs(source, target, split, rows=rows)
