"""What the command line shows: bars for long work, tables for results."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from crossling.data.languages import name_of
from crossling.data.records import TaggedSentence
from crossling.errors import UserError, nearest
from crossling.report.terminal import out, print_message

if TYPE_CHECKING:
    from crossling.data.catalogue import SetDescription
    from crossling.data.rows import Rows
    from crossling.report.run_summary import RunSummary


def show_run(summary: RunSummary, folder: Path) -> None:
    """The table of scores, and the files that hold more."""
    from crossling.report.run_page import write_run
    from crossling.report.run_summary import TERMINAL_SCORES, score_tables

    for table in score_tables(summary):
        shown = range(min(len(table.head), 3 + TERMINAL_SCORES))
        out.print(table.select(shown).to_rich(whole=True))
    write_run(summary, folder)
    print_message(f"page:    {folder / 'page.html'}")
    print_message(f"scores:  {folder / 'scores.md'}")
    if summary.next_command:
        print_message(f"next:    {summary.next_command}")


def show_rows(rows: Rows, count: int) -> None:
    """The first rows of a data set, and how often each label occurs."""
    losses = rows.tell_losses()
    print_message(
        f"{rows.name}: {len(rows):,} rows of {rows.kind.__name__}, language {rows.language}"
        + (f"; {losses}" if losses else "")
    )
    for row, record in zip(range(count), rows, strict=False):
        out.print(f"[bold]{row}[/]")
        show_facts(_describe_record(record))
    try:
        counts = rows.count_labels()
    except UserError:
        return
    table = Table("label", "count", "share")
    total = sum(counts.values()) or 1
    for label, number in counts.items():
        table.add_row(escape(label), f"{number:,}", f"{100 * number / total:.1f} %")
    out.print(table)


def show_cleaning(data: Any, rows: Rows) -> None:
    """What the checks of a cleaned set can tell, and what they cannot."""
    from crossling.data.cleaning import explain_checks

    if isinstance(data, dict) and "clean" in data:
        print_message(f"Languages: {explain_checks(data['clean'], rows.language)}.")


def _describe_record(record: Any) -> dict[str, str]:
    """A record's fields in words; tags stand at their words, but for those outside of spans."""
    if isinstance(record, TaggedSentence):
        pairs = zip(record.words, record.tags, strict=True)
        return {"words": " ".join(word if tag == "O" else f"{word}/{tag}" for word, tag in pairs)}
    values = {field: getattr(record, field) for field in record.__dataclass_fields__}
    return {n: " ".join(map(str, v)) if isinstance(v, tuple) else str(v) for n, v in values.items()}


def show_catalogue() -> None:
    """All data sets by name, with what is at hand."""
    from crossling.data.catalogue import describe, list_entries

    table = _make_table("set", "task", "languages", "splits", "found")
    table.columns[0].no_wrap = True
    parts: list[str] = []
    for name, version in list_entries():
        entry = describe(name, version)
        languages = " ".join(entry.languages) if len(entry.languages) <= 8 else f"{len(entry.languages)} languages"
        more = " and more" if entry.other_languages else ""
        shown = f"{name}@{version}" if version else name
        table.add_row(shown, entry.task, languages + more, " ".join(entry.splits), _tell_where(entry))
        if entry.roles:
            parts.append(f"{shown}:{entry.roles[0]}=en,{entry.roles[1]}={entry.languages[-1]}")
    out.print(table)
    print_message(f"Parts of a row in a language each: {' '.join(parts)}")
    print_message("Look into one: crossling data show panx:de. A folder of data sets is named by CROSSLING_DATA.")


def _tell_where(entry: SetDescription) -> str:
    if entry.at_hand:
        return f"{len(entry.at_hand)} at hand"
    if entry.hub:
        return f"hub: {entry.hub}"
    return "your own files" if entry.folder else "embedded"


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
    table = _make_grid()
    for name, value in facts.items():
        table.add_row(f"[dim]{name}[/]", escape(str(value)))
    out.print(table)


def _make_grid() -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    return table


def show_check(report: Any) -> None:
    """A resolved recipe, its data, its memory."""
    out.print(escape(report.recipe), soft_wrap=True)
    table = _make_table("role", "data set", "language", "rows", "skipped")
    for role, rows in report.data:
        table.add_row(role, escape(rows.name), rows.language, f"{len(rows):,}", str(rows.skipped))
    out.print(table)
    show_facts(report.forecast)


