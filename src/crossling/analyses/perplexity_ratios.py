"""How many times the perplexity of its base a model has, with intervals: differences of the loss, exponentiated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.analyses.intervals import describe_intervals, estimate_differences, format_interval
from crossling.report.figures import draw_dots
from crossling.report.table import Table
from crossling.scores.significance.results import Estimate

if TYPE_CHECKING:
    from crossling.analyses.result import AnalysisTable
    from crossling.analyses.settings import AnalysisSettings

Estimates = Mapping[tuple[Any, ...], Estimate]
"""Differences of the loss, by model and language."""


def exponentiate(loss: float) -> float:
    """The perplexity of a mean loss."""
    with np.errstate(over="ignore"):
        return float(np.exp(np.float64(loss)))


def estimate_ratios(found: AnalysisTable[AnalysisSettings]) -> Estimates:
    """The loss of each model less that of its base: the logarithm of how many times its perplexity is."""
    return estimate_differences(found.table, found.bases, found.pretrained, value="loss", by=("language",))


def tabulate_ratios(estimates: Estimates, bases: Mapping[str, str]) -> Table:
    """By what a model's perplexity is the base's multiplied: differences of the loss, on the scale of perplexities."""
    lines = [
        (
            model,
            language,
            bases[model],
            f"{exponentiate(one.value):.3g} [{exponentiate(one.low):.3g}, {exponentiate(one.high):.3g}]",
            f"{one.value:+.3f}{format_interval(one)}",
        )
        for (model, language), one in estimates.items()
    ]
    notes = (
        "Times: the perplexity of the model divided by that of the base on the same subwords (of seeds the geometric "
        "mean); difference of the loss: its natural logarithm.",
        describe_intervals(estimates, what="difference"),
    )
    head = ("model", "language", "base", "times", "difference of the loss")
    return Table("Compared with the base", head, tuple(lines), names=3, notes=notes)


def draw_ratios(estimates: Estimates, *, title: str) -> str:
    """A dot with its interval for each model and language, on a logarithmic scale."""
    return draw_dots(
        {key: [exponentiate(one.value)] for key, one in estimates.items()},
        axis="times the base's perplexity",
        title=f"{title}, compared with the base, 95 % intervals",
        logarithmic=True,
        intervals={key: (exponentiate(one.low), exponentiate(one.high)) for key, one in estimates.items()},
    )
