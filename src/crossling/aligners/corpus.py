"""Sentence pairs as word numbers: the input of every aligner. In the files, words are separated by white space."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossling.data.ragged import Ragged, to_offsets
from crossling.data.readers.text_files import Line, read_lines, zip_lines
from crossling.errors import DataError

SEPARATOR = "|||"


@dataclass(frozen=True, slots=True)
class Side:
    """The sentences of one language: four bytes a word, each distinct word held once."""

    vocabulary: tuple[str, ...]
    tokens: Ragged

    def __len__(self) -> int:
        return len(self.tokens)

    def words(self, row: int) -> tuple[str, ...]:
        """The words of a sentence."""
        return tuple(self.vocabulary[token] for token in self.tokens[row])


@dataclass(frozen=True, slots=True)
class Corpus:
    """Sentences and their translations; both sides have as many sentences, none of them empty."""

    source: Side
    target: Side

    def __len__(self) -> int:
        return len(self.source)

    def sizes(self) -> list[tuple[int, int]]:
        """How many words both sides of every pair have."""
        return list(zip(self.source.tokens.lengths.tolist(), self.target.tokens.lengths.tolist(), strict=True))


class _Collector:
    """Collects sentences of one language into a :class:`Side`."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._tokens = array("i")
        self._lengths = array("i")

    def add(self, words: Sequence[str]) -> None:
        numbers = self._numbers
        self._tokens.extend([numbers.setdefault(word, len(numbers)) for word in words])
        self._lengths.append(len(words))

    def finish(self) -> Side:
        lengths = np.frombuffer(self._lengths, np.int32) if self._lengths else np.zeros(0, np.int32)
        tokens = np.frombuffer(self._tokens, np.int32) if self._tokens else np.zeros(0, np.int32)
        return Side(tuple(self._numbers), Ragged(tokens, to_offsets(lengths)))


def build_corpus(pairs: Iterable[tuple[Sequence[str], Sequence[str]]]) -> Corpus:
    """A corpus from pairs of word lists."""
    source, target = _Collector(), _Collector()
    for number, (left, right) in enumerate(pairs, start=1):
        if not left or not right:
            raise DataError(f"sentence pair {number} has an empty side; leave it out")
        source.add(left)
        target.add(right)
    return Corpus(source.finish(), target.finish())


def read_corpus(source: Path, target: Path | None = None) -> Corpus:
    """Two line-parallel files of words; or one file with both sides in a line and ``|||`` between them."""
    pairs = _read_joint(source) if target is None else _read_parallel(source, target)
    corpus = build_corpus(pairs)
    if not len(corpus):
        raise DataError(f"{source}: has no sentences; there is nothing to align")
    return corpus


def _read_parallel(source: Path, target: Path) -> Iterator[tuple[list[str], list[str]]]:
    for left, right in zip_lines(read_lines(source), read_lines(target), names=(source, target)):
        yield _split(left, source), _split(right, target)


def _read_joint(path: Path) -> Iterator[tuple[list[str], list[str]]]:
    for line in read_lines(path):
        sides = line.text.split(SEPARATOR)
        if len(sides) != 2 and not line.fault:
            raise DataError(
                f"{path}:{line.number}: not two sides with one {SEPARATOR} between; or name a second file, with the "
                "translations"
            )
        yield _split(line._replace(text=sides[0]), path), _split(line._replace(text=sides[-1]), path)


def _split(line: Line, path: Path) -> list[str]:
    if line.fault:
        raise DataError(f"{path}:{line.number}: the line has {line.fault}; convert the file to UTF-8 text")
    words = line.text.split()
    if not words:
        raise DataError(f"{path}:{line.number}: an empty side; leave the pair out of both files")
    return words
