"""The verbs of ``crossling analyse``; nothing heavy is imported before a verb needs it.

Verbs with many options have a file of their own, ``<kind>_commands.py``; :data:`VERBS` lists all of them, and those in
:data:`TOP_LEVEL` are verbs of ``crossling`` itself too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from crossling.cli.analysis_options import (
    LanguagesOption,
    ModelsArgument,
    OutOption,
    SetOption,
    SourceOption,
    carry_out,
    split_codes,
)
from crossling.cli.distances_commands import distances
from crossling.cli.heads_commands import app as heads_app
from crossling.cli.perplexity_commands import perplexity
from crossling.cli.probe_commands import probe

app = typer.Typer(no_args_is_help=True, help="Analyse models, and encoders before fine-tuning.")


@app.callback()
def _analyses() -> None:
    """Keep the name of the analysis a word of the command, though there may be one only."""


def similarity(
    models: ModelsArgument,
    on: Annotated[
        str | None,
        typer.Option(help="A parallel set, or one with equal rows (xnli, pawsx, xquad); default: ntrex."),
    ] = None,
    languages: LanguagesOption = "",
    split: Annotated[str, typer.Option(help="Default: test where there is one.")] = "",
    text: Annotated[str, typer.Option(help="Of pairs: first, second, or pair (both together).")] = "first",
    pool: Annotated[str, typer.Option(help="mean of the tokens, cls, or task: as the head reads it.")] = "mean",
    sentences: Annotated[int | None, typer.Option(help="At most so many; default 2,000.")] = None,
    sample_seed: Annotated[int | None, typer.Option(help="Random sentences instead of the first.")] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="20 random sentences of XNLI's test set, as the paper had.")
    ] = False,
    source: SourceOption = None,
    overrides: SetOption = None,
    out: OutOption = None,
) -> None:
    """How alike a model represents sentences and their translations, and how much more than unrelated ones."""
    table = {
        "kind": "similarity",
        "languages": split_codes(languages),
        "split": split,
        "text": text,
        "pool": pool,
        "seed": sample_seed,
        "as_published": as_published,
        "on": on,
        "sentences": sentences,
    }
    carry_out(models, table, overrides=overrides, source=source, out=out)


VERBS: tuple[Callable[..., None], ...] = (
    similarity,
    distances,
    perplexity,
    probe,
)
"""Verbs of ``crossling analyse``, by their functions' names."""
TOP_LEVEL: tuple[Callable[..., None], ...] = (perplexity, probe)
"""Those that ``crossling`` has as well."""

for _verb in VERBS:
    app.command()(_verb)
app.add_typer(heads_app, name="heads")


def mount(root: typer.Typer) -> None:
    """Give a program the verbs of analyses."""
    root.add_typer(app, name="analyse")
    for verb in TOP_LEVEL:
        root.command()(verb)
    root.add_typer(heads_app, name="heads")
