"""Rows of a data set, memory-mapped from an Arrow file: a million of them are not a million objects."""

from __future__ import annotations

import hashlib
import json
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from crossling.data.records import (
    LabelledPair,
    LabelledText,
    LinkedPair,
    ParallelPair,
    PlainText,
    Question,
    Record,
    TaggedSentence,
    count_broken,
)
from crossling.errors import DataError
from crossling.files import release_pages, replacing

CHUNK_ROWS = 10_000
"""Rows that are Python objects at a time while a file is written."""

RELEASE_ROWS = 200_000
"""Rows that are gone over before their pages of the mapped file are given back."""

_TEXT = pa.string()
_TEXTS = pa.list_(pa.string())
SCHEMAS: dict[type[Record], pa.Schema] = {
    TaggedSentence: pa.schema({"words": _TEXTS, "tags": _TEXTS}),
    LabelledText: pa.schema({"text": _TEXT, "label": _TEXT}),
    PlainText: pa.schema({"text": _TEXT}),
    LabelledPair: pa.schema({"first": _TEXT, "second": _TEXT, "label": _TEXT}),
    Question: pa.schema(
        {"id": _TEXT, "question": _TEXT, "context": _TEXT, "answers": _TEXTS, "starts": pa.list_(pa.int64())}
    ),
    ParallelPair: pa.schema({"source": _TEXT, "target": _TEXT}),
    LinkedPair: pa.schema({"source": _TEXTS, "target": _TEXTS, "links": pa.list_(pa.list_(pa.int32()))}),
}
KINDS: dict[str, type[Record]] = {kind.__name__: kind for kind in SCHEMAS}
LABEL_COLUMNS = {TaggedSentence: "tags", LabelledText: "label", LabelledPair: "label"}


