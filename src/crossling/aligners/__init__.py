"""Word alignment: one file per aligner, and what aligners share: links, symmetrization, scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from crossling.errors import RecipeError, UserError
from crossling.recipe.recipe import FrozenSettings, parse_kind
from crossling.registry import load_kind

if TYPE_CHECKING:
    from crossling.aligners.corpus import Corpus
    from crossling.aligners.links import Links
    from crossling.progress import Progress


class AlignerSettings(FrozenSettings):
    """What the settings of all aligners have."""

    kind: str
    """The aligner's name."""


Kind = TypeVar("Kind", bound=AlignerSettings, contravariant=True)


class Aligner(Protocol[Kind]):
    """What an aligner's module defines; its ``Settings`` are a subclass of :class:`AlignerSettings`."""

    VERSION: int

    def align(self, corpus: Corpus, settings: Kind, *, progress: Progress | None = None) -> Links:
        """Links for every sentence pair of a corpus."""


def parse_aligner(table: Mapping[str, Any]) -> AlignerSettings:
    """An aligner's settings, ``kind`` naming it, or one error that lists every problem."""
    problems: list[str] = []
    settings: AlignerSettings | None = parse_kind("aligners", table, key="aligner", problems=problems)
    if settings is None:
        raise RecipeError("\n  ".join(problems))
    return settings


def check_aligner(value: Any) -> dict[str, Any]:
    """The table of an aligner that a recipe names, by its kind alone or with settings; a ValueError says what is
    wrong."""
    if not isinstance(value, str | Mapping):
        raise ValueError(f'{value!r} is no aligner; write "statistical", or a table such as {{ kind = "neural" }}')
    table = {"kind": value} if isinstance(value, str) else dict(value)
    try:
        parse_aligner(table)
    except UserError as error:
        raise ValueError(str(error)) from None
    return table


def align_words(corpus: Corpus, settings: AlignerSettings, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus by the aligner that the settings are of."""
    aligner = cast("Aligner[AlignerSettings]", load_kind("aligners", settings.kind))
    return aligner.align(corpus, settings, progress=progress)
