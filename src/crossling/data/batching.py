"""Encoded examples, memory-mapped, and the batches that an epoch visits.

An epoch's plan is a pure function of lengths, seed and epoch number. A stream's position is therefore one integer, and
a killed run continues where it was without a stored order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crossling.data.ragged import Ragged, take_rows, to_offsets
from crossling.files import replacing

CHUNK = 4096
"""Rows of one record batch on disk: row ``r`` is found in batch ``r // CHUNK``, with no index to hold in memory."""

WINDOW = 100
"""Batches of shuffled examples that are sorted by length together: enough that padding is a few per cent, few enough
that the order stays random."""

IN_MEMORY = 1 << 16
"""Of up to this many examples, a column that batches are made of is held in memory, to be taken apart at once."""

LENGTH_MULTIPLE = 2
"""Padded lengths are multiples of this: for an odd number of subwords, a GPU copies the attention mask."""

SHARE, LEAST, MOST = 700, 300, 10_000
"""What one more padded length must save in an epoch: at least the SHARE-th part of all subwords, between LEAST and MOST
subwords of padding."""

CAPTURE = 20_000
"""What it must save in the whole training: a GPU runs the first step of a length without a graph and captures another,
which takes as long as training on this many subwords."""

Array = np.ndarray[Any, np.dtype[Any]]


