"""What the command line shows: bars for long work, tables for results."""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.logging import RichHandler
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from crossling.errors import UserError, nearest

if TYPE_CHECKING:
    from crossling.data.rows import Rows
    from crossling.report.summary import RunSummary

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)
QUIET_SECONDS = 15.0
"""Without a terminal there is no bar: a line is written this often instead."""


def tell(message: str) -> None:
    """One line for the reader."""
    out.print(escape(message), soft_wrap=True)


class TerminalProgress:
    """A bar with loss, speed and time left; plain lines where the output is not a terminal."""

    def __init__(self) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[facts]}"),
            console=err,
            transient=True,
            disable=not err.is_terminal,
        )
        self._task: Any = None
        self._what, self._done, self._total, self._told = "", 0, 0, 0.0

    def __enter__(self) -> Self:
        logging.basicConfig(
            level=logging.WARNING,
            format="%(message)s",
            handlers=[RichHandler(console=err, show_path=False, show_time=False)],
            force=True,
        )
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._done, self._total, self._told = what, done, total, time.monotonic()
        self._task = self._bar.add_task(what, total=total, completed=done, facts="")
        if done:
            self.say(f"{what}: continued from step {done} of {total}")

    def advance(self, steps: int = 1, **facts: str) -> None:
        self._done += steps
        text = "  ".join(f"{name} {value}" for name, value in facts.items())
        self._bar.advance(self._task, steps)
        if text:
            self._bar.update(self._task, facts=text)
        if not err.is_terminal and time.monotonic() - self._told > QUIET_SECONDS:
            self._told = time.monotonic()
            self.say(f"{self._what}: {self._done} of {self._total}  {text}")

    def end(self) -> None:
        self._bar.remove_task(self._task)

    def say(self, line: str) -> None:
        (self._bar.console if err.is_terminal else err).print(escape(line), soft_wrap=True)


def show_run(summary: RunSummary, folder: Path) -> None:
    """The table of scores, and the files that hold more."""
    from crossling.report.page import render_run
    from crossling.report.tables import score_tables

    tables = score_tables(summary)
    for table in tables:
        out.print(table.to_rich())
    markdown = "\n".join(f"## {table.title}\n\n{table.to_markdown()}" for table in tables)
    (folder / "scores.md").write_text(markdown, encoding="utf-8")
    for table, data in zip(tables, summary.data_sets, strict=True):
        (folder / f"scores-{data}.csv").write_text(table.to_csv(), encoding="utf-8")
    page = folder / "page.html"
    page.write_text(render_run(summary), encoding="utf-8")
    tell(f"page:    {page}")
    tell(f"scores:  {folder / 'scores.md'}")
    if summary.next_command:
        tell(f"next:    {summary.next_command}")


def show_rows(rows: Rows, count: int) -> None:
    """The first rows of a data set, and how often each label occurs."""
    tell(
        f"{rows.name}: {len(rows):,} rows of {rows.kind.__name__}, language {rows.language}"
        + (f", {rows.skipped} broken rows skipped" if rows.skipped else "")
    )
    for row, record in zip(range(count), rows, strict=False):
        table = Table(show_header=False, box=None, padding=(0, 2))
        for field in record.__dataclass_fields__:
            value = getattr(record, field)
            table.add_row(
                f"[dim]{field}[/]",
                escape(" ".join(map(str, value)) if isinstance(value, tuple) else str(value)),
            )
        out.print(f"[bold]{row}[/]")
        out.print(table)
    try:
        counts = rows.count_labels()
    except UserError:
        return
    table = Table("label", "count", "share")
    total = sum(counts.values()) or 1
    for label, number in counts.items():
        table.add_row(escape(label), f"{number:,}", f"{100 * number / total:.1f} %")
    out.print(table)


