"""Column files: a word and its tag on each line, a blank line after each sentence (CoNLL-2003, WikiANN)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
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
    read_word = _choose_columns(settings)
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
            found = read_word(line.text)
            if isinstance(found, str):
                bad.add(f"{settings.path}:{line.number}", found)
                break
            words.append(found[0])
            tags.append(found[1])
        else:
            yield TaggedSentence(tuple(words), tuple(tags))


def _choose_columns(settings: Settings) -> Callable[[str], tuple[str, str] | str]:
    """What finds the word and tag of a line, or says what is wrong with it; settings are looked up once, not a word."""
    separator, prefix = settings.separator, settings.prefix
    word_at, tag_at = (column - 1 if column > 0 else column for column in (settings.word, settings.tag))
    needed = max(abs(settings.word), abs(settings.tag), 2)

    def read_word(text: str) -> tuple[str, str] | str:
        by_tab = separator == "tab" or (separator == "any" and "\t" in text)
        fields = text.split("\t") if by_tab else SPACES.split(text.strip(" \t"))
        if len(fields) < needed:
            between = "tabs or spaces" if separator == "any" else f"{separator}s"
            return f"{len(fields)} column(s) where {needed} are needed, with {between} between"
        word, tag = fields[word_at].strip(), fields[tag_at].strip()
        if prefix:
            if not word.startswith(prefix):
                return f"the word {word!r} does not begin with the prefix {prefix!r}"
            word = word.removeprefix(prefix)
        if not word:
            return "an empty word"
        if not tag:
            return f"the word {word!r} has no tag"
        return word, tag

    return read_word
