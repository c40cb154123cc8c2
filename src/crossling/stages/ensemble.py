"""Seeds of models that work together: teachers of a student, parts of an average."""

from __future__ import annotations

SEED_STEP = 1000
"""Between the seeds of an ensemble: seeds that users count up one by one never share a model."""


def list_ensemble(size: int, seed: int) -> tuple[int, ...]:
    """Seeds of an ensemble, this one among them.

    Seeds that differ by multiples of 1000 form groups of this size, so that in a second round the students that teach
    were taught by the same ensemble.
    """
    first = seed // SEED_STEP // size * size
    return tuple(find_shared(seed) + SEED_STEP * (first + number) for number in range(size))


def find_shared(seed: int) -> int:
    """The seed of what all seeds that differ by multiples of 1000 have in common."""
    return seed % SEED_STEP
