"""Analyses that lie in a study's folder: their tables, remarks and figures, for the report."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from crossling.report.charts import draw_heat
from crossling.report.study_page import AnalysisPart, Figure
from crossling.report.table import Table

MOST_HEAT_MAPS = 24
LARGEST_FILE = 4_000_000
"""Bytes of a drawing or a table that is looked into."""
_CELL_BORDER = re.compile(r"(?<!\\)\|")

Row = Mapping[str, str]


def find_analyses(out: Path) -> list[AnalysisPart]:
    """Every analysis that was written here: a table as CSV with its summary beside it."""
    found = []
    for path in sorted(out.glob("*.md"), key=lambda path: path.stem):
        table = path.with_suffix(".csv")
        text = path.read_text(encoding="utf-8", errors="replace")
        if table.is_file() and text.startswith("# "):
            found.append(_read_analysis(path, table, text))
    return found


def _read_analysis(path: Path, table: Path, text: str) -> AnalysisPart:
    """What was written of an analysis: a heading, a sentence on settings, then tables with remarks below them."""
    first, *others = re.split(r"^## ", text, flags=re.MULTILINE)
    title, _, rest = first.removeprefix("# ").partition("\n")
    facts = " ".join(line for line in rest.splitlines() if line and not line.startswith(("|", "- ")))
    sheets = []
    for number, (name, part) in enumerate([(title, rest), *((p.partition("\n")[0], p) for p in others)]):
        sheets.append(
            _read_sheet(_unescape(name.strip()), part, stem=path.stem if number == 0 else f"{path.stem}-{number}")
        )
    figures, missing = _read_figures(path)
    kept = tuple(sheet for sheet in sheets if sheet.rows)
    return AnalysisPart(
        _unescape(title.strip()), facts.replace("`", ""), kept, (*figures, *_draw_heads(table)), tuple(missing)
    )


def _read_sheet(title: str, text: str, *, stem: str) -> Table:
    """A table and the remarks below it; one without lines where there is none."""
    lines = text.splitlines()
    cells = [_split_row(line) for line in lines if line.startswith("|")]
    notes = tuple(_unescape(line.removeprefix("- ")) for line in lines if line.startswith("- "))
    if len(cells) < 3:
        return Table(title, (), (), notes=notes, stem=stem)
    names, width = sum(not cell.endswith(":") for cell in cells[1]), len(cells[0])
    rows = tuple(tuple((*row, *[""] * width)[:width]) for row in cells[2:])
    return Table(title, tuple(cells[0]), rows, names, notes, stem)


def _split_row(line: str) -> list[str]:
    cells = _CELL_BORDER.split(line.strip())[1:-1]
    return [_unescape(cell.strip()) for cell in cells]


def _unescape(text: str) -> str:
    return text.replace("\\|", "|").replace("\\<", "<")


def _read_figures(path: Path) -> tuple[list[Figure], list[str]]:
    """The drawings beside a table, named as it is; what cannot be shown is told."""
    figures, notes = [], []
    own = path.with_suffix(".svg")
    files = ([own] if own.is_file() else []) + sorted(path.parent.glob(f"{_escape(path.stem)}-*.svg"))
    for file in files:
        if any(f"{file.stem}-".startswith(f"{other.stem}-") for other in _longer_stems(path)):
            continue  # of another analysis, whose name begins alike
        name = file.stem.removeprefix(path.stem).strip("-") or path.stem
        if file.stat().st_size > LARGEST_FILE:
            notes.append(f"The figure {file.name} is too large for this page.")
            continue
        figures.append(Figure.from_svg(name, file.read_text(encoding="utf-8", errors="replace"), file.name))
    return figures, notes


def _longer_stems(path: Path) -> list[Path]:
    return [other for other in path.parent.glob(f"{_escape(path.stem)}-*.md") if other.with_suffix(".csv").is_file()]


def _escape(stem: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", stem)


def _draw_heads(table: Path) -> list[Figure]:
    """Heat maps of a table with a line for each layer and head: its first measure, for each model; seeds averaged."""
    if table.stat().st_size > LARGEST_FILE:
        return []
    with table.open(encoding="utf-8", errors="replace", newline="") as stream:
        reader = csv.DictReader(stream)
        head = list(reader.fieldnames or ())
        if not {"layer", "head"} <= set(head):
            return []
        rows = list(reader)
    measures = [name for name in head[head.index("head") + 1 :] if all(_is_number(row[name]) for row in rows)]
    if not measures:
        return []
    apart = [n for n in head[: head.index("layer")] if n not in ("seed", "sample", "own")]
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(": ".join(filter(None, (row[name] for name in apart))), []).append(row)
    return [_draw_map(name, some, measures[0]) for name, some in list(groups.items())[:MOST_HEAT_MAPS]]


def _draw_map(name: str, rows: Sequence[Row], measure: str) -> Figure:
    places: dict[tuple[int, int], list[float]] = {}
    for row in rows:
        places.setdefault((int(row["layer"]), int(row["head"])), []).append(float(row[measure]))
    layers, heads = (sorted({place[axis] for place in places}) for axis in (0, 1))
    values = [
        [fmean(places[layer, head]) if (layer, head) in places else None for head in heads]
        for layer in reversed(layers)
    ]
    title = f"{measure} of heads: {name}" if name else f"{measure} of heads"
    drawing = draw_heat(
        values, rows=[f"layer {n}" for n in reversed(layers)], columns=[str(head) for head in heads], title=title
    )
    return Figure(title, drawing)


def _is_number(text: str | None) -> bool:
    try:
        float(text or "")
    except ValueError:
        return False
    return True
