"""A picture of one pair's links: a grid of words, one sentence down and the other across, as an SVG file."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path

from markupsafe import Markup

from crossling.aligners.corpus import read_corpus
from crossling.aligners.links import Link, read_links
from crossling.aligners.score import read_gold
from crossling.errors import DataError

CELL = 22
LETTER = 7.5
"""Width of a letter, in pixels, roughly; wide ones (Han, kana, Hangul) count twice."""
STYLE = (
    "text{font:13px sans-serif;fill:#222}.board{fill:#fff}.line{stroke:#ddd}.link{fill:#1f6feb}"
    ".possible{fill:#c9d1d9}.sure{fill:none;stroke:#d1242f;stroke-width:2}"
)


def draw_pair(
    links: Path, source: Path, target: Path | None, *, line: int, gold: Path | None = None, base: int | None = None
) -> str:
    """The picture of the pair on a line (from 1) of a text and its links."""
    corpus = read_corpus(source, target)
    if line > len(corpus):
        raise DataError(f"{source}: has {len(corpus)} lines, so there is no line {line}; choose another with --line")
    found = read_links(links, sizes=corpus.sizes())
    row = line - 1
    marks: dict[str, frozenset[Link]] = {}
    if gold is not None:
        right = read_gold(gold, base=base)
        if len(right) != len(corpus):
            raise DataError(
                f"{gold} has {len(right)} lines but {source} has {len(corpus)}; a line belongs to each pair"
            )
        marks = {"sure": right.sure[row], "possible": right.possible[row]}
    return draw_links(corpus.source.words(row), corpus.target.words(row), found[row], **marks)


def draw_links(
    source: Sequence[str],
    target: Sequence[str],
    links: Collection[Link],
    *,
    sure: Collection[Link] = (),
    possible: Collection[Link] = (),
) -> str:
    """Links as filled squares; gold ones too where they are given: sure ones framed, possible ones grey below."""
    left, top = _measure(source) + 12, _measure(target) + 12
    width, height = left + len(target) * CELL + 12, top + len(source) * CELL + 12
    parts = [
        Markup(
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img">'
        ).format(w=width, h=height),
        Markup("<title>{} ||| {}</title><style>{}</style>").format(" ".join(source), " ".join(target), Markup(STYLE)),
        Markup('<rect class="board" width="{}" height="{}"/>').format(width, height),
        _draw_words(source, target, left, top),
        *(_draw_square("possible", link, left, top, inset=1) for link in sorted({*possible} - {*sure})),
        *(_draw_square("link", link, left, top, inset=5) for link in sorted(links)),
        *(_draw_square("sure", link, left, top, inset=2) for link in sorted(sure)),
        Markup("</svg>\n"),
    ]
    return str(Markup("").join(parts))


def _measure(words: Sequence[str]) -> int:
    wide = [sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in word) for word in words]
    return int(LETTER * max(wide, default=0))


def _draw_words(source: Sequence[str], target: Sequence[str], left: int, top: int) -> Markup:
    right, bottom = left + len(target) * CELL, top + len(source) * CELL
    parts = []
    for row in range(len(source) + 1):
        y = top + row * CELL
        parts.append(Markup('<path class="line" d="M{} {}H{}"/>').format(left, y, right))
        if row < len(source):
            text = Markup('<text x="{}" y="{}" text-anchor="end">{}</text>')
            parts.append(text.format(left - 6, y + CELL - 7, source[row]))
    for column in range(len(target) + 1):
        x = left + column * CELL
        parts.append(Markup('<path class="line" d="M{} {}V{}"/>').format(x, top, bottom))
        if column < len(target):
            text = Markup('<text transform="translate({} {}) rotate(-90)">{}</text>')
            parts.append(text.format(x + CELL - 7, top - 6, target[column]))
    return Markup("").join(parts)


def _draw_square(kind: str, link: Link, left: int, top: int, *, inset: int) -> Markup:
    return Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
        kind, left + link[1] * CELL + inset, top + link[0] * CELL + inset, CELL - 2 * inset, CELL - 2 * inset
    )
