"""Moses: ``prefix.en`` and ``prefix.hi``, line by line, or the zip archive of both that OPUS ships."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from crossling.data.readers.parallel import pair_lines
from crossling.data.readers.text_files import (
    BadRows,
    FilePath,
    LanguagePair,
    Line,
    ReaderSettings,
    open_file,
    read_lines,
    split_lines,
    split_pair,
)
from crossling.data.records import ParallelPair
from crossling.errors import DataError
from crossling.limits import LimitError, open_decompressed

VERSION = 1


class Settings(ReaderSettings):
    """Two files that differ in their ending, or one archive with such files."""

    path: FilePath
    """The files' common beginning (corpus for corpus.en and corpus.hi), or a .zip archive of such files."""
    language: LanguagePair
    """The pair, source first, as in "en-hi"; the codes are the files' endings."""


def record_kind(settings: Settings) -> type[ParallelPair]:
    """What the rows are."""
    return ParallelPair


def files(settings: Settings) -> tuple[Path, ...]:
    """The files whose contents decide the rows."""
    if settings.path.suffix == ".zip":
        return (settings.path,)
    return tuple(_find_side(settings.path, code) for code in split_pair(settings.language))


def read(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    """One row a line; a line that is empty on either side is a broken row."""
    if settings.path.suffix == ".zip":
        yield from _read_archive(settings, bad)
        return
    source, target = files(settings)
    yield from pair_lines(read_lines(source), read_lines(target), names=(source, target), bad=bad)


def _find_side(prefix: Path, code: str) -> Path:
    plain = prefix.with_name(f"{prefix.name}.{code}")
    compressed = plain.with_name(f"{plain.name}.gz")
    return compressed if compressed.is_file() and not plain.is_file() else plain


def _read_archive(settings: Settings, bad: BadRows) -> Iterator[ParallelPair]:
    try:
        with open_file(settings.path) as file, zipfile.ZipFile(file) as archive:
            members = [_find_member(archive, code, settings.path) for code in split_pair(settings.language)]
            with archive.open(members[0]) as source, archive.open(members[1]) as target:
                names = (settings.path / members[0], settings.path / members[1])
                compressed = [archive.getinfo(member).compress_size for member in members]
                first, second = map(_lines, (source, target), names, compressed)
                yield from pair_lines(first, second, names=names, bad=bad)
    except LimitError:
        raise
    # An encrypted member is a RuntimeError, an unknown compression a NotImplementedError (one of them).
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, OSError, ValueError) as error:
        raise DataError(f"{settings.path}: damaged or unreadable archive ({error}); fetch it again") from error


def _lines(stream: IO[bytes], name: Path, compressed: int) -> Iterator[Line]:
    return split_lines(open_decompressed(cast(BinaryIO, stream), name, compressed=compressed), name)


def _find_member(archive: zipfile.ZipFile, code: str, path: Path) -> str:
    """The member whose name ends in the language's code."""
    found = [name for name in archive.namelist() if name.endswith(f".{code}")]
    if len(found) != 1:
        listed = ", ".join(archive.namelist()[:10]) or "nothing"
        raise DataError(f"{path}: {len(found)} files end in .{code}, where one should; the archive has {listed}")
    return found[0]
