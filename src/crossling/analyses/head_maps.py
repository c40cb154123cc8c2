"""Maps of attention heads, layers by heads: what analyses of heads share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crossling.errors import DataError
from crossling.report.figures import HeatMap

Array = np.ndarray[Any, np.dtype[Any]]
LEAST = 3
"""Fewer values than this always have a rank correlation of 1 or -1."""
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's rho with its p-value; not a number where there is too little to rank."""

    rho: float
    p: float
    count: int

    def __str__(self) -> str:
        """With two decimals."""
        return "–" if math.isnan(self.rho) else f"{self.rho:.2f}"


def correlate_ranks(first: Array, second: Array) -> RankCorrelation:
    """Spearman's rho of two sets of values and its two-sided p-value."""
    count = first.size
    if count < LEAST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return RankCorrelation(math.nan, math.nan, count)
    from scipy.stats import spearmanr

    found = spearmanr(first.ravel(), second.ravel())
    return RankCorrelation(float(found.statistic), float(found.pvalue), count)


def build_map(rows: Sequence[Mapping[str, Any]], column: str) -> Array:
    """A column of rows with ``layer`` and ``head``, counted from 1, as a matrix of layers by heads."""
    layers, heads = max(row["layer"] for row in rows), max(row["head"] for row in rows)
    if len(rows) != layers * heads:
        raise DataError(f"{len(rows)} rows are not one for each of {heads} heads in {layers} layers")
    values = np.zeros((layers, heads))
    for row in rows:
        values[row["layer"] - 1, row["head"] - 1] = row[column]
    return values


def plot_map(
    title: str, values: Array, *, colours: Literal["sequential", "diverging", "ranked"] = "sequential", note: str = ""
) -> HeatMap:
    """A panel of a figure: the first layer is the lowest row."""
    layers, heads = values.shape
    return HeatMap(
        title,
        values.tolist(),
        rows=[str(number + 1) for number in range(layers)],
        columns=[str(number + 1) for number in range(heads)],
        colours=colours,
        note=note,
        axes=("layer", "head"),
        upwards=True,
    )


def page_map(title: str, values: Array) -> HeatMap:
    """A map that the report draws: the last layer is the first row."""
    layers, heads = values.shape
    return HeatMap(
        title,
        values[::-1].tolist(),
        rows=[f"layer {number}" for number in range(layers, 0, -1)],
        columns=[str(number + 1) for number in range(heads)],
    )
