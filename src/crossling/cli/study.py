"""The verbs of ``crossling study``; nothing heavy is imported before a verb needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from crossling.cli.options import name_command

app = typer.Typer(no_args_is_help=True, help="Compare systems over tasks and seeds, with significance.")

StudyArgument = Annotated[Path, typer.Argument(help="A study: a TOML file.", metavar="STUDY.toml")]
FolderArgument = Annotated[
    Path, typer.Argument(help="A study file, or the folder of its results.", metavar="STUDY.toml|OUT")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key in every recipe, or in the study: seeds=[1]."),
]
OutOption = Annotated[Path | None, typer.Option(help="Folder of the results; default: studies/NAME-OF-STUDY.")]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FOLDER|ADDRESS",
        help="Where trained models and caches live (CROSSLING_STORE, .crossling); models also at s3://BUCKET/NAME.",
    ),
]

INTERVAL = typer.Option(
    "--interval",
    help="hierarchical, the default: for new seeds and new examples. bootstrap: as older results have it, with tests "
    "over examples; covers less than 95 % with few seeds.",
)


@app.command()
def run(
    study: StudyArgument,
    workers: Annotated[
        int | None, typer.Option(help="Worker processes; default: 1 on a CPU, as many as fit on GPUs.")
    ] = None,
    overrides: SetOption = None,
    out: OutOption = None,
    store: StoreOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show cells, shared work, what exists, and a forecast.")
    ] = False,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Use the machines of the Ray cluster there: HOST:PORT, or auto."),
    ] = None,
) -> None:
    """Train and predict every cell of a study.

    A killed study continues with the same command; started twice, both share the work.
    """
    from crossling.cli.paths import check_recipes
    from crossling.store.artefacts import Store, find_store
    from crossling.study.folder import default_out
    from crossling.study.grid import load_study

    loaded = load_study(study, overrides or ())
    check_recipes(variant.recipe for variant in loaded.variants)
    folder, kept = out or default_out(study), Store(find_store(store))
    if dry_run:
        from crossling.cli.show_study import show_forecast
        from crossling.report.terminal import TerminalProgress
        from crossling.study.forecast import forecast_study
        from crossling.study.scheduling import open_pool

        with TerminalProgress() as progress, open_pool(ray) as pool:
            found = forecast_study(loaded, store=kept, out=folder, workers=workers, pool=pool, progress=progress)
        show_forecast(found)
        return
    from crossling.cli.show_study import show_outcome
    from crossling.report.terminal import TerminalProgress

    with TerminalProgress() as progress:
        from crossling.study.scheduling import open_pool, run_study

        with open_pool(ray) as pool:
            outcome = run_study(
                loaded, out=folder, store=kept, workers=workers, progress=progress, command=name_command(), pool=pool
            )
    show_outcome(outcome, folder)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def status(
    study: FolderArgument,
    out: OutOption = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it until the study is over.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Show every system of a study that has many.")] = False,
) -> None:
    """See which cells are done, running, waiting or failed, and the time left."""
    from crossling.cli.show_study import show_status
    from crossling.study.folder import find_out

    raise typer.Exit(show_status(find_out(study, out), watch=watch, every=every))


@app.command()
def compare(
    study: FolderArgument,
    out: OutOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also every value of an axis that a choose table picks one from.")
    ] = False,
    groups: Annotated[
        list[str] | None,
        typer.Option("--groups", help="Also means by family, branch, script, order or enf. Repeat as needed."),
    ] = None,
    score: Annotated[
        str | None, typer.Option("--score", help="Another score of the stored predictions than the tasks' own.")
    ] = None,
    interval: Annotated[Literal["hierarchical", "bootstrap"] | None, INTERVAL] = None,
    as_published: Annotated[
        bool,
        typer.Option(
            "--as-published",
            help="Test as the adjustment paper did: over examples, seeds averaged or concatenated, p not corrected. "
            "Nothing of it is about the next seed.",
        ),
    ] = False,
) -> None:
    """Compare all systems with the baseline: tables with tests of significance."""
    from crossling.cli.show_study import show_comparison
    from crossling.errors import UserError
    from crossling.study.compare import compare_study
    from crossling.study.folder import find_out

    if as_published and interval is not None:
        raise UserError(f"--as-published and --interval {interval}: each says how to test; leave one out")
    folder = find_out(study, out)
    comparison = compare_study(
        folder,
        every=every,
        groups=groups or (),
        score=score,
        interval=interval or "hierarchical",
        as_published=as_published,
    )
    show_comparison(comparison, folder)


@app.command()
def report(
    study: FolderArgument,
    out: OutOption = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also every value of an axis that a choose table picks one from.")
    ] = False,
    store: Annotated[
        Path | None, typer.Option("--store", help="Where records of training are; default: where the study left them.")
    ] = None,
    interval: Annotated[Literal["hierarchical", "bootstrap"], INTERVAL] = "hierarchical",
) -> None:
    """Write a study's report: one page, and every table as Markdown, LaTeX and CSV."""
    from crossling.cli.show_study import show_report
    from crossling.study.folder import find_out
    from crossling.study.report import report_study

    show_report(report_study(find_out(study, out), every=every, store=store, interval=interval))


@app.command()
def choices(study: FolderArgument, out: OutOption = None) -> None:
    """Judge the values that choose tables pick, by the scores in the target languages."""
    from crossling.cli.show_picks import show_judgement
    from crossling.study.choose import judge_choices
    from crossling.study.folder import find_out

    folder = find_out(study, out)
    show_judgement(judge_choices(folder), folder)
