"""CoNLL-U: the treebanks of Universal Dependencies, read as words and their part-of-speech tags."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from crossling.data.readers.text_files import BadRows, FilePath, Line, ReaderSettings, read_blocks, report_fault
from crossling.data.records import TaggedSentence

VERSION = 1
WIDTH = 10
TAG_COLUMN = {"upos": 3, "xpos": 4}
HEAD_COLUMN = 6
RANGE = re.compile(r"([1-9][0-9]{0,5})-([1-9][0-9]{0,5})")
EMPTY_NODE = re.compile(r"[0-9]{1,6}\.[1-9][0-9]{0,5}")
WITHHELD = "_"
"""The form of every word in a treebank whose text may not be distributed."""
HEAD_RANKS = (
    "VERB",
    "NOUN",
    "PROPN",
    "PRON",
    "ADJ",
    "NUM",
    "ADV",
    "INTJ",
    "AUX",
    "ADP",
    "DET",
    "PART",
    "CCONJ",
)
"""Whose tag a multi-word token takes, of parts that are equally near the root."""


class Settings(ReaderSettings):
    """One CoNLL-U file."""

    path: FilePath
    """The file, plain or gzipped."""
    column: Literal["upos", "xpos"] = "upos"
    """Which tags to read: the universal ones, or the treebank's own."""
    style: Literal["words", "xtreme"] = "words"
    """Syntactic words (de + el); or as XTREME has them: multi-word tokens as written (del) with the tag of the
    part nearest the root, no spaces or zero-width non-joiners in words, no sentences of withheld words."""


def record_kind(settings: Settings) -> type[TaggedSentence]:
    """What the rows are."""
    return TaggedSentence


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[TaggedSentence]:
    """One row a sentence; ranges (``1-2``) and empty nodes (``1.1``) are no words of their own."""
    for block in read_blocks(settings.path):
        if report_fault(settings.path, block, bad=bad):
            continue
        lines = [line for line in block if not line.text.startswith("#")]
        if not lines:
            continue  # a block of comments alone, such as a licence at the top, is no sentence
        try:
            sentence = _read_sentence(lines, TAG_COLUMN[settings.column])
        except _BrokenSentenceError as broken:
            bad.add(f"{settings.path}:{broken.line}", str(broken))
            continue
        if settings.style == "words":
            yield TaggedSentence(tuple(sentence.words), tuple(sentence.tags))
        elif sentence.words.count(WITHHELD) < max(len(sentence.words) - 1, 1):
            yield _fuse(sentence)


class _BrokenSentenceError(Exception):
    def __init__(self, line: Line, what: str) -> None:
        super().__init__(what)
        self.line = line.number


@dataclass
class _Sentence:
    """Syntactic words with tags and heads, and multi-word tokens: first word, last word (from 1), form."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    tokens: list[tuple[int, int, str]] = field(default_factory=list)


def _read_sentence(lines: list[Line], column: int) -> _Sentence:
    sentence = _Sentence()
    for line in lines:
        fields = line.text.split("\t")
        if len(fields) != WIDTH:
            raise _BrokenSentenceError(line, f"{len(fields)} tab-separated fields where CoNLL-U has {WIDTH}")
        due = len(sentence.words) + 1
        if EMPTY_NODE.fullmatch(fields[0]):
            continue
        if span := RANGE.fullmatch(fields[0]):
            _add_token(sentence, int(span[1]), int(span[2]), fields[1], line)
            continue
        if fields[0] != str(due):
            raise _BrokenSentenceError(line, f"word number {fields[0]!r} instead of {due}")
        word, tag = fields[1].strip(), fields[column].strip()
        if not word:
            raise _BrokenSentenceError(line, "a word without a form")
        if not tag or tag == "_":
            raise _BrokenSentenceError(line, f"the word {word!r} has no tag in column {column + 1}")
        sentence.words.append(word)
        sentence.tags.append(tag)
        sentence.heads.append(fields[HEAD_COLUMN])
    if not sentence.words:
        raise _BrokenSentenceError(lines[0], "a sentence without words")
    if sentence.tokens and sentence.tokens[-1][1] > len(sentence.words):
        raise _BrokenSentenceError(lines[-1], "the sentence ends within a multi-word token")
    return sentence


def _add_token(sentence: _Sentence, first: int, last: int, form: str, line: Line) -> None:
    due = len(sentence.words) + 1
    overlaps = bool(sentence.tokens) and sentence.tokens[-1][1] >= first
    if first != due or last <= first or overlaps:
        raise _BrokenSentenceError(line, f"the range {first}-{last} does not begin at word {due}")
    if not form.strip():
        raise _BrokenSentenceError(line, f"the range {first}-{last} has no form")
    sentence.tokens.append((first, last, form.strip()))


def _fuse(sentence: _Sentence) -> TaggedSentence:
    """Multi-word tokens in place of their words, as XTREME's files have them."""
    words: list[str] = []
    tags: list[str] = []
    tokens = {first: (last, form) for first, last, form in sentence.tokens}
    number = 1
    while number <= len(sentence.words):
        last, form = tokens.get(number, (number, sentence.words[number - 1]))
        head = min(range(number, last + 1), key=lambda i: (_find_depth(sentence, i), _rank(sentence, i)))
        words.append(form.replace(" ", "").replace("\u200c", "") or form)
        tags.append(sentence.tags[head - 1])
        number = last + 1
    return TaggedSentence(tuple(words), tuple(tags))


def _find_depth(sentence: _Sentence, number: int) -> int:
    """How many words stand above a word; a head that is none of them, or above itself, ends the climb."""
    depth, seen = 0, {number}
    while True:
        head = sentence.heads[number - 1]
        number = int(head) if head.isascii() and head.isdecimal() and len(head) < 7 else 0
        if not 0 < number <= len(sentence.heads) or number in seen:
            return depth
        seen.add(number)
        depth += 1


def _rank(sentence: _Sentence, number: int) -> int:
    tag = sentence.tags[number - 1]
    return HEAD_RANKS.index(tag) if tag in HEAD_RANKS else len(HEAD_RANKS)
