"""What training and prediction tell about how far they are; the command line draws it, the library stays silent."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A listener for long work."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Work of ``total`` steps begins, or goes on after ``done`` of them."""

    def advance(self, steps: int = 1, **facts: str) -> None:
        """Some steps are done; facts such as loss and speed go beside the bar."""

    def end(self) -> None:
        """The work is done."""

    def say(self, line: str) -> None:
        """A line for the reader."""


class NoProgress:
    """The listener that says nothing."""

    def begin(self, what: str, total: int, done: int = 0) -> None:
        pass

    def advance(self, steps: int = 1, **facts: str) -> None:
        pass

    def end(self) -> None:
        pass

    def say(self, line: str) -> None:
        pass
