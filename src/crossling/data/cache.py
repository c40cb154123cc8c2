"""Data is read once: rows are cached as Arrow files under a fingerprint of everything that determines them."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from crossling.data.readers import Reader, load_reader
from crossling.data.readers.text_files import BadRows, OnError, ReaderSettings, open_file
from crossling.data.records import Record, count_broken
from crossling.data.rows import Rows, hash_text, read_rows, write_rows
from crossling.errors import DataError, nearest
from crossling.files import is_intact
from crossling.registry import identify_plugins

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)
READ_BYTES = 1 << 20
TABLE_KEYS = ("data", "format", "language", "limit", "sample_seed", "on_error", "clean")
"""Keys of a recipe's data table that are not a reader's settings."""


def hash_file(path: Path) -> str:
    """The sha256 of a file's contents as they lie on disk."""
    digest = hashlib.sha256()
    with open_file(path, unpack=False) as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def load_settings(reader: Reader[ReaderSettings], values: Mapping[str, Any], *, name: str) -> ReaderSettings:
    """A reader's settings from a recipe's table; an error names every faulty key."""
    return validate_settings(reader.Settings, values, name=name, other_keys=TABLE_KEYS)


def validate_settings(model: type[M], values: Mapping[str, Any], *, name: str, other_keys: Sequence[str] = ()) -> M:
    """Settings from a table; ``other_keys`` are further suggestions for a misspelt key."""
    try:
        return model.model_validate(dict(values))
    except ValidationError as error:
        raise DataError(f"{name}: {_describe_faults(error, (*model.model_fields, *other_keys))}") from error


def _describe_faults(error: ValidationError, keys: Sequence[str]) -> str:
    faults = []
    for fault in error.errors():
        key = ".".join(map(str, fault["loc"]))
        if fault["type"] == "extra_forbidden":
            faults.append(f"unknown key {key!r}.{nearest(key, keys)}")
        elif fault["type"] == "missing":
            faults.append(f"the key {key!r} is missing")
        else:
            faults.append(f"{key} = {fault['input']!r}: {fault['msg']}" if key else fault["msg"])
    return "; ".join(faults)


def fingerprint_rows(format_name: str, settings: ReaderSettings) -> str:
    """The fingerprint of a reader's rows: its version, settings and the files' contents, not their paths."""
    reader = load_reader(format_name)
    paths = reader.files(settings)
    kept = {
        key: value
        for key, value in settings.model_dump(mode="json").items()
        if not isinstance(getattr(settings, key), Path)
    }
    stamp: str = reader.stamp(settings) if hasattr(reader, "stamp") else ""
    parts = [format_name, reader.VERSION, kept, [hash_file(path) for path in paths], stamp]
    if plugins := identify_plugins({"format": format_name}):
        parts.append(plugins)
    return hash_text(json.dumps(parts, sort_keys=True, ensure_ascii=True))


def open_file_rows(
    format_name: str,
    values: Mapping[str, Any],
    *,
    language: str,
    name: str,
    store: Path,
    on_error: OnError = "raise",
) -> Rows:
    """Rows of custom or catalogue files, from the store if they were read before."""
    reader = load_reader(format_name)
    settings = _load_settings(reader, values, language=language, name=name)
    return open_cached(
        fingerprint_rows(format_name, settings),
        lambda bad: reader.read(settings, bad),
        kind=reader.record_kind(settings),
        language=language,
        name=name,
        store=store,
        on_error=on_error,
    )


def _load_settings(
    reader: Reader[ReaderSettings], values: Mapping[str, Any], *, language: str, name: str
) -> ReaderSettings:
    given = {**values, "language": language} if "language" in reader.Settings.model_fields else values
    return load_settings(reader, given, name=name)


def check_reader_files(format_name: str, values: Mapping[str, Any], *, language: str) -> None:
    """Refuse settings of a reader whose files are not there."""
    reader = load_reader(format_name)
    for path in reader.files(_load_settings(reader, values, language=language, name=format_name)):
        with open_file(path, unpack=False):
            pass  # a file that is not there, not regular or not readable is an error


def open_cached(
    fingerprint: str,
    read: Callable[[BadRows], Iterator[Record]],
    *,
    kind: type[Record],
    language: str,
    name: str,
    store: Path,
    on_error: OnError = "raise",
) -> Rows:
    """Rows stored under a fingerprint, or read now and stored.

    ``on_error`` is not part of the fingerprint: it does not change which rows there are. Rows that were stored with
    ``skip`` are read again with ``raise`` if any was skipped, for the error.
    """
    path = locate_rows(store, fingerprint)
    rows = _find_stored(path, language=language, name=name, fingerprint=fingerprint)
    # Older versions did not store where broken rows were, without which languages cannot be sampled alike.
    if rows is None or (rows.skipped and (on_error == "raise" or rows.places is None)):
        bad = BadRows(on_error)
        write_rows(read(bad), path, kind, count_skipped=lambda: bad.count, count_dropped=lambda: bad.dropped)
        bad.log(name)
        _reported.add(name)
        rows = read_rows(path, language=language, name=name, fingerprint=fingerprint)
    elif rows.skipped:
        _warn_of_skipped(name, rows.skipped)
    if not len(rows):
        raise DataError(f"{name}: there are no rows ({rows.describe_left_out() or 'the files are empty'})")
    return rows


_reported: set[str] = set()
"""Sets whose broken rows this process has named."""


def _warn_of_skipped(name: str, count: int) -> None:
    """Warn again of rows that were skipped when a set was first read, once per run."""
    if name in _reported:
        return
    _reported.add(name)
    logger.warning("%s: %s skipped, when it was first read", name, count_broken(count))


def locate_rows(store: Path, fingerprint: str) -> Path:
    """Where the rows of a fingerprint lie in a store."""
    return store / "data" / f"{fingerprint}.arrow"


def _find_stored(path: Path, *, language: str, name: str, fingerprint: str) -> Rows | None:
    if not is_intact(path):
        return None
    try:
        return read_rows(path, language=language, name=name, fingerprint=fingerprint)
    except DataError as error:
        logger.warning("%s; reading the data again", error)
        return None
