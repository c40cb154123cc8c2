"""What consistency training adds to a stage that trains a task: lexicons, and a main stream with changed copies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crossling.errors import RecipeError
from crossling.progress import NoProgress, Progress

LEXICON = "lexicon"
"""The role of text that lexicons are made from; no encoder reads it."""

if TYPE_CHECKING:
    from crossling.aligners.lexicon import Lexicon
    from crossling.data.rows import Rows
    from crossling.objectives.consistency import ConsistencySettings
    from crossling.stages.context import StageContext
    from crossling.training.mixture import Stream


def open_lexicons(
    settings: ConsistencySettings | None, train: Sequence[Rows], *, store: Path, progress: Progress | None = None
) -> tuple[tuple[Lexicon, ...], tuple[Rows, ...]]:
    """Read the lexicons, or make them from parallel text, and that text; one that no example could use is refused."""
    from crossling.aligners.lexicon import open_sets, read_lexicon
    from crossling.aligners.parallel_lexicon import make_lexicon

    languages = {rows.language for rows in train}
    lexicons: list[Lexicon] = []
    text: list[Rows] = []
    for number, source in enumerate(settings.lexicon if settings else ()):
        key = f"consistency.lexicon.{number}"
        if isinstance(source, str):
            lexicon = read_lexicon(Path(source))
            _check_direction(f"{key}: {source}", lexicon.language_pair[0], languages)
            if not len(lexicon):
                raise RecipeError(f"{key}: {source} has no entry; make it from more text, or with a lower --least")
        else:
            rows = open_sets(source.parallel, store=store)
            names = ", ".join(part.name for part in rows)
            _check_direction(f"{key}: {names}", rows[0].language.partition("-")[0], languages)
            lexicon = make_lexicon(source, rows, store=store, progress=progress or NoProgress())
            if not len(lexicon):
                raise RecipeError(
                    f"{key}: no entry; in {sum(map(len, rows)):,} sentence pairs of {names} no word is linked to "
                    f"another {source.least} times or more, with a probability of {source.probability:g} or more. "
                    "Name more text, or lower least."
                )
            text += rows
        lexicons.append(lexicon)
    return tuple(lexicons), tuple(text)


def _check_direction(what: str, source: str, languages: Collection[str]) -> None:
    """Refuse to translate from a language that no training set is in."""
    if source not in languages:
        raise RecipeError(
            f"{what} translates from {source!r}, but training data are in {', '.join(map(repr, sorted(languages)))}; "
            "name a lexicon, or parallel text, that translates from there"
        )


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