class Rows:
    """Records of one kind in one language, read from disk on demand."""

    def __init__(
        self,
        table: pa.Table,
        kind: type[Record],
        *,
        language: str,
        name: str,
        fingerprint: str,
        skipped: int = 0,
        dropped: Mapping[str, int] | None = None,
        places: npt.NDArray[np.int64] | None = None,
        mapped: Sequence[pa.Buffer] = (),
    ) -> None:
        self._table = table
        self.kind = kind
        self.language = language
        self.name = name
        self.fingerprint = fingerprint
        self.skipped = skipped
        """Broken rows that were left out."""
        self.dropped = dict(dropped or {})
        """Valid rows that were left out on purpose: reason and number."""
        self.places = places
        """Where broken rows were left out, the number of each row in its files, and last the number of all: so that a
        translation has the same number in every language. None where rows are numbered as they stand."""
        self._mapped = tuple(mapped)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        left_out = f", {self.describe_left_out()}" if self.skipped or self.dropped else ""
        return f"Rows({self.name!r}, {len(self)} x {self.kind.__name__}, language={self.language!r}{left_out})"

    def __getitem__(self, index: int) -> Record:
        """The record at a position; negative positions count from the end."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index} of {len(self)} in {self.name}")
        chunk = self._table.slice(index % len(self), 1).to_pydict()
        return self._build_record([column[0] for column in chunk.values()])

    def __iter__(self) -> Iterator[Record]:
        for chunk in self.chunks(1_000):
            yield from map(self._build_record, zip(*chunk.values(), strict=True))

    def _build_record(self, values: Iterable[Any]) -> Record:
        build: Callable[..., Record] = self.kind
        return build(*map(_freeze, values))

    def describe_left_out(self) -> str:
        """Which rows of the files were left out, in words; nothing if none was."""
        parts = [f"{count_broken(self.skipped)} skipped"] if self.skipped else []
        if self.dropped:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.items())
            parts.append(f"{sum(self.dropped.values()):,} left out ({reasons})")
        return "; ".join(parts)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The fields of the record."""
        return tuple(self._table.column_names)

    def column(self, name: str) -> pa.ChunkedArray:
        """One field of all rows, still on disk."""
        return self._table.column(name)

    def chunks(self, size: int = CHUNK_ROWS) -> Iterator[dict[str, list[Any]]]:
        """Fields of ``size`` rows at a time as lists: ``chunk["words"]`` is a list of lists of strings."""
        if size < 1:
            raise ValueError(f"a chunk has at least one row, not {size}")
        kept = 0
        for start in range(0, len(self), size):
            yield self._table.slice(start, size).to_pydict()
            kept += size
            if kept >= RELEASE_ROWS:
                self._release_pages()
                kept = 0

    def _release_pages(self) -> None:
        """Give back the pages of the mapped files that were read; they are mapped again where they are needed.

        The system would take them when it runs short, but until then they count as this process's memory.
        """
        for buffer in self._mapped:
            release_pages(buffer.address, buffer.size)

    def batches(self, size: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """The same as Arrow batches, without a Python object per row; some are shorter."""
        yield from self._table.to_batches(max_chunksize=size)

    def labels(self) -> tuple[str, ...]:
        """The distinct labels or tags, sorted."""
        return tuple(sorted(self.count_labels()))

    def count_labels(self) -> dict[str, int]:
        """How many rows (or words) have each label (or tag), by falling number."""
        name = LABEL_COLUMNS.get(self.kind)
        if name is None:
            raise DataError(f"{self.name} holds {self.kind.__name__} rows, which have no labels")
        counts: dict[str, int] = {}
        for chunk in self.column(name).chunks:
            flat = chunk.flatten() if pa.types.is_list(chunk.type) else chunk
            for pair in pc.value_counts(flat).to_pylist():
                counts[pair["values"]] = counts.get(pair["values"], 0) + pair["counts"]
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def select(self, start: int | None = None, stop: int | None = None) -> Rows:
        """Rows from ``start`` to before ``stop``, as Python slices count them, without copying.

        Broken rows that were left out count: the same slice has the same rows in every language.
        """
        if self.places is None:
            begin, end, _ = slice(start, stop).indices(len(self))
            return self._slice(begin, end)
        first, last, _ = slice(start, stop).indices(int(self.places[-1]))
        begin, end = np.searchsorted(self.places[:-1], (first, max(first, last))).tolist()
        places = np.append(self.places[begin:end], max(first, last)) - first
        return self._slice(begin, end)._copy(places=places)

    def head(self, limit: int) -> Rows:
        """The first ``limit`` rows, or all where there are fewer."""
        return self._slice(0, min(max(limit, 0), len(self)))

    def sample(self, limit: int | None, *, seed: int) -> Rows:
        """Random rows, or all in random order; a smaller sample is part of a larger one.

        What is drawn are numbers of rows in their files, so that translations stay side by side in every language.
        In the place of a broken row, which was left out, stands the next one drawn.
        """
        order = array("q", range(len(self) if self.places is None else int(self.places[-1])))
        random.Random(seed).shuffle(order)
        if self.places is None:
            return self.take(np.frombuffer(order, np.int64)[:limit] if order else ())
        numbers = {place: number for number, place in enumerate(self.places[:-1].tolist())}
        drawn = [numbers.get(place) for place in order]
        first = drawn if limit is None else drawn[:limit]
        others = iter([number for number in drawn[len(first) :] if number is not None])
        filled = (next(others, None) if number is None else number for number in first)
        return self.take([number for number in filled if number is not None])

    def _slice(self, begin: int, end: int) -> Rows:
        if (begin, end) == (0, len(self)):
            return self
        return self._derive(self._table.slice(begin, max(end - begin, 0)), f"[{begin}:{max(begin, end)}]")

    def take(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> Rows:
        """Rows in the given order; only these are copied into memory."""
        picked = np.asarray(indices, np.int64)
        for index in (int(picked.min()), int(picked.max())) if len(picked) else ():
            if not 0 <= index < len(self):
                raise IndexError(f"row {index} of {len(self)} in {self.name}")
        taken = _take(self._table, picked)
        if len(self) >= RELEASE_ROWS:
            self._release_pages()
        return self._copy(table=taken, fingerprint=_hash_taken(self.fingerprint, picked), places=None, mapped=())

    def rename(self, name: str) -> Rows:
        """The same rows under the name by which the user asked for them."""
        return self._copy(name=name)

    def add_left_out(self, before: Rows) -> Rows:
        """The same rows, with those added that were left out of the rows they were made from."""
        dropped = Counter(before.dropped) + Counter(self.dropped)
        return self._copy(skipped=before.skipped + self.skipped, dropped=dict(dropped))

    def _derive(self, table: pa.Table, how: str) -> Rows:
        return self._copy(table=table, fingerprint=hash_text(f"{self.fingerprint} {how}"), places=None)

    def _copy(self, **changes: Any) -> Rows:
        values = {
            "table": self._table,
            "kind": self.kind,
            "language": self.language,
            "name": self.name,
            "fingerprint": self.fingerprint,
            "skipped": self.skipped,
            "dropped": self.dropped,
            "places": self.places,
            "mapped": self._mapped,
        }
        return Rows(**{**values, **changes})


def _take(table: pa.Table, picked: npt.NDArray[np.int64]) -> pa.Table:
    """Rows by number, from one batch after another: Arrow's own ``take`` first copies whole columns of text."""
    order = np.argsort(picked, kind="stable")
    wanted = picked[order]
    pieces, start, at = [], 0, 0
    for batch in table.to_batches():
        end = at + int(np.searchsorted(wanted[at:], start + len(batch)))
        pieces.append(batch.take(pa.array(wanted[at:end] - start)))
        start, at = start + len(batch), end
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return pa.Table.from_batches(pieces, table.schema).combine_chunks().take(pa.array(back))


def _hash_taken(fingerprint: str, picked: npt.NDArray[np.int64]) -> str:
    """The same as ``hash_text(f"{fingerprint} take {picked.tolist()}")``, without a text of all numbers."""
    digest = hashlib.sha256(f"{fingerprint} take [".encode())
    for start in range(0, len(picked), CHUNK_ROWS):
        part = str(picked[start : start + CHUNK_ROWS].tolist())[1:-1]
        digest.update((f", {part}" if start else part).encode())
    digest.update(b"]")
    return digest.hexdigest()[:32]


def _freeze(value: Any) -> Any:
    return tuple(map(_freeze, value)) if isinstance(value, list) else value


def hash_text(text: str) -> str:
    """A short hash of a text, the same on every machine."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def join_rows(parts: Sequence[Rows], *, name: str) -> Rows:
    """Several sets of one kind and language, concatenated without copying."""
    first = parts[0]
    if any(part.kind is not first.kind for part in parts):
        kinds = ", ".join(sorted({part.kind.__name__ for part in parts}))
        raise DataError(f"{name}: cannot join rows of different kinds ({kinds})")
    return Rows(
        pa.concat_tables([part._table for part in parts]),
        first.kind,
        language=first.language,
        name=name,
        fingerprint=hash_text(" + ".join(part.fingerprint for part in parts)),
        skipped=sum(part.skipped for part in parts),
        dropped=sum((Counter(part.dropped) for part in parts), Counter()),
        mapped=[buffer for part in parts for buffer in part._mapped],
    )


def write_rows(
    records: Iterable[Record],
    path: Path,
    kind: type[Record],
    *,
    count_skipped: Callable[[], int] = lambda: 0,
    count_dropped: Callable[[], Mapping[str, int]] = dict,
) -> int:
    """Stream records to an Arrow file, atomically; returns their number.

    ``count_skipped`` and ``count_dropped`` are called after the last record; the file keeps their results.
    """
    gaps: list[tuple[int, int]] = []

    def note_gaps() -> Iterator[Record]:
        """Remember how many rows had been skipped before which."""
        for number, record in enumerate(records):
            if count_skipped() > (gaps[-1][1] if gaps else 0):
                gaps.append((number, count_skipped()))
            yield record

    def count_left_out() -> dict[str, str]:
        skipped = {"skipped": str(count_skipped()), "gaps": json.dumps(gaps)}
        return {**skipped, "dropped": json.dumps(dict(count_dropped()))}

    with replacing(path, seal=True) as partial, partial.open("wb") as stream:
        return _write_stream(note_gaps(), stream, kind, count_left_out)


def _write_stream(
    records: Iterator[Record], stream: Any, kind: type[Record], count_left_out: Callable[[], dict[str, str]]
) -> int:
    schema = SCHEMAS[kind].with_metadata({"kind": kind.__name__})
    names = [field.name for field in fields(kind)]
    total = 0
    with pa.ipc.new_file(stream, schema) as writer:
        while chunk := list(islice(records, CHUNK_ROWS)):
            columns = {name: [getattr(record, name) for record in chunk] for name in names}
            writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=schema))
            total += len(chunk)
        # The numbers of rows left out are known only now: they are the metadata of an empty last batch.
        empty = pa.RecordBatch.from_pydict({name: [] for name in names}, schema=schema)
        writer.write_batch(empty, custom_metadata=count_left_out())
    return total


def read_rows(path: Path, *, language: str, name: str, fingerprint: str) -> Rows:
    """Rows of a file that ``write_rows`` made, memory-mapped."""
    try:
        with pa.memory_map(str(path)) as source:
            mapped = source.read_buffer()
        reader = pa.ipc.open_file(mapped)
        kind = KINDS[reader.schema.metadata[b"kind"].decode()]
        last = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
        skipped = int(last.custom_metadata[b"skipped"])
        dropped = json.loads(last.custom_metadata.get(b"dropped", b"{}"))
        gaps = json.loads(last.custom_metadata.get(b"gaps", b"null"))
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches - 1)]
    except (pa.ArrowInvalid, KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"{path}: not a whole file of rows ({error}); delete it, and it is made again") from error
    table = pa.Table.from_batches(batches, SCHEMAS[kind])
    return Rows(
        table,
        kind,
        language=language,
        name=name,
        fingerprint=fingerprint,
        skipped=skipped,
        dropped=dropped,
        places=_find_places(len(table), skipped, gaps) if skipped and gaps is not None else None,
        mapped=[mapped],
    )


def _find_places(rows: int, skipped: int, gaps: Sequence[Sequence[int]]) -> npt.NDArray[np.int64]:
    """The number of each row in its files, and that of all; a gap is a row and how many were skipped before it."""
    before = np.zeros(rows + 1, np.int64)
    for number, count in gaps:
        before[number:] = count
    before[-1] = skipped
    return np.arange(rows + 1) + before
