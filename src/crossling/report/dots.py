"""Dots for models side by side: a group for each language, a colour for each model."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

WIDTH = 0.7
"""Of the room between two languages, what their dots take up."""


def draw_dots(rows: Sequence[Mapping[str, Any]], column: str, *, title: str, log: bool = False) -> str:
    """A dot for each model and language, as SVG: the mean of its seeds with one standard deviation to both sides.

    ``rows`` have ``task``, ``model``, ``seed`` and ``language``; with ``log`` equal distances are equal factors.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    languages = list(dict.fromkeys(str(row["language"]) for row in rows))
    values = group_values(rows, column)
    models = list(dict.fromkeys(model for model, _ in values))
    with pyplot.rc_context({"svg.hashsalt": "crossling", "svg.fonttype": "none"}):  # same numbers, same file
        wide = 2.2 + len(languages) * max(0.8, 0.16 * len(models))
        figure, axis = pyplot.subplots(figsize=(min(wide, 14), 3.6 + 0.18 * len(models)), layout="constrained")
        for number, model in enumerate(models):
            shift = WIDTH * ((number + 0.5) / len(models) - 0.5)
            found = [(place, values[model, code]) for place, code in enumerate(languages) if (model, code) in values]
            axis.errorbar(
                [place + shift for place, _ in found],
                [fmean(some) for _, some in found],
                yerr=[stdev(some) if len(some) > 1 else 0.0 for _, some in found],
                markersize=5,
                capsize=2,
                color=f"C{number % 10}",
                fmt="os^Dv"[number // 10 % 5],
                label=model,
            )
        axis.set_xticks(range(len(languages)), languages)
        axis.set_xlim(-0.5, len(languages) - 0.5)
        axis.set_ylabel(column.replace("_", " "))
        if log:
            _scale_by_factors(axis)
        axis.grid(axis="y", which="both", alpha=0.3)
        for place in range(len(languages) - 1):
            axis.axvline(place + 0.5, color="0.85", linewidth=0.8)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
        pyplot.close(figure)
    return text.getvalue()


def _scale_by_factors(axis: Any) -> None:
    """Numbers at 1, 2, 5, 10 and so on, written out."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.yaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_formatter(NullFormatter())
    low, high = axis.get_ylim()
    if high < 5 * low:  # else there might be a single number on the axis
        axis.set_ylim(low / 1.6, high * 1.6)


def group_values(rows: Sequence[Mapping[str, Any]], column: str) -> dict[tuple[str, str], list[float]]:
    """The values of all seeds by model and language; a model of a task goes by both names."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        name = f"{row['task']}: {row['model']}" if row["task"] else str(row["model"])
        found.setdefault((name, str(row["language"])), []).append(float(row[column]))
    return found
