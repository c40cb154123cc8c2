"""Encoded examples on disk and the plans of epochs."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data import batching
from crossling.data.batching import (
    Batch,
    Examples,
    ExampleSubset,
    InMemoryExamples,
    JoinedExamples,
    choose_lengths,
    pad_column,
    pad_length,
    plan_epoch,
    plan_prediction,
    write_examples,
)


def _write(path: Path, ragged: list[list[int]], size: int) -> Examples:
    chunks = (
        {
            "ids": [np.array(row, np.int32) for row in ragged[i : i + size]],
            "row": np.arange(i, min(i + size, len(ragged)), dtype=np.int32),
        }
        for i in range(0, len(ragged), size)
    )
    return write_examples(path, chunks)


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_examples_round_trip_with_any_chunk_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(batching, "CHUNK", 5)
    rows = [list(range(n % 4 + 1)) for n in range(23)]
    examples = _write(tmp_path / "e.arrow", rows, size)
    assert len(examples) == 23
    assert [examples.get("ids", i).tolist() for i in range(23)] == rows
    assert examples.scalars("row").tolist() == list(range(23))
    assert examples.get("row", 17).tolist() == [17]
    assert examples.lengths.tolist() == [len(row) for row in rows]
    assert examples.distinct_ids().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("in_memory", [0, 100])
def test_columns_of_several_rows_equal_those_taken_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(batching, "CHUNK", 5)
    monkeypatch.setattr(batching, "IN_MEMORY", in_memory)
    ragged = [list(range(n, n + n % 4)) for n in range(23)]
    written = _write(tmp_path / "e.arrow", ragged, 3)
    other = write_examples(tmp_path / "f.arrow", [{"ids": [np.array([7, 8], np.int32)]}])
    held = InMemoryExamples(
        [{"ids": [np.array(row, np.int32) for row in ragged], "row": np.arange(23, dtype=np.int32)}]
    )
    subset = ExampleSubset(written, np.array([9, 2, 2, 21]))

    class Reversed(Examples):
        def get(self, column: str, row: int) -> np.ndarray:
            return super().get(column, row)[::-1]

    for examples in (written, held, subset, JoinedExamples([written, other, held]), Reversed(written.path)):
        rows = np.array([3, 1, 0, 3, 2, len(examples) - 1, 5 % len(examples)])
        for column in ("ids", "row"):
            taken = examples.take(column, rows)
            assert [one.tolist() for one in taken] == [examples.get(column, int(row)).tolist() for row in rows]
            plan = Batch(rows, 6)
            for row, place in zip(rows, pad_column(examples, column, plan, size=9, fill=-1), strict=False):
                values = examples.get(column, int(row)).tolist()
                assert place.tolist() == values + [-1] * (6 - len(values))
    assert pad_column(written, "ids", Batch(np.zeros(0, np.int64), 4), size=2, fill=-1).tolist() == [[-1] * 4] * 2


def test_empty_examples_are_allowed(tmp_path: Path) -> None:
    assert len(write_examples(tmp_path / "none.arrow", iter(()))) == 0


def test_failed_writer_leaves_no_file(tmp_path: Path) -> None:
    def chunks():  # type: ignore[no-untyped-def]
        yield {"ids": [np.zeros(2, np.int32)]}
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        write_examples(tmp_path / "e.arrow", chunks())
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=400),
    batch=st.integers(1, 40),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
)
def test_epoch_visits_every_example_once_in_full_batches(lengths: list[int], batch: int, seed: int, epoch: int) -> None:
    array = np.array(lengths, np.int32)
    plan = plan_epoch(array, batch, seed=seed, epoch=epoch)
    assert sorted(np.concatenate([b.rows for b in plan]).tolist()) == list(range(len(lengths)))
    assert sum(len(b.rows) != batch for b in plan) <= 1
    allowed = choose_lengths(array, batch)
    assert all(b.length == min(n for n in allowed if n >= array[b.rows].max()) for b in plan)


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=30), batch=st.integers(1, 4), share=st.integers(1, 40))
def test_chosen_lengths_have_least_cost(lengths: list[int], batch: int, share: int) -> None:
    """All sets of lengths are tried: each length has its price, each batch costs its padding."""
    array = np.array(lengths, np.int32)
    longest = np.sort(array)[::-1][::batch]
    highest = pad_length(int(array.max()))

    def cost(allowed: tuple[int, ...]) -> float:
        padding = sum(min(n for n in allowed if n >= length) - pad_length(length) for length in longest.tolist())
        return padding * batch + len(allowed) * (sum(lengths) // share)

    others = range(batching.LENGTH_MULTIPLE, highest, batching.LENGTH_MULTIPLE)
    cheapest = min(
        cost((*some, highest)) for count in range(len(others) + 1) for some in itertools.combinations(others, count)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "SHARE", share)
        patch.setattr(batching, "LEAST", 0)
        chosen = tuple(choose_lengths(array, batch).tolist())
    assert chosen[-1] == highest and all(n % batching.LENGTH_MULTIPLE == 0 for n in chosen)
    assert cost(chosen) == pytest.approx(cheapest)


@pytest.mark.parametrize(("shape", "scale", "longest"), [(4, 10, 128), (3, 9, 128), (9, 19, 384)])
@pytest.mark.parametrize("count", [16_000, 50_000])
def test_padding_is_below_a_twentieth_in_a_few_shapes(shape: float, scale: float, longest: int, count: int) -> None:
    """For pairs of texts, tagged sentences and windows of contexts."""
    drawn = np.random.default_rng(1).gamma(shape, scale, count) + 3
    lengths = np.minimum(drawn, longest).astype(np.int32)
    plan = plan_epoch(lengths, 32, seed=1, epoch=0)
    assert lengths.sum() > 0.95 * sum(32 * b.length for b in plan)
    assert len({b.length for b in plan}) <= 40


def test_short_training_has_fewer_lengths_and_the_same_batches() -> None:
    """A length pays where it saves more padding, in all epochs together, than capturing it takes."""
    lengths = np.minimum(np.random.default_rng(1).gamma(3, 9, 4_000) + 3, 128).astype(np.int32)
    plans = [plan_epoch(lengths, 32, seed=1, epoch=0, epochs=epochs) for epochs in (1, 3, 10, 1_000, None)]
    counts = [len({b.length for b in plan}) for plan in plans]
    assert counts == sorted(counts) and counts[0] < counts[2] < counts[3] == counts[4]
    for plan in plans[1:]:
        assert all((a.rows == b.rows).all() for a, b in zip(plans[0], plan, strict=True))

    def cost(plan: list[batching.Batch], epochs: int) -> int:
        return len({b.length for b in plan}) * batching.CAPTURE + epochs * sum(32 * b.length for b in plan)

    for place, epochs in enumerate((1, 3, 10)):
        assert cost(plans[place], epochs) < min(cost(plan, epochs) for plan in (plans[3], plans[4]))


def test_epochs_differ_and_repeat_exactly() -> None:
    lengths = np.random.default_rng(0).integers(3, 60, 5_000)
    first, again, other = (plan_epoch(lengths, 32, seed=1, epoch=e) for e in (0, 0, 1))
    assert all((a.rows == b.rows).all() for a, b in zip(first, again, strict=True))
    assert any((a.rows != b.rows).any() for a, b in zip(first[:5], other[:5], strict=True))


def test_padding_is_below_a_twentieth_of_what_random_batches_pad() -> None:
    lengths = np.random.default_rng(0).gamma(4, 6, 20_000).astype(int) + 3
    plan = plan_epoch(lengths, 32, seed=0, epoch=0)
    to_longest = sum(len(b.rows) * int(lengths[b.rows].max()) for b in plan)
    random = sum(32 * int(lengths[i : i + 32].max()) for i in range(0, len(lengths), 32))
    real = int(lengths.sum())
    assert to_longest - real < 0.05 * (random - real)


@given(lengths=st.lists(st.integers(1, 300), max_size=200), batch=st.integers(1, 64))
def test_prediction_covers_all_rows_within_token_budget(lengths: list[int], batch: int) -> None:
    plan = plan_prediction(np.array(lengths, np.int32), batch, tokens=1_000)
    covered = np.concatenate([b.rows for b in plan]).tolist() if plan else []
    assert sorted(covered) == list(range(len(lengths)))
    assert all(len(b.rows) <= batch and (len(b.rows) == 1 or len(b.rows) * b.length <= 1_000) for b in plan)


def test_columns_are_padded_to_batch_length(tmp_path: Path) -> None:
    examples = _write(tmp_path / "e.arrow", [[5], [6, 7], [8, 9, 10]], 2)
    matrix = pad_column(examples, "ids", batching.Batch(np.array([2, 0]), 4), size=3, fill=-1)
    assert matrix.tolist() == [[8, 9, 10, -1], [5, -1, -1, -1], [-1, -1, -1, -1]]
