"""Aligners by name, and pictures of what they found: what the command line and stages call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from crossling.aligners.corpus import Corpus, read_corpus
from crossling.aligners.links import Links, read_links
from crossling.aligners.picture import draw_links
from crossling.aligners.score import read_gold
from crossling.errors import DataError, RecipeError
from crossling.recipe.recipe import parse_kind
from crossling.registry import load_kind

if TYPE_CHECKING:
    from crossling.progress import Progress


def parse_aligner(table: Mapping[str, Any]) -> Any:
    """An aligner's settings, ``kind`` naming it, or one error that lists every problem."""
    problems: list[str] = []
    settings = parse_kind("aligners", table, key="aligner", problems=problems)
    if settings is None:
        raise RecipeError("\n  ".join(problems))
    return settings


def align_words(corpus: Corpus, settings: Any, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus by the aligner that the settings are of."""
    return cast(Links, load_kind("aligners", settings.kind).align(corpus, settings, progress=progress))


def draw_pair(
    links: Path, source: Path, target: Path | None, *, line: int, gold: Path | None = None, base: int | None = None
) -> str:
    """The picture of the pair on a line (from 1) of a text and its links."""
    corpus = read_corpus(source, target)
    if line > len(corpus):
        raise DataError(f"{source}: has {len(corpus)} lines, so there is no line {line}; choose another with --line")
    found = read_links(links, sizes=corpus.sizes())
    row = line - 1
    marks = {}
    if gold is not None:
        right = read_gold(gold, base=base)
        if len(right) != len(corpus):
            raise DataError(
                f"{gold} has {len(right)} lines but {source} has {len(corpus)}; a line belongs to each pair"
            )
        marks = {"sure": right.sure[row], "possible": right.possible[row]}
    return draw_links(corpus.source.words(row), corpus.target.words(row), found[row], **marks)
