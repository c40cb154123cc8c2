"""Errors that a user can fix: each says what is wrong, where, and how to fix it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user can fix. The command line prints it without a traceback and exits with 2."""


class RecipeError(UserError):
    """A recipe, a study or an override that is not valid."""


class DataError(UserError):
    """A file or data set that cannot be found or read; names file and line where there is one."""


class EncoderError(UserError):
    """An encoder that cannot be found, loaded, or used for a task."""


class ArtefactError(UserError):
    """A stored result that is missing, incomplete, or made by other settings."""


def nearest(name: object, valid: Iterable[str]) -> str:
    """The end of an error message: the closest valid name, then all of them where they are few.

    The name itself is never suggested: where it was refused, it is valid in another place only.
    """
    names = sorted(set(valid) - {str(name)})
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.5)
    suggestion = f" Did you mean {close[0]!r}?" if close else ""
    listed = ", ".join(names[:40]) + (", …" if len(names) > 40 else "")
    return f"{suggestion} Valid: {listed}." if names else suggestion
