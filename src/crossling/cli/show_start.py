"""What ``crossling start`` found and chose, on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from crossling.cli.options import name_program
from crossling.data.languages import name_of
from crossling.report.table import Table
from crossling.report.terminal import format_seconds, out, print_message

if TYPE_CHECKING:
    from crossling.encoders.coverage import Coverage
    from crossling.recipe.recipe import Recipe
    from crossling.study.memory import Inspection
    from crossling.study.start_data import AvailableData
    from crossling.study.start_files import Found

SHOWN_LABELS = 8


def show_found(available: AvailableData) -> None:
    """All data that was found."""
    rows = tuple(
        (role, found.rows.name, found.rows.language, f"{len(found.rows):,}", _describe(role, found))
        for role, found in available.described()
    )
    out.print(Table("", ("what", "data set", "language", "rows", "notes"), rows, names=5).to_rich(whole=True))
    for note in available.notes:
        print_message(f"note: {note}.")
    for warning in available.warnings:
        print_message(f"warning: {warning}.")


def show_languages(available: AvailableData, coverage: Mapping[str, Coverage]) -> None:
    """How well the encoder can write the target languages."""
    for language in available.languages:
        what = "no text of it here, so how well the encoder covers it is unknown"
        if one := coverage.get(language):
            unknown = f"{one.unknown_words:.1%} of words with an unknown one"
            what = f"{one.fertility:.2f} subwords a word, {unknown}: {one.judge()}"
        print_message(f"{name_of(language)} ({language}): {what}.")


def _describe(role: str, found: Found) -> str:
    """Its labels, and what else there is to know."""
    notes = list(found.notes)
    if role == "labels" and "answers" not in found.rows.column_names:
        labels = found.rows.labels()
        more = f" and {len(labels) - SHOWN_LABELS} more" if len(labels) > SHOWN_LABELS else ""
        notes.insert(0, ", ".join(labels[:SHOWN_LABELS]) + more)
    return "; ".join(notes)


def show_recipe_summary(
    available: AvailableData,
    recipe: Recipe,
    inspection: Inspection,
    *,
    suggestions: Sequence[str],
    hours: tuple[float, str],
    place: Path,
) -> None:
    """What the recipe does, what more data would bring, how long it takes, what to do next."""
    from crossling.study.start_recipe import explain_choice

    kinds = ", ".join(settings.kind for settings in recipe.stage)
    print_message(f"\nThe recipe: {kinds}. {explain_choice(available)}")
    if suggestions:
        print_message("What more data would bring, by our studies:")
        for suggestion in suggestions:
            print_message(f"  - {suggestion}")
    print_message("")
    print_message(f"time:    about {format_seconds(3600 * hours[0])} here, for one seed. {hours[1]}")
    print_message(f"memory:  {inspection.forecast[inspection.largest]}")
    print_message(f"recipe:  {place}")
    print_message(f"next:    {name_program()} run {place}")
