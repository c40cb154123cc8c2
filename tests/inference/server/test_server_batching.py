"""The queue before a model: batches are shared fairly, nothing is lost, one failure is one caller's."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from crossling.inference.server.batching import Batcher, ClosedError, QueueFullError


class Recorder:
    """Doubles numbers when its gate is open, and keeps the batches that it got."""

    def __init__(self) -> None:
        self.gate, self.entered = threading.Event(), threading.Event()
        self.batches: list[list[int]] = []

    def __call__(self, items: list[int]) -> list[int]:
        self.entered.set()
        assert self.gate.wait(120)
        if -1 in items:
            raise ValueError("poison")
        self.batches.append(items)
        return [2 * item for item in items]


@contextmanager
def held(**settings: Any) -> Iterator[tuple[Recorder, Batcher[int, int]]]:
    """A batcher whose first batch, the number 0, is held at the gate, so that what follows waits in the queue."""
    recorder = Recorder()
    batcher = Batcher(recorder, **{"wait": 0.0, **settings})
    try:
        first = batcher.submit([0])
        assert recorder.entered.wait(120)
        yield recorder, batcher
        recorder.gate.set()
        assert first.result(120) == [0]
    finally:
        recorder.gate.set()
        assert batcher.close(120)


def test_waiting_callers_share_batches() -> None:
    with held(batch=4) as (recorder, batcher):
        futures = [batcher.submit([number]) for number in range(1, 7)]
        recorder.gate.set()
        assert [future.result(120) for future in futures] == [[2 * number] for number in range(1, 7)]
        assert recorder.batches == [[0], [1, 2, 3, 4], [5, 6]]


def test_large_request_does_not_hold_up_small_ones() -> None:
    with held(batch=4, queue=200) as (recorder, batcher):
        large = batcher.submit(list(range(100, 200)))
        small = batcher.submit([1])
        recorder.gate.set()
        assert small.result(120) == [2]
        assert 1 in recorder.batches[1], "the small one is in the first batch after it came"
        assert large.result(120) == [2 * number for number in range(100, 200)]


def test_batches_are_bounded_by_volume() -> None:
    with held(batch=10, size=lambda item: item, volume=10) as (recorder, batcher):
        futures = [batcher.submit([4, 4, 4]), batcher.submit([50, 1])]
        recorder.gate.set()
        assert [future.result(120) for future in futures] == [[8, 8, 8], [100, 2]]
        assert all(sum(batch) <= 10 or len(batch) == 1 for batch in recorder.batches)


def test_full_queue_refuses_and_recovers() -> None:
    with held(queue=3) as (recorder, batcher):
        waiting = batcher.submit([1, 2])
        with pytest.raises(QueueFullError):
            batcher.submit([3, 4])
        batcher.submit([5])
        assert batcher.queued == 3
        assert waiting.cancel()
        again = batcher.submit([3, 4])
        recorder.gate.set()
        assert again.result(120) == [6, 8]
        with pytest.raises(CancelledError):
            waiting.result(120)
        assert batcher.queued == 0
        assert not any(1 in batch for batch in recorder.batches), "what was cancelled is not computed"


def test_failure_reaches_only_its_caller() -> None:
    with held() as (recorder, batcher):
        good, bad, other = batcher.submit([1, 2]), batcher.submit([3, -1]), batcher.submit([4])
        recorder.gate.set()
        assert (good.result(120), other.result(120)) == ([2, 4], [8])
        with pytest.raises(ValueError, match="poison"):
            bad.result(120)
        assert batcher.submit([5]).result(120) == [10], "it goes on"


def test_failed_request_leaves_the_queue() -> None:
    with held(batch=2) as (recorder, batcher):
        bad = batcher.submit([-1, *range(1, 20)])
        recorder.gate.set()
        with pytest.raises(ValueError, match="poison"):
            bad.result(120)
        assert batcher.submit([5]).result(120) == [10]
        assert batcher.queued == 0


def test_wrong_number_of_results_is_an_error() -> None:
    batcher: Batcher[int, int] = Batcher(lambda items: [])
    with pytest.raises(RuntimeError, match="0 results for 1 inputs"):
        batcher.submit([1]).result(120)
    assert batcher.close(120)


def test_closing_finishes_what_was_accepted() -> None:
    with held(batch=2) as (recorder, batcher):
        futures = [batcher.submit([number, number]) for number in range(20)]
        assert not batcher.close(0.0)
        with pytest.raises(ClosedError):
            batcher.submit([1])
        recorder.gate.set()
        assert batcher.close(120)
        assert [future.result(0) for future in futures] == [[2 * number] * 2 for number in range(20)]


def test_request_without_inputs_has_no_results() -> None:
    batcher: Batcher[int, int] = Batcher(lambda items: items)
    assert batcher.submit([]).result(0) == []
    assert batcher.close(120)


def test_many_threads_get_their_own_results() -> None:
    sizes: list[int] = []
    batcher: Batcher[int, int] = Batcher(
        lambda items: [2 * item for item in items],
        batch=7,
        queue=10_000,
        observe=lambda count, seconds: sizes.append(count),
    )

    def call(seed: int) -> int:
        generator = random.Random(seed)
        sent = 0
        for _ in range(20):
            items = [generator.randrange(1000) for _ in range(generator.randrange(12))]
            assert batcher.submit(items).result(120) == [2 * item for item in items]
            sent += len(items)
        return sent

    with ThreadPoolExecutor(64) as pool:
        total = sum(pool.map(call, range(64)))
    assert batcher.close(120)
    assert sum(sizes) == total
    assert max(sizes) <= 7
