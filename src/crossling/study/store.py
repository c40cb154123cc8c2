"""The store: what was trained, under an identity made of all that affects it, never overwritten.

An artefact's files are written first and its marker last, so a folder without a marker is never read; of several
markers the first wins. Work in progress (checkpoints) lives apart and can be continued by whoever holds its lease.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError
from crossling.recipe import content_hash
from crossling.study.files import settle, write_once
from crossling.study.leases import EXPIRY, Leases

MARKER = "complete.json"


def find_store(given: str | Path | None = None) -> Path:
    """The store's folder: as given, or ``CROSSLING_STORE``, or ``.crossling`` here."""
    return Path(given or os.environ.get("CROSSLING_STORE") or ".crossling")


class Store:
    """Artefacts by identity, work in progress, encoded data and predictions, below one folder."""

    def __init__(self, root: Path, *, expiry: float = EXPIRY) -> None:
        self.root = root
        self.leases = Leases(root / "leases", expiry)
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ArtefactError(f"{root}: cannot be used as a store: {error}. Name another with --store.") from None

    def identify(self, kind: str, version: int, inputs: dict[str, Any]) -> str:
        """The identity of work: its kind, the version of its code, and a hash of everything it depends on."""
        return f"{kind}-{version}-{content_hash(inputs)}"

    def artefact(self, identity: str) -> Path:
        """The folder of an artefact, complete or not."""
        return self.root / "artefacts" / identity

    def is_complete(self, identity: str) -> bool:
        """Whether an artefact can be read."""
        return (self.artefact(identity) / MARKER).is_file()

    def work(self, identity: str) -> Path:
        """The folder of work in progress on an artefact."""
        return self.root / "work" / identity

    def publish(self, identity: str, folder: Path, record: dict[str, Any]) -> None:
        """Put the files of a folder into an artefact and declare them final, unless another was first."""
        target = self.artefact(identity)
        target.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            settle(path)
            if not self.is_complete(identity):
                path.replace(target / path.name)
        self.complete(identity, record)

    def complete(self, identity: str, record: dict[str, Any]) -> None:
        """Declare an artefact's files final, with a record of how it came about, and forget its checkpoints."""
        path = self.artefact(identity) / MARKER
        try:
            write_once(path, record)
        except OSError as error:
            raise ArtefactError(
                f"{path}: cannot be written: {error}. Free some disk space and run again; "
                "training continues from its last checkpoint."
            ) from None
        shutil.rmtree(self.work(identity), ignore_errors=True)

    def record(self, identity: str) -> dict[str, Any]:
        """The record of a complete artefact."""
        try:
            loaded: dict[str, Any] = json.loads((self.artefact(identity) / MARKER).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise ArtefactError(f"{self.artefact(identity)}: not a complete artefact: {error}") from None
        return loaded
