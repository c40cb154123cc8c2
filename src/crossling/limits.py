"""What files may be: regular ones, whose size, lines and compression stay within limits. docs/data.md states them.

A pipe or a device would be waited for or never end; a zip bomb is a small file that holds more than any disk. What goes
beyond a limit is a :class:`LimitError`: an ``OSError``, so that it is reported wherever unreadable files are.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

LONGEST_LINE = 16 << 20
"""Bytes of a line of text, or of a cell of a table."""
LARGEST_DOCUMENT = 2 << 30
"""Bytes of a file that is read as a whole, such as a JSON document; decompressed."""
LARGEST_SETTINGS = 16 << 20
"""Bytes of a recipe, a study, a plugin or a model's card."""
DEEPEST_SETTINGS = 32
"""Tables and lists inside each other in a recipe."""
DECOMPRESSED_FACTOR, DECOMPRESSED_FREE = 200, 1 << 30
"""A compressed file may grow by this factor; up to these many bytes it may grow by more."""
MOST_LABELS = 32_767
"""Labels of a task."""
MOST_COUNTED = 1_000_000_000_000
"""The largest number of rows, sentences, words or pairs that a setting may name."""
LARGEST_BATCH = 65_536
"""Examples of a batch, and batches of an update."""
MOST_EPOCHS = 100_000
MOST_THREADS = 4_096
MOST_LAYERS = 1_024
MOST_COLUMNS = 100_000
LARGEST_SEED = 10**10
"""The seed of a training step is a billion times as large and must stay below 2**64."""
LARGEST_NUMBER = 1e9
"""The largest of settings that have no natural bound, such as the weight of a loss; infinity is no setting."""


class LimitError(OSError):
    """A file that is not regular, or goes beyond a limit; ``strerror`` says which."""

    def __init__(self, path: Path | str, what: str) -> None:
        super().__init__(errno.EFBIG, what, str(path))


def check_regular(path: Path) -> os.stat_result:
    """The facts of a regular file, links followed; anything else is an ``OSError``. Nothing is opened."""
    try:
        facts = path.stat()
    except ValueError:  # a NUL, or half of a surrogate pair
        raise LimitError(path, "cannot be the name of a file") from None
    _refuse_others(path, facts)
    return facts


def is_folder(name: str) -> bool:
    """Whether a text names a folder; one that cannot be a path does not."""
    try:
        return Path(name).expanduser().is_dir()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no such home
        return False


def check_inside(path: Path, folder: Path) -> None:
    """Refuse what is no regular file, or a link that leads out of the folder; the hub's cache links to ``blobs``."""
    roots = [folder.resolve()]
    if folder.parent.name == "snapshots":
        roots.append((folder.parent.parent / "blobs").resolve())
    try:
        target = path.resolve(strict=True)
    except (RuntimeError, ValueError):  # links that lead to each other, a NUL
        raise LimitError(path, "leads nowhere") from None
    if not any(target.is_relative_to(root) for root in roots):
        raise LimitError(path, f"is a link that leads outside ({target}); copy the file itself here")
    check_regular(path)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file; what is none is an ``OSError`` at once, where a pipe would be waited for."""
    check_regular(path)
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _refuse_others(path, os.fstat(handle))  # it may be another by now
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_regular(path: Path, *, most: int = LARGEST_SETTINGS) -> bytes:
    """The bytes of a regular file of limited size."""
    with open_regular(path) as stream:
        return read_limited(stream, path, most=most)


def read_limited(stream: BinaryIO, path: Path, *, most: int = LARGEST_DOCUMENT) -> bytes:
    """All bytes of a stream, unless they are too many."""
    content = stream.read(most + 1)
    if len(content) > most:
        raise LimitError(path, f"has more than {most:,} bytes")
    return content


def _refuse_others(path: Path, facts: os.stat_result) -> None:
    if stat.S_ISDIR(facts.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(facts.st_mode):
        raise LimitError(path, "is not a regular file (a pipe, a socket or a device); write its content to a file")


class DecompressedStream(io.RawIOBase):
    """A stream that is decompressed while it is read, as long as it does not grow beyond its limit."""

    def __init__(self, stream: BinaryIO, path: Path, *, compressed: int) -> None:
        self._stream, self._path = stream, path
        self._most = max(DECOMPRESSED_FREE, DECOMPRESSED_FACTOR * compressed)
        self._total = 0

    def readable(self) -> bool:
        """True: bytes can be read from it."""
        return True

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def]
        """The next bytes."""
        content = self._stream.read(len(buffer))
        buffer[: len(content)] = content
        self._total += len(content)
        if self._total > self._most:
            raise LimitError(
                self._path,
                f"unpacks to more than {self._most:,} bytes, {DECOMPRESSED_FACTOR} times its size: nothing that text "
                "does; unpack it where you trust it",
            )
        return len(content)


def open_decompressed(stream: BinaryIO, path: Path, *, compressed: int) -> BinaryIO:
    """A compressed stream as one that is read quickly and within limits."""
    return io.BufferedReader(DecompressedStream(stream, path, compressed=compressed), 1 << 18)


def find_nesting(value: object) -> str | None:
    """The key at which tables and lists stand too deep inside each other, or none; needs no recursion."""
    waiting: list[tuple[object, int, str]] = [(value, 0, "")]
    while waiting:
        node, depth, key = waiting.pop()
        inner = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list | tuple) else ()
        if inner and depth > DEEPEST_SETTINGS:
            return key
        waiting += [(child, depth + 1, f"{key}.{name}".lstrip(".")) for name, child in inner]
    return None