def show_predictions(found: Iterable[dict[str, Any]], output: str) -> None:
    """Predictions of new text as a table, in columns, or as JSON lines."""
    choose_writer(output)(found)


def choose_writer(output: str) -> Callable[[Iterable[dict[str, Any]]], None]:
    """What writes predictions in a format; an unknown one is an error, before any work is done for it."""
    if output not in _WRITERS:
        raise UserError(f"--format {output!r}: unknown.{nearest(output, _WRITERS)}")
    return _WRITERS[output]


def _print_json(found: Iterable[dict[str, Any]]) -> None:
    for item in found:
        sys.stdout.write(json.dumps(item, ensure_ascii=False) + "\n")


def _print_columns(found: Iterable[dict[str, Any]]) -> None:
    for item in found:
        if "words" not in item:
            raise UserError("--format conll: only tags come in columns; use table or jsonl")
        rows = [f"{word['word']}\t{word['tag']}\n" for word in item["words"]]
        sys.stdout.write("".join(rows) + "\n")


def _print_table(found: Iterable[dict[str, Any]]) -> None:
    items = list(found)
    if items and "spans" in items[0]:
        out.print(_tabulate_parts(items, "spans", "span", "label"))
    elif items and "words" in items[0]:
        out.print(_tabulate_parts(items, "words", "word", "tag"))
    else:
        out.print(_tabulate_items(items))


_WRITERS = {"table": _print_table, "conll": _print_columns, "jsonl": _print_json}


def _tabulate_parts(items: Sequence[dict[str, Any]], parts: str, name: str, label: str) -> Table:
    """A row for every span (or word) of every text, with where it stands in its line."""
    table = _make_table("line", name, label, "characters", "confidence")
    for item in items:
        for part in item[parts]:
            characters = f"{part['start']}–{part['end']}"
            cells = (part[name], part[label], characters, f"{part['confidence']:.2f}")
            table.add_row(str(item["line"]), *map(escape, cells))
        if not item[parts]:
            table.add_row(str(item["line"]), f"[dim]no {name}[/]")
        table.add_section()
    return table


def _tabulate_items(items: Sequence[dict[str, Any]]) -> Table:
    """A row for every text, pair or question; the context of an answer would hide the rest."""
    columns = [name for name in (items[0] if items else {}) if name not in ("context", "start", "end")]
    answers = bool(items) and "answer" in items[0]
    table = _make_table(*columns, *(["characters"] if answers else []))
    for item in items:
        cells = [f"{item[n]:.2f}" if isinstance(item[n], float) else str(item[n]) for n in columns]
        if answers:
            cells.append(f"{item['start']}–{item['end']}" if item["start"] >= 0 else "")
        table.add_row(*map(escape, cells))
    return table


def _make_table(*columns: str) -> Table:
    """A table that breaks long text, which may hold no space, and never cuts it off."""
    table = Table()
    for name in columns:
        table.add_column(name, overflow="fold")
    return table


def show_coverage(coverage: Any) -> None:
    """How well an encoder can write a language."""
    show_facts(coverage.facts())
    table = _make_table("language cut alike", "similarity", "subwords a word there")
    near = [neighbour for neighbour in coverage.neighbours if neighbour.similarity >= 0.01]
    for language, similarity, fertility in near:
        table.add_row(f"{language} {name_of(language)}", f"{similarity:.2f}", f"{fertility:.2f}")
    if near:
        out.print(table)
    compared = " ".join(language for language, _, _ in coverage.neighbours)
    print_message(
        ("" if near else "No language of the embedded corpus is cut alike. ")
        + f"Compared with {compared}, by the subwords in use: 1 is the same, 0 none in common; other text of the same "
        "language has about 0.4, another language in the same script about 0.1."
    )


def show_extended(extended: Any) -> None:
    """What an encoder got for a language, and what it needs next."""
    show_facts(extended.facts())
    table = _make_table("this text", "before", "now")
    for name, (before, now) in extended.changes().items():
        table.add_row(name, before, now)
    out.print(table)
    print_message(
        "The rows of the new subwords are a first guess, the mean of what they are made of. Adapt the encoder to text "
        "of the language before you fine-tune it, by a stage such as:\n\n" + extended.next_recipe()
    )
