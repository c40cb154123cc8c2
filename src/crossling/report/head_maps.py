"""Maps of attention heads: how two of them differ, how their heads rank, and which heads are among the best of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crossling.errors import DataError, nearest

Array = np.ndarray[Any, np.dtype[Any]]
Normalise = Literal["mean", "max", "range", "weights", "none"]
NORMALISE = {
    "mean": "divided by the mean over all heads: 1 is a head that changed as much as heads do",
    "max": "divided by the largest: 1 is the head that changed most",
    "range": "from 0, the head that changed least, to 1, the one that changed most",
    "weights": "divided by the mean absolute weight that the head had before",
    "none": "the mean absolute change as it is",
}
"""The paper's maps are "normalised", which it does not explain; ranks, and so Spearman's rho, are the same in all but
one of these."""
LEAST = 3
"""Fewer values than this always have a rank correlation of 1 or -1."""
SIGNIFICANT = 0.05
PUBLISHED = (40, 60, 80)
"""Numbers of best heads that the paper compares, of 144."""


@dataclass(frozen=True)
class Correlation:
    """Spearman's rho with its p-value; not a number where there is too little to rank."""

    rho: float
    p: float
    count: int

    def __str__(self) -> str:
        """With a star where significant."""
        if math.isnan(self.rho):
            return "–"
        return f"{self.rho:.2f}{'*' if self.p < SIGNIFICANT else ''}"


@dataclass(frozen=True)
class Overlap:
    """What the best heads of two models have in common."""

    top: int
    shared: int
    expected: float
    """As many would be shared if one ranking had nothing to do with the other."""
    p: float
    """How probable it is to share at least so many then."""
    ranks: Correlation
    """Of the shared heads alone, by their values in both models."""


def normalise_map(changes_LH: Array, weights_LH: Array, how: Normalise) -> Array:
    """Changes of heads on a scale on which models that trained for longer or shorter can be compared."""
    check_normalise(how)
    if how == "none":
        return changes_LH
    if how == "weights":
        return _divide(changes_LH, weights_LH)
    least = changes_LH.min() if how == "range" else 0.0
    most = {"mean": changes_LH.mean(), "max": changes_LH.max(), "range": changes_LH.max() - least}[how]
    return _divide(changes_LH - least, np.full_like(changes_LH, most))


def check_normalise(how: str) -> None:
    """Refuse a scale that there is not."""
    if how not in NORMALISE:
        raise DataError(f"--normalise {how!r}: unknown.{nearest(how, NORMALISE)}")


def _divide(above: Array, below: Array) -> Array:
    quotient: Array = np.divide(above, below, out=np.zeros_like(above), where=below > 0)
    return quotient


def correlate_ranks(first: Array, second: Array) -> Correlation:
    """Spearman's rho of two sets of values and its two-sided p-value."""
    count = first.size
    if count < LEAST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return Correlation(math.nan, math.nan, count)
    from scipy.stats import spearmanr

    found = spearmanr(first.ravel(), second.ravel())
    return Correlation(float(found.statistic), float(found.pvalue), count)


def rank_heads(values: Array) -> Array:
    """Heads from the best to the worst; of equal ones the one in the lower layer, then the one further left, first."""
    return np.argsort(-values.ravel(), kind="stable")


def compare_best(values: Array, baseline: Array, top: int) -> Overlap:
    """How many of the ``top`` best heads two models share, and how alike they rank those."""
    from scipy.stats import hypergeom

    heads = values.size
    if not 1 <= top <= heads:
        raise DataError(f"--top {top}: the encoder has {heads} heads; name a number from 1 to {heads}, or a share")
    shared = np.intersect1d(rank_heads(values)[:top], rank_heads(baseline)[:top])
    chance = float(hypergeom.sf(len(shared) - 1, heads, top, top))
    ranks = correlate_ranks(values.ravel()[shared], baseline.ravel()[shared])
    return Overlap(top, len(shared), top * top / heads, chance, ranks)


def parse_top(text: str) -> tuple[float, bool]:
    """A number of heads, or a share of them in percent."""
    share = text.strip().endswith("%")
    try:
        number = float(text.strip().removesuffix("%")) if share else float(int(text))
    except ValueError:
        raise DataError(f"--top {text!r}: neither a number of heads nor a share of them, such as 25%") from None
    return number, share


def count_top(asked: Sequence[str], heads: int) -> list[int]:
    """How many heads are the best: ``40``, or a share of all, ``25%``; by default the paper's numbers in proportion."""
    found = [] if asked else [max(1, round(heads * number / 144)) for number in PUBLISHED]
    for text in asked:
        number, is_share = parse_top(text)
        top = max(1, round(heads * number / 100)) if is_share else round(number)
        if not 1 <= top <= heads:
            raise DataError(f"--top {text}: the encoder has {heads} heads; name a number from 1 to {heads}, or a share")
        found.append(top)
    return list(dict.fromkeys(found))


def build_map(rows: Sequence[Mapping[str, Any]], column: str) -> Array:
    """A column of rows with ``layer`` and ``head``, counted from 1, as a matrix of layers by heads."""
    layers, heads = max(row["layer"] for row in rows), max(row["head"] for row in rows)
    if len(rows) != layers * heads:
        raise DataError(f"{len(rows)} rows are not one for each of {heads} heads in {layers} layers")
    values = np.zeros((layers, heads))
    for row in rows:
        values[row["layer"] - 1, row["head"] - 1] = row[column]
    return values
