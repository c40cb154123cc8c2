"""A text file and a label file that belong together line by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import Field, field_validator

from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, read_lines, report_fault, zip_lines
from crossling.data.records import LabelledText

VERSION = 1


class Settings(ReaderSettings):
    """Two files of equally many lines."""

    path: FilePath
    """The texts, one a line; plain or gzipped."""
    labels_path: FilePath
    """The labels, one a line."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels to rename, as in { 0 = "negative", 1 = "neutral", 2 = "positive" }."""
    allowed: tuple[str, ...] = ()
    """The labels there may be, after renaming; a row with another is broken. All where not given."""

    @field_validator("allowed", mode="before")
    @classmethod
    def _accept_lists(cls, value: object) -> object:
        """TOML has lists where a frozen model has tuples."""
        return tuple(value) if isinstance(value, list) else value


def record_kind(settings: Settings) -> type[LabelledText]:
    """What the rows are."""
    return LabelledText


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path, settings.labels_path)


def read(settings: Settings, bad: BadRows) -> Iterator[LabelledText]:
    """One row a line, with its label trimmed; an empty text or label is a broken row."""
    names = files(settings)
    for text, label in zip_lines(*map(read_lines, names), names=names):
        if report_fault(settings.path, (text,), bad=bad) or report_fault(settings.labels_path, (label,), bad=bad):
            continue
        name = settings.labels.get(label.text.strip(), label.text.strip())
        if not text.text.strip():
            bad.add(f"{settings.path}:{text.number}", "an empty text")
        elif not name:
            bad.add(f"{settings.labels_path}:{label.number}", "an empty label")
        elif settings.allowed and name not in settings.allowed:
            allowed = ", ".join(settings.allowed)
            bad.add(f"{settings.labels_path}:{label.number}", f"the label {name!r} is none of {allowed}")
        else:
            yield LabelledText(text.text, name)
