"""Text to teach on: opened without its labels and without rows that are left out, by itself or in two languages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from crossling.data.batching import Array
from crossling.data.catalogue import open_data
from crossling.data.label_free import Keys, build_rows, drop_labels, find_equal, read_sides
from crossling.data.records import LinkedPair, ParallelPair, PlainText, Question
from crossling.data.rows import Rows
from crossling.data.spec import parse_spec
from crossling.errors import DataError
from crossling.stages.labelling import build_untagged_rows
from crossling.stages.parsing import DataSpec
from crossling.tasks import Task


def open_text(spec: DataSpec, task: Task, left_out: Keys, store: Path) -> Rows:
    """A set that teachers and student both read; of parallel text the target side."""
    from crossling.aligners.linked_text import check_parallel
    from crossling.inference.evaluate import check_kind

    rows = open_data(spec, split="train", store=store)
    if rows.kind in (ParallelPair, LinkedPair):
        check_parallel(rows)
    target = rows.language.partition("-")[2] or rows.language
    if task.settings.kind == "tag" and rows.kind is LinkedPair:  # its words are cut already
        rows = build_untagged_rows(rows.column("target").to_pylist(), language=target, name=rows.name)
    if task.settings.kind in ("tag", "classify") and rows.kind in (ParallelPair, LinkedPair):
        rows = build_rows(PlainText, {"text": read_sides(rows)[1]}, language=target, name=rows.name)
    if task.settings.kind not in ("tag", "classify") or rows.kind is not PlainText:
        check_kind(task, rows)
    return drop_labels(leave_out(rows, left_out))


def leave_out(rows: Rows, left_out: Keys) -> Rows:
    """The rows whose text is not among those to leave out."""
    kept = _list_kept(find_equal(rows, left_out), rows.name)
    return rows.take(kept) if len(kept) < len(rows) else rows


def open_parallel(entry: dict[str, Any], task: Task, left_out: Keys, store: Path) -> Iterator[tuple[Rows, Rows]]:
    """Pairs of sets whose row i says the same; a target may be a language of the source's set."""
    from crossling.inference.evaluate import check_kind

    targets = entry["target"] if isinstance(entry["target"], list | tuple) else (entry["target"],)
    first = check_kind(task, open_data(entry["source"], split="train", store=store))
    for spec in targets:
        second = check_kind(task, open_data(name_target(entry["source"], spec), split="train", store=store))
        sides = [rows.take(own) for rows, own in zip((first, second), match_rows(first, second), strict=True)]
        kept = _list_kept(find_equal(sides[0], left_out) | find_equal(sides[1], left_out), second.name)
        yield drop_labels(sides[0].take(kept)), drop_labels(sides[1].take(kept))


def _list_kept(equal: Array, name: str) -> Array:
    """Numbers of the rows that are not to be left out."""
    if equal.all():
        raise DataError(f"{name}: leave_out leaves no row of it")
    return np.flatnonzero(~equal)


def match_rows(first: Rows, second: Rows) -> tuple[Array, Array]:
    """Numbers of the rows that say the same: of questions by id, where both sets have ids in common; else by order."""
    if first.kind is Question and (common := _match_ids(first, second)):
        rows_R2 = np.array(common, np.int64)
        return rows_R2[:, 0], rows_R2[:, 1]
    if len(first) != len(second) or first.skipped or second.skipped:
        if first.kind is Question:
            raise DataError(
                f"parallel: {first.name} has {len(first):,} questions and {second.name} has {len(second):,}, with no "
                "id in common; name sets with the same ids, or with the same questions in the same order and no broken "
                "row"
            )
        raise DataError(
            f"parallel: {first.name} has {len(first):,} rows and {second.name} has {len(second):,}; row i must say "
            "the same in both, and no broken row may be skipped"
        )
    return np.arange(len(first)), np.arange(len(first))


def _match_ids(first: Rows, second: Rows) -> list[tuple[int, int]]:
    """Numbers of the questions whose ids both sets have; none where an id names several questions of a set."""
    ids = [rows.column("id").to_pylist() for rows in (first, second)]
    places = {name: row for row, name in enumerate(ids[1])}
    if len(places) < len(ids[1]) or len(set(ids[0])) < len(ids[0]):
        return []
    return [(row, places[name]) for row, name in enumerate(ids[0]) if name in places]


def name_target(source: DataSpec, target: DataSpec) -> DataSpec:
    """A target set; one that is named by its language is the source's set in that language."""
    if isinstance(target, dict) or ":" in target or not isinstance(source, str):
        return target
    spec = parse_spec(source)
    if spec.parts:
        raise DataError(f"parallel: target = {target!r}: name the set, such as mlqa:context=en,question={target}:dev")
    return str(replace(spec, language=target))


def name_language(rows: Rows) -> str:
    """The language of rows; of questions in another language than their contexts, both."""
    part = rows.name.partition(":")[2].partition(":")[0]
    codes = [side.partition("=")[2] for side in part.split(",")]
    return part if rows.kind is Question and len(set(codes)) == 2 else rows.language
