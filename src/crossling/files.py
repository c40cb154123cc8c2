"""Files that several processes share: each is complete or absent, even after a power cut.

A sealed file has its digest beside it, so that damage is noticed where it is read.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError

log = logging.getLogger(__name__)
_intact: set[tuple[str, int, int]] = set()
"""Sealed files that this process found whole: path, time of the last change, size."""


@contextmanager
def replacing(path: Path, *, seal: bool = False) -> Iterator[Path]:
    """A temporary path beside ``path`` to write to; on success it is flushed to disk and takes the name.

    A reader sees the old file or the new one, and a failed or killed writer leaves the old one. With ``seal`` its
    digest is written beside it, for :func:`is_intact`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        yield partial
        fsync(partial)
        if seal:
            write_atomic(_seal_of(path), hash_file(partial))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def is_path_like(name: str) -> bool:
    """Whether a name can only be a path: hub names have one slash at most."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def is_intact(path: Path) -> bool:
    """Whether a sealed file is there and is what was written; a damaged one is reported, and its writer makes it again.

    A file is read once by a process for this, and again only where it changed.
    """
    try:
        facts = path.stat()
        key = (str(path), facts.st_mtime_ns, facts.st_size)
        if key in _intact:
            return True
        sealed = _seal_of(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if hash_file(path) != sealed:
        log.warning("%s: is damaged; it is made again", path)
        return False
    _intact.add(key)
    return True


def _seal_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def hash_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_folder(out: Path, write: Callable[[Path], Any]) -> None:
    """Make a folder that is complete or absent: ``write`` fills a temporary one beside it, which takes the name."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
            write(Path(folder) / "whole")
            (Path(folder) / "whole").replace(out)
    except OSError as error:
        raise ArtefactError(f"{out}: cannot be written: {error.strerror or error}. Name another folder.") from None


def check_new_folder(out: Path) -> None:
    """Refuse a folder that holds something: it may be the very encoder that another is made from."""
    if out.is_dir() and any(out.iterdir()):
        raise ArtefactError(f"{out}: is not empty. Name another folder, or delete this one.")
    if out.exists() and not out.is_dir():
        raise ArtefactError(f"{out}: is a file. Name another folder.")


def write_once(path: Path, facts: Any) -> bool:
    """Write JSON so that the first of several writers wins; returns whether this one did."""
    partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
    try:
        partial.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
        fsync(partial)
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def write_atomic(path: Path, text: str) -> None:
    """Write a text file; the last of several writers wins."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


def copy_atomic(source: Path, path: Path) -> None:
    """Copy a file so that a reader of the copy sees all of it or none."""
    with replacing(path) as partial:
        shutil.copyfile(source, partial)


def append_line(path: Path, facts: dict[str, Any]) -> None:
    """Add a line to a log that several processes write: one small write, which others do not interrupt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(facts, ensure_ascii=False) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """The content of a JSON file, or none if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a line that a killed process left unfinished is skipped."""
    found = []
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def fsync(path: Path) -> None:
    """Flush a file to disk, so that a marker written after it never outlives it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
