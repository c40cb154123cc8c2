"""The papers' tables on the terminal and as files: the list, what would be run, and our figures beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.files import write_atomic
from crossling.papers.published import PAPERS, PublishedValue, load_paper
from crossling.report.table import Table
from crossling.report.terminal import out, print_message
from crossling.scores.significance.results import MARKS
from crossling.study.grid import name_values

if TYPE_CHECKING:
    from crossling.papers.reproduce import ReproducedCell, ReproducedTable
    from crossling.papers.tables import CellSource, TablePlan
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
    "distance": "L2 distances; of overlaps 1 is histograms that are the same, 0 ones that do not meet.",
    "count": "Ovlp: heads that both have among their best. Corr: Spearman's rho of these heads.",
}


def show_tables(paper: str = "") -> None:
    """Every table, by paper, with a line on what it holds."""
    for name in [paper] if paper else PAPERS:
        found = load_paper(name)
        print_message(f"{found.title} ({found.authors})")
        print_message(f"  {found.facts.name:20} {found.facts.holds} (nothing is trained)")
        for table in (*found.tables.values(), *found.figures.values()):
            print_message(f"  {table.name:20} {table.holds}")
        print_message("")
    print_message(
        "run one: crossling reproduce layer-fusion/4; its cells: --dry-run; the paper's data and encoder: --scale full"
    )


def show_facts(paper: str) -> None:
    """Table 1 of a paper beside what is here."""
    from crossling.papers.facts import compare_facts

    table = compare_facts(paper)
    print_message(table.title)
    out.print(table.to_rich())
    for note in table.notes:
        print_message(f"Note: {note}")


def show_plan(plan: TablePlan, *, unknown: Sequence[str] = ()) -> None:
    """The cells of a table and where each figure would come from, then the systems of the study behind them.

    ``unknown``: encoders of which it is not known yet how many layers they have.
    """
    _show_title(plan)
    rows = tuple(
        (
            cell.row,
            cell.column,
            cell.figure.text or UNREADABLE,
            describe_source(cell.source, plan) if cell.source else "not run",
        )
        for cell in plan.cells
    )
    title = f"{len(rows)} cells of the table, {sum(cell.source is not None for cell in plan.cells)} of them to be run"
    _print(Table(title, ("row", "column", "paper", "ours from"), rows, names=4))
    study = plan.study
    systems = tuple(
        (v.task, v.label, "; ".join(map(_describe_stage, v.recipe.stage)), _describe_settings(study, v.system))
        for v in study.variants
    )
    cells, kinds, seeds = (
        f"{count} {what}{'' if count == 1 else 's'}"
        for count, what in ((len(study.cells), "cell"), (len(systems), "system"), (len(study.settings.seeds), "seed"))
    )
    title = f"{cells} of the study: {kinds}, {seeds}; encoder {plan.encoder}"
    _print(Table(title, ("task", "system", "training", "settings"), systems, names=4).without_empty_names())
    for name, settings in plan.analyses.items():
        print_message(f"then: {settings.kind} of {len(plan.list_analysed(name))} systems' models ({name})")
    if plan.extend is not None:
        print_message(f"before: {plan.encoder} gets up to {plan.extend.pieces:,} subwords of {plan.extend.text}")
    if unknown:
        print_message(f"not checked: whether {', '.join(unknown)} has the layers that are named; it is not here yet")
    _show_notes(plan)


def _print(table: Table) -> None:
    print_message(table.title)
    out.print(table.to_rich())


def describe_source(source: CellSource, plan: TablePlan) -> str:
    """Where a figure comes from, in words."""
    systems = " or ".join(source.systems) or source.system
    who = "the encoder before fine-tuning" if source.pretrained else f"{source.task} {systems}"
    less = f" less {source.less}" if source.less else ""
    where = ", ".join(source.languages) or source.group or "all languages"
    if source.measure in ("score", "best", "best_layer"):
        what = {"best": "best ", "best_layer": "layer of the best "}.get(source.measure, "")
        entry = plan.find_recipe(source.needs[0]).evaluate[source.evaluate]
        return f"{what}{plan.find_score(source)} of {who}{less}, {entry.on} {where}"
    more = " ".join(filter(None, (source.probe, source.against and f"with {source.against}", source.top)))
    return f"{source.measure.replace('_', ' ')} of {who}, {more or where}"


def _describe_stage(stage: Any) -> str:
    """A stage and the data that it learns from."""
    named = stage.parallel if hasattr(stage, "parallel") else stage.train
    text = f"{stage.kind}: {', '.join(map(_name_data, named))}"
    auxiliary = [_name_data(data) for one in getattr(stage, "auxiliary", ()) for data in one.train]
    return f"{text} with {', '.join(auxiliary)}" if auxiliary else text


def _name_data(data: Any) -> str:
    return data if isinstance(data, str) else str(data.get("data") or Path(data["path"]).name)


def _describe_settings(study: Study, system: str) -> str:
    """The settings by which a system differs from the others of the study."""
    own = study.settings.systems[system].set
    return " ".join(name_values({key: value for key, value in own.items() if value != ()}))


def show_reproduced(made: ReproducedTable) -> None:
    """The paper's table with ours beside it, in parts that fit the terminal, then what a reader must know."""
    _show_title(made.plan)
    for table in lay_out(made, width=out.width):
        out.print(table.to_rich())
    print_message(explain(made))
    for note in made.notes:
        print_message(f"Note: {note}")
    _show_notes(made.plan)
    for cell, error in made.failed.items():
        print_message(f"failed: {cell}: {error}")
    for path in write_reproduced(made):
        print_message(f"written: {path}")
    print_message(
        f"tests of significance: crossling study compare {made.out}    page: crossling study report {made.out}"
    )


