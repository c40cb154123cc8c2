"""Tables with delimiters and quotes, as spreadsheets write them: a column for each field of a record."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from crossling.data.readers.named_fields import NamedFieldsSettings, build_named, choose_kind, find_kind
from crossling.data.readers.text_files import NOT_UTF8, BadRows, open_file
from crossling.data.records import Record
from crossling.errors import DataError, nearest
from crossling.limits import LONGEST_LINE, MOST_COLUMNS, LimitError

VERSION = 1
DELIMITERS = (",", ";", "\t", "|")
SAMPLE_BYTES, SAMPLE_ROWS = 1 << 16, 200
"""The start of a file in which the delimiter is found."""
SEPARATOR_LINE = re.compile("\ufeff?sep=(.)\r?\n", re.IGNORECASE)
ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
"""Byte order marks and what they say; a spreadsheet's "Unicode text" is UTF-16."""
LISTS = {"words", "tags", "answers", "starts", "links"}
FIX = 'save it as "CSV UTF-8", or name its encoding, as in encoding = "cp1252"'


class Settings(NamedFieldsSettings):
    """One table."""

    fields: dict[str, str | Annotated[int, Field(ge=1, le=MOST_COLUMNS)]] = Field(default_factory=dict)  # type: ignore[assignment]
    """Our field -> the column's name, or its number from 1, as in { text = "Review", label = 3 }; default: the columns
    are called as our fields are, in upper or lower case."""
    delimiter: str = "auto"
    """What separates fields: one character. auto: whichever of comma, semicolon, tab and | makes rows equally wide."""
    encoding: str = "auto"
    """auto: what a byte order mark says, or UTF-8. A table that Excel saved as plain CSV is often cp1252."""
    header: bool = True
    """The first row names the columns; else they are numbered from 1."""

    @field_validator("delimiter")
    @classmethod
    def _one_character(cls, value: str) -> str:
        if value != "auto" and (len(value) != 1 or value in '"\r\n' or ord(value) > 0x10FFF):
            raise ValueError('one character, such as ";", or auto')
        return value

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str) -> str:
        try:
            "".encode("utf-8" if value == "auto" else value)
        except (LookupError, ValueError):
            raise ValueError("no encoding that Python knows; write utf-8, cp1252, gb18030 or auto") from None
        return value

    @model_validator(mode="after")
    def _numbers_without_header(self) -> Self:
        if not self.header and (not self.fields or any(isinstance(column, str) for column in self.fields.values())):
            raise ValueError("without a header, fields gives each column by its number, as in { text = 1, label = 2 }")
        if any(isinstance(column, int) and column < 1 for column in self.fields.values()):
            raise ValueError("columns are counted from 1")
        return self


class Row(NamedTuple):
    """A row and the number of its first line; ``fault`` says what makes it unreadable."""

    line: int
    cells: list[str]
    fault: str = ""


def record_kind(settings: Settings) -> type[Record]:
    """What the rows are: as the fields named, or as the columns are called."""
    if settings.fields:
        return choose_kind(settings.fields, (), where=str(settings.path))
    with _open_rows(settings) as rows:
        first = next(rows, None)
    if first is None:
        raise DataError(f"{settings.path}: the file is empty")
    names = [name.strip() for name in first.cells]
    found = find_kind([name.casefold() for name in names], exactly=False)
    return found or choose_kind({}, names, where=f"{settings.path}:{first.line}")


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[Record]:
    """One row a record, quoted fields over several lines included. Rows of nothing but empty fields hold none."""
    kind = record_kind(settings)
    with _open_rows(settings) as rows:
        width, columns = 0, {name: int(column) - 1 for name, column in settings.fields.items() if _is_number(column)}
        for row in rows:
            where = f"{settings.path}:{row.line}"
            if settings.header and not width:
                if row.fault:
                    raise DataError(f"{where}: the header: {row.fault}; {FIX}")
                width, columns = len(row.cells), _locate(settings, kind, row)
                continue
            width = width or len(row.cells)
            built = row.fault or _build(kind, row.cells, columns, width, settings)
            if isinstance(built, str):
                bad.add(where, built, fix=FIX if NOT_UTF8 in built else "")
            else:
                yield built


def _is_number(column: str | int) -> bool:
    return isinstance(column, int)


