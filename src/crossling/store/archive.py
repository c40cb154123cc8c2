"""Artefacts at an address (``s3://``, ``gs://`` and whatever else fsspec knows), for machines that share no folder.

An artefact's files are sent first, below a name that no other writer has; its marker, one object that names them, is
sent last. So a reader sees all of an artefact or none of it, nothing is renamed or linked, and the files of two writers
never mix. Where the address can make an object only if there is none, the first marker wins; where it looks and then
writes, two that finish in the same moment may leave the second's: whole, too, and of the same work.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from crossling.addresses import MASK, mask_credentials
from crossling.errors import ArtefactError, StorageError
from crossling.files import describe_failure, explain_failures

T = TypeVar("T")
LIST_SECONDS = 1.0
"""How long a list of what exists is cached."""
PAUSES = (1.0, 4.0)
"""Seconds between tries, where the network fails."""


def check_name(name: object, *, where: str) -> str:
    """The name of a file below a folder; one that leads elsewhere is refused, since a store may be untrusted."""
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    if not parts or "\\" in str(name) or "\0" in str(name) or any(part in ("..", "/") for part in parts):
        raise ArtefactError(f"{where}: names the file {name!r}, which leads outside; this store is not to be trusted")
    return str(name)


@dataclass
class Archive:
    """Complete artefacts by identity, at an address."""

    address: str = field(repr=False)
    """May carry credentials: messages have :attr:`shown`."""
    _files: Any = None
    _path: str = ""
    _known: set[str] = field(default_factory=set)
    _listed: float = float("-inf")

    def __post_init__(self) -> None:
        from fsspec.core import url_to_fs

        try:
            self._files, self._path = url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            reason = mask_credentials(str(error))
            raise ArtefactError(f"{self.shown}: cannot be used as a store: {reason}") from None
        self._path = self._path.rstrip("/")

    @property
    def shown(self) -> str:
        """The address without credentials."""
        return mask_credentials(self.address)

    @property
    def is_private(self) -> bool:
        """Whether other processes see nothing of what is put there."""
        return "memory" in self._files.protocol

    def is_complete(self, identity: str) -> bool:
        """Whether an artefact can be read; a list serves many such questions, since each costs a message."""
        if identity not in self._known and time.monotonic() - self._listed > LIST_SECONDS:
            self._known |= self._try(self._list)
            self._listed = time.monotonic()
        return identity in self._known

    def refresh(self) -> None:
        """Discard the cached list: something new was published."""
        self._listed = float("-inf")

    def publish(self, identity: str, files: Mapping[str, Path], record: Mapping[str, Any]) -> bool:
        """Send files, then the marker; returns whether this is the marker that counts."""
        if self.is_complete(identity):
            return False
        writer = uuid.uuid4().hex
        for name, path in files.items():
            self._try(partial(self._send, path, f"{self._folder(identity, writer)}/{name}"))
        marker = {"writer": writer, "files": sorted(files), "record": dict(record)}
        self._try(lambda: self._mark(identity, json.dumps(marker, indent=1, ensure_ascii=False).encode()))
        self._known.add(identity)
        first = self.read_marker(identity)
        if first is not None and first["writer"] != writer:
            self._try(lambda: self._files.rm(self._folder(identity, writer), recursive=True))
            return False
        return True

    def read_marker(self, identity: str) -> dict[str, Any] | None:
        """``writer``, ``files`` and ``record`` of an artefact; none where it is not complete."""
        try:
            loaded = json.loads(self._try(lambda: self._files.cat_file(self._marker(identity))))
        except (FileNotFoundError, ValueError):
            return None
        return loaded if isinstance(loaded, dict) else None

    def fetch(self, identity: str, folder: Path) -> dict[str, Any]:
        """Fetch an artefact's files into a folder; returns its record."""
        marker = self.read_marker(identity)
        if marker is None:
            raise ArtefactError(f"{self.shown}: has no {identity}; run its recipe again")
        for name in marker["files"]:
            path = folder / check_name(name, where=f"{self.shown}: {identity}")
            source = f"{self._folder(identity, marker['writer'])}/{name}"
            with explain_failures(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            self._try(partial(self._files.get_file, source, str(path)), path)
        record: dict[str, Any] = marker["record"]
        return record

    @property
    def _remedy(self) -> str:
        if MASK in self.address:
            return "Its credentials are not stored: give its whole address again, by --store or CROSSLING_STORE."
        return "Fix that and run again."

    def _marker(self, identity: str) -> str:
        return f"{self._path}/complete/{identity}.json"

    def _folder(self, identity: str, writer: str) -> str:
        return f"{self._path}/artefacts/{identity}/{writer}"

    def _list(self) -> set[str]:
        self._files.invalidate_cache()
        try:
            found = self._files.ls(f"{self._path}/complete", detail=True)
        except FileNotFoundError:
            return set()
        # An empty marker was left by a power cut: nothing is complete.
        return {Path(one["name"]).stem for one in found if one["name"].endswith(".json") and one.get("size") != 0}

    def _send(self, path: Path, target: str) -> None:
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(path), target)

    def _mark(self, identity: str, content: bytes) -> None:
        path = self._marker(identity)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            self._files.pipe_file(path, content, mode="create")
        except FileExistsError:
            if self._files.size(path) == 0:
                self._files.pipe_file(path, content)

    def _try(self, action: Callable[[], T], path: Path | None = None) -> T:
        """Once more where the network fails; in the end an error that names the address, or the ``path`` written to."""
        for pause in (*PAUSES, None):
            try:
                return action()
            except (FileNotFoundError, FileExistsError):
                raise
            except Exception as error:  # each kind of address raises different errors
                if message := describe_failure(error, path or self.shown):  # to wait is no use
                    raise StorageError(mask_credentials(message)) from None
                if pause is None:
                    reason = mask_credentials(f"{type(error).__name__}: {error}")
                    raise ArtefactError(f"{self.shown}: cannot be used: {reason}. {self._remedy}") from None
                time.sleep(pause)
        raise AssertionError("the last try returns or raises")
