"""The store: what was trained, under an identity made of all that affects it, never overwritten.

An artefact's files are written first and its marker last, so a folder without a marker is never read; of several
markers the first wins. Work in progress (checkpoints) lives apart and can be continued by whoever holds its lease.

A store at an address has a folder on each machine that uses it, its mirror: caches, checkpoints and leases are the
machine's own, complete artefacts are sent to the address and fetched from there when they are needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from crossling.addresses import is_address, mask_credentials
from crossling.errors import ArtefactError
from crossling.files import (
    explain_failures,
    fsync,
    hash_file,
    is_filled,
    make_folder,
    publish,
    read_json,
    temporary_folder,
    write_atomic,
    write_once,
)
from crossling.recipe.identity import content_hash
from crossling.store.archive import Archive, check_name
from crossling.store.leases import EXPIRY_SECONDS, Leases

MARKER = "complete.json"
DIGESTS = "sha256"
"""In the record of an artefact: the digest of each of its files."""
MACHINE = "machine"
"""In the record of an artefact: with what it was made."""
RECORD_DIGEST = "sha256 of record"
"""In the record of an artefact: the digest of all else that it says."""
ADDRESS = "address"
"""In the mirror of an address: a file that holds it, without credentials."""


def find_store(given: str | Path | None = None) -> Path:
    """The store's folder: as given, or ``CROSSLING_STORE``, or ``.crossling`` here; of an address: its mirror."""
    named = str(given or os.environ.get("CROSSLING_STORE") or ".crossling")
    return _find_mirror(named.rstrip("/")) if is_address(named) else Path(named)


def _find_mirror(address: str) -> Path:
    """This machine's folder for an address, below ``CROSSLING_CACHE`` or ``~/.cache/crossling``.

    Credentials are kept in the environment of this process, which its workers inherit, and nowhere else.
    """
    cache = Path(os.environ.get("CROSSLING_CACHE") or Path.home() / ".cache" / "crossling")
    shown = mask_credentials(address)
    name = "".join(c if c.isalnum() else "-" for c in shown.partition("://")[2]).strip("-")[-40:]
    mirror = cache / "stores" / f"{name}-{hashlib.sha256(shown.encode()).hexdigest()[:12]}"
    if shown != address:
        os.environ[_name_variable(shown)] = address
    if not is_filled(mirror / ADDRESS):
        Archive(address)  # an address that cannot be used is reported before the mirror exists
        write_atomic(mirror / ADDRESS, shown)
    return mirror


def _name_variable(shown: str) -> str:
    """The variable that holds an address with its credentials."""
    return f"CROSSLING_STORE_{hashlib.sha256(shown.encode()).hexdigest()[:12].upper()}"


def _find_address(mirror: Path) -> str:
    """The address of a mirror, with its credentials where this process knows them."""
    shown = (mirror / ADDRESS).read_text(encoding="utf-8")
    default = os.environ.get("CROSSLING_STORE", "").rstrip("/")
    return os.environ.get(_name_variable(shown)) or (default if mask_credentials(default) == shown else shown)


def find_artefact(store: Path, identity: str) -> Path:
    """The folder of an artefact, fetched from the store's address where it has one; it may not exist."""
    return Store(store).fetch(identity) if store.is_dir() else store / "artefacts" / identity


class DamagedError(ArtefactError):
    """A file of an artefact is not what was written."""

    def __init__(self, path: Path) -> None:
        self.what = f"{path}: {'is damaged' if path.is_file() else 'is missing'}"
        super().__init__(f"{self.what}. Run its recipe again: the model is then trained again.")


