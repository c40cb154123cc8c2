"""Intervals of differences between models and what they are compared with, over seeds and examples."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from crossling.analyses.models import name_model
from crossling.scores.significance.hierarchical import estimate, estimate_unpaired
from crossling.scores.significance.results import OVER_EXAMPLES, OVER_SEEDS, OVER_UNPAIRED_SEEDS, Estimate
from crossling.scores.spans import Array

CONFIDENCE = 0.95
ERRORS = "errors"
"""The column with what each example contributes to the error of a model's figure, see ``counts.find_errors``."""
OVER_PAIRED_SEEDS = "t-test over pairs of seeds and examples"
OVER = {
    "": "over the test's examples",
    OVER_EXAMPLES: "over the test's examples alone: with one seed of either it says nothing about the next one",
    OVER_SEEDS: "over seeds ({seeds}), of which a pretrained encoder has none, and the test's examples",
    OVER_PAIRED_SEEDS: "over pairs of the same seed ({seeds}) and the test's examples",
    OVER_UNPAIRED_SEEDS: "over seeds of both (at least {seeds}), which are not paired, and the test's examples",
}
"""What an interval is over, by its test; no test: of two encoders that were not trained."""
Runs = dict[int | None, tuple[float, Array]]
"""Of each seed a figure and the errors of the examples."""


def estimate_differences(
    table: pa.Table,
    bases: Mapping[str, str],
    pretrained: Collection[str],
    *,
    value: str,
    by: Sequence[str],
    scale: float = 1.0,
) -> dict[tuple[Any, ...], Estimate]:
    """By model and the columns ``by``: a figure less that of the base, with its interval.

    There is none where the two were not measured on the same examples. ``pretrained`` names models that were not
    trained here and have no seeds. The seeds of others count as :func:`_estimate_difference` says.
    """
    if ERRORS not in table.column_names:
        return {}
    found: dict[tuple[Any, ...], Runs] = {}
    rows = table.select(["task", "model", "seed", value, *by]).to_pylist()
    for row, errors in zip(rows, read_lists(table.column(ERRORS)), strict=True):
        key = (name_model(row), *(row[name] for name in by))
        found.setdefault(key, {})[row["seed"]] = (scale * float(row[value]), scale * errors.astype(np.float64))
    estimates = {}
    for (model, *place), runs in found.items():
        base = found.get((bases.get(model, ""), *place))
        if base is None or len({len(errors) for _, errors in (*runs.values(), *base.values())}) > 1:
            continue
        trained = [some for name, some in ((model, runs), (bases[model], base)) if name not in pretrained]
        estimates[model, *place] = _estimate_difference(runs, base, seeds=min(map(len, trained), default=0))
    return estimates


def _estimate_difference(runs: Runs, base: Runs, *, seeds: int) -> Estimate:
    """One difference by Student's t, paired by example; ``seeds`` are the fewest of those of the two that are trained.

    - The same seeds of both: paired by seed.
    - Other seeds, several of both: from the variances of both means, see ``hierarchical``. So too where only some seeds
      are the same: all count, and the difference is that of the means that tables show.
    - Several seeds and a pretrained encoder: over those seeds, since the encoder has no others.
    - One seed of a trained model: nothing is known of how its seeds vary. Both means are taken as given.
    """
    paired = runs.keys() == base.keys()
    ours, theirs = _stack(runs), _stack({seed: base[seed] for seed in runs} if paired else base)
    if seeds < 2:
        ours, theirs = ((some.mean(keepdims=True), e.mean(axis=1, keepdims=True)) for some, e in (ours, theirs))
    elif not paired and min(len(runs), len(base)) > 1:
        return estimate_unpaired(ours, theirs, CONFIDENCE)
    found = estimate(ours[0] - theirs[0], [ours[1] - theirs[1]], CONFIDENCE)
    return replace(found, test=OVER_PAIRED_SEEDS if paired and seeds > 1 else found.test, seeds=seeds)


def _stack(runs: Runs) -> tuple[Array, Array]:
    """Figures (R) and errors (N x R)."""
    return np.array([figure for figure, _ in runs.values()]), np.stack([errors for _, errors in runs.values()], axis=1)


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
    """What intervals are about, in a sentence for the reader; models are named where it is not the same of all."""
    groups: dict[str, dict[Any, int]] = {}
    for key, one in estimates.items():
        groups.setdefault(one.test if one.seeds else "", {})[key] = one.seeds
    parts = []
    for test, seeds in groups.items():
        counts = " to ".join(map(str, dict.fromkeys((min(seeds.values()), max(seeds.values())))))
        models = f"of {', '.join(dict.fromkeys(str(model) for model, *_ in seeds))} " if len(groups) > 1 else ""
        parts.append(models + OVER[test].format(seeds=counts))
    few = " With two seeds it may cover 91 %." if any(one.seeds == 2 for one in estimates.values()) else ""
    return (
        f"In square brackets: the 95 % interval of the {what}, by Student's t, paired by example with what it is "
        f"compared with, {'; '.join(parts)}.{few}"
    )
