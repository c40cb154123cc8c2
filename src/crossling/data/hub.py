"""Data sets of the hub: Parquet through ``datasets``, turned into our records and kept in the store."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from crossling.data.cache import locate_rows, open_cached
from crossling.data.declarations import HubSource
from crossling.data.readers._lines import BadRows, OnError
from crossling.data.readers._records import build_record
from crossling.data.rows import Rows, hash_text
from crossling.errors import DataError
from crossling.records import Record

logger = logging.getLogger(__name__)

VERSION = 1
READ_ROWS = 1_000


def open_hub_rows(
    source: HubSource,
    names: Mapping[str, str],
    *,
    kind: type[Record],
    language: str,
    name: str,
    store: Path,
    on_error: OnError = "raise",
) -> Rows:
    """Rows of a hub data set.

    The commit that was read first is remembered in the store, and later runs read the very same rows without
    asking the network again; another revision is another version in the spec.
    """
    config = source.config.format(**names)
    question = {
        "reader": VERSION,
        "source": source.model_dump(mode="json", exclude={"codes", "splits"}),
        "config": config,
        "split": names["split"],
        "id_prefix": source.id_prefix.format(**names),
        "kind": kind.__name__,
    }
    pointer = store / "data" / f"hub-{hash_text(json.dumps(question, sort_keys=True))}.json"
    commit = _recall_commit(pointer)
    builder = None
    if commit is None:
        builder = _find_builder(source, config, name=name)
        commit = str(builder.hash)
    fingerprint = hash_text(json.dumps({**question, "commit": commit}, sort_keys=True))
    if builder is None and not locate_rows(store, fingerprint).exists():
        builder = _find_builder(source.model_copy(update={"revision": commit}), config, name=name)

    def read(bad: BadRows) -> Iterator[Record]:
        found = builder or _find_builder(source.model_copy(update={"revision": commit}), config, name=name)
        return _read_table(found, source, names, kind=kind, name=name, bad=bad)

    rows = open_cached(fingerprint, read, kind=kind, language=language, name=name, store=store, on_error=on_error)
    if _recall_commit(pointer) != commit:
        pointer.write_text(json.dumps({**question, "commit": commit}, indent=1), encoding="utf-8")
    return rows


def _recall_commit(pointer: Path) -> str | None:
    try:
        return str(json.loads(pointer.read_text(encoding="utf-8"))["commit"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _find_builder(source: HubSource, config: str, *, name: str) -> Any:
    """What ``datasets`` knows of a set at one commit: from the hub, or its cache where the hub is away."""
    import datasets

    where = f"{source.repository} (configuration {config}, revision {source.revision})"
    try:
        return datasets.load_dataset_builder(source.repository, config, revision=source.revision)
    except Exception as error:  # the library raises many kinds, from ConnectionError to RuntimeError
        raise DataError(f"{name}: {where} cannot be had from the hub: {_shorten(error)}") from error


def _read_table(
    builder: Any, source: HubSource, names: Mapping[str, str], *, kind: type[Record], name: str, bad: BadRows
) -> Iterator[Record]:
    split = names["split"]
    try:
        builder.download_and_prepare()
        table = builder.as_dataset(split=split)
    except Exception as error:
        known = ", ".join(builder.info.splits or {})
        raise DataError(
            f"{name}: the split {split!r} of {source.repository} cannot be read: {_shorten(error)}"
            + (f"; its splits: {known}" if known else "")
        ) from error
    missing = {path.partition(".")[0] for path in _columns(source, names).values()} - set(table.column_names)
    if missing:
        raise DataError(
            f"{name}: {source.repository} has no column {', '.join(sorted(missing))}, only "
            f"{', '.join(table.column_names)}; the set has changed, name an older revision as version"
        )
    decode = _decoder(table.features, source, names)
    prefix = source.id_prefix.format(**names)
    number = 0
    for batch in table.iter(batch_size=READ_ROWS):
        for values in decode(batch):
            number += 1
            if prefix and not str(values.get("id", "")).startswith(prefix):
                continue
            record = build_record(kind, _drop_tags(values, source.drop_tags), labels=source.labels)
            if isinstance(record, str):
                bad.add(f"{source.repository}/{split} row {number}", record)
            else:
                yield record


def _columns(source: HubSource, names: Mapping[str, str]) -> dict[str, str]:
    return {ours: theirs.format(**names) for ours, theirs in source.columns.items()}


def _decoder(
    features: Mapping[str, Any], source: HubSource, names: Mapping[str, str]
) -> Callable[[Mapping[str, list[Any]]], Iterator[dict[str, Any]]]:
    """A function from a batch of the hub's columns to our fields, with class numbers turned into names."""
    columns = _columns(source, names)
    to_name = {theirs: _class_names(_descend(features, theirs)) for theirs in columns.values()}

    def decode(batch: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
        size = len(next(iter(batch.values())))
        for i in range(size):
            row = {key: values[i] for key, values in batch.items()}
            yield {ours: _name(_descend(row, theirs), to_name[theirs]) for ours, theirs in columns.items()}

    return decode


def _descend(value: Any, path: str) -> Any:
    """What a dotted path leads to; ``feature`` is the step into a list that ``datasets`` puts between."""
    for key in path.split("."):
        if not hasattr(value, "get") and hasattr(value, "feature"):
            value = value.feature
        value = value.get(key) if hasattr(value, "get") else None
    return value


def _class_names(feature: Any) -> list[str] | None:
    inner = getattr(feature, "feature", feature)
    names = getattr(inner, "names", None)
    return list(names) if names else None


def _name(value: Any, names: list[str] | None) -> Any:
    """Class numbers as names; one that has no name (-1: withheld) is none, which makes a broken row."""
    if names is None:
        return value
    if isinstance(value, list):
        return [_name(item, names) for item in value]
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


def _drop_tags(values: dict[str, Any], dropped: tuple[str, ...]) -> dict[str, Any]:
    tags, words = values.get("tags"), values.get("words")
    if not dropped or not isinstance(tags, list) or not isinstance(words, list) or len(tags) != len(words):
        return values
    kept = [i for i, tag in enumerate(tags) if tag not in dropped]
    return {**values, "words": [words[i] for i in kept], "tags": [tags[i] for i in kept]}


def _shorten(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:300] + "…"


def check_columns(source: HubSource, kind: type[Record]) -> None:
    """A declaration must fill every field of its record."""
    wanted = {field.name for field in fields(kind)}
    assert set(source.columns) == wanted, f"{source.repository}: columns for {wanted ^ set(source.columns)}"
