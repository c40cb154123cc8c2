"""A run on the terminal: the recipe that was checked, scores, and predictions of new text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from crossling.errors import UserError, nearest
from crossling.report.run_summary import TERMINAL_SCORES, score_tables
from crossling.report.table import Table
from crossling.report.terminal import out, print_facts, print_message, write_text

if TYPE_CHECKING:
    from crossling.report.run_summary import RunSummary
    from crossling.study.memory import Inspection


def show_run(summary: RunSummary, folder: Path, *, program: str = "crossling") -> None:
    """The table of scores, and the files that hold more."""
    for table in score_tables(summary):
        shown = range(min(len(table.head), 3 + TERMINAL_SCORES))
        out.print(table.select(shown).to_rich(whole=True))
    print_message(f"page:    {folder / 'page.html'}")
    print_message(f"scores:  {folder / 'scores.md'}")
    print_message(f"next:    {program} {summary.next_command.removeprefix('crossling ')}")


def show_check(report: Inspection, notes: Sequence[str] = ()) -> None:
    """A resolved recipe, its data, its memory."""
    out.print(escape(report.recipe), soft_wrap=True)
    sets = tuple((role, rows.name, rows.language, f"{len(rows):,}", str(rows.skipped)) for role, rows in report.data)
    out.print(Table("", ("role", "data set", "language", "rows", "skipped"), sets, names=3).to_rich())
    print_facts(report.forecast)
    for note in notes:
        print_message(note)


def choose_writer(output: str) -> Callable[[Iterable[dict[str, Any]]], None]:
    """What writes predictions in a format; an unknown one is an error, before any work is done for it."""
    if output not in _WRITERS:
        raise UserError(f"--format {output!r}: unknown.{nearest(output, _WRITERS)}")
    return _WRITERS[output]


def _print_json(found: Iterable[dict[str, Any]]) -> None:
    for item in found:
        write_text(json.dumps(item, ensure_ascii=False) + "\n")


def _print_tasks(found: Iterable[dict[str, Any]]) -> None:
    from crossling.inference.label_studio import build_task

    tasks = (json.dumps(build_task(item, model="crossling"), ensure_ascii=False) for item in found)
    write_text("[\n")
    for number, task in enumerate(tasks):
        write_text((",\n" if number else "") + task)
    write_text("\n]\n")


def _print_columns(found: Iterable[dict[str, Any]]) -> None:
    for item in found:
        if "words" not in item:
            raise UserError("--format conll: only tags come in columns; use table or jsonl")
        rows = [f"{word['word']}\t{word['tag']}\n" for word in item["words"]]
        write_text("".join(rows) + "\n")


def _print_table(found: Iterable[dict[str, Any]]) -> None:
    items = list(found)
    if items and "spans" in items[0]:
        table = _tabulate_parts(items, "spans", "span", "label")
    elif items and "words" in items[0]:
        table = _tabulate_parts(items, "words", "word", "tag")
    else:
        table = _tabulate_items(items)
    out.print(table.to_rich())


_WRITERS = {"table": _print_table, "conll": _print_columns, "jsonl": _print_json, "label_studio": _print_tasks}


def _tabulate_parts(items: Sequence[dict[str, Any]], parts: str, name: str, label: str) -> Table:
    """A row for every span (or word) of every text, with its place in the line."""
    rows: list[tuple[str, ...]] = []
    for item in items:
        line = str(item["line"])
        for part in item[parts]:
            place = f"{part['start']}–{part['end']}"
            rows.append((line, part[name], part[label], place, f"{part['confidence']:.2f}"))
        if not item[parts]:
            rows.append((line, f"no {name}", "", "", ""))
    return Table("", ("line", name, label, "characters", "confidence"), tuple(rows), names=3)


def _tabulate_items(items: Sequence[dict[str, Any]]) -> Table:
    """A row for every text, pair or question; the context of an answer would hide the rest."""
    columns = [name for name in (items[0] if items else {}) if name not in ("context", "start", "end")]
    answers = bool(items) and "answer" in items[0]
    rows = []
    for item in items:
        cells = [f"{item[n]:.2f}" if isinstance(item[n], float) else str(item[n]) for n in columns]
        if answers:
            cells.append(f"{item['start']}–{item['end']}" if item["start"] >= 0 else "")
        rows.append(tuple(cells))
    head = (*columns, *(["characters"] if answers else []))
    return Table("", head, tuple(rows), names=len(head))
