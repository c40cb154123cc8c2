"""Learns from the text itself which words are translations of each other: the model of fast_align, in both directions.

Needs no encoder, knows no language; the more text, the better.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from crossling.aligners.symmetrize import Symmetrization
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from crossling.aligners.corpus import Corpus
    from crossling.aligners.links import Links
    from crossling.progress import Progress

VERSION = 1


class Settings(FrozenSettings):
    """The statistical aligner."""

    kind: Literal["statistical"] = "statistical"
    symmetrize: Symmetrization = "grow-diag-final-and"
    """How the two directions become one."""
    iterations: int = Field(default=5, ge=1)
    """Passes over the text; the last one links."""
    alpha: float = Field(default=0.01, gt=0)
    """The Dirichlet prior of word translations; less makes them sparser."""
    null: float = Field(default=0.08, gt=0, lt=1)
    """The prior probability that a word has no counterpart."""
    tension: float = Field(default=4.0, gt=0)
    """How strongly links prefer the diagonal at first; it is learnt from the second iteration on."""


def align(corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus, learnt from all of it."""
    from crossling.aligners.diagonal import Prior, fit_direction, rank_words
    from crossling.aligners.links import link_best
    from crossling.aligners.symmetrize import symmetrize

    prior = Prior(settings.alpha, settings.null, settings.tension)
    source = rank_words(corpus.source.tokens, len(corpus.source.vocabulary))
    target = rank_words(corpus.target.tokens, len(corpus.target.vocabulary))

    def tell(tension: float) -> None:
        if progress is not None:
            progress.advance(1, tension=f"{tension:.2f}")

    if progress is not None:
        progress.begin("aligning words", 2 * settings.iterations)
    # One direction after the other, each keeping its links alone, so that one table is in memory at a time.
    forward = fit_direction(source, target, prior, iterations=settings.iterations, tell=tell).best
    backward = fit_direction(target, source, prior, iterations=settings.iterations, tell=tell).best
    if progress is not None:
        progress.end()
    return symmetrize(
        link_best(forward, target.offsets),
        link_best(backward, source.offsets, turned=True),
        corpus,
        how=settings.symmetrize,
    )
