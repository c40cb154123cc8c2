"""Tables of the papers on the terminal and as files: what there is, what would be run, and ours beside the paper's."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.files import write_atomic
from crossling.papers.published import PAPERS, Figure, PublishedTable, load_paper
from crossling.report.table import Table
from crossling.report.terminal import out, print_message

if TYPE_CHECKING:
    from crossling.papers.definitions import Address
    from crossling.papers.drafting import Draft
    from crossling.papers.running import Ours, Reproduced
    from crossling.study.grid import Study

MISSING = "–"
UNREADABLE = "?"
GAP, EDGES = 3, 2
"""Spaces between two columns on the terminal, and at both ends."""
UNITS = {
    "percent": "Figures in percent.",
    "points": "Figures in percentage points.",
    "fraction": "Figures from -1 to 1.",
    "perplexity": "Figures are perplexities.",
    "count": "Ovlp: heads that both have among their best. Corr: Spearman's rho of these heads.",
}


def show_tables(paper: str = "") -> None:
    """Every table, by paper, with a line on what it holds."""
    for name in [paper] if paper else PAPERS:
        found = load_paper(name)
        print_message(f"{found.title} ({found.authors})")
        for table in found.tables.values():
            print_message(f"  {table.name:15} {table.holds}")
        print_message("")
    print_message(
        "run one: crossling reproduce layer-fusion/4; its cells: --dry-run; the paper's data and encoder: --scale full"
    )


def show_draft(draft: Draft, study: Study) -> None:
    """The cells of a table and where each figure would come from, then the cells of the study behind them."""
    _show_head(draft.table, draft.scale)
    rows = tuple(
        (
            cell.row,
            cell.column,
            cell.figure.text or UNREADABLE,
            describe_address(cell.address, draft) if cell.address else "not run",
        )
        for cell in draft.cells
    )
    title = f"{len(rows)} cells of the table, {sum(cell.address is not None for cell in draft.cells)} of them to be run"
    _print(Table(title, ("row", "column", "paper", "ours from"), rows, names=4))
    variants = tuple(
        (v.task, v.label, _describe_stages(v.recipe.stage, draft.recipes[v.task, v.system]["stage"]))
        for v in study.variants
    )
    seeds = f"{len(draft.seeds)} {'seed' if len(draft.seeds) == 1 else 'seeds'}"
    title = f"{len(study.cells)} cells of the study: {len(variants)} systems, {seeds}; encoder {draft.encoder}"
    _print(Table(title, ("task", "system", "training"), variants, names=3))
    for name, settings in draft.analyses.items():
        print_message(f"then: {settings['kind']} of {len(draft.list_variants(name))} systems' models ({name})")
    if draft.extend is not None:
        print_message(f"before: {draft.encoder} gets up to {draft.extend.pieces:,} subwords of {draft.extend.text}")
    _show_notes(draft)


def _print(sheet: Table) -> None:
    print_message(sheet.title)
    out.print(sheet.to_rich())


def describe_address(address: Address, draft: Draft) -> str:
    """Where a figure comes from, in words."""
    systems = " or ".join(address.systems) or address.system
    who = "the encoder as it was" if address.original else f"{address.task} {systems}"
    less = f" less {address.less}" if address.less else ""
    where = ", ".join(address.languages) or address.group or "all languages"
    if address.measure in ("score", "best", "best_layer"):
        what = {"best": "best ", "best_layer": "layer of the best "}.get(address.measure, "")
        entry = draft.recipes[address.task, address.system or address.systems[0]]["evaluate"][address.evaluate]
        return f"{what}{draft.scores[address.task]} of {who}{less}, {entry['on']} {where}"
    more = " ".join(filter(None, (address.probe, address.against and f"with {address.against}", address.top)))
    return f"{address.measure.replace('_', ' ')} of {who}" + (f", {more}" if more else f", {where}")


def _describe_stages(stages: Sequence[Any], tables: Sequence[Mapping[str, Any]]) -> str:
    """What a system learns from, stage by stage, and what the definition of the table asks of each stage."""
    told = []
    for stage, table in zip(stages, tables, strict=True):
        named: Sequence[Any] = stage.parallel if hasattr(stage, "parallel") else stage.train
        data = [one if isinstance(one, str) else str(one.get("data") or Path(one["path"]).name) for one in named]
        told.append(f"{stage.kind}: {', '.join([*data, *_describe_settings(table)])}")
    return "; ".join(told)


def _describe_settings(table: Mapping[str, Any]) -> list[str]:
    """The settings of a stage that systems of a table differ by."""
    fusion = table.get("fusion") or {}
    told = [" ".join([fusion["kind"], *(f"{k}={v}" for k, v in fusion.items() if k != "kind")])] if fusion else []
    told += [f"beside it {one['task']}" for one in table.get("auxiliary", ())]
    told += ["replay"] if "replay" in table else []
    return told + [f"{key}={table[key]}" for key in ("sentences", "pooling", "anchors") if key in table]


def show_reproduced(made: Reproduced) -> None:
    """The paper's table with ours beside it, in parts that fit the terminal, then what a reader must not miss."""
    draft = made.draft
    _show_head(draft.table, draft.scale)
    for sheet in lay_out(made, width=out.width):
        out.print(sheet.to_rich())
    print_message(explain(made))
    _show_notes(draft)
    for cell, error in made.failed.items():
        print_message(f"failed: {cell}: {error}")
    for path in write_reproduced(made):
        print_message(f"written: {path}")
    print_message(
        f"tests of significance: crossling study compare {made.out}    page: crossling study report {made.out}"
    )


