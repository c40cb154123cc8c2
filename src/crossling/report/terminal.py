"""The terminal: where results and messages go, and the bar of long work."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from crossling.errors import LogFormatter, escape_controls

UNWRAPPED = 1_000
"""Columns of lines that no terminal shows."""


class SafeConsole(Console):
    """A console on which foreign text steers nothing: labels, words and names may hold control characters.

    Lines that a file or another program reads are not wrapped, so that names in tables can be searched and copied.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        if not self.is_terminal and "COLUMNS" not in os.environ:
            self.width = UNWRAPPED

    def render_str(self, text: str, **options: Any) -> Text:
        """Text to print; that of tables and messages comes through here."""
        return super().render_str(escape_controls(text), **options)


out = SafeConsole(highlight=False, emoji=False)
err = SafeConsole(stderr=True, highlight=False, emoji=False)
QUIET_SECONDS = 15.0
"""Without a terminal there is no bar: a line is written this often instead."""


def print_message(message: str) -> None:
    """One line on standard output."""
    out.print(escape(message), soft_wrap=True)


def print_error(message: str) -> None:
    """What went wrong or is waited for, on standard error, with the program's name."""
    err.print(f"[bold red]crossling:[/] {escape(message)}", soft_wrap=True)


def write_text(text: str) -> None:
    """Write what programs read to standard output: as it is, and on a terminal without control characters."""
    sys.stdout.write(escape_controls(text) if sys.stdout.isatty() else text)


def print_facts(facts: Mapping[str, object]) -> None:
    """Names and values, two columns."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(f"[dim]{escape(name)}[/]", escape(str(value)))
    out.print(table)


def format_seconds(seconds: float) -> str:
    """A duration in the unit that fits its size, such as 32 s, 12 min, 1.5 h or 2,400 h."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 1 or seconds == 0 else "under 1 s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 360_000 else f"{seconds / 3600:,.0f} h"


@dataclass
class _Work:
    """Work that has begun and not ended."""

    task: TaskID
    what: str
    total: int
    done: int


class TerminalProgress:
    """A bar with loss, speed and time left; plain lines where the output is not a terminal.

    Work within work has a bar of its own below the first. Warnings appear above it where ``logs`` is true; a library
    leaves the handlers of its caller's program alone.
    """

    def __init__(self, *, logs: bool = True) -> None:
        self._logs = logs
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}", markup=False),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._works: list[_Work] = []
        self._last_line = 0.0

    def __enter__(self) -> Self:
        if self._logs:
            # A table of rich's is as wide as its console, which has no end where nothing is wrapped.
            shown = err.is_terminal
            handler = RichHandler(console=err, show_path=False, show_time=False) if shown else logging.StreamHandler()
            logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
            handler.setFormatter(LogFormatter("%(message)s" if shown else "%(levelname)-8s %(message)s"))
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, what: str, total: int, done: int = 0) -> None:
        what = escape_controls(what)
        self._works.append(_Work(self._bar.add_task(what, total=total, completed=done, facts=""), what, total, done))
        self._last_line = time.monotonic()
        if done:
            self.say(f"{what}: continued from step {done} of {total}")

    def advance(self, steps: int = 1, **facts: str) -> None:
        work = self._works[-1]
        work.done += steps
        text = escape_controls("  ".join(f"{name} {value}" for name, value in facts.items()))
        self._bar.advance(work.task, steps)
        if text:
            self._bar.update(work.task, facts=text)
        if not err.is_terminal and time.monotonic() - self._last_line > QUIET_SECONDS:
            self._last_line = time.monotonic()
            self.say(f"{work.what}: {work.done} of {work.total}  {text}")

    def end(self) -> None:
        self._bar.remove_task(self._works.pop().task)

    def say(self, line: str) -> None:
        (self._bar.console if err.is_terminal else err).print(escape(line), soft_wrap=True)
