"""Folders that ``save_to_disk`` of the library datasets wrote: one data set, or one for each split."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossling.data.readers.arrow_rows import FAULTS, choose_columns, read_batches
from crossling.data.readers.named_fields import NamedFieldsSettings
from crossling.data.readers.text_files import BadRows, load_json, open_file, show_working_folder
from crossling.data.records import Record
from crossling.errors import DataError, nearest

VERSION = 1
STATE, SPLITS = "state.json", "dataset_dict.json"


class Settings(NamedFieldsSettings):
    """A folder with a saved data set."""

    split: str = ""
    """Which split, where the folder holds several: train, validation, test."""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the fields named, or as the columns are called."""
    path = _list_parts(settings)[0]
    with _open(path) as reader:
        return choose_columns(settings, reader.schema, path)


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (_find_folder(settings) / STATE, *_list_parts(settings))


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """All rows, part after part."""
    kind = record_kind(settings)
    for path in _list_parts(settings):
        with _open(path) as reader:
            choose_columns(settings, reader.schema, path)
            try:
                yield from read_batches(reader, kind, settings, path, bad)
            except FAULTS as error:
                raise DataError(f"{path}: a damaged Arrow file ({error}); save the data set again") from error


def _find_folder(settings: Settings) -> Path:
    """The folder of the data set, or of one of its splits."""
    path, split = settings.path, settings.split
    if not path.is_dir():
        raise DataError(f"{path}: there is no such folder{show_working_folder(path)}; check the path")
    if not (path / SPLITS).is_file():
        return path
    found = load_json(path / SPLITS)
    splits = [str(name) for name in found.get("splits", ())] if isinstance(found, dict) else []
    if split not in splits:
        asked = f"there is no split {split!r}" if split else "name one of its splits"
        raise DataError(f'{path}: {asked}, as in split = "train".{nearest(split, splits)}')
    return path / Path(split).name


def _list_parts(settings: Settings) -> list[Path]:
    folder = _find_folder(settings)
    if not (folder / STATE).is_file():
        raise DataError(f"{folder}: there is no such file as {STATE} in it: no data set that save_to_disk wrote")
    state: Any = load_json(folder / STATE)
    try:
        parts = [folder / Path(str(part["filename"])).name for part in state["_data_files"]]
        mapped = state.get("_indices_data_files") or state.get("_indices_files")
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / STATE}: not as save_to_disk writes it ({error!r})") from None
    if mapped:
        raise DataError(f"{folder}: was saved with a selection of rows; load it with datasets and save it again")
    if not parts:
        raise DataError(f"{folder}: the data set has no rows")
    return parts


def _open(path: Path) -> pa.ipc.RecordBatchStreamReader:
    with open_file(path, unpack=False):
        pass  # a file that is not there or not regular is an error
    try:
        return pa.ipc.open_stream(pa.OSFile(str(path)))
    except FAULTS as error:
        raise DataError(f"{path}: not an Arrow stream, or a damaged one ({error}); save the data set again") from error
