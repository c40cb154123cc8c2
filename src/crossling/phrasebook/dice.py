"""Reproducible chance: the same draws for the same item in every language, process and Python version."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws seeded by text. Only ``Random.random`` is used, whose sequence Python promises never to change."""

    def __init__(self, *seed: object) -> None:
        digest = hashlib.blake2b("\t".join(map(str, seed)).encode(), digest_size=8).digest()
        self._draw = random.Random(int.from_bytes(digest, "big")).random

    def below(self, limit: int) -> int:
        """An integer from 0 up to, but not including, the limit."""
        return int(self._draw() * limit)

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[self.below(len(items))]

    def chance(self, probability: float) -> bool:
        """True with the given probability."""
        return self._draw() < probability

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Several different items, in random order."""
        left = list(items)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def shuffle(self, items: Sequence[T]) -> list[T]:
        """All items in random order."""
        return self.sample(items, len(items))
