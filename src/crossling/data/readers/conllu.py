"""CoNLL-U: the treebanks of Universal Dependencies, read as words and their part-of-speech tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from crossling.data.readers._lines import BadRows, FilePath, Line, ReaderSettings, read_blocks, report_fault
from crossling.records import TaggedSentence

VERSION = 1
WIDTH = 10
TAG_COLUMN = {"upos": 3, "xpos": 4}
RANGE = re.compile(r"([1-9][0-9]*)-([1-9][0-9]*)")
EMPTY_NODE = re.compile(r"[0-9]+\.[1-9][0-9]*")
NUMBER = re.compile(r"[1-9][0-9]*")


class Settings(ReaderSettings):
    """One CoNLL-U file."""

    path: FilePath
    """The file, plain or gzipped."""
    column: Literal["upos", "xpos"] = "upos"
    """Which tags to read: the universal ones, or the treebank's own."""


def record_kind(settings: Settings) -> type[TaggedSentence]:
    """What the rows are."""
    return TaggedSentence


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[TaggedSentence]:
    """One row a sentence: its syntactic words, without multi-word ranges (``1-2``) and empty nodes (``1.1``)."""
    for block in read_blocks(settings.path):
        if report_fault(settings.path, block, bad=bad):
            continue
        lines = [line for line in block if not line.text.startswith("#")]
        if not lines:
            continue  # a block of comments alone, such as a licence at the top, is no sentence
        try:
            yield _read_sentence(lines, TAG_COLUMN[settings.column])
        except _BrokenSentenceError as broken:
            bad.add(f"{settings.path}:{broken.line}", str(broken))


class _BrokenSentenceError(Exception):
    def __init__(self, line: Line, what: str) -> None:
        super().__init__(what)
        self.line = line.number


def _read_sentence(lines: list[Line], column: int) -> TaggedSentence:
    words: list[str] = []
    tags: list[str] = []
    for line in lines:
        fields = line.text.split("\t")
        if len(fields) != WIDTH:
            raise _BrokenSentenceError(line, f"{len(fields)} tab-separated fields where CoNLL-U has {WIDTH}")
        if RANGE.fullmatch(fields[0]) or EMPTY_NODE.fullmatch(fields[0]):
            continue
        if not NUMBER.fullmatch(fields[0]) or fields[0] != str(len(words) + 1):
            raise _BrokenSentenceError(line, f"word number {fields[0]!r} where {len(words) + 1} is due")
        word, tag = fields[1].strip(), fields[column].strip()
        if not word:
            raise _BrokenSentenceError(line, "a word without a form")
        if not tag or tag == "_":
            raise _BrokenSentenceError(line, f"the word {word!r} has no tag in column {column + 1}")
        words.append(word)
        tags.append(tag)
    if not words:
        raise _BrokenSentenceError(lines[0], "a sentence without words")
    return TaggedSentence(tuple(words), tuple(tags))
