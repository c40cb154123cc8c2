"""An analysis shown on the terminal, and written as files."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich import box
from rich.markup import escape
from rich.table import Table

from crossling.report.association import draw_points
from crossling.study.analysing import Analysis, describe_settings, list_lines
from crossling.study.files import write_whole
from crossling.terminal import out, tell

SHOWN = ("cosine", "unrelated", "margin")


def write_analysis(analysis: Analysis, path: Path | None) -> list[Path]:
    """The table as CSV, a summary as Markdown, the points as SVG where there are scores to hold against."""
    settings = analysis.settings
    name = settings.on if isinstance(settings.on, str) else "own"
    path = path or analysis.folder / f"{settings.kind}-{'published' if settings.as_published else name}.csv"
    files = {path: analysis.to_csv(), path.with_suffix(".md"): _to_markdown(analysis)}
    if len(analysis.points) > 1:
        title = f"{settings.kind} on {name}: {analysis.folder.name}"
        files[path.with_suffix(".svg")] = draw_points(analysis.points, title=title)
    for place, text in files.items():
        write_whole(place, text)
    return list(files)


def show_analysis(analysis: Analysis, files: list[Path]) -> None:
    """A line for each model (of a single one: each language), the correlations, and the files that hold more."""
    head, rows = _summarise(analysis)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(head):
        # Names wrap where the terminal is narrow; a figure is never cut short.
        longest = max((len(row[number]) for row in rows), default=1) if number else 1
        table.add_column(column, justify="right" if number else "left", overflow="fold", min_width=longest)
    for row in rows:
        table.add_row(*map(escape, row))
    out.print(table)
    for line in list_lines(analysis):
        tell(line)
    for path in files:
        tell(f"written: {path}")


def _summarise(analysis: Analysis) -> tuple[list[str], list[list[str]]]:
    """Means with their spread over seeds: by model, or by language where there is one model."""
    rows = analysis.table.to_pylist()
    several = len({(row["task"], row["model"]) for row in rows}) > 1
    scores = {(point.group, point.label): point.score for point in analysis.points}
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row["task"], row["model"]) if several else ("", row["language"])
        groups.setdefault(key, []).append(row)
    if not several:
        groups[("", f"mean of {len(groups)}")] = rows
    lines = []
    for (task, name), some in groups.items():
        title = f"{task}: {name}" if task else name
        score = scores.get((task, name))
        shown = [] if not analysis.points else ["–" if score is None else f"{100 * score:.2f}"]
        lines.append([title, *(_format(some, column) for column in SHOWN), *shown])
    head = ["model" if several else "language", *SHOWN, *(["zero-shot score"] if analysis.points else [])]
    return head, lines


def _format(rows: list[dict[str, Any]], column: str) -> str:
    """The mean of the seeds' means, and their standard deviation."""
    by_seed: dict[Any, list[float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], []).append(row[column])
    means = [fmean(values) for values in by_seed.values()]
    return f"{fmean(means):.4f}" + (f" ± {stdev(means):.4f}" if len(means) > 1 else "")


def _to_markdown(analysis: Analysis) -> str:
    head, rows = _summarise(analysis)
    lines = [
        f"# {analysis.settings.kind}: {analysis.folder.name}",
        "",
        f"Settings: `{describe_settings(analysis.settings)}`. Means over languages, ± standard deviation over seeds.",
        "",
        f"| {' | '.join(head)} |",
        f"| --- |{' --: |' * (len(head) - 1)}",
        *(f"| {' | '.join(row)} |" for row in rows),
        "",
        *(f"- {line}" for line in list_lines(analysis)),
    ]
    return "\n".join(lines) + "\n"
