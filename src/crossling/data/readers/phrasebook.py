"""The embedded corpus as data: rows that the project generates itself, the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from crossling.data.readers.text_files import BadRows, ReaderSettings
from crossling.data.records import LabelledPair, LabelledText, LinkedPair, Question, Record, TaggedSentence
from crossling.errors import DataError
from crossling.limits import MOST_COUNTED

VERSION = 1
KINDS: dict[str, type[Record]] = {
    "pos": TaggedSentence,
    "ner": TaggedSentence,
    "nli": LabelledPair,
    "paraphrase": LabelledPair,
    "sentiment": LabelledText,
    "qa": Question,
    "parallel": LinkedPair,
}


class Settings(ReaderSettings):
    """One task's rows in one language."""

    task: Literal["pos", "ner", "nli", "paraphrase", "sentiment", "qa", "parallel"]
    """What the rows are for."""
    language: str
    """A language code; for parallel rows two, as in "en-hi"."""
    split: Literal["train", "dev", "test"]
    """The splits differ in names and in templates."""
    rows: int | None = Field(default=None, ge=1, le=MOST_COUNTED)
    """How many rows to make; the split's own number where not given."""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are."""
    return KINDS[settings.task]


def files(settings: Settings) -> tuple[Path, ...]:
    """No files: settings and the generator's version decide the rows."""
    return ()


def stamp(settings: Settings) -> str:
    """What decides the rows besides settings and files."""
    from crossling import phrasebook

    return f"phrasebook {phrasebook.VERSION}"


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """Generated rows; none is ever broken."""
    from crossling import phrasebook

    if settings.task != "parallel":
        yield from phrasebook.generate(settings.task, settings.language, settings.split, rows=settings.rows)
        return
    source, _, target = settings.language.partition("-")
    if not source or not target:
        raise DataError(f"{settings.language!r} is not a pair of languages; write it as in en-hi")
    yield from phrasebook.generate_parallel(source, target, settings.split, rows=settings.rows)
