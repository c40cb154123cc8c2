"""Tab-separated rows, never quoted: a text or two with a label, or a sentence and its translation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from crossling.data.readers.text_files import (
    BadRows,
    FilePath,
    Line,
    ReaderSettings,
    read_lines,
    report_fault,
    zip_lines,
)
from crossling.data.records import LabelledPair, LabelledText, ParallelPair, Record
from crossling.errors import DataError, nearest
from crossling.limits import MOST_COLUMNS

VERSION = 1
Column = Annotated[int, Field(ge=0, le=MOST_COLUMNS)] | str


class Settings(ReaderSettings):
    """One file of rows. Which columns are named decides what the rows are."""

    path: FilePath
    """The file, plain or gzipped."""
    text: Column = 0
    """The column of a single text: its number from 1, or its name where there is a header; 0 for none."""
    first: Column = 0
    """The column of the first text of a pair."""
    second: Column = 0
    """The column of the second text of a pair."""
    source: Column = 0
    """The column of a sentence that has a translation."""
    target: Column = 0
    """The column of the translation."""
    label: Column = 0
    """The column of the label; 0 where labels_path has it, or where there is none (translations)."""
    header: bool = False
    """The first line names the columns."""
    width: int | None = Field(default=None, ge=1, le=MOST_COLUMNS)
    """Fields that every row must have; those of the header, or of the first row, where not given."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels to rename, as in { contradictory = "contradiction" }."""
    allowed: tuple[str, ...] = ()
    """The labels there may be, after renaming; a row with another is broken. All where not given."""
    labels_path: FilePath | None = None
    """A file whose line i is the label of row i."""

    @model_validator(mode="before")
    @classmethod
    def _accept_lists(cls, data: object) -> object:
        """TOML has lists where a frozen model has tuples."""
        if isinstance(data, dict) and isinstance(data.get("allowed"), list):
            return {**data, "allowed": tuple(data["allowed"])}
        return data

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        named = frozenset(name for name in COLUMN_NAMES if _is_given(getattr(self, name)))
        if named not in KINDS:
            raise ValueError("name the columns text, or first and second, or source and target, and no others")
        labelled = _is_given(self.label) + (self.labels_path is not None)
        if labelled != (KINDS[named] is not ParallelPair):
            raise ValueError("labelled rows need either label or labels_path; translations need neither")
        given = [getattr(self, name) for name in (*COLUMN_NAMES, "label")]
        if not self.header and any(isinstance(column, str) for column in given):
            named_ones = ", ".join(name for name in (*COLUMN_NAMES, "label") if isinstance(getattr(self, name), str))
            raise ValueError(f"{named_ones}: named, but there is no header: set header = true, or number them from 1")
        if any(isinstance(column, int) and column < 0 for column in given):
            raise ValueError("columns are counted from 1")
        return self


COLUMN_NAMES = ("text", "first", "second", "source", "target")
KINDS: dict[frozenset[str], type[Record]] = {
    frozenset({"text"}): LabelledText,
    frozenset({"first", "second"}): LabelledPair,
    frozenset({"source", "target"}): ParallelPair,
}


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the columns that are named."""
    return KINDS[frozenset(name for name in COLUMN_NAMES if _is_given(getattr(settings, name)))]


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path, settings.labels_path) if settings.labels_path else (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """One row a line. Labels are trimmed, texts are not; lines of nothing but spaces hold no row."""
    kind = record_kind(settings)
    rows = _Rows(settings)
    for line, label in _pair_labels(settings, rows):
        if report_fault(settings.path, (line,), bad=bad):
            continue
        values = rows.split(line)
        if label is not None and isinstance(values, dict):
            if report_fault(settings.labels_path or settings.path, (label,), bad=bad):
                continue
            values["label"] = label.text
        built = values if isinstance(values, str) else _build(kind, values, settings)
        if isinstance(built, str):
            bad.add(f"{settings.path}:{line.number}", built)
        else:
            yield built


class _Rows:
    """The lines of the file that hold rows, and where their columns are."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.width = settings.width
        self.positions: dict[str, int] = {}
        for name in (*COLUMN_NAMES, "label"):
            column = getattr(settings, name)
            if isinstance(column, int) and column:
                self.positions[name] = column - 1

    def __iter__(self) -> Iterator[Line]:
        lines = read_lines(self.settings.path)
        if self.settings.header:
            self._read_header(next(lines, Line(1, "")))
        for line in lines:
            if line.fault or line.text.strip():
                yield line
            elif self.settings.labels_path is not None:
                yield line  # it has a label of its own, so it is a row, and a broken one

    def _read_header(self, line: Line) -> None:
        path = self.settings.path
        if line.fault:
            raise DataError(f"{path}:1: the header has {line.fault}; convert the file to UTF-8 text")
        names = [name.strip() for name in line.text.split("\t")]
        self.width = self.width or len(names)
        for key in (*COLUMN_NAMES, "label"):
            column = getattr(self.settings, key)
            if isinstance(column, str):
                if column not in names:
                    raise DataError(f"{path}:1: the header has no column {column!r}.{nearest(column, names)}")
                self.positions[key] = names.index(column)

    def split(self, line: Line) -> dict[str, str] | str:
        """The named fields of a row, or what is wrong with it."""
        found = line.text.split("\t")
        self.width = self.width or len(found)
        if len(found) != self.width:
            return f"{len(found)} tab-separated fields instead of {self.width}"
        beyond = [name for name, position in self.positions.items() if position >= len(found)]
        if beyond:
            return f"no column {self.positions[beyond[0]] + 1} for {beyond[0]}: the row has {len(found)} fields"
        return {name: found[position] for name, position in self.positions.items()}


def _pair_labels(settings: Settings, rows: _Rows) -> Iterator[tuple[Line, Line | None]]:
    """Rows with the line of the labels' file that belongs to each; the two must be equally many."""
    if settings.labels_path is None:
        yield from ((line, None) for line in rows)
        return
    lines = zip_lines(rows, read_lines(settings.labels_path), names=files(settings))
    yield from ((line, label) for line, label in lines)


def _build(kind: type[Record], values: dict[str, str], settings: Settings) -> Record | str:
    """The record, or what is wrong with its fields."""
    if "label" in values:
        label = values["label"].strip()
        values["label"] = settings.labels.get(label, label)
        if settings.allowed and values["label"] not in settings.allowed:
            return f"the label {label!r} is none of {', '.join(settings.allowed)}"
    for name, value in values.items():
        if not value.strip():
            return f"the field {name} is empty"
    build: Callable[..., Record] = kind
    return build(*(values[field.name] for field in fields(kind)))


def _is_given(column: Column) -> bool:
    return column != 0 and column != ""
