"""Links compared with gold links: precision, recall, F1 and alignment error rate.

Annotators mark links as sure or as possible. A proposed link is right if it is possible; only sure ones can be missed:
precision = |A & P| / |A|, recall = |A & S| / |S|, AER = 1 - (|A & S| + |A & P|) / (|A| + |S|), with S part of P.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from crossling.aligners.links import Link, Links
from crossling.data.readers.text_files import read_lines
from crossling.errors import DataError

_LINK = re.compile(r"([0-9]{1,6})([-p])([0-9]{1,6})")
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Gold:
    """Sure and possible links of each pair, counted from 0; sure ones are possible too."""

    sure: tuple[frozenset[Link], ...]
    possible: tuple[frozenset[Link], ...]
    base: int
    """The number that a sentence's first word has in the file."""

    def __len__(self) -> int:
        return len(self.sure)


@dataclass(frozen=True, slots=True)
class AlignmentScore:
    """How good links are, and the counts behind it."""

    proposed: int
    sure: int
    right: int
    """Proposed links that are possible."""
    found: int
    """Sure links that were proposed."""

    @property
    def precision(self) -> float:
        """The share of proposed links that are possible; 1 where none was proposed, since none was wrong."""
        return self.right / self.proposed if self.proposed else 1.0

    @property
    def recall(self) -> float:
        """The share of sure links that were proposed; 1 where there was none to find."""
        return self.found / self.sure if self.sure else 1.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @property
    def aer(self) -> float:
        """The alignment error rate; 0 is perfect."""
        total = self.proposed + self.sure
        return 1 - (self.found + self.right) / total if total else 0.0


def read_gold(path: Path, *, base: int | None = None) -> Gold:
    """Read gold links, ``3-4`` sure and ``3p4`` possible, a line a pair.

    Without ``base``, words are counted from 1 if no link of the whole file names a word 0, and from 0 otherwise.
    """
    rows: list[list[tuple[Link, bool]]] = []
    for line in read_lines(path):
        where = f"{path}:{line.number}"
        if line.fault:
            raise DataError(f"{where}: the line has {line.fault}; links are plain text such as 3-4 or 3p4")
        rows.append([_parse_link(item, where) for item in line.text.split()])
    lowest = min((min(link) for row in rows for link, _ in row), default=0)
    if base is None:
        base = 1 if lowest >= 1 else 0
    if lowest < base:
        number = next(n for n, row in enumerate(rows, start=1) for link, _ in row if min(link) < base)
        raise DataError(f"{path}:{number}: a link names word {lowest}, but words are counted from {base}; use --base 0")
    return Gold(
        sure=tuple(_pick(row, base, possible=False) for row in rows),
        possible=tuple(_pick(row, base, possible=True) for row in rows),
        base=base,
    )


def _parse_link(item: str, where: str) -> tuple[Link, bool]:
    match = _LINK.fullmatch(item)
    if match is None:
        raise DataError(f"{where}: {item[:_SHOWN]!r} is no link such as 3-4 (sure) or 3p4 (possible)")
    return (int(match[1]), int(match[3])), match[2] == "-"


def _pick(row: Iterable[tuple[Link, bool]], base: int, *, possible: bool) -> frozenset[Link]:
    return frozenset((link[0] - base, link[1] - base) for link, sure in row if sure or possible)


def score_links(links: Links, gold: Gold) -> AlignmentScore:
    """Score links against gold ones; counts are summed over all pairs before any division."""
    if len(links) != len(gold):
        raise DataError(
            f"{len(links)} lines of links, but {len(gold)} lines of gold links; a line belongs to each pair"
        )
    proposed = sure = right = found = 0
    for row, some, more in zip(links, gold.sure, gold.possible, strict=True):
        made = set(row)
        proposed += len(made)
        sure += len(some)
        right += len(made & more)
        found += len(made & some)
    return AlignmentScore(proposed, sure, right, found)
