"""The rows of every benchmark: our figure, the peers', ratios and limit; printed and saved as they are measured."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from crossling.files import write_atomic

RESULTS = Path(__file__).parent / "results"
LIMIT, VALUE = "limit", "value"
"""Targets that no peer has: a share of the limit, and our own figure."""
PACKAGES = ("accelerate", "scikit-learn", "numba", "pyarrow", "minicons")


class MissingError(Exception):
    """A requirement of a row is missing; the row is left out with this message."""


@dataclass(frozen=True)
class Row:
    """One measurement, with what peers take for the same work."""

    name: str
    what: str
    """What is timed, and on what."""
    unit: str
    ours: float
    peers: dict[str, float] = field(default_factory=dict)
    limit: float | None = None
    """What the device could do, in the same unit: its measured rate of matrix products, for real subwords only."""
    targets: dict[str, float] = field(default_factory=dict)
    """By peer: how many times as fast we should be. ``limit``: the share of it. ``value``: our own figure."""
    better: Literal["higher", "lower"] = "higher"
    notes: dict[str, Any] = field(default_factory=dict)
    """The number of timed steps behind each figure, and other facts."""

    def ratios(self) -> dict[str, float]:
        """How many times as fast as each peer."""
        if self.better == "higher":
            return {name: self.ours / value for name, value in self.peers.items()}
        return {name: value / self.ours for name, value in self.peers.items()}

    def share(self) -> float | None:
        """The part of the limit that is reached."""
        if self.limit is None:
            return None
        return self.ours / self.limit if self.better == "higher" else self.limit / self.ours

    def reached(self) -> dict[str, bool]:
        """Each target that can be judged, and whether it is met."""
        share = self.share()
        found = {**self.ratios(), **({LIMIT: share} if share is not None else {})}
        judged = {name: found[name] >= wanted for name, wanted in self.targets.items() if name in found}
        if VALUE in self.targets:
            wanted = self.targets[VALUE]
            judged[VALUE] = self.ours >= wanted if self.better == "higher" else self.ours <= wanted
        return judged

    def add_peer(self, name: str, value: float, **notes: Any) -> Row:
        """The same row with one more peer."""
        return replace(self, peers={**self.peers, name: value}, notes={**self.notes, **notes})

    def to_table(self) -> dict[str, Any]:
        """As a table for the results file."""
        reached = self.reached()
        return {
            "name": self.name,
            "what": self.what,
            "unit": self.unit,
            "better": self.better,
            "ours": round_figure(self.ours),
            "peers": {name: round_figure(value) for name, value in self.peers.items()},
            "ratios": {name: round_figure(value) for name, value in self.ratios().items()},
            "limit": round_figure(self.limit),
            "share_of_limit": round_figure(self.share()),
            "targets": {name: round_figure(value) for name, value in self.targets.items()},
            "reached": reached,
            "met": all(reached.values()) if reached else None,
            "notes": self.notes,
        }

    def to_lines(self) -> list[str]:
        """As lines for the terminal."""
        own = self._judge(VALUE, show(self.targets.get(VALUE)))
        lines = [f"{self.name}: {self.what}", f"    {'ours':30} {show(self.ours):>12} {self.unit}{own}"]
        for peer, ratio in self.ratios().items():
            judged = self._judge(peer, f"{self.targets.get(peer, 0):.2f} x")
            lines.append(f"    {peer:30} {show(self.peers[peer]):>12} {self.unit}; ours is {ratio:.2f} x{judged}")
        share = self.share()
        if share is not None:
            judged = self._judge(LIMIT, f"{100 * self.targets.get(LIMIT, 0):.0f} %")
            lines.append(f"    {'limit':30} {show(self.limit):>12} {self.unit}; ours is {100 * share:.1f} %{judged}")
        lines += [f"    {name}: {value}" for name, value in self.notes.items()]
        return lines

    def _judge(self, name: str, wanted: str) -> str:
        met = self.reached().get(name)
        return "" if met is None else f" (target {wanted}: {'met' if met else 'NOT met'})"


def round_figure(value: float | None) -> float | None:
    """Four significant digits: no timing is more precise."""
    return None if value is None else float(f"{value:.4g}")


def show(value: float | None) -> str:
    """A figure with three significant digits."""
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


class Board:
    """The rows of a run: each printed and saved as soon as it is measured."""

    def __init__(self, path: Path | None, facts: Mapping[str, Any], *, keep: bool = False) -> None:
        """``keep``: the rows that the file has from the same machine stay, unless they are measured again."""
        self.path, self.facts = path, dict(facts)
        self.rows: dict[str, Row] = {}
        self._tables: dict[str, dict[str, Any]] = {}
        self.left_out: dict[str, str] = {}
        if keep and path and path.exists():
            old = json.loads(path.read_text(encoding="utf-8"))
            self._check_same(old)
            self.facts["machine"] = {**old["machine"], **self.facts.get("machine", {})}
            self._tables = {table["name"]: table for table in old["rows"]}
            self.left_out = dict(old["left_out"])

    def _check_same(self, old: Mapping[str, Any]) -> None:
        """Rows of one file must be of one machine and version. Missing peers do not matter."""
        mine = self.facts.get("machine", {})
        unlike = [name for name, value in old["machine"].items() if mine.get(name, value) != value]
        if unlike or old["quick"] != self.facts.get("quick"):
            raise SystemExit(
                f"{self.path}: has rows of another machine or size ({', '.join(unlike) or 'quick'}). Name another file "
                "with --out, or measure everything anew without --only."
            )

    def add(self, row: Row) -> None:
        """Add a row, or replace one that was measured again."""
        self.rows[row.name] = row
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._tables[row.name] = {**row.to_table(), "measured": when, "load": round(os.getloadavg()[0], 2)}
        print("\n".join(row.to_lines()), flush=True)
        self.save()

    def leave_out(self, name: str, why: str) -> None:
        """Note a row that cannot be measured here."""
        self.left_out[name] = why
        print(f"{name}: left out: {why}", flush=True)
        self.save()

    def save(self) -> None:
        """Write the file atomically."""
        if self.path is None:
            return
        table = {**self.facts, "left_out": self.left_out, "rows": list(self._tables.values())}
        write_atomic(self.path, json.dumps(table, indent=1, ensure_ascii=False) + "\n")


def describe_machine(device: Literal["cpu", "cuda"]) -> dict[str, str]:
    """Hardware and versions of a run on this device."""
    from crossling.recipe.recipe import RunSettings
    from crossling.training.distributed import setup_distributed
    from crossling.training.hardware import describe_hardware

    facts = describe_hardware(setup_distributed(RunSettings(device=device)))
    for name in PACKAGES:
        try:
            facts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return facts


def clock(action: Callable[[], Any]) -> tuple[float, Any]:
    """The seconds that a call takes, and its result."""
    began = time.perf_counter()
    result = action()
    return time.perf_counter() - began, result
