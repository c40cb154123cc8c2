"""What all readers share: lines that end at \\n only, a tally of broken rows, and settings of one manner."""

from __future__ import annotations

import codecs
import gzip
import logging
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from crossling.errors import DataError

logger = logging.getLogger(__name__)

OnError = Literal["raise", "skip"]


def _check_path(path: Path) -> Path:
    """A path that can name a file, with ``~`` for the home folder; the system's own errors come without a place."""
    if not path.name or "\0" in str(path):
        raise ValueError("this cannot be the name of a file")
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise ValueError(str(error)) from None


FilePath = Annotated[Path, Field(strict=False), AfterValidator(_check_path)]
"""A path; a recipe gives it as text, which strict models would refuse."""

SHOWN_PLACES = 5
NOT_UTF8 = "bytes that are not UTF-8"
NUL = "a NUL character"


class ReaderSettings(BaseModel):
    """The manner of every reader's settings: frozen, strict, no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class BadRows:
    """Broken rows: an error at the first one, or a count of them with the first few places for the log.

    Every reader hands its broken rows here, so that a row is read, counted or an error, and never just gone. Rows
    that are whole but not wanted are counted apart, by reason.
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
            advice = f"{fix}; or " if fix else "mend the row, or "
            raise DataError(f'{message}; {advice}set on_error = "skip" to leave such rows out and count them')
        self.count += rows
        if len(self.places) < SHOWN_PLACES:
            self.places.append(message)

    def log(self, name: str) -> None:
        """Say once how many rows were left out, and where the first few stand."""
        if self.count:
            more = ", …" if self.count > len(self.places) else ""
            logger.warning("%s: %d broken rows skipped: %s%s", name, self.count, "; ".join(self.places), more)


class Line(NamedTuple):
    """A line without its end; ``fault`` says what makes it unreadable, and then ``text`` is of no use."""

    number: int
    text: str
    fault: str = ""


@contextmanager
def open_file(path: Path, *, unpack: bool = True) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked where it is gzipped; a missing or damaged file becomes a DataError."""
    try:
        with gzip.open(path, "rb") if unpack and path.suffix == ".gz" else path.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no such file{tell_start(path)}; check the path") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: damaged gzip file ({error}); fetch it again") from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def tell_start(path: Path) -> str:
    """Where a relative path was followed from: a recipe's may have been written for another folder."""
    return "" if path.is_absolute() else f" below {Path.cwd()}"


def read_lines(path: Path) -> Iterator[Line]:
    """Lines of a UTF-8 file, numbered from 1."""
    with open_file(path) as stream:
        yield from split_lines(stream)


def split_lines(stream: Iterable[bytes]) -> Iterator[Line]:
    """Lines end at \\n, with or without \\r before it; ``str.splitlines`` also cuts at U+2028 and U+0085."""
    for number, raw in enumerate(stream, start=1):
        if number == 1:
            raw = raw.removeprefix(codecs.BOM_UTF8)
            if not raw:
                return  # a mark and nothing after it: an empty file, which has no lines
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        try:
            text = body.decode("utf-8")
        except UnicodeDecodeError:
            yield Line(number, "", NOT_UTF8)
            continue
        yield Line(number, text, NUL if "\0" in text else "")


def read_text(path: Path) -> str:
    """A whole UTF-8 file as one string, for formats that are one document."""
    with open_file(path) as stream:
        raw = stream.read().removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: {NOT_UTF8}; convert the file to UTF-8") from error


def find_fault(text: str) -> str:
    """What makes a decoded text unusable, or nothing: JSON escapes can smuggle in NUL and half characters."""
    if "\0" in text:
        return NUL
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return "half of a surrogate pair"
    return ""


def read_blocks(path: Path) -> Iterator[list[Line]]:
    """Runs of lines between blank ones: how CoNLL-U and column files set sentences apart."""
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
    """Hand the first unreadable line, if any, to ``bad`` as one broken row; say whether there was one."""
    for line in lines:
        if line.fault:
            bad.add(f"{path}:{line.number}", f"the line has {line.fault}", fix="convert the file to UTF-8 text")
            return True
    return False
