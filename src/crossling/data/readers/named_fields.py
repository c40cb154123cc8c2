"""Rows whose values have names (keys of objects, columns of tables): which name is which field of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Self

from pydantic import Field, model_validator

from crossling.data.readers.json_records import build_record
from crossling.data.readers.text_files import FilePath, ReaderSettings
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

RECORDS: tuple[type[Record], ...] = (
    TaggedSentence,
    LabelledText,
    LabelledPair,
    Question,
    LinkedPair,
    ParallelPair,
)
"""Those with more fields before those whose fields are a part of theirs."""
SHOWN_NAMES = 12


class NamedFieldsSettings(ReaderSettings):
    """One file of rows whose values have names."""

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
        if self.fields and find_kind(self.fields, exactly=True) is None:
            raise ValueError(f"fields {', '.join(self.fields)} are no kind of record; name all of one of: {_shapes()}")
        return self


def choose_kind(given: Mapping[str, Any], names: Iterable[str], *, where: str) -> type[Record]:
    """What rows are: as the fields that the settings name, or else as the names that the file has."""
    found = find_kind(given, exactly=True) if given else find_kind(names, exactly=False)
    if found is None:
        listed = ", ".join(map(repr, list(names)[:SHOWN_NAMES])) or "none"
        raise DataError(
            f"{where}: the names {listed} are no kind of record ({_shapes()}); "
            'map them, as in fields = { text = "review_body", label = "stars" }'
        )
    return found


def find_kind(names: Iterable[str], *, exactly: bool) -> type[Record] | None:
    """The kind of record that has these fields, or all of whose fields are among them."""
    # A text without a label must be asked for: more often its label goes by another name.
    there = set(names)
    for kind in (*RECORDS, PlainText) if exactly else RECORDS:
        wanted = set(list_fields(kind))
        if there == wanted or (not exactly and there >= wanted):
            return kind
    return None


def list_fields(kind: type[Record]) -> list[str]:
    """The fields of a kind of record, in order."""
    return [field.name for field in fields(kind)]


def build_named(
    kind: type[Record], found: Mapping[str, Any], given: Mapping[str, str], *, labels: Mapping[str, str]
) -> Record | str:
    """The record of an object or a row of a table, or what is wrong with it."""
    keys = given or {name: name for name in list_fields(kind)}
    values = {name: descend(found, key) for name, key in keys.items()}
    built: Record | str = build_record(kind, values, labels=labels)
    absent = [key for name, key in keys.items() if values[name] is None]
    if isinstance(built, str) and absent:
        listed = ", ".join(map(repr, list(found)[:SHOWN_NAMES])) or "none"
        return f"no value for the key {absent[0]!r}; the object's keys: {listed}"
    return built


def descend(value: Any, path: str) -> Any:
    """The value at a key, or where dots go into inner objects."""
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _shapes() -> str:
    return "; ".join(", ".join(list_fields(kind)) for kind in RECORDS)