def explain(made: Reproduced) -> str:
    """What the figures are, and why some are missing."""
    left_out = sum(one.cell.address is None for one in made.cells)
    missing = f" {MISSING}: left out of this run ({left_out} of {len(made.cells)} cells)." if left_out else ""
    marked = any(one.cell.figure.mark for one in made.cells)
    return UNITS[made.draft.table.unit] + (" Stars are the paper's marks of significance." if marked else "") + missing


def _show_head(table: PublishedTable, scale: str) -> None:
    print_message(f"{table.name}, {scale} scale: {table.holds}")


def _show_notes(draft: Draft) -> None:
    for note in draft.notes:
        print_message(f"Note: {note}")
    for sentence in draft.table.contradictions:
        print_message(f"The paper contradicts itself: {sentence}")


def lay_out(made: Reproduced, *, width: int | None = None) -> list[Table]:
    """The table as sheets not wider than that, each column with the paper's figure, ours and the difference."""
    table = made.draft.table
    cells = {(one.cell.row, one.cell.column): one for one in made.cells}
    parts: list[list[str]] = [[]]
    taken = label = max(map(len, table.rows)) + EDGES
    for column in table.columns:
        texts = [_head(column), *(_show(cells.get((row, column))) for row in table.rows)]
        needed = sum(max(map(len, some)) + GAP for some in zip(*texts, strict=True))
        if width is not None and parts[-1] and taken + needed > width:
            parts.append([])
            taken = label
        parts[-1].append(column)
        taken += needed
    return [
        Table(
            table.name,
            ("", *(text for column in some for text in _head(column))),
            tuple((row, *(text for column in some for text in _show(cells.get((row, column))))) for row in table.rows),
        )
        for some in parts
    ]


def _head(column: str) -> tuple[str, str, str]:
    return f"{column}: paper", "ours", "differs"


def _show(one: Ours | None) -> tuple[str, str, str]:
    """The three texts of a cell; the difference is that of the figures as they are shown, so that they add up."""
    if one is None:
        return MISSING, "", ""
    figure = one.cell.figure
    ours = format_value(one.value, figure)
    difference = None if one.value is None or figure.value is None else float(ours) - figure.value
    return figure.text or UNREADABLE, ours, format_value(difference, figure, sign=True)


def format_value(value: float | None, figure: Figure, *, sign: bool = False) -> str:
    """With as many decimals as the paper's figure has."""
    if value is None:
        return MISSING
    return f"{value:{'+' if sign else ''}.{figure.decimals}f}"


def write_reproduced(made: Reproduced) -> list[Path]:
    """The table as Markdown, and every cell as a line of CSV."""
    files = {made.out / "reproduced.md": to_markdown(made), made.out / "reproduced.csv": to_csv(made)}
    for path, text in files.items():
        write_atomic(path, text)
    return list(files)


def to_markdown(made: Reproduced) -> str:
    """For a document."""
    draft = made.draft
    sheets = lay_out(made)
    lines = [
        f"# {draft.table.name}, {draft.scale} scale",
        "",
        f"{draft.table.holds[0].upper()}{draft.table.holds[1:]}.",
        "",
    ]
    lines += [sheet.to_markdown() for sheet in sheets]
    lines += [explain(made), ""]
    lines += [f"- {note}" for note in draft.notes]
    lines += [f"- The paper contradicts itself: {sentence}" for sentence in draft.table.contradictions]
    lines += [f"- Failed: {cell}: {error}" for cell, error in made.failed.items()]
    return "\n".join(lines) + "\n"


def to_csv(made: Reproduced) -> str:
    """For a spreadsheet."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "scale", "row", "column", "paper", "mark", "ours", "spread", "seeds", "difference"])
    for one in made.cells:
        figure, cell = one.cell.figure, one.cell
        numbers = [_plain(value) for value in (one.value, one.spread)]
        known = (made.draft.table.name, made.draft.scale, cell.row, cell.column, figure.text.rstrip("*"), figure.mark)
        writer.writerow([*known, *numbers, one.seeds, _plain(one.difference)])
    return text.getvalue()


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
