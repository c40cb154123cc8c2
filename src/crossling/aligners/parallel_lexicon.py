"""A lexicon that a recipe has made from parallel text: once, then read from the store.

It is kept as the file that ``crossling align lexicon`` writes, and always read from there, so that the two give the
same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, field_validator

from crossling.aligners import check_aligner, parse_aligner
from crossling.aligners.lexicon import (
    Lexicon,
    LexiconSettings,
    build_lexicon,
    link_sets,
    prefer_intersection,
    read_lexicon,
    write_lexicon,
)
from crossling.data.spec import list_data
from crossling.files import is_intact
from crossling.limits import MOST_COUNTED
from crossling.recipe.identity import content_hash
from crossling.registry import identify_plugins, load_kind
from crossling.store.leases import Leases

if TYPE_CHECKING:
    from crossling.data.rows import Rows
    from crossling.progress import Progress

VERSION = 1
"""Raised when the same text and settings would give another lexicon."""


class ParallelLexicon(LexiconSettings):
    """Parallel text, what links its words, and which links make an entry."""

    parallel: tuple[str | dict[str, Any], ...]
    """Sentences with translations of one pair of languages, all linked together: ntrex:en-de, or a table with format,
    path and languages; one set or a list."""
    aligner: dict[str, Any] = Field(
        default_factory=lambda: {"kind": "statistical"}, json_schema_extra={"family": "aligners"}
    )
    """What links words: statistical (no model), neural, eflomal, with their settings."""
    least: int = Field(default=3, ge=1, le=MOST_COUNTED)
    """The fewest links that an entry has."""

    @field_validator("parallel", mode="before")
    @classmethod
    def _some_text(cls, value: Any) -> Any:
        if not (found := list_data(value)):
            raise ValueError('at least one data set, such as "ntrex:en-de"')
        return found

    @field_validator("aligner", mode="before")
    @classmethod
    def _valid_aligner(cls, value: Any) -> Any:
        return check_aligner(value)


def make_lexicon(settings: ParallelLexicon, rows: Sequence[Rows], *, store: Path, progress: Progress) -> Lexicon:
    """The lexicon of parallel text, from the store if it was made before; of several processes one makes it."""
    identity = identify_lexicon(settings, rows)
    path = store / "lexicons" / f"{identity}.tsv"
    if not is_intact(path):
        with Leases(store / "leases").hold(f"lexicon-{identity}"):
            if not is_intact(path):
                linked = link_sets(rows, aligner=settings.aligner, progress=progress)
                lexicon = build_lexicon(linked, settings)
                write_lexicon(lexicon, path, seal=True)
                progress.say(
                    f"lexicon {'-'.join(lexicon.language_pair)}: {len(lexicon):,} translations of "
                    f"{len(lexicon.translations):,} words, from {len(linked.pairs):,} sentence pairs"
                )
    return read_lexicon(path)


def identify_lexicon(settings: ParallelLexicon, rows: Sequence[Rows]) -> str:
    """A hash of all that a lexicon is made from."""
    table = prefer_intersection(settings.aligner)
    aligner = parse_aligner(table).model_dump(mode="json", exclude={"device", "batch"})
    facts: dict[str, Any] = {
        "version": VERSION,
        "rows": [[part.language, part.fingerprint] for part in rows],
        "settings": settings.model_dump(mode="json", include=set(LexiconSettings.model_fields)),
        "aligner": [aligner, load_kind("aligners", aligner["kind"]).VERSION],
        "named": sorted(table),  # the layer of the neural aligner depends on its encoder unless it is named
        "encoder": _identify_encoder(aligner),
    }
    if plugins := identify_plugins({"aligner": table}):
        facts["plugins"] = plugins
    return content_hash(facts)


def _identify_encoder(aligner: Mapping[str, Any]) -> str:
    """The content of an aligner's encoder, which may be a folder that changes; nothing where it has none."""
    if "encoder" not in aligner:
        return ""
    from crossling.encoders.loading import load_encoder

    return load_encoder(aligner["encoder"], revision=aligner["revision"]).identity
