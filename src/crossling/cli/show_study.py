"""A study on the terminal: its progress, its state, its forecast and its tables."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table as RichTable

from crossling.report.table import Table
from crossling.report.terminal import format_seconds, out, print_message
from crossling.study.status import STATES, StudyStatus, read_status

if TYPE_CHECKING:
    from crossling.study.compare import StudyComparison
    from crossling.study.forecast import Forecast
    from crossling.study.report import Report
    from crossling.study.scheduling import Outcome

LISTED = 12
"""Running or failed cells that are shown one by one."""
ROWS = 24
"""Systems in the table of cells, where not every one is asked for."""
WATCH_SECONDS = 1.0
_STYLES = {"done": "green", "running": "cyan", "waiting": "dim", "failed": "bold red"}


def show_outcome(outcome: Outcome, folder: Path) -> None:
    """The end of a run: what is there, what is not, what to do next."""
    if outcome.failed:
        print_message(f"{outcome.done} of {outcome.cells} cells done, {len(outcome.failed)} failed:")
        for cell, error in list(outcome.failed.items())[:LISTED]:
            print_message(f"  {cell}: {error}")
        print_message(f"logs:    {folder / 'logs'}; the same command tries them again")
    else:
        print_message(f"all {outcome.cells} cells done: {folder}")
    print_message(f"next:    crossling study compare {folder}")


def show_status(folder: Path, *, watch: bool = False, every: bool = False) -> int:
    """Show the table of cells; gives the exit code, 1 where a cell failed.

    ``watch``: until the study is over. ``every``: every system, however many there are.
    """
    if watch:
        status = watch_status(folder, every=every)
    else:
        status = read_status(folder)
        out.print(render_status(status, every=every))
    return int(status.count("failed") > 0)


def watch_status(folder: Path, *, every: bool = False) -> StudyStatus:
    """The table of cells, until the study is over; returns how it ended."""
    from rich.live import Live

    status = read_status(folder)
    with Live(render_status(status, every=every), console=out, auto_refresh=False) as live:
        while not status.is_over:
            time.sleep(WATCH_SECONDS)
            status = read_status(folder)
            live.update(render_status(status, every=every), refresh=True)
    return status


def render_status(status: StudyStatus, *, every: bool = False) -> Group:
    """Counts for each task and system, then single cells at work or failed, then the time left."""
    tasks = any(cell.task for cell in status.cells)
    table = RichTable(*(["task"] if tasks else []), "system", *STATES)
    for column in table.columns[-len(STATES) :]:
        column.justify = "right"
    groups = {key: [counts[state] for state in STATES] for key, counts in status.groups.items()}
    shown = list(groups) if every else _choose_rows(groups)
    for task, label in shown:
        names = [escape(task)] if tasks else []
        table.add_row(*names, escape(label), *map(_show_count, STATES, groups[task, label]))
    if len(shown) < len(groups):
        others = [counts for key, counts in groups.items() if key not in set(shown)]
        more = f"… and {len(others)} more; --all"
        table.add_row(*([""] if tasks else []), more, *map(_show_count, STATES, map(sum, zip(*others, strict=True))))
    table.add_section()
    total = [sum(counts) for counts in zip(*groups.values(), strict=True)]
    table.add_row(*([""] if tasks else []), f"{len(status.cells)} cells", *map(_show_count, STATES, total))
    lines: list[Any] = [table]
    for state in ("running", "failed"):
        chosen = [cell for cell in status.cells if cell.state == state]
        for cell in chosen[:LISTED]:
            more = cell.doing if state == "running" else cell.error
            log = f" ({status.out / cell.log})" if cell.log else ""
            lines.append(f"[{_STYLES[state]}]{state:8}[/]{escape(f'{cell.name}: {more}{log}')}")
        if len(chosen) > LISTED:
            lines.append(f"{'':8}and {len(chosen) - LISTED} more")
    lines.append(escape(_describe_rest(status)))
    return Group(*lines)


def _choose_rows(groups: Mapping[tuple[str, str], Sequence[int]]) -> list[tuple[str, str]]:
    """The systems to show of many, in their order: those with failed cells first, then at work, then not finished."""

    def rank(key: tuple[str, str]) -> tuple[bool, bool, bool]:
        _, running, waiting, failed = groups[key]
        return not failed, not running, not waiting

    chosen = set(sorted(groups, key=rank)[:ROWS])
    return [key for key in groups if key in chosen]


def _show_count(state: str, count: int) -> str:
    return f"[{_STYLES[state]}]{count}[/]" if count else "[dim]–[/]"


def _describe_rest(status: StudyStatus) -> str:
    if status.is_over:
        failed = status.count("failed")
        return f"over; {failed} failed, the same command tries them again" if failed else "over; all cells are done"
    if not status.schedulers:
        return "no runner is working on it; crossling study run continues it"
    workers = sum(one.workers for one in status.schedulers)
    where = ", ".join(f"{one.host} ({one.process})" for one in status.schedulers)
    left = (
        f"about {format_seconds(status.seconds_left)} left" if status.seconds_left is not None else "time left unknown"
    )
    return f"{left}; {workers} {'worker' if workers == 1 else 'workers'} of {where}"


def show_forecast(forecast: Forecast) -> None:
    """What a study would do."""
    head = ("task", "system", "cells", "done", "to predict", "stages to train")
    rows = tuple(tuple(map(str, astuple(variant))) for variant in forecast.variants)
    out.print(Table("", head, rows, names=2).without_empty_names().to_rich())
    for line in forecast.lines:
        print_message(line)
    times = tuple(
        (str(one.workers), format_seconds(3600 * one.hours), format_seconds(3600 * one.device_hours))
        for one in forecast.times
    )
    unit = "GPU time" if forecast.on_gpu else "core time"
    out.print(Table("", ("workers", "time", unit), times, names=0).to_rich())
    print_message(forecast.basis)


def show_comparison(comparison: StudyComparison, folder: Path) -> None:
    """The tables, and the files that hold more."""
    for part in comparison.parts:
        if part.task:
            out.print(f"\n[bold]{escape(part.task)}[/]")
        for table in part.tables:
            out.print(table.to_table().to_rich(whole=True))
    for line in comparison.lines:
        print_message(line)
    for name in comparison.files:
        print_message(f"written: {folder / name}")
    print_message(f"next:    crossling study report {folder}")


def show_report(report: Report) -> None:
    """The summary in words, what a reader must not miss, and where the rest is."""
    for line in (*report.document.summary, *report.document.notes):
        print_message(line)
    page, text, *tables = report.files
    for path in (page, text):
        print_message(f"written: {path}")
    print_message(f"written: {tables[0].parent}, {len(tables)} files: every table as CSV and LaTeX")
