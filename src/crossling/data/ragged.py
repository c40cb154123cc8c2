"""Rows of different lengths in one array: a million sentences without a million Python objects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

IntArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Ragged:
    """Rows of different lengths in one array: row i is ``values[offsets[i]:offsets[i + 1]]``."""

    values: IntArray
    offsets: IntArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> IntArray:
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        row %= len(self)
        part: IntArray = self.values[self.offsets[row] : self.offsets[row + 1]]
        return part

    @property
    def lengths(self) -> IntArray:
        """The length of each row."""
        return np.diff(self.offsets)


def build_ragged(rows: Sequence[Sequence[int]]) -> Ragged:
    """Rows of Python numbers as one array."""
    offsets = to_offsets(np.fromiter(map(len, rows), np.int64, len(rows)))
    values = np.fromiter((value for row in rows for value in row), np.int32, int(offsets[-1]))
    return Ragged(values, offsets)


def to_offsets(lengths: IntArray) -> IntArray:
    """Where each row of these lengths begins, and the end of the last."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def take_rows(ragged: Ragged, rows: IntArray) -> Ragged:
    """Rows by number, counted from the first; a number may be repeated."""
    lengths = ragged.offsets[rows + 1] - ragged.offsets[rows]
    offsets = to_offsets(lengths)
    inside = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
    return Ragged(ragged.values[np.repeat(ragged.offsets[rows], lengths) + inside], offsets)


def join_rows(parts: Sequence[Ragged]) -> Ragged:
    """Row i of every part, one after another, for each i."""
    count = len(parts[0])
    if any(len(part) != count for part in parts):
        raise ValueError(f"rows do not match: {[len(part) for part in parts]}")
    flat = np.concatenate([part.values for part in parts])
    bases = np.concatenate([[0], np.cumsum([len(part.values) for part in parts])[:-1]])
    starts = np.stack([part.offsets[:-1] + base for part, base in zip(parts, bases, strict=True)], 1)
    lengths = np.stack([part.lengths for part in parts], 1)
    offsets = to_offsets(lengths.sum(1))
    flat_lengths = lengths.reshape(-1)
    inside = np.arange(offsets[-1]) - np.repeat(to_offsets(flat_lengths)[:-1], flat_lengths)
    return Ragged(flat[np.repeat(starts.reshape(-1), flat_lengths) + inside], offsets)
