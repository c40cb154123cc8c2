"""``crossling start``: a recipe for what a user has. Nothing heavy is imported before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossling.cli.options import StoreOption, name_command

FilesOption = list[str] | None


def start(
    task: Annotated[str, typer.Argument(help="pos, ner, nli, paraphrase, sentiment or qa.", metavar="TASK")],
    languages: Annotated[
        list[str], typer.Option("--language", help="A language to use it in: sw. Repeat as needed.", metavar="CODE")
    ],
    labels: Annotated[
        FilesOption,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="Labelled data in the source language: a file, panx:en, or a table. Repeat as needed; with dev or "
            "test in its name it selects or is scored. Labels in a target language: sw=FILE.",
        ),
    ] = None,
    text: Annotated[
        FilesOption,
        typer.Option("--text", metavar="FILE", help="Unlabelled text: text.sw.txt, sw=FILE, or a data set."),
    ] = None,
    parallel: Annotated[
        FilesOption,
        typer.Option(
            "--parallel", metavar="FILE", help="Translations: en-sw=FILE, en-sw=SOURCE,TARGET, or ntrex:en-hi."
        ),
    ] = None,
    test: Annotated[
        FilesOption,
        typer.Option("--test", metavar="FILE", help="Labelled data to score on: test.sw.tsv, sw=FILE, or a data set."),
    ] = None,
    source: Annotated[str, typer.Option(help="The language of the labels.", metavar="CODE")] = "en",
    encoder: Annotated[
        str, typer.Option(help="A hub name, a folder, or multilingual-e5-small.")
    ] = "multilingual-e5-small",
    out: Annotated[
        Path | None, typer.Option(help="The recipe; default: TASK-LANGUAGE.toml.", metavar="RECIPE.toml")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the recipe.")] = False,
    store: StoreOption = None,
) -> None:
    """Write a recipe for what you have: the best known choices, with reasons.

    Looks through your files and the catalogue, says what more data would bring, and how long it will take here.
    """
    from functools import partial

    from crossling.cli.show_start import show_found, show_languages, show_recipe_summary
    from crossling.errors import UserError
    from crossling.files import write_atomic
    from crossling.store.artefacts import find_store
    from crossling.study.start_data import Request, find_available_data, measure_languages

    place = out or Path(f"{task}-{'-'.join(languages)}.toml")
    if place.exists() and not force:
        raise UserError(f"{place}: is there already; name another with --out, or overwrite it with --force")
    request = Request(
        task, tuple(languages), tuple(labels or ()), tuple(text or ()), tuple(parallel or ()), tuple(test or ()), source
    )
    folder = find_store(store)
    available = find_available_data(request, store=folder)

    from crossling.encoders.loading import load_encoder
    from crossling.report.terminal import TerminalProgress
    from crossling.study.start_recipe import fit_recipe, forecast_hours, suggest_data, write_recipe

    loaded = load_encoder(encoder)
    available.layers = loaded.layers
    show_found(available)
    coverage = measure_languages(available, loaded)
    show_languages(available, coverage)
    write = partial(write_recipe, available, encoder=encoder, coverage=coverage, command=name_command(), place=place)
    with TerminalProgress() as progress:
        recipe, parsed, inspection = fit_recipe(write, place=place, store=folder, progress=progress)
    hours = forecast_hours(parsed, store=folder, out=Path("runs") / place.stem)
    write_atomic(place, recipe)
    show_recipe_summary(available, parsed, inspection, suggestions=suggest_data(available), hours=hours, place=place)
