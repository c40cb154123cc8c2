"""``crossling reproduce``; torch is not imported before it is needed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossling.cli.options import name_command

if TYPE_CHECKING:
    from crossling.papers.tables import TablePlan


def reproduce(
    table: Annotated[
        str,
        typer.Argument(
            metavar="PAPER/TABLE", help="Such as layer-fusion/4 or adjustment/figure-1; default: list all of them."
        ),
    ] = "",
    scale: Annotated[
        str, typer.Option(help="small: the embedded corpus, minutes, no evidence; full: the paper's data and encoder.")
    ] = "small",
    rows: Annotated[
        list[str] | None, typer.Option("--rows", help="Only this row, or group of rows, such as NER. Repeatable.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show its cells, and what would be trained.")] = False,
    workers: Annotated[
        int | None, typer.Option(help="Processes side by side; default: 1 on a CPU, as many as fit on GPUs.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="seeds=[1,2]; a key of every recipe (encoder.name=…, finetune.epochs=1) or of one task's "
            "(SA.stage.1.train=…); analysis.KEY; extend.KEY. Repeatable.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; default: studies/reproduce-PAPER-TABLE-SCALE.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="PATH", help="Where trained models and caches live (CROSSLING_STORE)."),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Use the machines of the Ray cluster there: HOST:PORT, or auto."),
    ] = None,
) -> None:
    """Make a table of the papers again, beside the published figures."""
    from crossling.papers.published import PAPERS

    if table in ("", *PAPERS):
        from crossling.cli.show_papers import show_tables

        show_tables(table)
        return
    if table in [f"{paper}/1" for paper in PAPERS]:
        from crossling.cli.show_papers import show_facts

        show_facts(table.removesuffix("/1"))
        return
    from crossling.papers.tables import plan_table
    from crossling.study.layers import check_known_layers

    plan = plan_table(table, scale, overrides or (), rows=rows or ())
    unknown = check_known_layers(plan.study, plan.analyses)
    if dry_run:
        from crossling.cli.show_papers import show_plan

        show_plan(plan, unknown=unknown)
        return
    _run_plan(plan, out=out, store=store, workers=workers, ray=ray)


def _run_plan(plan: TablePlan, *, out: Path | None, store: str | None, workers: int | None, ray: str | None) -> None:
    """Run the study behind a table and show the table; exit with 1 where a cell failed."""
    from crossling.cli.show_papers import show_reproduced
    from crossling.report.terminal import TerminalProgress

    if store is not None:
        os.environ["CROSSLING_STORE"] = store  # results on the pretrained encoder go there too
    with TerminalProgress() as progress:
        from crossling.papers.reproduce import reproduce_table
        from crossling.store.artefacts import Store, find_store
        from crossling.study.scheduling import open_pool

        command = name_command()
        folder = out or Path("studies") / plan.study.name
        with open_pool(ray) as pool:
            made = reproduce_table(
                plan,
                out=folder,
                store=Store(find_store(store)),
                workers=workers,
                progress=progress,
                command=command,
                pool=pool,
            )
    show_reproduced(made)
    if made.failed:
        raise typer.Exit(1)
