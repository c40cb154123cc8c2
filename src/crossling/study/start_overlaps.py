"""Rows of what ``crossling start`` found that are also scored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from crossling.data.label_free import collect_keys, find_equal

if TYPE_CHECKING:
    from crossling.study.start_data import AvailableData
    from crossling.study.start_files import Found

MOST_SCORED = 0.01
"""A share of training rows that are in a test set, or of a test set that is trained on, above which we warn."""


def note_overlaps(available: AvailableData) -> None:
    """Rows of the data that are also scored: labelled ones make scores too high, text is left out row by row."""
    if not available.tests:
        return
    scored = collect_keys(found.rows for found in available.tests)
    labels, text = (
        [(found, int(find_equal(found.rows, scored).sum())) for found in some]
        for some in (available.labels, available.text)
    )
    for found, count in labels:
        _warn_overlap(available, found, count)
    too_high = "training rows are also in the test set: scores will be too high"
    available.labels = [_note_overlap(found, count, too_high) for found, count in labels]
    available.text = []
    for found, count in text:
        if count < len(found.rows):
            available.text.append(_note_overlap(found, count, "rows are also scored: left out"))
        else:
            available.notes.append(f"{found.rows.name}: all of its rows are scored, so it is not taught on")


def _note_overlap(found: Found, count: int, what: str) -> Found:
    return replace(found, notes=(*found.notes, f"{count:,} {what}")) if count else found


def _warn_overlap(available: AvailableData, found: Found, count: int) -> None:
    """A warning where more than a few rows are concerned, with the test set that is most concerned."""
    keys = collect_keys([found.rows])
    equal = [(int(find_equal(test.rows, keys).sum()), test.rows) for test in available.tests]
    known, worst = max(equal, key=lambda item: item[0] / len(item[1]))
    if max(count / len(found.rows), known / len(worst)) > MOST_SCORED:
        available.warnings.append(
            f"{found.rows.name}: {count:,} of its {len(found.rows):,} training rows are also in the test set, so "
            f"scores will be too high; most so on {worst.name}, of whose {len(worst):,} rows {known:,} are trained on"
        )
