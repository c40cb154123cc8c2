"""Translations of the Quran as JSON: chapters of verses, matched by their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crossling.data.readers.text_files import BadRows, FilePath, ReaderSettings, find_fault, load_json
from crossling.data.records import ParallelPair
from crossling.errors import DataError

VERSION = 1
Verse = tuple[int, int]


class Settings(ReaderSettings):
    """Two translations."""

    source: FilePath
    """A translation: { chapter: [{ chapter, verse, text }, …] }; plain or gzipped."""
    target: FilePath
    """Another one."""


def record_kind(settings: Settings) -> type[ParallelPair]:
    """What the rows are."""
    return ParallelPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    return (settings.source, settings.target)


def read(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    """One row a verse; a verse that only one translation has is a broken row."""
    sources, targets = _read_verses(settings.source, bad), _read_verses(settings.target, bad)
    for verse, text in sources.items():
        if verse in targets:
            yield ParallelPair(text, targets[verse])
        else:
            bad.add(f"{settings.target}", f"verse {verse[0]}:{verse[1]} of {settings.source} is missing")
    for verse in (verse for verse in targets if verse not in sources):
        bad.add(f"{settings.source}", f"verse {verse[0]}:{verse[1]} of {settings.target} is missing")


def _read_verses(path: Path, bad: BadRows) -> dict[Verse, str]:
    document = load_json(path)
    if not isinstance(document, dict) or not all(isinstance(verses, list) for verses in document.values()):
        raise DataError(f"{path}: not an object of chapters, each a list of verses")
    found: dict[Verse, str] = {}
    for chapter, verses in document.items():
        for i, entry in enumerate(verses):
            verse = _read_verse(entry)
            if isinstance(verse, str):
                bad.add(f"{path}: chapter {chapter!r}[{i}]", verse)
            elif verse[0] in found:
                bad.add(f"{path}: chapter {chapter!r}[{i}]", f"verse {verse[0][0]}:{verse[0][1]} stands twice")
            else:
                found[verse[0]] = verse[1]
    return found


def _read_verse(entry: Any) -> tuple[Verse, str] | str:
    """A verse's number and text, or what is wrong with it."""
    if not isinstance(entry, dict):
        return "not a verse"
    chapter, verse, text = entry.get("chapter"), entry.get("verse"), entry.get("text")
    if type(chapter) is not int or type(verse) is not int:
        return "chapter and verse are not whole numbers"
    if not isinstance(text, str) or not text.strip():
        return f"verse {chapter}:{verse} has no text"
    fault = find_fault(text)
    return f"verse {chapter}:{verse} has {fault}" if fault else ((chapter, verse), text)
