"""Two files whose lines are translations of each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class Settings(ReaderSettings):
    """Two files of equally many lines."""

    source: FilePath
    """The sentences, one a line; plain or gzipped."""
    target: FilePath
    """Their translations, line by line."""


def record_kind(settings: Settings) -> type[ParallelPair]:
    """What the rows are."""
    return ParallelPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.source, settings.target)


def read(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    """One row a line; a line that is empty on either side is a broken row."""
    names = (settings.source, settings.target)
    return pair_lines(read_lines(settings.source), read_lines(settings.target), names=names, bad=bad)


def pair_lines(
    sources: Iterable[Line], targets: Iterable[Line], *, names: tuple[Path, Path], bad: BadRows
) -> Iterator[ParallelPair]:
    """Lines of two sides as pairs; sides of different length are an error that names both."""
    for source, target in zip_lines(sources, targets, names=names):
        if report_fault(names[0], (source,), bad=bad) or report_fault(names[1], (target,), bad=bad):
            continue
        if not source.text.strip() or not target.text.strip():
            side, line = (names[1], target) if source.text.strip() else (names[0], source)
            bad.add(f"{side}:{line.number}", "an empty line has no translation")
            continue
        yield ParallelPair(source.text, target.text)