class Store:
    """Artefacts by identity, work in progress, encoded data and predictions, below one folder."""

    def __init__(self, root: Path, *, expiry: float = EXPIRY_SECONDS) -> None:
        self.root = root
        self.leases = Leases(root / "leases", expiry)
        self._verified: set[str] = set()
        with explain_failures(root):
            make_folder(root)
        self.archive = Archive(_find_address(root)) if is_filled(root / ADDRESS) else None

    def identify(self, kind: str, version: int, inputs: dict[str, Any]) -> str:
        """The identity of work: its kind, the version of its code, and a hash of everything it depends on."""
        return f"{kind}-{version}-{content_hash(inputs)}"

    def artefact(self, identity: str) -> Path:
        """The folder of an artefact, complete or not, here or not."""
        return self.root / "artefacts" / identity

    def is_complete(self, identity: str) -> bool:
        """Whether an artefact can be read, here or from the address."""
        return self._is_here(identity) or (self.archive is not None and self.archive.is_complete(identity))

    def _is_here(self, identity: str) -> bool:
        return is_filled(self.artefact(identity) / MARKER)

    def fetch(self, identity: str) -> Path:
        """The folder of a complete artefact, fetched from the address where it is not here; its files are verified."""
        if self.archive is not None and not self._is_here(identity) and self.archive.is_complete(identity):
            with temporary_folder(self.root / "fetched") as folder:
                record = self.archive.fetch(identity, folder)
                self._take_in(identity, folder, record)
        self.verify(identity)
        return self.artefact(identity)

    def verify(self, identity: str) -> None:
        """Raise :class:`DamagedError` where a file of an artefact is not what was written; once in a process.

        Artefacts of earlier versions have no digests, of their files or of the record.
        """
        folder = self.artefact(identity)
        if identity in self._verified or not self._is_here(identity):
            return
        record = self.record(identity)
        if not _is_record(record):
            raise DamagedError(folder / MARKER)
        files = record.get(DIGESTS, {})
        for name, digest in files.items():
            path = folder / check_name(name, where=str(folder))
            if not path.is_file() or hash_file(path) != digest:
                raise DamagedError(path)
        self._verified.add(identity)

    def is_whole(self, identity: str) -> bool:
        """Whether an artefact is complete, and its files are what was written."""
        try:
            self.verify(identity)
        except DamagedError:
            return False
        return self.is_complete(identity)

    def heal(self, identity: str, say: Callable[[str], None]) -> bool:
        """Whether an artefact is whole; a damaged one is set aside, so that whoever holds its lease makes it again."""
        try:
            self.verify(identity)
        except DamagedError as error:
            moved = self.set_aside(identity)
            say(f"{error.what}. The model is kept as {moved} and made again.")
        return self.is_complete(identity)

    def set_aside(self, identity: str) -> Path:
        """Move a damaged artefact out of the way, so that it is made again; returns where it is now."""
        target = self.root / "damaged" / f"{identity}-{uuid.uuid4().hex[:8]}"
        with explain_failures(target):
            make_folder(target.parent)
            publish(self.artefact(identity), target)
        return target

    def work(self, identity: str) -> Path:
        """The folder of work in progress on an artefact."""
        return self.root / "work" / identity

    def publish(self, identity: str, folder: Path, record: dict[str, Any]) -> None:
        """Put the files of a folder into an artefact and declare them final, unless another was first."""
        files = {path.name: path for path in folder.iterdir()}
        record = {**record, DIGESTS: {name: hash_file(path) for name, path in files.items()}}
        record[RECORD_DIGEST] = _hash_record(record)
        if self.archive is None or self.archive.publish(identity, files, record):
            self._take_in(identity, folder, record)
            # What was read for its digest is not read again, unless another process was first.
            if self.record(identity).get(RECORD_DIGEST) == record[RECORD_DIGEST]:
                self._verified.add(identity)
        shutil.rmtree(self.work(identity), ignore_errors=True)

    def _take_in(self, identity: str, folder: Path, record: dict[str, Any]) -> None:
        target = self.artefact(identity)
        with explain_failures(target):
            make_folder(target)
            for path in folder.iterdir():
                fsync(path)
                if not self._is_here(identity):
                    publish(path, target / path.name)
        self.complete(identity, record)

    def complete(self, identity: str, record: dict[str, Any]) -> None:
        """Declare an artefact's files final, with a record of its training, and delete its checkpoints."""
        write_once(self.artefact(identity) / MARKER, record)
        shutil.rmtree(self.work(identity), ignore_errors=True)

    def record(self, identity: str) -> dict[str, Any]:
        """The record of a complete artefact."""
        if self.archive is not None and not self._is_here(identity):
            marker = self.archive.read_marker(identity)
            if marker is not None:
                found: dict[str, Any] = marker["record"]
                return found
        path = self.artefact(identity) / MARKER
        loaded = read_json(path)
        if not isinstance(loaded, dict):
            raise DamagedError(path)
        return loaded


def _is_record(record: Mapping[str, Any]) -> bool:
    """Whether a record is what was written; without a digest, whether it is one at all.

    Records of all versions say with what an artefact was made. So do those of runs and of cells, which name stages.
    """
    if RECORD_DIGEST in record:
        return bool(record[RECORD_DIGEST] == _hash_record(record))
    return MACHINE in record and "stages" not in record and isinstance(record.get(DIGESTS, {}), dict)


def _hash_record(record: Mapping[str, Any]) -> str:
    facts = {name: value for name, value in record.items() if name != RECORD_DIGEST}
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
