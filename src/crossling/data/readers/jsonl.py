"""JSON lines: one object a line, its keys mapped to the fields of any kind of record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from crossling.data.readers.json_records import build_record
from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, read_lines, report_fault
from crossling.data.records import (
    LabelledPair,
    LabelledText,
    LinkedPair,
    ParallelPair,
    PlainText,
    Question,
    Record,
    TaggedSentence,
)
from crossling.errors import DataError

VERSION = 1
RECORDS: tuple[type[Record], ...] = (
    TaggedSentence,
    LabelledText,
    LabelledPair,
    Question,
    LinkedPair,
    ParallelPair,
)
"""Those with more fields before those whose fields are a part of theirs."""


class Settings(ReaderSettings):
    """One file of objects."""

    path: FilePath
    """The file, plain or gzipped."""
    fields: dict[str, str] = Field(default_factory=dict)
    """Our field -> the object's key, as in { text = "review_body", label = "stars" }; a dot goes into an
    inner object. The fields named decide what the rows are (text alone: texts without labels); the first object's keys
    do if none is named."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels or tags to rename."""

    @model_validator(mode="after")
    def _check_fields(self) -> Self:
        if self.fields and _find_kind(set(self.fields), exactly=True) is None:
            shapes = "; ".join(", ".join(_names(kind)) for kind in RECORDS)
            raise ValueError(f"fields {', '.join(self.fields)} are no kind of record; name all of one of: {shapes}")
        return self


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the fields named, or as the keys of the first object."""
    if settings.fields:
        kind = _find_kind(set(settings.fields), exactly=True)
        assert kind is not None, "checked with the settings"
        return kind
    for line in read_lines(settings.path):
        if line.fault or not line.text.strip():
            continue
        first = _parse(line.text)
        kind = _find_kind(set(first), exactly=False) if isinstance(first, dict) else None
        if kind is not None:
            return kind
        shapes = "; ".join(", ".join(_names(kind)) for kind in RECORDS)
        raise DataError(
            f"{settings.path}:{line.number}: the first object's keys are no kind of record ({shapes}); "
            'map them, as in fields = { text = "review_body", label = "stars" }'
        )
    raise DataError(f"{settings.path}: there is no object in the file")


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """One row a line; blank lines hold no row."""
    kind = record_kind(settings)
    keys = settings.fields or {name: name for name in _names(kind)}
    for line in read_lines(settings.path):
        if report_fault(settings.path, (line,), bad=bad) or not line.text.strip():
            continue
        found = _parse(line.text)
        if isinstance(found, dict):
            values = {name: _descend(found, key) for name, key in keys.items()}
            built: Record | str = build_record(kind, values, labels=settings.labels)
            absent = [key for name, key in keys.items() if values[name] is None]
            if isinstance(built, str) and absent:
                built = f"no value for the key {absent[0]!r}; the object's keys: {_list_keys(found)}"
        else:
            built = found if isinstance(found, str) else "not a JSON object"
        if isinstance(built, str):
            bad.add(f"{settings.path}:{line.number}", built)
        else:
            yield built


def _list_keys(found: dict[str, Any]) -> str:
    return ", ".join(map(repr, list(found)[:12])) or "none"


def _names(kind: type[Record]) -> list[str]:
    return [field.name for field in fields(kind)]


def _find_kind(names: set[str], *, exactly: bool) -> type[Record] | None:
    # A text without a label must be asked for: more often its label goes by another name.
    for kind in (*RECORDS, PlainText) if exactly else RECORDS:
        wanted = set(_names(kind))
        if names == wanted or (not exactly and names >= wanted):
            return kind
    return None


def _parse(text: str) -> Any:
    """The value of a line, or what keeps it from being one."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg} at character {error.pos + 1})"
    except (ValueError, RecursionError) as error:
        return f"not usable JSON ({error})"
    return value if isinstance(value, dict) else None


def _descend(value: Any, path: str) -> Any:
    if isinstance(value, dict) and path in value:
        return value[path]
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value
