"""What a user's file is: its format, its columns and its language, inferred from its name and its first lines.

A wrong inference costs a user more than a question: what is not clear is an error that shows how to say it.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from crossling.data.languages import find_language
from crossling.data.readers.csv import find_delimiter
from crossling.data.readers.text_files import open_file, read_lines
from crossling.data.records import (
    LabelledPair,
    LabelledText,
    ParallelPair,
    PlainText,
    Question,
    Record,
    TaggedSentence,
)
from crossling.errors import DataError

SAMPLE, SAMPLE_BYTES = 200, 1 << 16
"""Lines that are looked at, and bytes of a table in which fields may go over lines."""
ENDINGS = ("txt", "tsv", "tab", "csv", "bio", "iob", "conll", "conllu", "json", "jsonl", "ndjson", "parquet", "tmx")
BY_ENDING = {"conllu": "conllu", "jsonl": "jsonl", "ndjson": "jsonl", "parquet": "parquet", "tmx": "tmx"}
"""Formats that an ending names."""
COLUMN_NAMES = {
    "text": ("text", "sentence", "review", "tweet", "content", "document"),
    "first": ("first", "premise", "prem", "sentence1", "text1", "s1", "question1"),
    "second": ("second", "hypothesis", "hyp", "sentence2", "text2", "s2", "question2"),
    "source": ("source", "src"),
    "target": ("target", "tgt"),
    "label": ("label", "gold_label", "class", "category", "sentiment", "stars"),
}
"""What headers call the columns of a row."""
COLUMNS = {
    LabelledText: ("text", "label"),
    LabelledPair: ("first", "second", "label"),
    ParallelPair: ("source", "target"),
}
EXAMPLES = {
    TaggedSentence: '{ format = "bio", path = "PATH", language = "en" }',
    LabelledText: '{ format = "tsv", path = "PATH", language = "en", text = 1, label = 2 }',
    LabelledPair: '{ format = "tsv", path = "PATH", language = "en", first = 1, second = 2, label = 3 }',
    Question: '{ format = "squad", path = "PATH", language = "en" }',
    ParallelPair: '{ format = "tsv", path = "PATH", language = "en-sw", source = 1, target = 2 }',
    PlainText: '{ format = "text", path = "PATH", language = "sw" }',
}
"""How a table in place of a file's name says what cannot be inferred."""


def split_language(text: str) -> tuple[str, str]:
    """A language that stands before a file's name, ``sw=text.txt``, and the name; no language where none is there."""
    language, equals, path = text.partition("=")
    is_code = bool(re.fullmatch(r"[A-Za-z]{2,3}([_-][A-Za-z]{2,4})?", language))
    return (language, path) if equals and is_code and path else ("", text)


def find_file_language(path: Path) -> str:
    """The language that the end of a file's name says (text.sw.txt, train-sw.tsv, swahili.txt); none: empty."""
    pieces = [piece for piece in re.split(r"[._-]", path.name.lower()) if piece not in (*ENDINGS, "gz")]
    language = find_language(pieces[-1]) if pieces and len(pieces[-1]) > 1 else None
    return language.code if language else ""


def sniff_file(path: Path, record: type[Record], *, language: str) -> dict[str, Any]:
    """A table, as a recipe has it, that reads a file as rows of a kind."""
    if not path.is_file():
        next(iter(read_lines(path)), None)  # its error says where the file was looked for
    ending = path.name.lower().removesuffix(".gz").rpartition(".")[2]
    table: dict[str, Any] = {"format": BY_ENDING.get(ending, ""), "path": str(path), "language": language}
    if table["format"]:
        return table
    if ending == "json":
        return {**table, "format": "squad" if record is Question else "json"}
    if record in (Question, PlainText) and ending == "csv":
        raise _ask(path, record, f"{record.__name__} rows cannot be recognised in a table")
    if ending == "csv":
        return {**table, "format": "csv", **_name_fields(path, record)}
    if record is Question:
        raise _ask(path, record, f"{record.__name__} rows cannot be recognised in it")
    if record in (TaggedSentence, PlainText):
        return {**table, "format": "bio" if record is TaggedSentence else "text"}
    rows = [line.text.split("\t") for line in islice(read_lines(path), SAMPLE) if not line.fault and line.text.strip()]
    columns, has_header = _find_columns(rows, path, record)
    return {**table, "format": "tsv", **columns, **({"header": True} if has_header else {})}


def _name_fields(path: Path, record: type[Record]) -> dict[str, Any]:
    """The columns of a table with delimiters and quotes; words and tags must be called so."""
    if record not in COLUMNS:
        return {}
    with open_file(path) as stream:
        text = stream.read(SAMPLE_BYTES).decode("utf-8-sig", "replace")
    rows = [row for row in islice(csv.reader(io.StringIO(text), delimiter=find_delimiter(text)), SAMPLE) if row]
    columns, has_header = _find_columns(rows, path, record)
    return {"fields": columns, **({} if has_header else {"header": False})}


def _find_columns(rows: list[list[str]], path: Path, record: type[Record]) -> tuple[dict[str, Any], bool]:
    """Which column is what, by a header or else by what stands in them, and whether there is a header."""
    wanted = COLUMNS[record]
    if not rows or len(rows[0]) < len(wanted):
        found = f"{len(rows[0])} column(s)" if rows else "no lines"
        raise _ask(path, record, f"{found} where {len(wanted)} are needed ({', '.join(wanted)}), with tabs between")
    named = _read_header(rows[0], wanted)
    if named:
        return named, True
    if "label" not in wanted:
        return {"source": 1, "target": 2}, False
    columns = list(zip(*(row for row in rows if len(row) == len(rows[0])), strict=True))
    distinct = [len(set(column)) for column in columns]
    label = min(range(len(columns)), key=lambda place: (distinct[place], _mean_length(columns[place])))
    longest = sorted((p for p in range(len(columns)) if p != label), key=lambda p: -_mean_length(columns[p]))
    texts = sorted(longest[: len(wanted) - 1])
    return {**dict(zip(wanted, (place + 1 for place in texts), strict=False)), "label": label + 1}, False


def _read_header(cells: Sequence[str], wanted: Sequence[str]) -> dict[str, Any]:
    """Columns by name, where the first line names all of them."""
    names = {cell.strip().lower(): cell.strip() for cell in cells}
    found = {column: next((names[n] for n in COLUMN_NAMES[column] if n in names), "") for column in wanted}
    return found if all(found.values()) else {}


def _mean_length(column: Sequence[str]) -> float:
    return fmean(map(len, column))


def _ask(path: Path, record: type[Record], what: str) -> DataError:
    example = EXAMPLES[record].replace("PATH", str(path))
    return DataError(f"{path}: {what}; or name it by a table: '{example}'")
