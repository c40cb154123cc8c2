"""What readers share: lines of text files, JSON documents, the count of broken rows, the base of their settings."""

from __future__ import annotations

import codecs
import gzip
import json
import logging
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from crossling.data.records import count_broken
from crossling.errors import DataError
from crossling.limits import LONGEST_LINE, check_regular, open_decompressed, open_regular, read_limited

logger = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]


def _check_path(path: Path) -> Path:
    """A path that can name a file, with ``~`` expanded; the system's own errors would not name the setting."""
    if not path.name or "\0" in str(path):
        raise ValueError("this cannot be the name of a file")
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from None


FilePath = Annotated[Path, Field(strict=False), AfterValidator(_check_path)]
"""A path; a recipe gives it as text, which strict models would refuse."""


def split_pair(language: str) -> tuple[str, str]:
    """Source and target of a pair such as ``en-hi``."""
    source, _, target = language.partition("-")
    return source, target


def _check_pair(language: str) -> str:
    source, target = split_pair(language)
    if not source or not target or source == target:
        raise ValueError(f"language = {language!r} is not a pair such as en-hi")
    return language


LanguagePair = Annotated[str, AfterValidator(_check_pair)]
"""Two language codes, source first, as in ``en-hi``."""

SHOWN_PLACES = 5
NOT_UTF8 = "bytes that are not UTF-8"
NUL = "a NUL character"
TOO_LONG = f"more than {LONGEST_LINE:,} bytes"


class ReaderSettings(BaseModel):
    """The base of every reader's settings: frozen, strict, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class BadRows:
    """Broken rows: an error at the first one, or a count of them, with the first few places for the log.

    Every reader reports its broken rows here: a row is read, counted or an error, never lost silently. Valid rows
    that are left out on purpose are counted separately, by reason.
    """

    def __init__(self, on_error: OnError = "raise") -> None:
        self.on_error = on_error
        self.count = 0
        self.places: list[str] = []
        self.dropped: Counter[str] = Counter()

    def drop(self, reason: str, rows: int = 1) -> None:
        """Count rows that a setting, or the format's own rule, leaves out."""
        self.dropped[reason] += rows

    def add(self, where: str, what: str, *, fix: str = "", rows: int = 1) -> None:
        """Raise for, or count, broken rows at one place (``file:line``)."""
        message = f"{where}: {what}"
        if self.on_error == "raise":
            advice = f"{fix}; or " if fix else "fix the row, or "
            raise DataError(f'{message}; {advice}set on_error = "skip" to leave such rows out and count them')
        self.count += rows
        if len(self.places) < SHOWN_PLACES:
            self.places.append(message)

    def log(self, name: str) -> None:
        """Log how many rows were skipped, and the places of the first few."""
        if self.count:
            more = ", …" if self.count > len(self.places) else ""
            logger.warning("%s: %s skipped: %s%s", name, count_broken(self.count), "; ".join(self.places), more)


class Line(NamedTuple):
    """A line without its line end; ``fault`` says what makes it unreadable, and ``text`` is then meaningless."""

    number: int
    text: str
    fault: str = ""


