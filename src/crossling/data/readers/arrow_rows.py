"""Rows of Arrow tables, as Parquet files and saved data sets hold them: columns mapped to the fields of a record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossling.data.readers.named_fields import NamedFieldsSettings, build_named, choose_kind
from crossling.data.readers.text_files import BadRows
from crossling.data.records import Record
from crossling.errors import DataError

READ_ROWS = 1_000
FAULTS = (pa.ArrowException, OSError, ValueError, EOFError, MemoryError, OverflowError)
"""What Arrow raises at damaged files."""


def choose_columns(settings: NamedFieldsSettings, schema: pa.Schema, path: Path) -> type[Record]:
    """What the rows are: as the fields named, or as the columns are called."""
    try:
        names = schema.names
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: a damaged file: the name of a column is no UTF-8 ({error}); save it again") from error
    if settings.fields:
        missing = [column for column in settings.fields.values() if column.partition(".")[0] not in names]
        missing = [column for column in missing if column not in names]
        if missing:
            raise DataError(f"{path}: there is no column {missing[0]!r}, only {', '.join(names)}")
    return choose_kind(settings.fields, names, where=f"{path}: the columns")


def read_batches(
    batches: Iterable[pa.RecordBatch], kind: type[Record], settings: NamedFieldsSettings, path: Path, bad: BadRows
) -> Iterator[Record]:
    """Records of batches; class numbers become names where the file has them."""
    number, names = 0, None
    for batch in batches:
        batch.validate(full=True)  # else a damaged file could be read outside of its memory
        names = read_class_names(batch.schema) if names is None else names
        for row in batch.to_pylist():
            named = {key: name_classes(value, names[key]) if key in names else value for key, value in row.items()}
            built = build_named(kind, named, settings.fields, labels=settings.labels)
            if isinstance(built, str):
                bad.add(f"{path}: row {number}", built)
            else:
                yield built
            number += 1


def read_class_names(schema: pa.Schema) -> dict[str, list[str]]:
    """Names of class numbers by column, where the library ``datasets`` wrote the schema."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        found = {column: _find_names(feature) for column, feature in features.items()}
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return {}
    return {column: names for column, names in found.items() if names}


def _find_names(feature: Any) -> list[str]:
    if isinstance(feature, list) and len(feature) == 1:
        feature = feature[0]
    while isinstance(feature, Mapping) and isinstance(feature.get("feature"), Mapping):
        feature = feature["feature"]
    names = feature.get("names") if isinstance(feature, Mapping) else None
    return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else []


def name_classes(value: Any, names: list[str]) -> Any:
    """Class numbers as names; one without a name (-1: withheld) is none, which makes a broken row."""
    if isinstance(value, list):
        return [name_classes(one, names) for one in value]
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else None
    return value