def show_catalogue() -> None:
    """All data sets by name, with what is at hand."""
    from crossling.data.catalogue import describe, list_sets

    table = Table("set", "task", "languages", "splits", "found")
    for name in list_sets():
        entry = describe(name)
        languages = " ".join(entry.languages) if len(entry.languages) <= 16 else f"{len(entry.languages)} languages"
        found = f"{len(entry.at_hand)} files at hand" if entry.at_hand else entry.hub or entry.home or "embedded"
        table.add_row(
            name, entry.task, languages + (" …" if entry.other_languages else ""), " ".join(entry.splits), found
        )
    out.print(table)
    tell("Look into one: crossling data show panx:de. A folder of data sets is named by CROSSLING_DATA.")


def show_encoder(encoder: Any) -> None:
    """Sizes of an encoder."""
    parameters = sum(p.numel() for p in encoder.parameters())
    facts = {
        "name": encoder.name,
        "identity": encoder.identity[:16],
        "family": encoder.model.config.model_type,
        "layers": encoder.layers,
        "heads": f"{encoder.heads} a layer, {encoder.layers * encoder.heads} in all",
        "width": encoder.width,
        "vocabulary": f"{encoder.vocabulary:,} subwords",
        "longest input": f"{encoder.max_length} subwords",
        "parameters": f"{parameters / 1e6:.1f} million",
        "pooler": "yes" if encoder.has_pooler else "no: sentences are read by the mean of their tokens",
        "segments": "yes" if encoder.uses_token_types else "no",
    }
    show_facts(facts)


def show_facts(facts: dict[str, Any]) -> None:
    """Names and values, two columns."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, value in facts.items():
        table.add_row(f"[dim]{name}[/]", escape(str(value)))
    out.print(table)


def show_check(report: Any) -> None:
    """A resolved recipe, its data, its memory."""
    out.print(escape(report.recipe), soft_wrap=True)
    table = Table("role", "data set", "language", "rows", "skipped")
    for role, rows in report.data:
        table.add_row(role, escape(rows.name), rows.language, f"{len(rows):,}", str(rows.skipped))
    out.print(table)
    show_facts(report.forecast)


def show_predictions(found: list[dict[str, Any]], output: str) -> None:
    """Predictions of new text as a table, in columns, or as JSON lines."""
    writers = {"table": _print_table, "conll": _print_columns, "jsonl": _print_json}
    if output not in writers:
        raise UserError(f"--format {output!r}: unknown.{nearest(output, writers)}")
    writers[output](found)


def _print_json(found: list[dict[str, Any]]) -> None:
    for item in found:
        sys.stdout.write(json.dumps(item, ensure_ascii=False) + "\n")


def _print_columns(found: list[dict[str, Any]]) -> None:
    for item in found:
        if "words" not in item:
            raise UserError("--format conll: only tags come in columns; use table or jsonl")
        for word in item["words"]:
            sys.stdout.write(f"{word['word']}\t{word['tag']}\n")
        sys.stdout.write("\n")


def _print_table(found: list[dict[str, Any]]) -> None:
    columns = [name for name in (found[0] if found else {}) if name != "words"]
    if found and "words" in found[0]:
        table = Table("text", "word", "tag", "characters", "confidence")
        for number, item in enumerate(found, 1):
            for word in item["words"]:
                table.add_row(
                    str(number),
                    escape(word["word"]),
                    escape(word["tag"]),
                    f"{word['start']}–{word['end']}",
                    f"{word['confidence']:.2f}",
                )
            table.add_section()
    else:
        table = Table(*columns)
        for item in found:
            table.add_row(
                *(escape(f"{v:.2f}" if isinstance(v, float) else str(v)) for n, v in item.items() if n in columns)
            )
    out.print(table)


def show_coverage(coverage: Any) -> None:
    """How well an encoder can write a language."""
    show_facts(coverage.facts())
    table = Table("language cut alike", "similarity", "subwords a word")
    for language, similarity, fertility in coverage.neighbours:
        table.add_row(language, f"{similarity:.3f}", f"{fertility:.2f}")
    out.print(table)
