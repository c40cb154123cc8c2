"""What a server accepts: sizes, numbers, times."""

from __future__ import annotations

from dataclasses import dataclass

from crossling.errors import UserError


@dataclass(frozen=True)
class Limits:
    """Bounds on requests; what exceeds one is answered with a status that says so."""

    body: int = 1_048_576
    """Bytes of a request."""
    items: int = 256
    """Texts, pairs or questions of a request."""
    characters: int = 10_000
    """Characters of a text, and of all words of a sentence together."""
    total: int = 200_000
    """Characters of a request: what bounds the time that a request takes and the size of its answer."""
    queue: int = 1_024
    """Inputs that wait for a model."""
    requests: int = 256
    """Requests that are read or answered at a time."""
    seconds: float = 30.0
    """Time for a request to arrive, and for its answer to be computed."""
    batch: int = 32
    """Inputs that go through a model together."""
    wait: float = 0.002
    """Seconds that an input waits for others to share its batch."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 0 or (value == 0 and name != "wait"):
                raise UserError(f"limits: {name} = {value:g} must be positive")
        if self.items > self.queue:
            raise UserError(
                f"limits: a request of {self.items} inputs never fits into a queue of {self.queue}; "
                "raise --max-queue or lower --max-items"
            )
