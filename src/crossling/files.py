"""Files that several processes share: each is complete or absent, even after a power cut.

Whatever is written here goes into a temporary folder beside its place, is flushed to disk, takes its name, and then the
folder that holds the name is flushed. A file that is empty counts as absent: file systems without ordered writes leave
such files after a power cut. Temporary folders carry the process that made them in their names, so that those of killed
processes are deleted by the next that writes there. A disk that is full, read-only or failing is a
:class:`~crossling.errors.StorageError`, whichever library was writing.

A sealed file has its digest beside it, so that damage is noticed where it is read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from crossling.errors import ArtefactError, StorageError
from crossling.processes import find_start, identify_machine, is_running

log = logging.getLogger(__name__)
_intact: set[tuple[str, int, int]] = set()
"""Sealed files that this process found whole: path, time of the last change, size."""
_cleaned: set[Path] = set()
"""Folders from which this process deleted what killed processes left."""
BLOCK_BYTES = 1 << 16
"""Of a JSON file, read at once; nearly all are smaller."""
ABANDONED_SECONDS = 86_400
"""A temporary file of another machine, or of this one before it was started again, is deleted once it is so old."""
_FULL = "Free some space and run again: it goes on from what is stored. Or name another place (--store, --out)."
_ELSEWHERE = "Repair that, or name another place (--store, --out), and run again."
_CAUSES = {
    errno.ENOSPC: ("the disk is full", _FULL),
    errno.EDQUOT: ("the disk quota is used up", _FULL),
    errno.EFBIG: ("the file would be larger than the system allows", _FULL),
    errno.EIO: ("the disk reports an input/output error", _ELSEWHERE),
    errno.EROFS: ("the file system is read-only", _ELSEWHERE),
    errno.EACCES: ("permission denied", _ELSEWHERE),
    errno.EPERM: ("not permitted", _ELSEWHERE),
    errno.EEXIST: ("a part of the path is a file, not a folder", _ELSEWHERE),
    errno.ENOTDIR: ("a part of the path is a file, not a folder", _ELSEWHERE),
    errno.EISDIR: ("there is a folder of that name", _ELSEWHERE),
    errno.ENAMETOOLONG: ("the name is too long", _ELSEWHERE),
}
"""Errors of the file system that a user can repair: what is wrong, and what to do."""


def describe_failure(error: BaseException, path: Path | str, *, needed: int = 0) -> str | None:
    """What a user reads where a write failed, and none for errors that no user can repair."""
    number = _find_number(error)
    if number not in _CAUSES or (number == errno.EFBIG and os.strerror(number) not in str(error)):
        return None  # a file that is read may be too large, too, which another message says
    what, remedy = _CAUSES[number]
    if number in (errno.ENOSPC, errno.EDQUOT):
        what += _describe_room(Path(path), needed)
    return f"{path}: {what}. {remedy}"


def _find_number(error: BaseException) -> int | None:
    """The system's number of an error; libraries in Rust have it in their message, numpy has the bytes it wrote."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno
    if isinstance(error, OSError) and re.search(r"requested and \d+ written", str(error)):
        return errno.ENOSPC
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found.group(1)) if found else None


def _describe_room(path: Path, needed: int) -> str:
    """How much room a file needs, where that is known, and what there is, where that explains the failure."""
    facts = [f"{needed:,} bytes are needed"] if needed else []
    with contextlib.suppress(OSError, StopIteration):
        room = os.statvfs(next(place for place in (path, *path.absolute().parents) if place.is_dir()))
        free = room.f_bavail * room.f_frsize
        if free < max(needed, 1 << 20):
            facts.append(f"{free:,} bytes are free")
        elif room.f_files and not room.f_favail:
            facts.append("it can hold no more files, of any size")
    return f" ({', '.join(facts)})" if facts else ""


@contextmanager
def explain_failures(path: Path, *, needed: int = 0) -> Iterator[None]:
    """Turn what a full, read-only or failing disk raises while ``path`` is written into a :class:`StorageError`.

    ``needed`` is the number of bytes of the file, where it is known. Errors that name a file elsewhere are passed on:
    what is written may be read from there.
    """
    try:
        yield
    except Exception as error:
        named = getattr(error, "filename", None)
        message = describe_failure(error, path, needed=needed)
        if message is None or (named is not None and not _is_near(Path(os.fsdecode(named)), path.parent)):
            raise
        raise StorageError(message) from error


