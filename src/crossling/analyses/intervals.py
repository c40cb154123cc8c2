"""Intervals of differences between models and what they are compared with, paired by example and over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from crossling.analyses.models import name_model
from crossling.scores.significance.hierarchical import estimate
from crossling.scores.significance.results import Estimate
from crossling.scores.spans import Array

CONFIDENCE = 0.95
ERRORS = "errors"
"""The column with what each example contributes to the error of a model's figure, see ``counts.find_errors``."""


def estimate_differences(
    table: pa.Table, bases: Mapping[str, str], *, value: str, by: Sequence[str], scale: float = 1.0
) -> dict[tuple[Any, ...], Estimate]:
    """By model and the columns ``by``: a figure less that of the base, with its interval.

    By Student's t over the model's seeds and the examples, paired. Where the base has several seeds, their mean counts
    and is taken as given. There is no interval where the two were not measured on the same examples.
    """
    if ERRORS not in table.column_names:
        return {}
    found: dict[tuple[Any, ...], list[tuple[float, Array]]] = {}
    rows = table.select(["task", "model", value, *by]).to_pylist()
    for row, errors in zip(rows, read_lists(table.column(ERRORS)), strict=True):
        key = (name_model(row), *(row[name] for name in by))
        found.setdefault(key, []).append((scale * float(row[value]), scale * errors.astype(np.float64)))
    estimates = {}
    for (model, *place), seeds in found.items():
        base = found.get((bases.get(model, ""), *place))
        if base is None or any(len(errors) != len(base[0][1]) for _, errors in (*seeds, *base)):
            continue
        mean, common = fmean(figure for figure, _ in base), np.mean([errors for _, errors in base], axis=0)
        differences = np.array([figure - mean for figure, _ in seeds])
        paired = np.stack([errors - common for _, errors in seeds], axis=1)
        estimates[model, *place] = estimate(differences, [paired], CONFIDENCE)
    return estimates


def read_lists(column: pa.ChunkedArray) -> list[Array]:
    """A column of lists as arrays, without a Python object for each number; an empty one where a list is missing."""
    return [
        np.asarray(chunk.values)[start:end]
        for chunk in column.chunks
        for start, end in pairwise(np.asarray(chunk.offsets).tolist())
    ]


def drop_errors(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table without the errors of examples, which are many."""
    rows: list[dict[str, Any]] = table.select([name for name in table.column_names if name != ERRORS]).to_pylist()
    return rows


def format_interval(found: Estimate | None) -> str:
    """An interval in square brackets, to stand behind a figure; nothing where there is none."""
    return "" if found is None else f" [{found.low:+.2f}, {found.high:+.2f}]"


def describe_intervals(estimates: Mapping[Any, Estimate], *, what: str) -> str:
    """What intervals are about, in a sentence for the reader."""
    seeds = sorted({one.seeds for one in estimates.values()})
    paired = (
        f"In square brackets: the 95 % interval of the {what}, by Student's t, paired with what it is compared with"
    )
    if seeds[-1] < 2:
        return f"{paired}, over the test's examples. There is one seed: it says nothing about the next one."
    counts = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    return f"{paired}, over the models' seeds ({counts}) and the test's examples."
