"""Rows with their two sides in different languages, put together from sets that are translations of each other.

For example XNLI with the premise in one language and the hypothesis in another, or XQuAD with question and context in
different languages. No file has such rows; they are combined from the files of two languages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from crossling.data.cache import TABLE_KEYS, open_cached, validate_settings
from crossling.data.declarations import Declaration
from crossling.data.readers.text_files import BadRows, OnError, ReaderSettings
from crossling.data.records import LabelledPair, Question, Record, count_broken
from crossling.data.rows import Rows, hash_text
from crossling.data.spec import Spec
from crossling.errors import DataError, nearest
from crossling.limits import LARGEST_SEED

VERSION = 1
RANDOM = "random"
MOST_DIFFERENT = 0.05
"""The share of rows whose labels may differ between two languages (PAWS-X: 1.6 % at most) before they count as
rows that do not belong together."""

OpenLanguage = Callable[[str], Rows]
"""Opens a whole split of the set in one language."""


class MixSettings(ReaderSettings):
    """Which side of a mixed set's rows is in the other language."""

    which: str = RANDOM
    """The side that is replaced, such as premise; random draws it for every row."""
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED)
    """Draws the sides. A row's draw depends on seed and row number alone, so it is the same in all languages."""
    other: str = ""
    """The language of the replaced side; by default the one that the set was translated from."""


def open_sides(
    spec: Spec, declared: Declaration, open_language: OpenLanguage, *, store: Path, on_error: OnError
) -> Rows:
    """Rows whose sides are in the languages that a spec names by role: ``premise=en,hypothesis=hi``."""
    roles = tuple(declared.sides)
    first, second = (open_language(spec.parts[role]) for role in roles)
    taken = declared.sides[roles[1]]
    language = spec.parts[roles[0]]
    if first.kind is LabelledPair and language == declared.original:
        language = spec.parts[roles[1]]  # of a pair with the original, the translation is what is tested
    return _combine(
        first,
        second,
        lambda row: taken,
        how={"taken": taken},
        language=language,
        name=str(spec),
        store=store,
        on_error=on_error,
    )


def open_mixed(
    spec: Spec,
    declared: Declaration,
    open_language: OpenLanguage,
    settings: Mapping[str, Any],
    *,
    store: Path,
    on_error: OnError,
) -> Rows:
    """Rows in one language, each with one side replaced by that of another language."""
    mix = validate_settings(MixSettings, settings, name=str(spec), other_keys=TABLE_KEYS)
    if mix.which != RANDOM and mix.which not in declared.sides:
        valid = (RANDOM, *declared.sides)
        raise DataError(f"{spec}: which = {mix.which!r}: unknown.{nearest(mix.which, valid)}")
    other = mix.other or declared.original
    if other == spec.language:
        raise DataError(f"{spec}: both sides would be in {other!r}; name another language, or another one as other")
    roles = tuple(declared.sides)

    def choose(row: int) -> tuple[str, ...]:
        return declared.sides[roles[_draw_side(mix.seed, row)] if mix.which == RANDOM else mix.which]

    return _combine(
        open_language(spec.language),
        open_language(other),
        choose,
        how={"mixed": mix.which, "seed": mix.seed if mix.which == RANDOM else None, "sides": dict(declared.sides)},
        language=spec.language,
        name=str(spec),
        store=store,
        on_error=on_error,
    )


def _draw_side(seed: int, row: int) -> int:
    """0 or 1 by seed and row alone; a generator's draws would depend on the draws before."""
    return hashlib.blake2b(f"{seed} {row}".encode(), digest_size=1).digest()[0] & 1


def _combine(
    first: Rows,
    second: Rows,
    choose: Callable[[int], tuple[str, ...]],
    *,
    how: Mapping[str, Any],
    language: str,
    name: str,
    store: Path,
    on_error: OnError,
) -> Rows:
    """The first set's rows with those fields of the second's that ``choose`` names for a row number."""
    match = _match_ids if first.kind is Question else _match_rows

    def read(bad: BadRows) -> Iterator[Record]:
        for row, record, other in match(first, second, bad):
            yield replace(record, **{field: getattr(other, field) for field in choose(row)})

    question = ["mixing", VERSION, how, first.fingerprint, second.fingerprint]
    rows = open_cached(
        hash_text(json.dumps(question, sort_keys=True)),
        read,
        kind=first.kind,
        language=language,
        name=name,
        store=store,
        on_error=on_error,
    )
    return rows.add_left_out(first).add_left_out(second)


def _match_rows(first: Rows, second: Rows, bad: BadRows) -> Iterator[tuple[int, Any, Any]]:
    """Rows of the same number; equal labels show that they belong together."""
    for rows in (first, second):
        if rows.skipped:
            raise DataError(
                f"{rows.name}: {count_broken(rows.skipped)} skipped, so its rows cannot be matched by number with "
                "another language's; fix the file"
            )
    if len(first) != len(second):
        raise DataError(
            f"{first.name} has {len(first):,} rows but {second.name} has {len(second):,}; "
            "row i must say the same in both"
        )
    different = 0
    for row, (record, other) in enumerate(zip(first, second, strict=True)):
        assert isinstance(record, LabelledPair) and isinstance(other, LabelledPair)
        if record.label == other.label:
            yield row, record, other
            continue
        different += 1
        bad.drop("labelled differently in the two languages")
    if different > MOST_DIFFERENT * len(first):
        raise DataError(
            f"{different:,} of {len(first):,} rows of {first.name} and {second.name} have different labels: "
            "row i does not say the same in both"
        )


def _match_ids(first: Rows, second: Rows, bad: BadRows) -> Iterator[tuple[int, Any, Any]]:
    """Questions by their ids, in the order of the first set."""
    places: dict[str, int] = {}
    for row, identity in enumerate(second.column("id").to_pylist()):
        if places.setdefault(identity, row) != row:
            raise DataError(f"{second.name}: the id {identity!r} stands twice; which question is meant?")
    for row, record in enumerate(first):
        assert isinstance(record, Question)
        if record.id in places:
            yield row, record, second[places[record.id]]
        else:
            bad.add(second.name, f"it has no question {record.id!r}, which {first.name} has")
