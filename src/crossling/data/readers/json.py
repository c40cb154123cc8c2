"""A JSON document: an array of objects, their keys mapped to the fields of any kind of record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossling.data.readers.named_fields import NamedFieldsSettings, build_named, choose_kind, descend
from crossling.data.readers.text_files import BadRows, load_json
from crossling.data.records import Record
from crossling.errors import DataError

VERSION = 1


class Settings(NamedFieldsSettings):
    """One document with an array of objects."""

    rows: str = ""
    """The key that holds the array, with dots into inner objects; default: the document is the array."""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the fields named, or as the keys of the first object."""
    if settings.fields:
        return choose_kind(settings.fields, (), where=str(settings.path))
    first = next((row for row in _load(settings) if isinstance(row, dict)), {})
    return choose_kind({}, first, where=f"{settings.path}: the first object")


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """One row an object; an item that is none is a broken row."""
    kind = record_kind(settings)
    for number, found in enumerate(_load(settings)):
        built: Record | str = "not a JSON object"
        if isinstance(found, dict):
            built = build_named(kind, found, settings.fields, labels=settings.labels)
        if isinstance(built, str):
            bad.add(f"{settings.path}: item {number}", built)
        else:
            yield built


def _load(settings: Settings) -> list[Any]:
    document = load_json(settings.path)
    rows = descend(document, settings.rows) if settings.rows else document
    if isinstance(rows, list):
        return rows
    if settings.rows:
        raise DataError(f"{settings.path}: {settings.rows!r} is no array in the document")
    keys = [key for key, value in document.items() if isinstance(value, list)] if isinstance(document, dict) else []
    known = f"; its arrays: {', '.join(keys[:5])}" if keys else ""
    raise DataError(f'{settings.path}: the document is no array; name the key that holds it, rows = "data"{known}')
