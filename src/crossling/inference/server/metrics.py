"""Counters, gauges and histograms in Prometheus' text format."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Lock

Labels = tuple[tuple[str, str], ...]
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ITEMS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


class Counter:
    """A number that only grows, for each set of labels."""

    kind = "counter"

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = name, text
        self._values: dict[Labels, float] = {}
        self._lock = Lock()

    def add(self, amount: float = 1.0, /, **labels: str) -> None:
        """Count something."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._values[key] = self._values.get(key, 0.0) + amount

    def lines(self) -> Iterable[str]:
        """A line for each set of labels."""
        with self._lock:
            return [format_sample(self.name, labels, value) for labels, value in sorted(self._values.items())]


class Gauge:
    """A number that is read when it is asked for."""

    kind = "gauge"

    def __init__(self, name: str, text: str, read: Callable[[], Mapping[Labels, float]]) -> None:
        self.name, self.text, self._read = name, text, read

    def lines(self) -> Iterable[str]:
        """A line for each set of labels."""
        return [format_sample(self.name, labels, value) for labels, value in sorted(self._read().items())]


class Histogram:
    """How many observations were at most as large as each bound, for each set of labels."""

    kind = "histogram"

    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self.name, self.text, self.bounds = name, text, bounds
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}
        self._lock = Lock()

    def observe(self, value: float, /, **labels: str) -> None:
        """Count an observation."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            self._counts.setdefault(key, [0] * (len(self.bounds) + 1))[bisect_left(self.bounds, value)] += 1
            self._sums[key] = self._sums.get(key, 0.0) + value

    def lines(self) -> Iterable[str]:
        """For each set of labels the cumulative counts, the sum and the count."""
        found = []
        with self._lock:
            for labels, counts in sorted(self._counts.items()):
                below = 0
                for bound, count in zip((*map(repr, self.bounds), "+Inf"), counts, strict=True):
                    below += count
                    found.append(format_sample(f"{self.name}_bucket", (*labels, ("le", bound)), below))
                found.append(format_sample(f"{self.name}_sum", labels, self._sums[labels]))
                found.append(format_sample(f"{self.name}_count", labels, below))
        return found


def format_sample(name: str, labels: Labels, value: float) -> str:
    """One line of a metric."""
    shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
    number = repr(int(value)) if float(value).is_integer() else repr(float(value))
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"


def _escape(text: str) -> str:
    return re.sub(r'[\\"]', r"\\\g<0>", text).replace("\n", "\\n")


def format_metrics(metrics: Iterable[Counter | Gauge | Histogram]) -> str:
    """All metrics in Prometheus' text format, version 0.0.4."""
    lines = []
    for metric in metrics:
        lines += [f"# HELP {metric.name} {metric.text}", f"# TYPE {metric.name} {metric.kind}", *metric.lines()]
    return "\n".join(lines) + "\n"


class ServerMetrics:
    """What a server counts. Names of models and paths are fixed when it starts, so that clients add no series."""

    def __init__(self, queued: Callable[[], Mapping[str, int]], active: Callable[[], int]) -> None:
        def read_queues() -> dict[Labels, float]:
            return {(("model", name),): float(count) for name, count in queued().items()}

        self.requests = Counter("crossling_requests_total", "Requests answered, by path and status.")
        self.request_seconds = Histogram(
            "crossling_request_seconds", "Time from a request's head to the end of its answer.", SECONDS
        )
        self.inputs = Counter("crossling_inputs_total", "Texts, pairs or questions answered, by model.")
        self.batch_inputs = Histogram("crossling_batch_inputs", "Inputs of a batch, by model.", ITEMS)
        self.batch_seconds = Histogram("crossling_batch_seconds", "Time of a batch, by model.", SECONDS)
        self.queued = Gauge("crossling_queued_inputs", "Inputs that wait for a model.", read_queues)
        self.active = Gauge(
            "crossling_active_requests", "Requests for predictions that are read or answered.", lambda: {(): active()}
        )
        self.memory = Gauge("process_resident_memory_bytes", "Memory of the process.", _read_memory)

    def format(self) -> str:
        """All of it in Prometheus' text format."""
        return format_metrics(
            (
                *(self.requests, self.request_seconds, self.inputs),
                *(self.batch_inputs, self.batch_seconds, self.queued, self.active, self.memory),
            )
        )


def _read_memory() -> dict[Labels, float]:
    """Resident memory as Linux says; nothing elsewhere."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return {}
    return {(): float(pages * os.sysconf("SC_PAGE_SIZE"))}