def _locate(settings: Settings, kind: type[Record], header: Row) -> dict[str, int]:
    """The column of each field, by its name in the header, or by its number."""
    names = [name.strip() for name in header.cells]
    folded = [name.casefold() for name in names]
    columns = {}
    for name, column in (settings.fields or {name: name for name in kind.__dataclass_fields__}).items():
        if isinstance(column, int):
            columns[name] = column - 1
        elif column in names:
            columns[name] = names.index(column)
        elif column.casefold() in folded:
            columns[name] = folded.index(column.casefold())
        else:
            raise DataError(
                f"{settings.path}:{header.line}: the header has no column {column!r}.{nearest(column, names)}"
            )
    return columns


def _build(
    kind: type[Record], cells: Sequence[str], columns: Mapping[str, int], width: int, settings: Settings
) -> Record | str:
    if len(cells) != width:
        return f"{len(cells)} fields instead of {width}; a field with the delimiter in it must be quoted"
    beyond = [name for name, column in columns.items() if column >= width]
    if beyond:
        return f"no column {columns[beyond[0]] + 1} for {beyond[0]}: the row has {width} fields"
    values = {name: _read_cell(kind, name, cells[column]) for name, column in columns.items()}
    return build_named(kind, values, {}, labels=settings.labels)


def _read_cell(kind: type[Record], name: str, cell: str) -> Any:
    """A cell's value; lists are written as JSON, words and tags also with spaces between."""
    if name not in LISTS and not (name in ("source", "target") and "links" in kind.__dataclass_fields__):
        return cell
    if cell.lstrip().startswith("["):
        try:
            return json.loads(cell)
        except (ValueError, RecursionError):
            return cell.split()
    return cell.split() if name in ("words", "tags", "source", "target") else cell


@contextmanager
def _open_rows(settings: Settings) -> Iterator[Iterator[Row]]:
    """The rows of the file that are not empty, the header's first."""
    csv.field_size_limit(LONGEST_LINE)
    with open_file(settings.path) as stream:
        start = stream.read(SAMPLE_BYTES)
    encoding = settings.encoding
    if encoding == "auto":
        encoding = next((name for mark, name in MARKS if start.startswith(mark)), "utf-8")
    sample = start.decode(encoding, "replace")
    named = SEPARATOR_LINE.match(sample)  # how a spreadsheet names its delimiter
    delimiter = settings.delimiter
    if delimiter == "auto":
        delimiter = named[1] if named else find_delimiter(sample, whole=len(start) < SAMPLE_BYTES)
    # Bytes that are no UTF-8 stay apart from all letters, so that only their rows are broken.
    errors = "surrogateescape" if encoding.startswith("utf-8") else "strict"
    with open_file(settings.path) as stream:
        text = io.TextIOWrapper(stream, encoding, errors, newline="")
        if named:
            text.readline()
        yield _split_rows(
            _limit_lines(text, settings.path), delimiter, skipped=int(named is not None), path=settings.path
        )


def _limit_lines(text: io.TextIOWrapper, path: Path) -> Iterator[str]:
    """The lines of a table, none of them too long to be held in memory."""
    while line := text.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise LimitError(path, f"has a line of more than {LONGEST_LINE:,} characters")
        yield line


def _split_rows(text: Iterable[str], delimiter: str, *, skipped: int, path: Path) -> Iterator[Row]:
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    while True:
        line = skipped + reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Row(line, [], f"cannot be split into fields ({error})")
            continue
        except UnicodeError as error:
            raise DataError(f"{path}:{line}: {error.__class__.__name__}: {error}; name another encoding") from None
        if any(cell.strip() for cell in cells):
            broken = next((match for cell in cells if (match := ESCAPED_BYTE.search(cell))), None)
            fault = f"{NOT_UTF8} (0x{ord(broken[0]) - 0xDC00:02x})" if broken else ""
            yield Row(line, cells, fault)


def find_delimiter(text: str, *, whole: bool = True) -> str:
    """The delimiter that gives most rows the same width of two or more; a comma where none does.

    Quoted fields count as one, whatever is in them. Of delimiters that fit equally well, the one with more columns is
    taken.
    """
    best, chosen = (0.0, 1), DELIMITERS[0]
    for delimiter in DELIMITERS:
        widths: Counter[int] = Counter()
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            for cells in reader:
                widths[len(cells)] += bool(cells)
                if widths.total() >= SAMPLE_ROWS:
                    break
        except csv.Error:
            pass
        if widths.total() > 1 and not whole and widths.total() < SAMPLE_ROWS:
            widths[len(cells)] -= 1  # the sample ends in the middle of a row
        width, count = max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        if width > 1 and (count / widths.total(), width) > best:
            best, chosen = (count / widths.total(), width), delimiter
    return chosen