def explain(made: ReproducedTable) -> str:
    """What the figures are, and why some are missing."""
    run = [one for one in made.cells if one.cell.source is not None]
    left_out, unknown = len(made.cells) - len(run), sum(one.value is None for one in run)
    counts = [f"left out of this run ({left_out} of {len(made.cells)} cells)"] if left_out else []
    counts += [f"run without a result ({unknown} of {len(run)} cells)"] if unknown else []
    gaps = len(made.plan.table.rows) * len(made.plan.table.columns) - len(made.cells)
    counts += [f"not in the paper ({gaps})"] if gaps else []
    sentences = [UNITS[made.plan.table.unit]]
    if any(one.cell.figure.mark for one in made.cells):
        sentences.append("Stars are the paper's marks of significance.")
    if any(one.mark for one in made.cells):
        alone = any(one.mark and one.seeds == 1 for one in made.cells)
        sentences.append(
            f"{MARKS['baseline', 1]} better or {MARKS['baseline', -1]} worse than {made.plan.study.settings.baseline} "
            "by our tests, p < 0.05 after Holm's correction (crossling study compare)"
            + (": with one seed, of these models on new examples." if alone else ".")
        )
    if any(not one.cell.figure.text for one in made.cells):
        sentences.append(f"{UNREADABLE}: no number can be read in the paper.")
    return " ".join([*sentences, *([f"{MISSING}: {'; '.join(counts)}."] if counts else [])])


def _show_title(plan: TablePlan) -> None:
    print_message(f"{plan.table.name}, {plan.scale} scale: {plan.table.holds}")


def _show_notes(plan: TablePlan) -> None:
    for note in plan.notes:
        print_message(f"Note: {note}")
    for sentence in plan.table.contradictions:
        print_message(f"The paper contradicts itself: {sentence}")


def lay_out(made: ReproducedTable, *, width: int | None = None) -> list[Table]:
    """The table in parts of at most that width, each column with the paper's figure, ours and the difference."""
    table = made.plan.table
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
            f"{table.name}, {made.plan.scale} scale: {table.holds}",
            ("", *(text for column in some for text in _head(column))),
            tuple((row, *(text for column in some for text in _show(cells.get((row, column))))) for row in table.rows),
            notes=(
                explain(made),
                *made.notes,
                *made.plan.notes,
                *(f"The paper contradicts itself: {sentence}" for sentence in table.contradictions),
                *(f"Failed: {cell}: {error}" for cell, error in made.failed.items()),
            ),
        )
        for some in parts
    ]


def _head(column: str) -> tuple[str, str, str]:
    return f"{column}: paper", "ours", "diff"


def _show(one: ReproducedCell | None) -> tuple[str, str, str]:
    """The three texts of a cell; the difference is that of the figures as they are shown, so that they add up."""
    if one is None:
        return MISSING, "", ""
    figure = one.cell.figure
    ours = format_value(one.value, figure)
    difference = None if one.value is None or figure.value is None else float(ours) - figure.value
    return figure.text or UNREADABLE, ours + (one.mark and f" {one.mark}"), format_value(difference, figure, sign=True)


def format_value(value: float | None, figure: PublishedValue, *, sign: bool = False) -> str:
    """With as many decimals as the paper's figure has; where none can be read, with two."""
    if value is None:
        return MISSING
    return f"{value:{'+' if sign else ''}.{figure.decimals if figure.text else 2}f}"


def write_reproduced(made: ReproducedTable) -> list[Path]:
    """The table as Markdown, and every cell as a line of CSV."""
    (table,) = lay_out(made)
    files = {"reproduced.md": table.to_markdown(), "reproduced.csv": list_cells(made).to_csv()}
    for name, text in files.items():
        write_atomic(made.out / name, text)
    return [made.out / name for name in files]


def list_cells(made: ReproducedTable) -> Table:
    """Every cell on a line, for a spreadsheet."""
    rows = tuple(
        (
            *(made.plan.table.name, made.plan.scale, one.cell.row, one.cell.column),
            *(one.cell.figure.text.rstrip("*"), one.cell.figure.mark),
            *(_format_exactly(one.value), _format_exactly(one.spread), str(one.seeds)),
            _format_exactly(one.difference),
            one.mark,
        )
        for one in made.cells
    )
    head = ("table", "scale", "row", "column", "paper", "mark", "ours", "spread", "seeds", "difference", "our_mark")
    return Table(made.plan.table.name, head, rows, names=4)


def _format_exactly(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
