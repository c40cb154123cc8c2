"""Small files that several processes share: each is whole or not there, even after a power cut."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any


def write_once(path: Path, facts: Any) -> bool:
    """Write JSON so that the first of several writers wins; tells whether this one did."""
    partial = _partial(path)
    try:
        _write(partial, json.dumps(facts, indent=1, ensure_ascii=False))
        os.link(partial, path)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old or the new text; the last of several writers wins."""
    partial = _partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(partial, text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def copy_whole(source: Path, path: Path) -> None:
    """Copy a file so that a reader of the copy sees all of it or none."""
    partial = _partial(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, partial)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def append_line(path: Path, facts: dict[str, Any]) -> None:
    """Add a line to a log that several processes write: one small write, which the system does not mix with others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    line = json.dumps(facts, ensure_ascii=False) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read_json(path: Path) -> Any:
    """The content of a JSON file, or none where it is not there or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; one that a killed process left unfinished is passed over."""
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


def settle(path: Path) -> None:
    """Make the disk hold a file, so that a marker written after it never outlives it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