def _is_near(path: Path, folder: Path) -> bool:
    """Whether a path lies in a folder, or is one of those above it."""
    return path.is_relative_to(folder) or folder.is_relative_to(path)


@contextmanager
def replacing(path: Path, *, seal: bool = False, needed: int = 0) -> Iterator[Path]:
    """A temporary path to write a file to; on success it is flushed to disk and takes the name.

    A reader sees the old file or the new one, and a failed or killed writer leaves the old one. With ``seal`` its
    digest is written beside it, for :func:`is_intact`. ``needed``: see :func:`explain_failures`.
    """
    with explain_failures(path, needed=needed), temporary_folder(path) as folder:
        partial = folder / "partial"
        yield partial
        fsync(partial)
        if seal:
            write_atomic(_seal_of(path), hash_file(partial))
        publish(partial, path)


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """A folder beside ``path``, on the same file system, that is deleted at the end; what others left there is, too."""
    folder = path.with_name(f".{path.name}.{_name_writer()}.partial")
    try:
        with explain_failures(path):
            make_folder(path.parent)
            folder.mkdir()
        _delete_abandoned(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _name_writer() -> str:
    """Machine, process and its start, and a number that no other has."""
    import uuid

    return f"{_describe_process(os.getpid())}-{uuid.uuid4().hex[:12]}"


@cache
def _describe_process(process: int) -> str:
    """Of this process, by its number, which a fork has another of: it is the same for every file."""
    return f"{_hash_machine()}-{process}-{find_start(process)}"


def _hash_machine() -> str:
    import hashlib

    return hashlib.sha256(identify_machine().encode()).hexdigest()[:8]


def _delete_abandoned(own: Path) -> None:
    """Delete what killed processes left in the folder that holds ``own``, once for each folder.

    Ages are differences of the times that the file system itself gave: clocks of machines may differ.
    """
    if own.parent in _cleaned:
        return
    _cleaned.add(own.parent)
    with contextlib.suppress(OSError):
        now = own.stat().st_mtime
        for path in own.parent.glob(".*.partial"):
            with contextlib.suppress(OSError):
                if _is_abandoned(path, now):
                    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _is_abandoned(path: Path, now: float) -> bool:
    machine, *writer = path.name.removesuffix(".partial").rpartition(".")[2].split("-")
    if machine == _hash_machine() and len(writer) == 3 and writer[0].isdecimal():
        return not is_running(int(writer[0]), writer[1])
    newest = max(one.lstat().st_mtime for one in (path, *path.glob("**/*")))
    return now - newest > ABANDONED_SECONDS


def publish(partial: Path, path: Path) -> None:
    """Move a file, or a folder, to its final name on the same file system, so that it is there after a power cut."""
    partial.replace(path)
    fsync(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, which are then there after a power cut."""
    if folder.is_dir():
        return
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for place in missing:
        fsync(place.parent)


def reserve(file: Any, size: int) -> None:
    """Give an open file its size and its room on disk now: a full disk then shows before hours of work."""
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        file.truncate(size)


def is_filled(path: Path) -> bool:
    """Whether a file is there and not empty: after a power cut an empty one may be left, which counts as absent."""
    try:
        facts = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return stat.S_ISREG(facts.st_mode) and facts.st_size > 0


def is_path_like(name: str) -> bool:
    """Whether a name can only be a path: hub names have one slash at most."""
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name


def is_intact(path: Path, *, needs_seal: bool = True) -> bool:
    """Whether a sealed file is there and is what was written; a damaged one is reported, and its writer makes it again.

    A file is read once by a process for this, and again only where it changed. Without ``needs_seal``, files of earlier
    versions, which have no seal, count as whole.
    """
    seal = _seal_of(path)
    if not is_filled(path) or not is_filled(seal):
        return is_filled(path) and not needs_seal
    try:
        facts = path.stat()
        key = (str(path), facts.st_mtime_ns, facts.st_size)
        if key in _intact:
            return True
        sealed = seal.read_text(encoding="utf-8")
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
    import hashlib

    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_folder(out: Path, write: Callable[[Path], Any]) -> None:
    """Make a folder that is complete or absent: ``write`` fills a temporary one beside it, which takes the name."""
    with explain_failures(out), temporary_folder(out) as folder:
        whole = folder / "whole"
        write(whole)
        for path in (*whole.rglob("*"), whole):
            fsync(path)
        try:
            publish(whole, out)
        except OSError:
            if not whole.exists():  # it has its name, but the name is not on disk: the next try must not find it
                shutil.rmtree(out, ignore_errors=True)
            raise


def check_new_folder(out: Path) -> None:
    """Refuse a folder that holds something: it may be the very encoder that another is made from."""
    if out.is_dir() and any(out.iterdir()):
        raise ArtefactError(f"{out}: is not empty. Name another folder, or delete this one.")
    if out.exists() and not out.is_dir():
        raise ArtefactError(f"{out}: is a file. Name another folder.")


def write_once(path: Path, facts: Any) -> bool:
    """Write JSON so that the first of several writers wins; returns whether this one did.

    A file that a power cut left empty is replaced: no writer of it lives.
    """
    with explain_failures(path), temporary_folder(path) as folder:
        partial = folder / "partial"
        partial.write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
        fsync(partial)
        try:
            os.link(partial, path)
        except FileExistsError:
            if is_filled(path):
                return False
            publish(partial, path)
        fsync(path.parent)
    return True


def write_atomic(path: Path, text: str, *, seal: bool = False) -> None:
    """Write a text file; the last of several writers wins."""
    with replacing(path, seal=seal) as partial:
        partial.write_text(text, encoding="utf-8")


def write_many(texts: Mapping[Path, str], folder: Path) -> None:
    """Write text files below a folder, each as :func:`write_atomic` does.

    All are flushed before the first takes its name: the disk's journal is then written once or twice in all, rather
    than several times for each file.
    """
    with explain_failures(folder), temporary_folder(folder / "files") as partial:
        partials = [partial / str(number) for number in range(len(texts))]
        for path, text in zip(partials, texts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
        for path in partials:
            fsync(path)
        places = {place for path in texts for place in path.parents if place.is_relative_to(folder)}
        for place in sorted(places):  # the outer ones first
            place.mkdir(exist_ok=True)
        for path, final in zip(partials, texts, strict=True):
            path.replace(final)
        for place in places:
            fsync(place)


def copy_atomic(source: Path, path: Path) -> None:
    """Copy a file so that a reader of the copy sees all of it or none."""
    with replacing(path) as partial:
        shutil.copyfile(source, partial)


def append_line(path: Path, facts: dict[str, Any]) -> None:
    """Add a line to a log that several processes write: one small write, which others do not interrupt."""
    with explain_failures(path):
        make_folder(path.parent)
        line = (json.dumps(facts, ensure_ascii=False) + "\n").encode()
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            if os.write(handle, line) < len(line):
                os.write(handle, b"\n")  # the rest did not fit: what follows begins a new line, if it fits
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(handle)


def read_json(path: Path | str) -> Any:
    """The content of a JSON file, or none if it is missing, empty or damaged.

    Read with three calls of the system: a study has thousands of such files, and a file object costs twice as much.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            content = os.read(handle, BLOCK_BYTES)
            if len(content) == BLOCK_BYTES:
                content += b"".join(iter(lambda: os.read(handle, BLOCK_BYTES), b""))
        finally:
            os.close(handle)
        return json.loads(content.decode())
    except (OSError, ValueError):
        return None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The lines of a log; a line that a killed process left unfinished is skipped."""
    found = []
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict)]


def release_pages(address: int, size: int) -> None:
    """Give back the memory of a mapped file's pages that were read; what is read again is mapped again.

    Only where the system says that a file is mapped there to be read: other memory would lose its content.
    """
    import ctypes
    import mmap

    with contextlib.suppress(OSError, AttributeError), Path("/proc/self/maps").open(encoding="utf-8") as lines:
        for line in lines:
            span, flags, _, _, inode, *_ = line.split()
            begin, end = (int(number, 16) for number in span.split("-"))
            if begin <= address and address + size <= end and flags.startswith("r--") and inode != "0":
                libc = ctypes.CDLL(None)
                libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(size), mmap.MADV_DONTNEED)


def fsync(path: Path) -> None:
    """Flush a file, or the names in a folder, to disk, so that a marker written after it never outlives it."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise  # some network file systems cannot flush a folder
    finally:
        os.close(handle)
