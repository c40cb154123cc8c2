"""Plain text: one text a line, without labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, read_lines, report_fault
from crossling.data.records import PlainText

VERSION = 1


class Settings(ReaderSettings):
    """One file of texts."""

    path: FilePath
    """The texts, one a line; plain or gzipped."""


def record_kind(settings: Settings) -> type[PlainText]:
    """What the rows are."""
    return PlainText


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[PlainText]:
    """One row a line; blank lines hold none."""
    for line in read_lines(settings.path):
        if not report_fault(settings.path, (line,), bad=bad) and line.text.strip():
            yield PlainText(line.text)