@contextmanager
def open_file(path: Path, *, unpack: bool = True) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where it is gzipped; a missing or damaged file becomes a DataError."""
    try:
        with open_regular(path) as stream:
            if unpack and path.suffix == ".gz":
                compressed = check_regular(path).st_size
                stream = open_decompressed(cast(BinaryIO, gzip.GzipFile(fileobj=stream)), path, compressed=compressed)
            yield stream
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file{show_working_folder(path)}; check the path") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def show_working_folder(path: Path) -> str:
    """The folder that a relative path starts from: a recipe may have been written for another one."""
    return "" if path.is_absolute() else f" below {Path.cwd()}"


def read_lines(path: Path) -> Iterator[Line]:
    """Lines of a UTF-8 file, numbered from 1."""
    with open_file(path) as stream:
        yield from split_lines(stream, path)


def split_lines(stream: BinaryIO, path: Path) -> Iterator[Line]:
    """Lines end at \\n, with or without \\r before it; ``str.splitlines`` also cuts at U+2028 and U+0085."""
    number, raw = 1, stream.readline(LONGEST_LINE + 1)
    refuse_utf16(raw, path)
    raw = raw.removeprefix(codecs.BOM_UTF8)  # alone, it is an empty file
    read, make = stream.readline, tuple.__new__  # looked up once: files have millions of lines
    while raw:
        is_long = len(raw) > LONGEST_LINE and not raw.endswith(b"\n")
        while is_long and (rest := read(LONGEST_LINE)) and not rest.endswith(b"\n"):
            pass
        following = read(LONGEST_LINE + 1)
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1 and b"\r" in body and not following:
            raise DataError(f"{path}: its lines end in CR alone; convert it, as with tr '\\r' '\\n'")
        if is_long:
            yield Line(number, "", TOO_LONG)
        else:
            try:
                text = body.decode("utf-8")
            except UnicodeDecodeError as error:
                where = f"byte {error.start + 1} of the line is 0x{body[error.start]:02x}"
                yield Line(number, "", f"{NOT_UTF8} ({where})")
            else:
                yield make(Line, (number, text, NUL if "\0" in text else ""))
        number, raw = number + 1, following


def refuse_utf16(start: bytes, path: Path) -> None:
    """Refuse a file that begins with the byte order mark of UTF-16 or UTF-32."""
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)):
        raise DataError(f"{path}: is UTF-16 or UTF-32, not UTF-8; convert it: iconv -f UTF-16 -t UTF-8")


def read_text(path: Path) -> str:
    """A whole UTF-8 file as one string, for formats that are one document."""
    with open_file(path) as stream:
        raw = read_limited(stream, path).removeprefix(codecs.BOM_UTF8)
    refuse_utf16(raw, path)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, byte = raw.count(b"\n", 0, error.start) + 1, error.start - raw.rfind(b"\n", 0, error.start)
        fault = f"{NOT_UTF8} (byte {byte} of the line is 0x{raw[error.start]:02x})"
        raise DataError(f"{path}:{line}: {fault}; convert the file to UTF-8") from error


def load_json(path: Path) -> Any:
    """A JSON document; an error names the line that cannot be parsed."""
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}:{error.lineno}: not valid JSON ({error.msg}); fetch the file again") from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, brackets without end
        raise DataError(f"{path}: not usable JSON ({error})") from error


def zip_lines(*sides: Iterable[Line], names: Sequence[Path]) -> Iterator[tuple[Line, ...]]:
    """Lines of several files side by side; files of different length are an error that names them."""
    together, more, alone = 0, [0] * len(sides), ""
    for lines in zip_longest(*sides):
        if None not in lines:
            together += 1
            yield lines
            continue
        for i, line in enumerate(lines):
            if line is not None:
                more[i] += 1
                alone = alone or f"{names[i]}:{line.number}"
    if alone:
        counts = [together + rest for rest in more]
        others = ", ".join(f"{path} has {count}" for path, count in zip(names[1:], counts[1:], strict=True))
        raise DataError(
            f"{names[0]} has {counts[0]} lines but {others}; they belong together line by line, and {alone} has no "
            "partner"
        )


def find_fault(text: str) -> str:
    """What makes a decoded text unusable, or nothing: JSON escapes can stand for NUL and half characters."""
    if "\0" in text:
        return NUL
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    return ""


def read_blocks(path: Path) -> Iterator[list[Line]]:
    """Runs of lines between blank ones: how CoNLL-U and column files separate sentences."""
    block: list[Line] = []
    for line in read_lines(path):
        if line.fault or line.text.strip():
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def report_fault(path: Path, lines: Iterable[Line], *, bad: BadRows) -> bool:
    """Report the first unreadable line, if any, to ``bad`` as one broken row; returns whether there was one."""
    for line in lines:
        if line.fault:
            bad.add(f"{path}:{line.number}", f"the line has {line.fault}", fix="convert the file to UTF-8 text")
            return True
    return False
