"""Sentence pairs that are cut into words, and the links that people drew between the words (gold alignments)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import model_validator

from crossling.data.readers.text_files import (
    BadRows,
    FilePath,
    LanguagePair,
    ReaderSettings,
    read_lines,
    report_fault,
    split_pair,
    zip_lines,
)
from crossling.data.records import LinkedPair

VERSION = 1
SEPARATOR = "|||"
LINK = re.compile(r"([0-9]{1,6})([-p])([0-9]{1,6})")


class Settings(ReaderSettings):
    """A file of pairs, and a file of their links."""

    path: FilePath
    """The pairs, one a line: words of one side, |||, words of the other; plain or gzipped."""
    links_path: FilePath
    """The links, line by line: 3-4 is a sure one, 3p4 a possible one."""
    language: LanguagePair
    """The pair, source first, as in "en-fr"."""
    left: str = ""
    """The language that stands before the |||, where that is not the source: rows are then turned around."""
    links: Literal["sure", "all"] = "sure"
    """Which links to read: those that annotators were sure of, or the possible ones too."""
    base: Literal[0, 1] = 1
    """The number of a sentence's first word."""

    @model_validator(mode="after")
    def _check_left(self) -> Self:
        if self.left not in ("", *split_pair(self.language)):
            raise ValueError(f"left = {self.left!r} is neither of {self.language}")
        return self


def record_kind(settings: Settings) -> type[LinkedPair]:
    """What the rows are."""
    return LinkedPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path, settings.links_path)


def read(settings: Settings, bad: BadRows) -> Iterator[LinkedPair]:
    """One row a line; a pair without any link is a row too."""
    names = files(settings)
    for pair, links in zip_lines(*map(read_lines, names), names=names):
        if report_fault(settings.path, (pair,), bad=bad) or report_fault(settings.links_path, (links,), bad=bad):
            continue
        sides = [tuple(side.split()) for side in pair.text.split(SEPARATOR)]
        if len(sides) != 2 or not all(sides):
            bad.add(f"{settings.path}:{pair.number}", f"not two sides of words with one {SEPARATOR} between")
            continue
        found = _read_links(links.text, (len(sides[0]), len(sides[1])), settings)
        if isinstance(found, str):
            bad.add(f"{settings.links_path}:{links.number}", found)
        elif settings.left and not settings.language.startswith(f"{settings.left}-"):
            yield LinkedPair(sides[1], sides[0], tuple(sorted((second, first) for first, second in found)))
        else:
            yield LinkedPair(sides[0], sides[1], tuple(sorted(found)))


def _read_links(text: str, sizes: tuple[int, int], settings: Settings) -> set[tuple[int, int]] | str:
    """The links of a line, counted from 0, or what is wrong with them."""
    found = set()
    for item in text.split():
        match = LINK.fullmatch(item)
        if match is None:
            return f"{item[:40]!r} is no link such as 3-4 or 3p4"
        link = int(match[1]) - settings.base, int(match[3]) - settings.base
        if not (0 <= link[0] < sizes[0] and 0 <= link[1] < sizes[1]):
            return f"the link {item} leads outside {sizes[0]} and {sizes[1]} words, counted from {settings.base}"
        if match[2] == "-" or settings.links == "all":
            found.add(link)
    return found
