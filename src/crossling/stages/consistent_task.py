"""What consistency training adds to a stage that trains a task: lexicons, and a main stream with changed copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from crossling.errors import RecipeError
from crossling.recipe.identity import content_hash

if TYPE_CHECKING:
    from crossling.aligners.lexicon import Lexicon
    from crossling.data.rows import Rows
    from crossling.objectives.consistency import ConsistencySettings
    from crossling.stages.context import StageContext
    from crossling.training.mixture import Stream


def open_lexicons(settings: ConsistencySettings, train: Sequence[Rows]) -> tuple[Lexicon, ...]:
    """Read the lexicons; one whose source language no training set is in would never be used."""
    from pathlib import Path

    from crossling.aligners.lexicon import read_lexicon

    lexicons = tuple(read_lexicon(Path(path)) for path in settings.lexicon)
    languages = sorted({rows.language for rows in train})
    for path, lexicon in zip(settings.lexicon, lexicons, strict=True):
        if lexicon.language_pair[0] not in languages:
            raise RecipeError(
                f"consistency.lexicon: {path} translates from {lexicon.language_pair[0]!r}, but training data are in "
                f"{', '.join(map(repr, languages))}; name a lexicon that translates from there"
            )
    return lexicons


def identify_lexicons(lexicons: Sequence[Lexicon]) -> list[str]:
    """Hashes of what they contain."""
    return [content_hash([lexicon.language_pair, lexicon.translations]) for lexicon in lexicons]


def make_consistent_stream(
    stream: Stream,
    settings: ConsistencySettings,
    context: StageContext,
    *,
    lexicons: Sequence[Lexicon],
    languages: Sequence[str],
) -> Stream:
    """The main stream with copies. ``languages``: of its first examples; what is taught beside them has none, so that
    its words are cut anew but never replaced."""
    from crossling.objectives.consistency import make_consistent, vary_examples
    from crossling.training.mixture import Stream

    examples = vary_examples(
        stream.examples,
        settings,
        context.encoder,
        seed=context.seed,
        lexicons=lexicons,
        languages=[*languages, *[""] * (len(stream.examples) - len(languages))],
    )
    return Stream(make_consistent(stream.objective, settings), examples)
