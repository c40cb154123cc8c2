"""Data sets of the hub: Parquet read with ``datasets``, converted to records and cached in the store."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from crossling.addresses import mask_credentials
from crossling.data.cache import open_cached
from crossling.data.declarations import HubSource
from crossling.data.readers.json_records import build_record
from crossling.data.readers.text_files import BadRows, OnError
from crossling.data.records import TEXT_COLUMNS, Record
from crossling.data.rows import Rows, hash_text
from crossling.errors import DataError, StorageError
from crossling.files import describe_failure, write_atomic

VERSION = 1
READ_ROWS = 1_000
REACH_SECONDS = 10
CONVERTED = "refs/convert/parquet"
"""The revision under which the hub keeps its own Parquet of sets that used to be scripts."""


class NotFromHubError(DataError):
    """The hub cannot be reached, or has no such set, configuration or split."""


def open_hub_rows(
    source: HubSource,
    names: Mapping[str, str],
    *,
    kind: type[Record],
    language: str,
    name: str,
    store: Path,
    on_error: OnError = "raise",
    has_empty_rows: bool = False,
) -> Rows:
    """Rows of a hub data set; ``has_empty_rows``: it is known to have rows without text, which count as broken.

    The store remembers the commit that was read first: later runs read the same rows without network access. Another
    revision is another version in the spec.
    """
    config = source.config.format(**names)
    question: dict[str, Any] = {
        "reader": VERSION,
        "source": source.model_dump(mode="json", exclude={"codes", "splits"}),
        "config": config,
        "split": names["split"],
        "id_prefix": source.id_prefix.format(**names),
        "kind": kind.__name__,
    }
    filled = _columns(source, names)
    if filled != source.columns:  # one table has both directions of a pair, as columns
        question["columns"] = filled
    if has_empty_rows:
        question["refuses"] = "rows without text"
    asked = _Place(source.repository, config, names["split"], source.revision, source.revision == CONVERTED)
    pointer = store / "data" / f"hub-{hash_text(json.dumps(question, sort_keys=True))}.json"
    place = _recall_place(pointer, asked)
    builder = None
    if place is None:
        builder, place = _find_builder(asked, name=name)
    fingerprint = hash_text(json.dumps({**question, "commit": place.revision}, sort_keys=True))

    def read(bad: BadRows) -> Iterator[Record]:
        found = builder or _find_builder(place, name=name)[0]
        return _read_table(found, source, names, kind=kind, name=name, bad=bad, refuse_empty=has_empty_rows)

    rows = open_cached(fingerprint, read, kind=kind, language=language, name=name, store=store, on_error=on_error)
    if _recall_place(pointer, asked) != place:
        noted = {**question, "commit": place.revision, "converted": place.converted}
        write_atomic(pointer, json.dumps(noted, indent=1))
    return rows


@dataclass(frozen=True, slots=True)
class _Place:
    """One split of one configuration of a repository, at one revision."""

    repository: str
    config: str
    split: str
    revision: str
    converted: bool
    """The hub's own conversion of a set that used to be a script: a folder of Parquet for each split."""

    def __str__(self) -> str:
        return f"{self.repository} (configuration {self.config}, revision {self.revision})"

    def arguments(self) -> dict[str, Any]:
        """The arguments for ``datasets``; a conversion has no card and therefore no named configurations."""
        if self.converted:
            return {"data_files": {self.split: f"{self.config}/{self.split}/*.parquet"}}
        return {"name": self.config}


def _recall_place(pointer: Path, asked: _Place) -> _Place | None:
    try:
        noted = json.loads(pointer.read_text(encoding="utf-8"))
        return replace(asked, revision=str(noted["commit"]), converted=noted["converted"] is True)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _find_builder(place: _Place, *, name: str) -> tuple[Any, _Place]:
    """The builder of ``datasets``, and the place with its commit: from the hub, or from its cache during an outage."""
    import datasets

    outage = _find_outage(datasets.config.HF_ENDPOINT)
    try:
        with _without_network() if outage else nullcontext():
            builder = datasets.load_dataset_builder(place.repository, revision=place.revision, **place.arguments())
    except Exception as error:  # the library raises many kinds, from ConnectionError to RuntimeError
        if outage:
            raise NotFromHubError(f"{name}: {outage}, and {place} is not in its cache on this machine") from error
        if place.revision == "main" and "scripts are no longer supported" in str(error):
            return _find_builder(replace(place, revision=CONVERTED, converted=True), name=name)
        raise NotFromHubError(f"{name}: {place} cannot be loaded from the hub: {_shorten(error)}") from error
    commit = str(builder.hash)
    if outage and place.revision not in ("main", CONVERTED, commit):
        raise NotFromHubError(f"{name}: {outage}, and its cache here has another revision ({commit}) than {place}")
    return builder, replace(place, revision=commit)


@cache
def _find_outage(endpoint: str) -> str:
    """Why the hub cannot be reached, or nothing; checked once, because its library would retry for minutes."""
    session = importlib.import_module("huggingface_hub.utils").get_session()
    try:
        status = int(session.head(endpoint, timeout=REACH_SECONDS).status_code)
    except Exception as error:  # of whichever HTTP library the hub's is built on
        return f"the hub ({mask_credentials(endpoint)}) cannot be reached ({_shorten(error)})"
    return f"the hub ({mask_credentials(endpoint)}) is out of order (status {status})" if status >= 500 else ""


@contextmanager
def _without_network() -> Iterator[None]:
    """As if HF_HUB_OFFLINE were set: the libraries read their caches only."""
    places = [importlib.import_module(name) for name in ("datasets.config", "huggingface_hub.constants")]
    before = [place.HF_HUB_OFFLINE for place in places]
    for place in places:
        place.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for place, value in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = value  # type: ignore[attr-defined]


def _read_table(
    builder: Any,
    source: HubSource,
    names: Mapping[str, str],
    *,
    kind: type[Record],
    name: str,
    bad: BadRows,
    refuse_empty: bool,
) -> Iterator[Record]:
    split = names["split"]
    try:
        builder.download_and_prepare()
        table = builder.as_dataset(split=split)
    except Exception as error:
        if message := describe_failure(error.__cause__ or error, builder.cache_dir):
            raise StorageError(message) from error
        known = ", ".join(builder.info.splits or {})
        raise NotFromHubError(
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
            if refuse_empty and not all(values.get(field) for field in TEXT_COLUMNS[kind]):
                record = "a text is empty"
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
    """The value at a dotted path; ``datasets`` puts a step ``feature`` into lists between."""
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
    text = mask_credentials(" ".join(f"{type(error).__name__}: {error}".split()))
    return text if len(text) <= 300 else text[:300] + "…"


def check_columns(source: HubSource, kind: type[Record]) -> None:
    """A declaration must fill every field of its record."""
    wanted = {field.name for field in fields(kind)}
    assert set(source.columns) == wanted, f"{source.repository}: columns for {wanted ^ set(source.columns)}"
