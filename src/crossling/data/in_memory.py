"""Rows that a program has in memory (frames, data sets, lists), stored as Parquet: what recipes name like any file.

The file's name is a hash of its content, so that the same rows are the same data in every identity.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from crossling.errors import DataError
from crossling.files import is_filled, replacing

ROWS = "rows"
"""The key of a data table that holds rows in memory, in place of ``format`` and ``path``."""


def is_in_memory(value: Any) -> bool:
    """Whether a value is rows, not the name or the table of a data set, or a list of those."""
    if isinstance(value, str) or value is None:
        return False
    if isinstance(value, Mapping):
        return ROWS in value
    if _is_table(value):
        return True
    return isinstance(value, Sequence) and bool(value) and not any(map(_is_spec, value))


def _is_spec(value: Any) -> bool:
    named = isinstance(value, Mapping) and bool({ROWS, "data", "format"} & value.keys())
    return named or isinstance(value, str) or _is_table(value)


def _is_table(value: Any) -> bool:
    """Whether a value is a frame of pandas or polars, an Arrow table, or a data set of ``datasets``."""
    return isinstance(value, pa.Table) or any(hasattr(value, name) for name in ("to_parquet", "to_arrow"))


def store_in_memory(value: Any, names: Sequence[str], *, language: str, store: Path) -> dict[str, Any]:
    """Write rows into a store; returns the data table that reads them.

    ``names`` are the fields of rows that are given as tuples. A table ``{"rows": …, "language": …}`` may have the other
    keys of a data table too, such as ``fields`` and ``limit``.
    """
    given = dict(value) if isinstance(value, Mapping) else {ROWS: value}
    stream = io.BytesIO()
    try:
        pq.write_table(_to_arrow(given.pop(ROWS), names), stream)
    except (pa.ArrowException, TypeError) as error:
        raise DataError(f"rows: their values do not fit into columns ({error})") from None
    content = stream.getvalue()
    path = store / "data" / f"rows-{hashlib.sha256(content).hexdigest()[:32]}.parquet"
    if not is_filled(path):
        with replacing(path) as partial:
            partial.write_bytes(content)
    return {"format": "parquet", "path": str(path.absolute()), "language": language, **given}


def _to_arrow(rows: Any, names: Sequence[str]) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "features"):  # of datasets; its schema has the names of class numbers
        return rows.with_format("arrow")[:].replace_schema_metadata(rows.features.arrow_schema.metadata)
    if hasattr(rows, "to_arrow"):
        return rows.to_arrow()
    if hasattr(rows, "to_parquet"):
        return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    return pa.Table.from_pylist([_name_values(row, names, number) for number, row in enumerate(rows)])


def _name_values(row: Any, names: Sequence[str], number: int) -> dict[str, Any]:
    if isinstance(row, Mapping):
        return dict(row)
    values = [getattr(row, name) for name in names] if hasattr(row, "__dataclass_fields__") else row
    if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(names):
        raise DataError(f"row {number}: {str(row)[:60]!r} is not ({', '.join(names)}), nor a dict with these keys")
    return {name: list(v) if isinstance(v, tuple) else v for name, v in zip(names, values, strict=True)}