class Examples:
    """Encoded examples on disk: ragged and scalar columns of numbers; ``ids`` are the subwords with special tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with pa.memory_map(str(path)) as source:
            reader = pa.ipc.open_file(source)
            self._hold([reader.get_batch(i) for i in range(reader.num_record_batches)])

    def _hold(self, batches: list[pa.RecordBatch]) -> None:
        self._batches = batches
        self.columns = tuple(batches[0].schema.names) if batches else ("ids",)
        self._views = [{name: _view(batch.column(name)) for name in self.columns} for batch in self._batches]
        self.lengths = self.count_values("ids")

    def __len__(self) -> int:
        return len(self.lengths)

    def get(self, column: str, row: int) -> Array:
        """The values of one example's column; a scalar column gives an array of one."""
        values, offsets = self._views[row // CHUNK][column]
        place = row % CHUNK
        if offsets is None:
            return values[place : place + 1]
        return values[offsets[place] : offsets[place + 1]]

    def take(self, column: str, rows: Array) -> Ragged:
        """The values of several examples' column."""
        if len(self) <= IN_MEMORY and (column in self._held or self._can_hold()):
            if column not in self._held:
                self._held[column] = self._join_column(column)
            return take_rows(self._held[column], rows)
        found = [self.get(column, row) for row in rows.tolist()]
        return Ragged(
            np.concatenate([np.zeros(0, np.int32), *found]), to_offsets(np.array([len(one) for one in found]))
        )

    @cached_property
    def _held(self) -> dict[str, Ragged]:
        return {}

    def _can_hold(self) -> bool:
        """Whether columns are what the files hold: a kind of examples that makes its own rows says it by ``get``."""
        return type(self).get is Examples.get

    def _join_column(self, column: str) -> Ragged:
        """All values of a column."""
        values, lengths = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        for some, offsets in (views[column] for views in self._views):
            # A batch that was cut from a larger one still has all of its values.
            values.append(some if offsets is None else some[offsets[0] : offsets[-1]])
            lengths.append(np.ones(len(some), np.int64) if offsets is None else np.diff(offsets))
        return Ragged(np.concatenate(values), to_offsets(np.concatenate(lengths)))

    def scalars(self, column: str) -> Array:
        """All values of a scalar column."""
        return np.concatenate([views[column][0] for views in self._views] or [np.zeros(0, np.int32)])

    def distinct_ids(self) -> Array:
        """The subwords that occur, sorted."""
        return self.distinct_values("ids")

    def distinct_values(self, column: str) -> Array:
        """The values that occur in a column, sorted."""
        seen = [np.unique(views[column][0]) for views in self._views]
        return np.unique(np.concatenate(seen)) if seen else np.zeros(0, np.int32)

    def count_values(self, column: str) -> Array:
        """How many values of a ragged column each example has."""
        offsets = [views[column][1] for views in self._views]
        return np.concatenate([np.diff(o) for o in offsets] or [np.zeros(0)]).astype(np.int32)


class InMemoryExamples(Examples):
    """Encoded examples in memory: of a few new texts, for which a file would take longer than the model."""

    def __init__(self, chunks: Iterable[Mapping[str, Any]]) -> None:
        self.path = Path()
        self._hold(list(_rechunk(chunks)))


class ExampleSubset(Examples):
    """A view of some examples by row number; a row may be repeated."""

    def __init__(self, examples: Examples, rows: Array) -> None:
        self.path = examples.path
        self.columns = examples.columns
        self.lengths = examples.lengths[rows]
        self._all, self._rows = examples, rows

    def get(self, column: str, row: int) -> Array:
        """The values of one example of the subset."""
        return self._all.get(column, int(self._rows[row]))

    def take(self, column: str, rows: Array) -> Ragged:
        """The values of several examples of the subset."""
        return self._all.take(column, self._rows[rows])

    def scalars(self, column: str) -> Array:
        """The subset's values of a scalar column."""
        return self._all.scalars(column)[self._rows]

    def distinct_ids(self) -> Array:
        """The subwords that occur in the subset, sorted."""
        return np.unique(np.concatenate([np.zeros(0, np.int32), *(self.get("ids", i) for i in range(len(self)))]))


class JoinedExamples(Examples):
    """Several files of examples, one after another; a column that a file lacks is empty there."""

    def __init__(self, parts: Sequence[Examples]) -> None:
        self.path = parts[0].path
        self.columns = tuple(dict.fromkeys(name for part in parts for name in part.columns))
        self.parts = tuple(parts)
        self.lengths = np.concatenate([part.lengths for part in parts])
        self._ends = list(accumulate(len(part) for part in parts))

    def get(self, column: str, row: int) -> Array:
        """The values of one example's column."""
        place = bisect_right(self._ends, row)
        part, before = self.parts[place], self._ends[place - 1] if place else 0
        return part.get(column, row - before) if column in part.columns else np.zeros(0, np.int32)

    def _can_hold(self) -> bool:
        return all(part._can_hold() for part in self.parts)

    def _join_column(self, column: str) -> Ragged:
        """All values of a column, one file after another."""
        parts = [
            part._join_column(column)
            if column in part.columns
            else Ragged(np.zeros(0, np.int32), np.zeros(len(part) + 1, np.int64))
            for part in self.parts
        ]
        lengths = np.concatenate([part.lengths for part in parts])
        return Ragged(np.concatenate([part.values for part in parts]), to_offsets(lengths))

    def scalars(self, column: str) -> Array:
        """All values of a scalar column."""
        return np.concatenate([part.scalars(column) for part in self.parts])

    def distinct_values(self, column: str) -> Array:
        """The values that occur in a column, sorted."""
        return np.unique(np.concatenate([part.distinct_values(column) for part in self.parts]))

    def count_values(self, column: str) -> Array:
        """How many values of a ragged column each example has."""
        return np.concatenate([part.count_values(column) for part in self.parts])


def join_examples(parts: Sequence[Examples]) -> Examples:
    """Several files of examples as one; empty ones are left out."""
    filled = [part for part in parts if len(part)]
    return JoinedExamples(filled) if len(filled) > 1 else (filled or parts)[0]


def _view(column: Any) -> tuple[Array, Any]:
    """Zero-copy numpy views of a column: its values, and its offsets where it is ragged."""
    if pa.types.is_list(column.type):
        offsets = column.offsets.to_numpy()
        return column.values.to_numpy(), offsets
    return column.to_numpy(), None


def write_examples(path: Path, chunks: Iterable[Mapping[str, Any]]) -> Examples:
    """Stream encoded examples to disk, atomically, and open them.

    Every chunk maps column names to numbers: an array (scalar column), or a list of arrays or a ragged array. Integers
    of a list are stored in 32 bits, floats in the type that they have.
    """
    with replacing(path, seal=True) as partial, pa.OSFile(str(partial), "wb") as sink:
        _write_record_batches(sink, _rechunk(chunks))
    return Examples(path)


def _rechunk(chunks: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Record batches of exactly ``CHUNK`` rows, except the last."""
    waiting: list[pa.Table] = []
    rows = 0
    for chunk in chunks:
        table = pa.table({name: _to_arrow(values) for name, values in chunk.items()})
        waiting.append(table)
        rows += len(table)
        while rows >= CHUNK:
            joined = pa.concat_tables(waiting)
            yield joined.slice(0, CHUNK).combine_chunks().to_batches()[0]
            waiting = [joined.slice(CHUNK)]
            rows -= CHUNK
    if waiting and (rows or not waiting[0].num_rows):
        joined = pa.concat_tables(waiting).combine_chunks()
        batches = joined.to_batches()
        yield batches[0] if batches else pa.RecordBatch.from_pylist([], schema=joined.schema)


def _to_arrow(values: Any) -> Any:
    if isinstance(values, np.ndarray):
        return pa.array(values)
    if hasattr(values, "offsets"):
        offsets = pa.array(np.asarray(values.offsets, np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array(np.asarray(values.values, np.int32)))
    flat = np.concatenate(values) if len(values) else np.zeros(0, np.int32)
    offsets = np.concatenate([[0], np.cumsum([len(v) for v in values])]).astype(np.int32)
    kept = flat if np.issubdtype(flat.dtype, np.floating) else flat.astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(kept))


def _write_record_batches(sink: Any, batches: Iterator[pa.RecordBatch]) -> None:
    first = next(batches, None)
    schema = first.schema if first is not None else pa.schema([("ids", pa.list_(pa.int32()))])
    with pa.ipc.new_file(sink, schema) as writer:
        if first is not None:
            writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of the examples in a batch, and the length that they are padded to."""

    rows: Array
    length: int
    epoch: int = 0
    """Seeds what an objective draws for each example, such as masked positions."""


def pad_length(length: int) -> int:
    """``length`` rounded up to a multiple of ``LENGTH_MULTIPLE``."""
    return max(LENGTH_MULTIPLE, -(-int(length) // LENGTH_MULTIPLE) * LENGTH_MULTIPLE)


def choose_lengths(lengths: Array, batch: int, *, epochs: int | None = None) -> Array:
    """The lengths that batches are padded to (length buckets): few, but dense where examples are many.

    The choice assumes batches of examples that are adjacent in length, which is nearly so. ``epochs`` of the whole
    training: a short one has fewer lengths; none: as many as pay in a long one.
    """
    if not len(lengths):
        return np.zeros(0, np.int64)
    longest = np.sort(lengths)[::-1][::batch]
    steps = -(-longest // LENGTH_MULTIPLE)
    price = max(min(MOST, max(LEAST, int(lengths.sum()) // SHARE)), CAPTURE // epochs if epochs else 0)
    return np.array(_choose_buckets(tuple(np.bincount(steps)), price / (batch * LENGTH_MULTIPLE)))


@lru_cache(maxsize=64)
def _choose_buckets(counts: tuple[int, ...], price: float) -> tuple[int, ...]:
    """Ends of the cheapest buckets by dynamic programming: a price for each bucket, plus the padding of its batches."""
    number = np.concatenate([[0], np.cumsum(counts)])
    weighted = np.concatenate([[0], np.cumsum(np.arange(len(counts)) * counts)])
    best, before = np.zeros(len(counts) + 1), np.zeros(len(counts) + 1, np.int64)
    for end in range(1, len(counts) + 1):
        padding = (end - 1) * (number[end] - number[:end]) - (weighted[end] - weighted[:end])
        costs = best[:end] + padding + price
        before[end] = np.argmin(costs)
        best[end] = costs[before[end]]
    ends, end = [], len(counts)
    while end:
        ends.append(max(1, end - 1) * LENGTH_MULTIPLE)
        end = int(before[end])
    return tuple(sorted(set(ends)))


def plan_epoch(lengths: Array, batch: int, *, seed: int, epoch: int, epochs: int | None = None) -> list[Batch]:
    """One epoch's batches: shuffled, of similar length within a window, in random order.

    Every batch but the last of the epoch has exactly ``batch`` examples. ``epochs`` of the whole training decide on
    padding alone (:func:`choose_lengths`).
    """
    generator = np.random.default_rng([seed, epoch])
    allowed = choose_lengths(lengths, batch, epochs=epochs)
    return batch_by_length(
        generator.permutation(len(lengths)), lengths, batch, allowed, epoch=epoch, generator=generator
    )


def batch_by_length(
    order: Array, lengths: Array, batch: int, allowed: Array, *, epoch: int, generator: np.random.Generator
) -> list[Batch]:
    """Batches of similar length, cut within windows of a random order; the batches are shuffled again."""
    batches: list[Batch] = []
    for start in range(0, len(order), batch * WINDOW):
        window = order[start : start + batch * WINDOW]
        window = window[np.argsort(lengths[window], kind="stable")]
        cut = [window[i : i + batch] for i in range(0, len(window), batch)]
        batches += [Batch(rows, fit_length(lengths[rows].max(), allowed), epoch) for rows in cut]
    return [batches[i] for i in generator.permutation(len(batches))]


def fit_length(length: int, allowed: Array) -> int:
    """The smallest allowed length that is at least ``length``."""
    return int(allowed[np.searchsorted(allowed, length)])


def plan_prediction(lengths: Array, batch: int, tokens: int = 16_384) -> list[Batch]:
    """Batches for prediction: longest first, at most ``batch`` examples and about ``tokens`` subwords each."""
    order = np.argsort(-lengths, kind="stable")
    plan, start = [], 0
    while start < len(order):
        length = pad_length(lengths[order[start]])
        size = max(1, min(batch, tokens // length))
        plan.append(Batch(order[start : start + size], length))
        start += size
    return plan


def pad_column(examples: Examples, column: str, plan: Batch, *, size: int, fill: int) -> Array:
    """A ragged column of a batch as a ``size x length`` matrix, filled up with ``fill``."""
    matrix = np.full((size, plan.length), fill, dtype=np.int64)
    taken = examples.take(column, plan.rows)
    matrix[: len(taken)][np.arange(plan.length) < taken.lengths[:, None]] = taken.values
    return matrix
