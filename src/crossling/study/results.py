"""The results of one cell: its predictions, and the marker that says that all of them are there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crossling.errors import UserError
from crossling.files import copy_atomic, read_json, write_once
from crossling.store.artefacts import Store
from crossling.study.layout import COMPLETE


def mark_finished(folder: Path, facts: dict[str, Any]) -> None:
    """Write a cell's marker, last of all; another runner may have been first with the same work."""
    folder.mkdir(parents=True, exist_ok=True)
    if not write_once(folder / COMPLETE, facts):
        marker = read_json(folder / COMPLETE)
        if not isinstance(marker, dict) or marker.get("identity") != facts["identity"]:
            raise UserError(f"{folder}: holds the marker of other work; start the study again")


def send_results(store: Store, folder: Path, files: Iterable[Path], facts: dict[str, Any]) -> None:
    """Put a cell's predictions where all machines find them, if the store is at an address."""
    if store.archive is not None:
        named = {path.relative_to(folder).as_posix(): path for path in files}
        store.archive.publish(_name(facts["identity"]), named, facts)


def bring_results(store: Store, folder: Path, identity: str) -> bool:
    """Bring a cell's predictions from the store's address, then its marker; tells whether they were there."""
    if store.archive is None or not store.archive.is_complete(_name(identity)):
        return False
    with TemporaryDirectory(dir=store.root, prefix=".fetch-") as name:
        fetched = Path(name)
        facts = store.archive.fetch(_name(identity), fetched)
        for path in (path for path in fetched.rglob("*") if path.is_file()):
            copy_atomic(path, folder / path.relative_to(fetched))
    mark_finished(folder, facts)
    return True


def _name(identity: str) -> str:
    return f"predict-{identity}"
