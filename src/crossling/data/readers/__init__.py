"""Readers of file formats, one file each, and the Protocol that each reader's module fulfils."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from crossling.registry import load_kind

if TYPE_CHECKING:
    from crossling.data.readers.text_files import BadRows, ReaderSettings
    from crossling.data.records import Record

Kind = TypeVar("Kind", bound="ReaderSettings")


class Reader(Protocol[Kind]):
    """What a reader's module defines.

    A module whose rows depend on more than settings and files also has ``stamp(settings)``, a text that names it.
    """

    VERSION: int
    """Part of the fingerprint of the rows: a change of what is read is a new version."""
    Settings: type[Kind]

    def record_kind(self, settings: Kind) -> type[Record]:
        """What the rows are."""

    def files(self, settings: Kind) -> tuple[Path, ...]:
        """The files whose contents decide the rows."""

    def read(self, settings: Kind, bad: BadRows) -> Iterator[Record]:
        """The rows in the order of the files; broken ones are reported to ``bad``."""


def load_reader(format_name: str) -> Reader[ReaderSettings]:
    """The reader of a file format."""
    return cast("Reader[ReaderSettings]", load_kind("readers", format_name))
