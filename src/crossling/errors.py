"""Errors that a user can fix: each says what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTROLS = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""What could steer a terminal or turn the order of letters around; line ends and tabs are text."""


def escape_controls(text: str) -> str:
    """Foreign text for a terminal: control characters and overrides of direction as JSON writes them, ``\\u001b``."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class LogFormatter(logging.Formatter):
    """Log messages without control characters."""

    def format(self, record: logging.LogRecord) -> str:
        """The message alone."""
        return escape_controls(super().format(record))


class UserError(Exception):
    """Something the user can fix. The command line prints it without a traceback and exits with 2.

    What it quotes of files and settings is shown without control characters, wherever the message is printed.
    """

    has_key = False
    """Whether it begins with a key of a recipe."""

    def __str__(self) -> str:
        return escape_controls(super().__str__())


class RecipeError(UserError):
    """A recipe, a study or an override that is not valid."""


class DataError(UserError):
    """A file or data set that cannot be found or read; names file and line where there is one."""


class OutOfMemoryError(UserError):
    """Work that does not fit into memory as it is set."""


class MissingDataError(DataError):
    """A data set whose files are nowhere. Others with the same ``fault`` are missing for the same reason."""

    def __init__(self, message: str, *, name: str, fault: tuple[str, ...]) -> None:
        super().__init__(message)
        self.name = name
        self.fault = fault


class EncoderError(UserError):
    """An encoder that cannot be found, loaded, or used for a task."""


class ArtefactError(UserError):
    """A stored result that is missing, incomplete, or made by other settings."""


class StorageError(UserError):
    """A file that cannot be written: the disk is full, read-only or failing. What was stored before is still there."""


class Problems:
    """Collects what is wrong, so that all of it is reported at once."""

    def __init__(self) -> None:
        self._found: list[tuple[str, UserError]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    @contextmanager
    def collect(self, key: str = "") -> Iterator[None]:
        """Keep an error of what is done inside, with the key of the recipe that it is about.

        A disk that cannot be written is raised at once: it is no fault of the recipe, and would be found many times.
        """
        try:
            yield
        except StorageError:
            raise
        except UserError as error:
            self._found.append((key, error))

    def lines(self) -> list[str]:
        """What is wrong, each fault once: sets that are missing for the same reason are one line."""
        lines: dict[object, str] = {}
        more: dict[object, list[str]] = {}
        for key, error in self._found:
            text = f"{key}: {error}" if key else str(error)
            fault = (key, error.fault) if isinstance(error, MissingDataError) else text
            if fault in lines and isinstance(error, MissingDataError):
                more.setdefault(fault, []).append(error.name)
            lines.setdefault(fault, text)
        return [f"{text} Missing likewise: {', '.join(more[f])}." if f in more else text for f, text in lines.items()]

    def raise_all(self) -> None:
        """One error for all that was found, if anything was."""
        lines = self.lines()
        kind = RecipeError if all(isinstance(error, RecipeError) for _, error in self._found) else DataError
        if lines:
            error = kind(lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} problems", *lines]))
            error.has_key = any(key for key, _ in self._found)
            raise error


@contextmanager
def name_recipe(path: Path) -> Iterator[None]:
    """Begin messages on keys of a recipe with its file."""
    try:
        yield
    except UserError as error:
        if not error.has_key:
            raise
        raise type(error)(f"{path}: {error}") from error


def nearest(name: object, valid: Iterable[str]) -> str:
    """The end of an error message: the closest valid name, then all of them where they are few.

    The name itself is never suggested: where it was refused, it is valid in another place only.
    """
    names = sorted(set(valid) - {str(name)})
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    suggestion = f" Did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    return f"{suggestion} Valid: {listed}." if names else suggestion
