"""Column files: a word and its tag on each line, a blank line after each sentence (CoNLL-2003, WikiANN)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import Field

from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, read_blocks, report_fault
from crossling.data.records import TaggedSentence
from crossling.limits import MOST_COLUMNS

VERSION = 1
DOCUMENT_START = "-DOCSTART-"
SPACES = re.compile(r"[ \t]+")


class Settings(ReaderSettings):
    """One file of columns."""

    path: FilePath
    """The file, plain or gzipped."""
    word: int = Field(default=1, ge=-MOST_COLUMNS, le=MOST_COLUMNS)
    """The column of the word, counted from 1; from the end where negative."""
    tag: int = Field(default=-1, ge=-MOST_COLUMNS, le=MOST_COLUMNS)
    """The column of the tag, counted from 1; from the end where negative."""
    separator: Literal["tab", "space", "any"] = "any"
    """What parts columns: one tab; runs of spaces and tabs; or a tab in lines that have one, else spaces."""
    prefix: str = ""
    """Text before every word that is not part of it, such as WikiANN's "en:"."""


def record_kind(settings: Settings) -> type[TaggedSentence]:
    """What the rows are."""
    return TaggedSentence


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[TaggedSentence]:
    """One row a sentence. A word or tag that is missing makes the whole sentence a broken row."""
    for block in read_blocks(settings.path):
        if report_fault(settings.path, block, bad=bad):
            continue
        if block[0].text.startswith(DOCUMENT_START):
            block = block[1:]  # marks a document's start; it is no sentence, though one may follow at once
            if not block:
                continue
        words: list[str] = []
        tags: list[str] = []
        for line in block:
            found = _read_word(line.text, settings)
            if isinstance(found, str):
                bad.add(f"{settings.path}:{line.number}", found)
                break
            words.append(found[0])
            tags.append(found[1])
        else:
            yield TaggedSentence(tuple(words), tuple(tags))


def _read_word(text: str, settings: Settings) -> tuple[str, str] | str:
    """The word and tag of a line, or what is wrong with it."""
    by_tab = settings.separator == "tab" or (settings.separator == "any" and "\t" in text)
    fields = text.split("\t") if by_tab else SPACES.split(text.strip(" \t"))
    needed = max(column if column > 0 else -column for column in (settings.word, settings.tag))
    if len(fields) < max(needed, 2):
        between = "tabs or spaces" if settings.separator == "any" else f"{settings.separator}s"
        return f"{len(fields)} column(s) where {max(needed, 2)} are needed, with {between} between"
    word = fields[settings.word - 1 if settings.word > 0 else settings.word].strip()
    tag = fields[settings.tag - 1 if settings.tag > 0 else settings.tag].strip()
    if settings.prefix:
        if not word.startswith(settings.prefix):
            return f"the word {word!r} does not begin with the prefix {settings.prefix!r}"
        word = word.removeprefix(settings.prefix)
    if not word:
        return "an empty word"
    if not tag:
        return f"the word {word!r} has no tag"
    return word, tag
