"""TMX, the exchange format of translation memories: XML, read as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from crossling.data.readers.text_files import (
    BadRows,
    FilePath,
    LanguagePair,
    ReaderSettings,
    find_fault,
    open_file,
    split_pair,
)
from crossling.data.records import ParallelPair
from crossling.errors import DataError
from crossling.limits import LONGEST_LINE, LimitError

VERSION = 1
READ_BYTES = 1 << 16
CODE_ELEMENTS = {"bpt", "ept", "it", "ph", "ut"}
"""Elements in a segment that hold a file format's own codes, which are no text."""


class Settings(ReaderSettings):
    """One translation memory."""

    path: FilePath
    """The file, plain or gzipped."""
    language: LanguagePair
    """The pair, source first, as in "en-hi"; en also takes en-US, and upper or lower case is the same."""


def record_kind(settings: Settings) -> type[ParallelPair]:
    """What the rows are."""
    return ParallelPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.path,)


def read(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    """One row a unit: its first segment in either language. A unit that lacks one is a broken row."""
    codes = split_pair(settings.language.lower())
    units = _Units()
    for unit in units.parse(settings.path):
        texts = [unit.find(code) for code in codes]
        place = f"{settings.path}:{unit.line}"
        missing = [code for code, text in zip(codes, texts, strict=True) if not text]
        if missing:
            has = ", ".join(unit.segments) or "none"
            bad.add(place, f"the unit has no text in {missing[0]!r} (languages there: {has})")
        elif any(find_fault(text) for text in texts):
            bad.add(place, "the unit has characters that are not text")
        else:
            yield ParallelPair(texts[0], texts[1])


class _Unit:
    """A translation unit: the line it begins on, and its first segment by language."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.segments: dict[str, str] = {}

    def find(self, code: str) -> str:
        """The segment in a language, or in a variety of it."""
        for name, text in self.segments.items():
            if name == code or name.replace("_", "-").partition("-")[0] == code:
                return text
        return ""


class _Units:
    """Collects units while a parser walks through the document."""

    def __init__(self) -> None:
        self.done: list[_Unit] = []
        self.unit: _Unit | None = None
        self.language = ""
        self.text: list[str] | None = None
        self.code_depth = 0
        self.root = ""
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._add_text
        # Declared entities can swell to gigabytes or name other files; skipped ones would be lost text.
        self.parser.EntityDeclHandler = self._refuse_entity
        self.parser.SkippedEntityHandler = self._refuse_entity

    def parse(self, path: Path) -> Iterator[_Unit]:
        with open_file(path) as stream:
            while True:
                block = stream.read(READ_BYTES)
                try:
                    self.parser.Parse(block, not block)
                # Encodings that expat does not know are looked up by Python, with errors of its own.
                except (expat.ExpatError, ValueError, LookupError) as error:
                    line = self.parser.CurrentLineNumber
                    raise DataError(f"{path}:{line}: not valid XML ({error}); fetch the file again") from error
                except _RefusedEntityError as error:
                    line = self.parser.CurrentLineNumber
                    raise DataError(f"{path}:{line}: entity {error} of its own; write its text instead") from error
                if self.root != "tmx" and self.root:
                    raise DataError(f"{path}: not TMX: the document is <{self.root}>")
                if self.text is not None and sum(map(len, self.text)) > LONGEST_LINE:
                    raise LimitError(path, f"has a segment of more than {LONGEST_LINE:,} characters")
                yield from self.done
                self.done.clear()
                if not block:
                    return

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.root = self.root or name
        if name == "tu":
            self.unit = _Unit(self.parser.CurrentLineNumber)
        elif name == "tuv":
            self.language = (attributes.get("xml:lang") or attributes.get("lang") or "").strip().lower()
        elif name == "seg":
            self.text, self.code_depth = [], 0
        elif name in CODE_ELEMENTS:
            self.code_depth += 1

    def _end(self, name: str) -> None:
        if name == "seg":
            text = "".join(self.text or ()).strip()
            if self.unit is not None and text:
                self.unit.segments.setdefault(self.language, text)
            self.text = None
        elif name in CODE_ELEMENTS:
            self.code_depth -= 1
        elif name == "tu" and self.unit is not None:
            self.done.append(self.unit)
            self.unit = None

    def _add_text(self, text: str) -> None:
        if self.text is not None and not self.code_depth:
            self.text.append(text)

    def _refuse_entity(self, name: str, *_: object) -> None:
        raise _RefusedEntityError(name)


class _RefusedEntityError(Exception):
    pass
