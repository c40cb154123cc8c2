"""eBible: line i of every translation is verse i."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crossling.data.readers.text_files import (
    BadRows,
    FilePath,
    Line,
    ReaderSettings,
    read_lines,
    report_fault,
    zip_lines,
)
from crossling.data.records import ParallelPair

VERSION = 1
RANGE = "<range>"


class Settings(ReaderSettings):
    """Two translations."""

    source: FilePath
    """A translation, one verse a line; plain or gzipped."""
    target: FilePath
    """Another one, with the same verses."""
    references: FilePath | None = None
    """The list of verses (vref.txt), to check that no line is missing at the end."""


def record_kind(settings: Settings) -> type[ParallelPair]:
    """What the rows are."""
    return ParallelPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    both = (settings.source, settings.target)
    return (*both, settings.references) if settings.references else both


def read(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    """One row a verse that both translations have.

    ``<range>`` means that a verse is part of the line above; the other side's lines are then joined, too, so that both
    sides say the same. A verse that one translation leaves out is no row, but is counted.
    """
    group: list[tuple[Line, Line]] = []
    names = files(settings)
    for source, target, *_ in zip_lines(*map(read_lines, names), names=names):
        if (source.fault or target.fault) and (
            report_fault(settings.source, (source,), bad=bad) or report_fault(settings.target, (target,), bad=bad)
        ):
            yield from _join(group, bad)
            group = []
            continue
        if group and RANGE not in (source.text.strip(), target.text.strip()):
            yield from _join(group, bad)
            group = []
        group.append((source, target))
    yield from _join(group, bad)


def _join(group: list[tuple[Line, Line]], bad: BadRows) -> Iterator[ParallelPair]:
    """The pair of a group of verses, if both sides have all of them."""
    sides = [[line.text.strip() for line in side] for side in zip(*group, strict=True)]
    if all(all(texts) and texts[0] != RANGE for texts in sides) and sides:
        yield ParallelPair(*(" ".join(text for text in texts if text != RANGE) for texts in sides))
    elif any(any(texts) for texts in sides):
        bad.drop("of which one side has no verse, or not all of it")
