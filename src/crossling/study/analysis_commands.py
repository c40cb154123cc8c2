"""The verbs of ``crossling analyse``; nothing heavy is imported before a verb needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Look into trained models.")


@app.callback()
def _analyses() -> None:
    """Keep the name of the analysis a word of the command, though there may be one only."""


@app.command()
def similarity(
    folder: Annotated[Path, typer.Argument(help="The folder of a study (or its file), of a run, or of a saved model.")],
    on: Annotated[
        str | None,
        typer.Option(help="A parallel set, or one with equal rows (xnli, pawsx, xquad); default: ntrex."),
    ] = None,
    languages: Annotated[str, typer.Option(help="Codes with commas between: de,hi,zh.")] = "",
    split: Annotated[str, typer.Option(help="Default: test where there is one.")] = "",
    text: Annotated[str, typer.Option(help="Of pairs: first, second, or pair (both together).")] = "first",
    pool: Annotated[str, typer.Option(help="mean of the tokens, cls, or task: as the head reads it.")] = "mean",
    sentences: Annotated[int | None, typer.Option(help="At most so many; default 2,000.")] = None,
    sample_seed: Annotated[int | None, typer.Option(help="Random sentences instead of the first.")] = None,
    as_published: Annotated[
        bool, typer.Option("--as-published", help="20 random sentences of XNLI's test set, as the paper had.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="A CSV file; default: in the folder.", metavar="FILE.csv")] = None,
) -> None:
    """How alike a model represents sentences and their translations, and how much more than unrelated ones."""
    from crossling.study.analysing import analyse, parse_settings
    from crossling.study.layout import find_out
    from crossling.study.show_analysis import show_analysis, write_analysis
    from crossling.terminal import TerminalProgress

    table = {
        "kind": "similarity",
        "languages": [code.strip() for code in languages.split(",") if code.strip()],
        "split": split,
        "text": text,
        "pool": pool,
        "seed": sample_seed,
        "as_published": as_published,
        **{name: value for name, value in (("on", on), ("sentences", sentences)) if value is not None},
    }
    settings = parse_settings(table)
    with TerminalProgress() as progress:
        found = analyse(find_out(folder) if folder.suffix == ".toml" else folder, settings, progress=progress)
    show_analysis(found, write_analysis(found, out))
