"""The texts of rows without their labels: what a model that was trained elsewhere may label.

Labels are dropped as rows are opened, and the fingerprint is of the texts alone: nothing that is made of such rows can
depend on a label, not even by its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from crossling.data.languages import find_language
from crossling.data.records import (
    TEXT_COLUMNS,
    LabelledPair,
    LinkedPair,
    ParallelPair,
    PlainText,
    Question,
    Record,
    TaggedSentence,
)
from crossling.data.rows import SCHEMAS, Rows

Keys = Mapping[int, pa.Array]
"""Keys of rows, by how many texts a row has."""
_SEPARATOR = "\x1f"
"""Between the texts of a row, where they are compared as one string."""
UNSPACED = ("Han", "Japanese", "Thai", "Lao", "Khmer", "Burmese", "Tibetan")
"""Scripts whose words are written without a space between them."""


def drop_labels(rows: Rows) -> Rows:
    """The same texts, with empty labels, tags or answers; the fingerprint is of the texts alone."""
    if rows.kind in (PlainText, ParallelPair, LinkedPair):
        return rows
    columns = {name: rows.column(name) for name in TEXT_COLUMNS[rows.kind]}
    return build_rows(rows.kind, {**columns, **_empty_labels(rows)}, language=rows.language, name=rows.name)


def build_rows(kind: type[Record], columns: dict[str, Any], *, language: str, name: str) -> Rows:
    """Rows from columns; the fingerprint is of their texts."""
    table = pa.table({field: columns[field] for field in SCHEMAS[kind].names}, schema=SCHEMAS[kind])
    rows = Rows(table, kind, language=language, name=name, fingerprint="")
    return Rows(table, kind, language=language, name=name, fingerprint=fingerprint_texts(rows))


def read_sides(rows: Rows) -> list[list[str]]:
    """The sentences of parallel text and their translations, as running text."""
    sides: list[list[str]] = []
    for side, code in zip(("source", "target"), (*rows.language.split("-"), "", "")[:2], strict=True):
        language = find_language(code)
        space = "" if language and language.script in UNSPACED else " "
        values = rows.column(side).to_pylist()
        sides.append([value if isinstance(value, str) else space.join(value) for value in values])
    return sides


def _empty_labels(rows: Rows) -> dict[str, Any]:
    count = len(rows)
    if rows.kind is TaggedSentence:
        return {"tags": [[""] * number for number in pc.list_value_length(rows.column("words")).to_pylist()]}
    if rows.kind is Question:
        return {"id": [str(row) for row in range(count)], "answers": [[]] * count, "starts": [[]] * count}
    return {"label": [""] * count}


def fingerprint_texts(rows: Rows) -> str:
    """A name for the texts of rows, the same whatever their labels are and wherever they come from."""
    digest = hashlib.sha256(rows.kind.__name__.encode())
    for chunk in rows.chunks():
        texts = [chunk[name] for name in TEXT_COLUMNS[rows.kind]]
        digest.update(json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def list_keys(rows: Rows, columns: Sequence[str] | None = None) -> pa.Array:
    """A string for each row by which equal texts are found: its texts without white space.

    Words of a tagged sentence and the running text that they were cut from have the same key.
    """
    parts = []
    for name in columns or TEXT_COLUMNS[rows.kind]:
        column = rows.column(name).combine_chunks()
        joined = pc.binary_join(column, "") if pa.types.is_list(column.type) else column
        parts.append(pc.replace_substring_regex(joined, r"[\s\pZ]+", ""))
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _SEPARATOR)


def collect_keys(sets: Iterable[Rows]) -> Keys:
    """The keys of all rows of some sets, apart for rows of one text and of two.

    Each text of a pair also counts by itself: pairs may be made of single sentences.
    """
    found: dict[int, list[pa.Array]] = {}
    for rows in sets:
        columns = TEXT_COLUMNS[rows.kind]
        found.setdefault(len(columns), []).append(list_keys(rows))
        if rows.kind is LabelledPair:
            found.setdefault(1, []).extend(list_keys(rows, (name,)) for name in columns)
    return {number: pa.concat_arrays(parts) for number, parts in found.items()}


def find_equal(rows: Rows, keys: Keys) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows have the text of a row among ``keys``; of translations, either side counts."""
    is_parallel = rows.kind in (ParallelPair, LinkedPair)
    sides = [(name,) for name in TEXT_COLUMNS[rows.kind]] if is_parallel else [TEXT_COLUMNS[rows.kind]]
    found = np.zeros(len(rows), bool)
    for side in sides:
        if len(side) in keys:
            known = pc.is_in(list_keys(rows, side), value_set=keys[len(side)])
            found |= known.to_numpy(zero_copy_only=False)
    return found
