"""Verbs that train: ``demo``, ``check`` and ``run``. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crossling.cli.analyse import run_analysis
from crossling.cli.options import RecipeArgument, SetOption, StoreOption, name_command, name_program
from crossling.errors import name_recipe

if TYPE_CHECKING:
    from crossling.recipe.recipe import Recipe
    from crossling.store.artefacts import Store

DISTANCES = {"kind": "distances", "on": "phrasebook-parallel", "languages": ["de", "hi", "zh"], "sentences": 60}
"""The analysis of the demo."""


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    overrides: SetOption = None,
    store: StoreOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only the first model: under a minute.")] = False,
) -> None:
    """A tour in minutes, offline: methods compared, with a report.

    An entity tagger learns from English sentences and is scored in eight languages. Then other ways to train it are
    compared with it, with tests of significance; last, what they do to words of different languages is analysed.
    """
    from importlib.resources import files

    from crossling.cli.show_study import show_comparison, show_outcome, show_report
    from crossling.report.terminal import TerminalProgress, print_message
    from crossling.store.artefacts import Store, find_store
    from crossling.study.compare import compare_study
    from crossling.study.grid import load_study
    from crossling.study.local import LocalPool
    from crossling.study.plan import fix_threads
    from crossling.study.report import report_study
    from crossling.study.scheduling import run_study

    loaded = load_study(Path(str(files("crossling").joinpath("recipes/demo-study.toml"))), overrides or ())
    folder, kept, pool = out / "study", Store(find_store(store)), LocalPool()
    pool.measure(loaded, folder, workers=None)
    study = fix_threads(loaded, pool.resources.threads)  # so that the study finds what the first run trained
    seed, plain = study.settings.seeds[0], study.variants[0]
    print_message("1. An entity tagger: it learns from English sentences alone, and is scored in other languages.")
    _run(plain.recipe.model_copy(update={"seeds": (seed,)}), out / "run", kept)
    following = f"next:    echo 'Мария работает в Берлине.' | {name_program()} predict {out / 'run'} --language ru"
    if quick:
        print_message(following)
        return
    print_message("\n2. Other ways to train it, two seeds each, compared with the first.")
    with TerminalProgress() as progress:
        outcome = run_study(study, out=folder, store=kept, progress=progress, command=name_command())
    if outcome.failed:
        show_outcome(outcome, folder)
        raise typer.Exit(1)
    show_comparison(compare_study(folder), folder)
    print_message("\n3. Words and their translations: how near are they to each other, before and after training?")
    trained = [f"plain={out / 'run'}", f"{study.variants[-1].system}={folder / study.variants[-1].folder}"]
    run_analysis([f"pretrained={plain.recipe.encoder.name}", *trained], DISTANCES, out=folder / "distances.csv")
    print_message("\n4. All of it on one page.")
    show_report(report_study(folder))
    print_message("\nThe sentences are simple and generated: what wins here is no evidence of what wins on real text.")
    print_message(following)


def check(recipe: RecipeArgument, overrides: SetOption = None, store: StoreOption = None) -> None:
    """See a recipe resolved: defaults, data, and the memory it needs."""
    from crossling.cli.paths import check_recipes
    from crossling.recipe.recipe import load_recipe
    from crossling.store.artefacts import find_store

    loaded = load_recipe(recipe, overrides or ())
    with name_recipe(recipe):
        check_recipes([loaded])

    from crossling.cli.show_run import show_check
    from crossling.report.terminal import TerminalProgress
    from crossling.study.memory import inspect_recipe
    from crossling.study.memory_fit import find_main_memory, suggest_batches
    from crossling.training.distributed import setup_distributed

    with name_recipe(recipe), TerminalProgress() as progress:
        found = inspect_recipe(loaded, store=find_store(store), progress=progress)
    on_cpu = setup_distributed(loaded.run).device.type == "cpu"
    show_check(found, suggest_batches(loaded, found.memory, find_main_memory()) if on_cpu else ())


def run(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/NAME-OF-RECIPE.")] = None,
    store: StoreOption = None,
) -> None:
    """Train by a recipe: scores in every language, and a page.

    A killed run continues with the same command.
    """
    from crossling.cli.paths import check_recipes
    from crossling.recipe.recipe import load_recipe
    from crossling.store.artefacts import Store, find_store

    loaded = load_recipe(recipe, overrides or ())
    with name_recipe(recipe):
        check_recipes([loaded])
        _run(loaded, out or Path("runs") / recipe.stem, Store(find_store(store)))


def _run(recipe: Recipe, out: Path, store: Store) -> None:
    from crossling.gpu_context import begin_context

    on_gpu = begin_context(recipe.run.device)  # before torch is imported
    gc.disable()  # what libraries create when they are imported is no garbage
    from crossling.cli.show_run import show_run
    from crossling.encoders.loading import exempt_libraries, import_transformers
    from crossling.report.terminal import TerminalProgress, print_error
    from crossling.study.recipe_run import run_recipe
    from crossling.study.run_report import report_run

    if on_gpu:
        import_transformers()
    exempt_libraries()
    gc.enable()
    try:
        with TerminalProgress() as progress:
            done = run_recipe(recipe, store=store, out=out, progress=progress, command=name_command())
    except KeyboardInterrupt:
        print_error("stopped; the same command continues from the last checkpoint")
        raise typer.Exit(130) from None
    summary = report_run(done)
    if done.distributed.is_main and summary.results:
        show_run(summary, out, program=name_program())
