"""The summary that most analyses show: means over seeds, a row for each model and language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, geometric_mean, stdev
from typing import TYPE_CHECKING, Any

from crossling.analyses.models import name_model
from crossling.report.table import Table

if TYPE_CHECKING:
    from crossling.analyses.result import AnalysisTable
    from crossling.analyses.settings import AnalysisSettings

MOST_ROWS = 40
"""With more rows than this, a model has one."""

Row = Mapping[str, Any]


def summarise_models(
    found: AnalysisTable[AnalysisSettings],
    columns: Sequence[str],
    *,
    apart: Sequence[str] = ("language",),
    title: str = "",
    notes: Sequence[str] = (),
    geometric: Sequence[str] = (),
) -> Table:
    """Means with their spread over seeds, a row for each model and each value of the columns ``apart``.

    Means over languages are geometric for the columns that say so, such as perplexities. Beside scores of a study,
    which a model has once, and where there would be too many rows, a model has one.
    """
    rows = found.rows()
    several = len({name_model(row) for row in rows}) > 1
    if several and (found.variants or len({_key(row, apart) for row in rows}) > MOST_ROWS):
        apart = ()
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, apart), []).append(row)
    lines = [
        [*(key if several else key[1:]), *(_format(some, name, name in geometric) for name in columns)]
        for key, some in groups.items()
    ]
    if not several and len(lines) > 1:
        mean = [f"mean of {len(lines)}", *[""] * (len(apart) - 1)]
        lines.append([*mean, *(_format(rows, name, name in geometric) for name in columns)])
    head = [*(["model"] if several else []), *apart, *columns]
    names = len(head) - len(columns)
    if found.variants:
        scores = {name_model({"task": one.task, "model": one.label}): one.score for one in found.variants}
        lines = [[*line, f"{100 * scores[line[0]]:.2f}" if line[0] in scores else "–"] for line in lines]
        head.append("zero-shot score")
    means = "Means; ± standard deviation over seeds." if any("±" in cell for line in lines for cell in line) else ""
    if geometric and (not several or any(len({row["language"] for row in some}) > 1 for some in groups.values())):
        means += f" Of {' and '.join(geometric)} means over languages are geometric."
    notes = tuple(filter(None, (means.strip(), *notes)))
    return Table(title or f"{found.settings.kind} of models", tuple(head), tuple(map(tuple, lines)), names, notes)


def group_values(rows: Sequence[Row], column: str, *, by: str = "language") -> dict[tuple[str, str], list[float]]:
    """The values of all seeds by model and language, as figures show them."""
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        found.setdefault((name_model(row), str(row[by])), []).append(float(row[column]))
    return found


def _key(row: Row, apart: Sequence[str]) -> tuple[str, ...]:
    return name_model(row), *(str(row[name]) for name in apart)


def _format(rows: Sequence[Row], column: str, is_geometric: bool = False) -> str:
    """The mean of the seeds' means, and their standard deviation; text where it is the same everywhere."""
    values = [row for row in rows if row[column] is not None]
    if not values or isinstance(values[0][column], str):
        texts = {row[column] for row in values}
        return texts.pop() if len(texts) == 1 else "–"
    by_seed: dict[Any, list[float]] = {}
    for row in values:
        by_seed.setdefault(row["seed"], []).append(row[column])
    means = [(geometric_mean if is_geometric else fmean)(some) for some in by_seed.values()]
    if len(means) == 1 and float(means[0]).is_integer() and isinstance(values[0][column], int):
        return f"{int(means[0]):,}"
    return _round(fmean(means)) + (f" ± {_round(stdev(means))}" if len(means) > 1 else "")


def _round(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"
