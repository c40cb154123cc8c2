"""An analysis shown on the terminal, and written as files; what of its table is shown, its kind's module says."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pyarrow as pa
from rich import box
from rich.markup import escape
from rich.table import Table

from crossling.files import write_atomic
from crossling.report.association import draw_points
from crossling.report.table import markdown_head, markdown_row, markdown_text
from crossling.report.terminal import out, print_message
from crossling.study.analysing import Analysis, describe_settings, list_lines

FOLDER = Path("analyses")
"""Where results of models from several places go, unless told otherwise."""
SCORE = "zero-shot score"
MOST_LINES = 40
"""With more lines than this on the terminal, a model is one."""

Row = dict[str, Any]


def write_analysis(analysis: Analysis, path: Path | None) -> list[Path]:
    """The table as CSV, a summary as Markdown; as SVG what the kind draws, and points where there are scores."""
    stem = name_files(analysis)
    path = path or (analysis.home or FOLDER) / f"{stem}.csv"
    if path.suffix != ".csv":
        path = path.with_name(f"{path.name}.csv")
    files = {path: analysis.to_csv(), path.with_suffix(".md"): _to_markdown(analysis)}
    if len(analysis.points) > 1:
        files[path.with_suffix(".svg")] = draw_points(analysis.points, title=f"{stem}: {analysis.title}")
    if hasattr(analysis.kind, "draw"):
        for name, picture in analysis.kind.draw(analysis.table, settings=analysis.settings).items():
            files[path.with_name(f"{path.stem}-{name}.svg")] = picture
    for place, text in files.items():
        write_atomic(place, text)
    return list(files)


def name_files(analysis: Analysis) -> str:
    """What the files are called, without an ending: the kind's own ``file_stem``, or the kind and its data set."""
    if hasattr(analysis.kind, "file_stem"):
        return str(analysis.kind.file_stem(analysis.settings))
    on = getattr(analysis.settings, "on", None)
    return f"{analysis.settings.kind}-{on}" if isinstance(on, str) else str(analysis.settings.kind)


def show_analysis(analysis: Analysis, files: list[Path]) -> None:
    """The figures of every model, the correlations, and the files that hold more."""
    head, rows = summarise(analysis)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    names = len(head) - _count_figures(analysis, head)
    for number, column in enumerate(head):
        # Names wrap where the terminal is narrow; a figure or a heading is never cut short.
        longest = max(len(column), *(len(row[number]) for row in rows))
        if number < names:
            table.add_column(column, overflow="fold", min_width=max(len(column), min(longest, 12)))
        else:
            table.add_column(column, justify="right", min_width=longest)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
    for line in list_lines(analysis):
        print_message(line)
    for path in files:
        print_message(f"written: {path}")


def summarise(analysis: Analysis) -> tuple[list[str], list[list[str]]]:
    """Means with their spread over seeds, a line for each model and each value of the columns that stay apart.

    Beside scores of a study, which a model has once, and where there would be too many lines, a model is one line.
    """
    rows = analysis.table.to_pylist()
    shown = list_shown(analysis)
    several = len({_name(row) for row in rows}) > 1
    apart = [name for name in getattr(analysis.kind, "APART", ("language",)) if name in analysis.table.column_names]
    if several and (analysis.points or len({_key(row, apart) for row in rows}) > MOST_LINES):
        apart = []
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(_key(row, apart), []).append(row)
    lines = [[*(key if several else key[1:]), *(_format(some, name) for name in shown)] for key, some in groups.items()]
    if not several and len(lines) > 1:
        mean = [f"mean of {len(lines)}", *[""] * (len(apart) - 1)]
        lines.append([*mean, *(_format(rows, name) for name in shown)])
    head = [*(["model"] if several else []), *apart, *shown]
    if analysis.points:
        scores = {(f"{point.group}: " if point.group else "") + point.label: point.score for point in analysis.points}
        lines = [[*line, f"{100 * scores[line[0]]:.2f}" if line[0] in scores else "–"] for line in lines]
        head.append(SCORE)
    return head, lines


def _count_figures(analysis: Analysis, head: list[str]) -> int:
    """How many columns, the last ones, are no names."""
    return len(list_shown(analysis)) + (head[-1] == SCORE)


def list_shown(analysis: Analysis) -> list[str]:
    """The columns that are shown: the kind's ``SHOWN``, or all that hold numbers with a point."""
    declared = getattr(analysis.kind, "SHOWN", None)
    if declared is not None:
        return list(declared)
    return [field.name for field in analysis.kind.SCHEMA if pa.types.is_floating(field.type)]


def _name(row: Row) -> str:
    return f"{row['task']}: {row['model']}" if row["task"] else str(row["model"])


def _key(row: Row, apart: list[str]) -> tuple[str, ...]:
    return _name(row), *(str(row[name]) for name in apart)


def _format(rows: list[Row], column: str) -> str:
    """The mean of the seeds' means, and their standard deviation; text where it is the same everywhere."""
    values = [row for row in rows if row[column] is not None]
    if not values or isinstance(values[0][column], str):
        told = {row[column] for row in values}
        return told.pop() if len(told) == 1 else "–"
    by_seed: dict[Any, list[float]] = {}
    for row in values:
        by_seed.setdefault(row["seed"], []).append(row[column])
    means = [fmean(some) for some in by_seed.values()]
    if len(means) == 1 and float(means[0]).is_integer() and isinstance(values[0][column], int):
        return f"{int(means[0]):,}"
    return _round(fmean(means)) + (f" ± {_round(stdev(means))}" if len(means) > 1 else "")


def _round(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 10 else f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def _to_markdown(analysis: Analysis) -> str:
    head, rows = summarise(analysis)
    numbers = _count_figures(analysis, head)
    lines = [
        f"# {analysis.settings.kind}: {markdown_text(analysis.title)}",
        "",
        f"Settings: `{describe_settings(analysis.settings)}`. Means over what is not told apart, ± standard deviation "
        "over seeds.",
        "",
        *markdown_head(head, names=len(head) - numbers),
        *map(markdown_row, rows),
        "",
        *(f"- {line}" for line in list_lines(analysis)),
    ]
    return "\n".join(lines) + "\n"
