"""Progress of long work: the command line draws it, the library prints nothing."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives the progress of long work."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Work of ``total`` steps begins, or continues after ``done`` of them."""

    def advance(self, steps: int = 1, **facts: str) -> None:
        """Some steps are done; ``facts`` such as loss and speed are shown beside the bar."""

    def end(self) -> None:
        """The work is done."""

    def say(self, line: str) -> None:
        """A message for the user."""


class NoProgress:
    """Prints nothing."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, steps: int = 1, **facts: str) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, line: str) -> None:
        pass
