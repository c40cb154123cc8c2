"""Leases: one holder at a time, a dead one replaced, and never two takers."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.files import append_line, read_json, read_lines, write_once
from crossling.store import leases
from crossling.store.leases import EXPIRY_SECONDS, LeaseLostError, Leases


def test_held_lease_cannot_be_acquired_again(tmp_path: Path) -> None:
    first, second = Leases(tmp_path), Leases(tmp_path)
    lease = first.try_acquire("a")
    assert lease is not None
    assert second.try_acquire("a") is None
    assert second.try_acquire("b") is not None
    first.release(lease, finished=False)
    taken = second.try_acquire("a")
    assert taken is not None
    assert taken.generation == 2
    second.release(taken, finished=True)
    assert not list(tmp_path.glob("a.*"))


class Clock:
    """Stands for the module ``time`` in that of leases: its time passes when a test says so."""

    def __init__(self) -> None:
        self.now, self.sleep = 0.0, time.sleep

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(leases, "time", clock)
    return clock


def test_lease_without_heartbeat_is_taken_over_and_its_holder_notices(tmp_path: Path, clock: Clock) -> None:
    sleeper, taker = Leases(tmp_path), Leases(tmp_path)
    lease = sleeper.try_acquire("a")
    assert lease is not None
    with sleeper._lock:
        sleeper._held.clear()  # as if the process had been stopped
    assert taker.try_acquire("a") is None, "the first look only starts the observer's clock"
    clock.now += 0.9 * EXPIRY_SECONDS
    assert taker.try_acquire("a") is None
    clock.now += 0.2 * EXPIRY_SECONDS
    assert taker.try_acquire("a") is not None
    with pytest.raises(LeaseLostError):
        lease.check()


def test_heartbeats_renew_a_lease(tmp_path: Path, clock: Clock) -> None:
    """For the observer, nearly all of the expiry time passes between one heartbeat and the next, again and again."""
    holder, other = Leases(tmp_path, expiry=0.06), Leases(tmp_path)
    lease = holder.try_acquire("a")
    assert lease is not None
    for _ in range(5):
        before = lease.path.stat().st_mtime_ns
        assert other.try_acquire("a") is None
        clock.now += 0.9 * EXPIRY_SECONDS
        deadline = time.monotonic() + 120
        while lease.path.stat().st_mtime_ns == before:
            assert time.monotonic() < deadline, "no heartbeat"
            time.sleep(0.001)
    lease.check()
    holder.release(lease, finished=True)


def test_lease_of_a_dead_process_is_taken_over_at_once(tmp_path: Path) -> None:
    code = "import sys, pathlib\nfrom crossling.store.leases import Leases\n"
    code += "assert Leases(pathlib.Path(sys.argv[1])).try_acquire('a')"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert (tmp_path / "a.1").exists()
    lease = Leases(tmp_path).try_acquire("a")
    assert lease is not None
    assert lease.generation == 2


def test_lease_of_another_machine_expires_by_its_heartbeat_alone(tmp_path: Path, clock: Clock) -> None:
    """Its process number means nothing here, and its clock may be wrong by hours."""
    (tmp_path / "a.1").write_text('{"machine": "elsewhere", "process": 1, "started": "0"}', encoding="utf-8")
    observer = Leases(tmp_path)
    for hour in (-3, 5, 0):
        os.utime(tmp_path / "a.1", (time.time() + 3600 * hour,) * 2)
        assert observer.try_acquire("a") is None
        clock.now += 0.9 * EXPIRY_SECONDS
    assert observer.try_acquire("a") is None
    clock.now += 0.2 * EXPIRY_SECONDS
    assert observer.try_acquire("a") is not None


def test_exception_inside_hold_releases_the_lease(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="inside"), Leases(tmp_path).hold("a"):
        raise ValueError("inside")
    assert Leases(tmp_path).try_acquire("a") is not None


def _race(count: int, attempt: Callable[[int], bool]) -> list[bool]:
    """Many at the same moment."""
    results = [False] * count
    barrier = threading.Barrier(count)

    def one(number: int) -> None:
        barrier.wait()
        results[number] = attempt(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_exactly_one_of_many_takers_wins(tmp_path: Path) -> None:
    crowd = [Leases(tmp_path) for _ in range(16)]
    for name in map(str, range(20)):
        if int(name) % 2:  # half of the leases are taken over rather than new
            before = Leases(tmp_path)
            left = before.try_acquire(name)
            assert left is not None
            before.release(left, finished=False)
        won = _race(16, lambda n, name=name: crowd[n].try_acquire(name) is not None)  # type: ignore[misc]
        assert won.count(True) == 1


def test_first_of_many_markers_wins(tmp_path: Path) -> None:
    for turn in range(20):
        path = tmp_path / f"{turn}.json"
        won = _race(8, lambda n, path=path: write_once(path, {"by": n}))  # type: ignore[misc]
        assert won.count(True) == 1
        assert read_json(path) == {"by": won.index(True)}
    assert not list(tmp_path.glob("*.partial")) + list(tmp_path.glob(".*.partial"))


def _work(folder: str, jobs: int) -> None:
    """Do every job that is not done, under its lease, and log it."""
    shared = Leases(Path(folder) / "leases")
    for job in range(jobs):
        while not (Path(folder) / f"{job}.done").exists():
            lease = shared.try_acquire(str(job))
            if lease is None:
                time.sleep(0.001)
                continue
            if not (Path(folder) / f"{job}.done").exists():
                append_line(Path(folder) / "log", {"job": job})
                write_once(Path(folder) / f"{job}.done", {})
            shared.release(lease, finished=True)


def test_processes_that_share_jobs_do_each_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_work, args=(str(tmp_path), 60)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert sorted(line["job"] for line in read_lines(tmp_path / "log")) == list(range(60))
