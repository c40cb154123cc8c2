"""The aligner of the eflomal package: Gibbs sampling of a model with fertilities and jumps.

Slower than ``statistical``, with fewer errors.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from crossling.aligners import AlignerSettings
from crossling.aligners.links import Links, read_links
from crossling.aligners.symmetrize import Symmetrization, symmetrize
from crossling.errors import DataError

if TYPE_CHECKING:
    from crossling.aligners.corpus import Corpus, Side
    from crossling.progress import Progress

VERSION = 1


class Settings(AlignerSettings):
    """The aligner of the eflomal package."""

    kind: Literal["eflomal"] = "eflomal"
    symmetrize: Symmetrization = "grow-diag-final-and"
    """How the two directions become one."""
    model: Literal[1, 2, 3] = 3
    """1: words alone, 2: jumps too, 3: fertilities too."""
    samplers: int = Field(default=3, ge=1, le=1_000)
    """Independent samplers whose choices are put together."""
    null: float = Field(default=0.2, gt=0, lt=1)
    """The prior probability that a word has no counterpart."""
    effort: float = Field(default=1.0, gt=0, le=1_000)
    """Multiplies the number of iterations, which the package chooses by the size of the text."""


def align(corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus, learnt from all of it. The package reports no progress."""
    try:
        import eflomal
    except ImportError:
        raise DataError(
            'the aligner eflomal needs its package: pip install "crossling[align]"; or use the aligner statistical'
        ) from None
    if progress is not None:
        progress.begin("aligning words with eflomal", 1)
    aligner = eflomal.Aligner(
        model=settings.model,
        n_samplers=settings.samplers,
        null_prior=settings.null,
        rel_iterations=settings.effort,
    )
    with tempfile.TemporaryDirectory() as folder:
        forward, backward = Path(folder) / "forward", Path(folder) / "backward"
        aligner.align(
            _join_words(corpus.source),
            _join_words(corpus.target),
            links_filename_fwd=str(forward),
            links_filename_rev=str(backward),
        )
        sizes = corpus.sizes()
        both = read_links(forward, sizes=sizes), read_links(backward, sizes=sizes)
    if progress is not None:
        progress.advance(1)
        progress.end()
    return symmetrize(*both, corpus, how=settings.symmetrize)


def _join_words(side: Side) -> Iterator[str]:
    return (" ".join(side.words(row)) + "\n" for row in range(len(side)))
