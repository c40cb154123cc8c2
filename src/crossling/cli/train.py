"""Verbs that train: ``demo``, ``check`` and ``run``. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossling.cli.options import RecipeArgument, SetOption, StoreOption, name_command, name_program


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    overrides: SetOption = None,
    store: StoreOption = None,
) -> None:
    """A tour in minutes, offline: methods compared, with a report."""
    from importlib.resources import files

    from crossling.cli.show_study import show_comparison, show_report
    from crossling.report.terminal import TerminalProgress, print_message
    from crossling.store.artefacts import Store, find_store
    from crossling.study.compare import compare_study
    from crossling.study.grid import load_study
    from crossling.study.report import report_study
    from crossling.study.scheduling import run_study

    study = load_study(Path(str(files("crossling").joinpath("recipes/demo-study.toml"))), overrides or ())
    with TerminalProgress() as progress:
        outcome = run_study(
            study, out=out, store=Store(find_store(store)), workers=None, progress=progress, command=name_command()
        )
    if outcome.failed:
        from crossling.cli.show_study import show_outcome

        show_outcome(outcome, out)
        raise typer.Exit(1)
    show_comparison(compare_study(out), out)
    show_report(report_study(out))
    print_message(
        "This is a tour of simple, generated sentences: what wins here is no evidence of what wins on real text."
    )
    print_message(f"next:    echo 'Мария работает в Берлине.' | {name_program()} predict {out / 'plain'} --language ru")


def check(recipe: RecipeArgument, overrides: SetOption = None, store: StoreOption = None) -> None:
    """See a recipe resolved: defaults, data, and the memory it needs."""
    from crossling.cli.show_run import show_check
    from crossling.recipe.recipe import load_recipe
    from crossling.store.artefacts import find_store
    from crossling.study.memory import inspect_recipe

    show_check(inspect_recipe(load_recipe(recipe, overrides or ()), store=find_store(store)))


def run(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/NAME-OF-RECIPE.")] = None,
    store: StoreOption = None,
) -> None:
    """Train by a recipe: scores in every language, and a page.

    A killed run continues with the same command.
    """
    from crossling.cli.show_run import show_run
    from crossling.recipe.recipe import load_recipe
    from crossling.report.terminal import TerminalProgress, print_error
    from crossling.store.artefacts import Store, find_store
    from crossling.study.recipe_run import run_recipe
    from crossling.study.run_report import report_run

    loaded, folder = load_recipe(recipe, overrides or ()), out or Path("runs") / recipe.stem
    try:
        with TerminalProgress() as progress:
            done = run_recipe(
                loaded, store=Store(find_store(store)), out=folder, progress=progress, command=name_command()
            )
    except KeyboardInterrupt:
        print_error("stopped; the same command goes on from the last checkpoint")
        raise typer.Exit(130) from None
    summary = report_run(done)
    if done.distributed.is_main and summary.results:
        show_run(summary, folder, program=name_program())
