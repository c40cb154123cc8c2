"""Links between the words of sentence pairs, and the Pharaoh format that aligners exchange: ``0-0 1-2``, a line a pair.

A million pairs are two arrays, not millions of Python objects.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crossling.data.ragged import IntArray, to_offsets
from crossling.data.readers.text_files import read_lines
from crossling.errors import DataError
from crossling.files import replacing

_LINK = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")
_SHOWN = 40

Link = tuple[int, int]
"""A source word and a target word, counted from 0."""


@dataclass(frozen=True, slots=True)
class Links:
    """For each sentence pair its links ``(source word, target word)``, counted from 0, sorted, each once."""

    pairs: IntArray
    """All links, two columns."""
    offsets: IntArray
    """Sentence pair i has the links ``offsets[i]`` to ``offsets[i + 1]``."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> list[Link]:
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        row %= len(self)
        return [(int(i), int(j)) for i, j in self.pairs[self.offsets[row] : self.offsets[row + 1]]]

    def __iter__(self) -> Iterator[list[Link]]:
        return (self[row] for row in range(len(self)))


def build_links(rows: Iterable[Iterable[Link]]) -> Links:
    """Links from Python pairs, in any order, a link named twice counting once."""
    tidy = [sorted(set(row)) for row in rows]
    offsets = to_offsets(np.fromiter(map(len, tidy), np.int64, len(tidy)))
    flat = np.asarray([link for row in tidy for link in row], np.int32).reshape(-1, 2)
    return Links(flat, offsets)


def read_links(
    path: Path, *, base: int = 0, sizes: Sequence[tuple[int, int]] | None = None, total: int | None = None
) -> Links:
    """Read a file in Pharaoh format; an empty line is a pair without links.

    ``base`` is the number of a sentence's first word. With ``sizes``, the words of both sides of every pair, a link
    that leads outside its sentences is an error, and so is a file of another length; ``sizes`` may be of the first
    pairs alone if ``total`` says how many there are.
    """
    rows = []
    for line in read_lines(path):
        where = f"{path}:{line.number}"
        if line.fault:
            raise DataError(f"{where}: the line has {line.fault}; links are plain text such as 0-0 1-2")
        row = [_parse_link(item, where, base) for item in line.text.split()]
        if sizes is not None and line.number <= len(sizes):
            _check_inside(row, sizes[line.number - 1], where, base)
        rows.append(row)
    total = total if total is not None or sizes is None else len(sizes)
    if total is not None and len(rows) != total:
        raise DataError(f"{path} has {len(rows)} lines, but there are {total} sentence pairs; a line belongs to each")
    return build_links(rows)


def _parse_link(item: str, where: str, base: int) -> Link:
    match = _LINK.fullmatch(item)
    if match is None:
        raise DataError(f"{where}: {item[:_SHOWN]!r} is no link such as 0-0 or 3-4; write source word, -, target word")
    link = int(match[1]) - base, int(match[2]) - base
    if min(link) < 0:
        raise DataError(f"{where}: the link {item} names a word 0, but words are counted from {base}")
    return link


def _check_inside(row: list[Link], sizes: tuple[int, int], where: str, base: int) -> None:
    for source, target in row:
        if source >= sizes[0] or target >= sizes[1]:
            swapped = all(one < sizes[1] and other < sizes[0] for one, other in row)
            raise DataError(
                f"{where}: the link {source + base}-{target + base} leads outside {sizes[0]} and {sizes[1]} words, "
                f"counted from {base}; "
                + (
                    "are the two sides swapped in the file of links?"
                    if swapped
                    else "do the links belong to this text?"
                )
            )


def write_links(links: Links, path: Path) -> None:
    """Write links in Pharaoh format, counted from 0: complete, or not at all."""
    with replacing(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        for row in links:
            file.write(" ".join(f"{source}-{target}" for source, target in row) + "\n")


def keep_one_to_one(links: Sequence[Link]) -> list[Link]:
    """The links of a pair whose words have no other link."""
    counts = Counter(i for i, _ in links), Counter(j for _, j in links)
    return [(i, j) for i, j in links if counts[0][i] == counts[1][j] == 1]


def link_best(best: IntArray, offsets: IntArray, *, turned: bool = False) -> Links:
    """Links of one direction: for each word of a side (sentences at ``offsets``) its word on the other side, or -1.

    The side is the target's; the source's if ``turned``.
    """
    linked = np.flatnonzero(best >= 0)
    sentences = np.searchsorted(offsets, linked, side="right") - 1
    own, other = (linked - offsets[sentences]).astype(np.int32), best[linked].astype(np.int32)
    pairs = np.stack([own, other] if turned else [other, own], 1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0], sentences))
    return Links(pairs[order], to_offsets(np.bincount(sentences, minlength=len(offsets) - 1)))
