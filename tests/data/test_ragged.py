"""Rows of different lengths in one array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.ragged import build_ragged, join_rows, take_rows

ROWS = st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6)


@given(ROWS)
def test_rows_round_trip(rows: list[list[int]]) -> None:
    ragged = build_ragged(rows)
    assert len(ragged) == len(rows)
    assert [ragged[i].tolist() for i in range(len(rows))] == rows
    assert ragged.lengths.tolist() == [len(row) for row in rows]


@given(ROWS.filter(bool), st.data())
def test_taken_rows_equal_those_of_a_list(rows: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))
    taken = take_rows(build_ragged(rows), np.asarray(chosen, np.int64))
    assert [taken[i].tolist() for i in range(len(taken))] == [rows[i] for i in chosen]


@given(
    st.integers(0, 4).flatmap(
        lambda n: st.lists(
            st.lists(st.lists(st.integers(0, 9), max_size=3), min_size=n, max_size=n), min_size=1, max_size=4
        )
    )
)
def test_joined_rows_are_concatenated_one_by_one(parts: list[list[list[int]]]) -> None:
    joined = join_rows([build_ragged(part) for part in parts])
    expected = [[value for row in rows for value in row] for rows in zip(*parts, strict=True)]
    assert [joined[i].tolist() for i in range(len(joined))] == expected


def test_row_numbers_are_checked() -> None:
    ragged = build_ragged([[1], [2, 3]])
    assert ragged[-1].tolist() == [2, 3]
    with pytest.raises(IndexError):
        ragged[2]


def test_joining_unequal_numbers_of_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="do not match"):
        join_rows([build_ragged([[1]]), build_ragged([[1], [2]])])
