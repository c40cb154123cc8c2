"""Links words whose vectors are near: those of a multilingual encoder's middle layer. Learns nothing from the text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from crossling.aligners.symmetrize import Symmetrization
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from crossling.aligners.corpus import Corpus
    from crossling.aligners.links import Links
    from crossling.progress import Progress

VERSION = 1


class Settings(FrozenSettings):
    """The neural aligner."""

    kind: Literal["neural"] = "neural"
    encoder: str = "multilingual-e5-small"
    """A hub name, a folder, or multilingual-e5-small, which needs no network."""
    revision: str | None = None
    """The hub's branch, tag or commit."""
    layer: int = Field(default=7, ge=0)
    """Whose vectors are compared: 0 the embeddings. Middle layers say most of what a word means where it stands."""
    method: Literal["argmax", "itermax", "transport"] = "argmax"
    """argmax: each word's nearest of the other side. itermax: words that choose each other, then again among what is
    left. transport: each word's best share of the cheapest way to carry one sentence's words to the other's."""
    symmetrize: Symmetrization = "intersection"
    """How each side's choices become one; the intersection links words that choose each other. Not for itermax."""
    pooling: Literal["mean", "first", "last"] = "mean"
    """A word's vector from its subwords."""
    rounds: int = Field(default=2, ge=1)
    """Of itermax."""
    discount: float = Field(default=0.9, gt=0, le=1)
    """Of itermax: what the cosine of a word that has a link already is multiplied by."""
    temperature: float = Field(default=0.1, gt=0)
    """Of transport: less makes the plan sharper."""
    batch: int = Field(default=64, ge=1)
    """Sentence pairs at a time, fewer where they are long."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where torch sees one."""

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        if self.method == "itermax" and self.symmetrize != "intersection":
            raise ValueError(f"itermax links both sides at once, so symmetrize = {self.symmetrize!r} means nothing")
        return self


def align(corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus, each pair by itself."""
    import torch

    from crossling.aligners.word_vectors import align_with
    from crossling.encoders.encoder import load_encoder

    cuda = settings.device == "cuda" or (settings.device == "auto" and torch.cuda.is_available())
    encoder = load_encoder(settings.encoder, revision=settings.revision).to("cuda" if cuda else "cpu")
    return align_with(encoder, corpus, settings, progress=progress)
