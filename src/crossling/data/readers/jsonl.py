"""JSON lines: one object a line, its keys mapped to the fields of any kind of record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossling.data.readers.named_fields import NamedFieldsSettings, build_named, choose_kind
from crossling.data.readers.text_files import BadRows, read_lines, report_fault
from crossling.data.records import Record
from crossling.errors import DataError

VERSION = 1


class Settings(NamedFieldsSettings):
    """One file of objects."""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the fields named, or as the keys of the first object."""
    if settings.fields:
        return choose_kind(settings.fields, (), where=str(settings.path))
    for line in read_lines(settings.path):
        if line.fault or not line.text.strip():
            continue
        first = _parse(line.text)
        if line.text.lstrip().startswith("["):
            raise DataError(f'{settings.path}:{line.number}: an array, not an object a line; use format = "json"')
        names = first if isinstance(first, dict) else {}
        return choose_kind({}, names, where=f"{settings.path}:{line.number}")
    raise DataError(f"{settings.path}: there is no object in the file")


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """One row a line; blank lines hold no row."""
    kind = record_kind(settings)
    for line in read_lines(settings.path):
        if report_fault(settings.path, (line,), bad=bad) or not line.text.strip():
            continue
        found = _parse(line.text)
        if isinstance(found, dict):
            built: Record | str = build_named(kind, found, settings.fields, labels=settings.labels)
        else:
            built = found if isinstance(found, str) else "not a JSON object"
        if isinstance(built, str):
            bad.add(f"{settings.path}:{line.number}", built)
        else:
            yield built


def _parse(text: str) -> Any:
    """The value of a line, or what keeps it from being one."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"not valid JSON ({error.msg} at character {error.pos + 1})"
    except (ValueError, RecursionError) as error:
        return f"not usable JSON ({error})"
    return value if isinstance(value, dict) else None
