"""Leases: who works on what, among processes and machines that share a folder.

A lease is a file ``NAME.GENERATION``, made whole by one exclusive link; its holder touches it again and again. Whoever
finds the newest generation released, its process dead, or its file untouched for the expiry time makes the next
generation: of several takers exactly one succeeds, and no file is ever deleted to take a lease, so that a slow taker
cannot delete a fresh one. Untouched is judged by the observer's own clock: the machines' clocks need not agree.

A lease saves work; it does not protect results. A holder that was suspended for long may resume and finish, too:
results are therefore completed by a marker, of which the first wins.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossling.errors import UserError
from crossling.files import write_once
from crossling.processes import find_start, identify_machine, is_running

EXPIRY_SECONDS = 60.0
"""Seconds without a heartbeat after which another machine takes over."""
HEARTBEATS = 6
"""Heartbeats within the expiry time."""
POLL_SECONDS = 0.1
RELEASED = 0
"""The modification time of a lease that its holder gave back."""


class LeaseLostError(UserError):
    """Another process took the work over, because this one sent no heartbeat for too long."""


@dataclass(frozen=True)
class Lease:
    """The right to work on something, as long as it is renewed."""

    name: str
    generation: int
    path: Path

    def is_current(self) -> bool:
        """Whether no other process took it over."""
        return self.path.exists() and not _path(self.path.parent, self.name, self.generation + 1).exists()

    def check(self) -> None:
        """Raise :class:`LeaseLostError` where it was taken over."""
        if not self.is_current():
            raise LeaseLostError(f"{self.name}: taken over by another process while this one did not respond")


@dataclass
class Leases:
    """The leases below one folder, and those of them that this process holds and renews."""

    folder: Path
    expiry: float = EXPIRY_SECONDS
    _held: dict[str, Lease] = field(default_factory=dict)
    _seen: dict[str, tuple[Path, int, float]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def try_acquire(self, name: str) -> Lease | None:
        """The lease, or none while another holds it."""
        newest = self._newest(name)
        if newest is not None and self._is_alive(name, *newest):
            return None
        lease = self._create(name, newest[0] + 1 if newest else 1)
        if lease is not None:
            with self._lock:
                self._held[name] = lease
                self._start_heartbeat()
        return lease

    def release(self, lease: Lease, *, finished: bool) -> None:
        """Give a lease back. What is finished needs none any more: its files go."""
        with self._lock:
            if self._held.get(lease.name) == lease:
                del self._held[lease.name]
        if finished:
            for _, path in _generations(self.folder, lease.name):
                path.unlink(missing_ok=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.utime(lease.path, (RELEASED, RELEASED))

    @contextmanager
    def hold(self, name: str) -> Iterator[Lease]:
        """Wait for a lease and hold it; given back as unfinished where an exception passes."""
        while (lease := self.try_acquire(name)) is None:
            time.sleep(POLL_SECONDS)
        finished = False
        try:
            yield lease
            finished = True
        finally:
            self.release(lease, finished=finished)

    def _newest(self, name: str) -> tuple[int, Path] | None:
        return max(_generations(self.folder, name), default=None)

    def _is_alive(self, name: str, generation: int, path: Path) -> bool:
        try:
            beat = path.stat().st_mtime_ns
            owner = _read_owner(path.read_text(encoding="utf-8", errors="replace"))
        except FileNotFoundError:
            return False
        if beat == RELEASED or owner is None:
            return False
        if owner["machine"] == identify_machine() and not is_running(owner["process"], owner["started"]):
            return False
        now = time.monotonic()
        before = self._seen.get(name)
        if before is None or before[:2] != (path, beat):
            self._seen[name] = (path, beat, now)
            return True
        return now - before[2] < self.expiry

    def _create(self, name: str, generation: int) -> Lease | None:
        """The exclusive link: the file appears with its content, for one of all that try."""
        path = _path(self.folder, name, generation)
        owner = {"machine": identify_machine(), "process": os.getpid(), "started": find_start(os.getpid())}
        if not write_once(path, owner):
            return None
        lease = Lease(name, generation, path)
        if not lease.is_current():  # older files were deleted meanwhile, and another began anew
            return None
        return lease

    def _start_heartbeat(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._send_heartbeats, name="lease heartbeat", daemon=True)
            self._thread.start()

    def _send_heartbeats(self) -> None:
        while True:
            with self._lock:
                held = list(self._held.values())
                if not held:
                    self._thread = None
                    return
            for lease in held:
                with self._lock, contextlib.suppress(OSError):
                    if self._held.get(lease.name) == lease and lease.is_current():
                        os.utime(lease.path)
            time.sleep(self.expiry / HEARTBEATS)


def _read_owner(text: str) -> dict[str, Any] | None:
    """Who holds a lease; none where a power cut left the file empty or with other bytes, so that nobody does."""
    try:
        owner = json.loads(text)
        return {"machine": str(owner["machine"]), "process": int(owner["process"]), "started": str(owner["started"])}
    except (ValueError, KeyError, TypeError):
        return None


def _path(folder: Path, name: str, generation: int) -> Path:
    return folder / f"{name}.{generation}"


def _generations(folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    for path in folder.glob(f"{name}.*"):
        number = path.name.removeprefix(f"{name}.")
        if number.isdigit():
            yield int(number), path
