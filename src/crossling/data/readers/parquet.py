"""Parquet: one file, or a folder of its parts; columns are mapped to the fields of any kind of record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from crossling.data.readers.arrow_rows import FAULTS, READ_ROWS, choose_columns, read_batches
from crossling.data.readers.named_fields import NamedFieldsSettings
from crossling.data.readers.text_files import BadRows, open_file
from crossling.data.records import Record
from crossling.errors import DataError
from crossling.limits import DECOMPRESSED_FACTOR, DECOMPRESSED_FREE

VERSION = 1


class Settings(NamedFieldsSettings):
    """A file, or a folder whose files ending in .parquet are read in the order of their names."""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the fields named, or as the columns are called."""
    path = files(settings)[0]
    return choose_columns(settings, _open(path).schema_arrow, path)


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    if not settings.path.is_dir():
        return (settings.path,)
    parts = tuple(sorted(settings.path.glob("*.parquet")))
    if not parts:
        raise DataError(f"{settings.path}: there is no Parquet file in the folder")
    return parts


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """All rows, file after file."""
    kind = record_kind(settings)
    for path in files(settings):
        file = _open(path)
        choose_columns(settings, file.schema_arrow, path)
        try:
            yield from read_batches(file.iter_batches(READ_ROWS), kind, settings, path, bad)
        except FAULTS as error:
            raise _to_error(path, error) from error


def _open(path: Path) -> pq.ParquetFile:
    with open_file(path, unpack=False):
        pass  # a file that is not there or not regular is an error
    try:
        file = pq.ParquetFile(path, memory_map=False, page_checksum_verification=True)
    except FAULTS as error:
        raise _to_error(path, error) from error
    groups = range(file.metadata.num_row_groups)
    unpacked = sum(file.metadata.row_group(group).total_byte_size for group in groups)
    if unpacked > max(DECOMPRESSED_FREE, DECOMPRESSED_FACTOR * path.stat().st_size):
        raise DataError(f"{path}: unpacks to {unpacked:,} bytes, more than {DECOMPRESSED_FACTOR} times its size")
    return file


def _to_error(path: Path, error: BaseException) -> DataError:
    what = "damaged" if isinstance(error, pa.ArrowException | OSError) else "cannot be read"
    return DataError(f"{path}: not a Parquet file, or a {what} one ({error}); fetch it again")
