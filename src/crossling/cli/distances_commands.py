"""The verb ``crossling analyse distances``."""

from __future__ import annotations

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


def distances(
    models: ModelsArgument,
    on: Annotated[str | None, typer.Option(help="A parallel set; default: ntrex.")] = None,
    languages: LanguagesOption = "",
    split: Annotated[str, typer.Option(help="Default: test where there is one.")] = "",
    layer: Annotated[str, typer.Option(help="A number (0: embeddings), last, or fused: what heads read.")] = "last",
    pooling: Annotated[str, typer.Option(help="A word from its subwords: mean, first or last.")] = "mean",
    pairs: Annotated[int | None, typer.Option(help="Related pairs, and as many unrelated; default 10,000.")] = None,
    sentences: Annotated[int | None, typer.Option(help="Sentence pairs to draw from; default 2,000.")] = None,
    aligner: Annotated[str | None, typer.Option(help="neural, statistical or eflomal; default: neural.")] = None,
    links: Annotated[
        str | None,
        typer.Option(help="Links of the whole set in Pharaoh format; {language} is the code.", metavar="FILE"),
    ] = None,
    keep_identical: Annotated[
        bool, typer.Option("--keep-identical", help="Keep linked words that are the same string.")
    ] = False,
    sample_seed: Annotated[int | None, typer.Option(help="Another random sample; default 1.")] = None,
    source: SourceOption = None,
    overrides: SetOption = None,
    out: OutOption = None,
) -> None:
    """How far related and unrelated words of two languages are from each other, in histograms and numbers.

    crossling analyse distances original=multilingual-e5-small tuned=runs/nli --languages es,hi
    """
    table = {
        "kind": "distances",
        "on": on,
        "languages": split_codes(languages),
        "split": split,
        "layer": int(layer) if layer.isdecimal() else layer,
        "pooling": pooling,
        "pairs": pairs,
        "sentences": sentences,
        "aligner": aligner,
        "links": links,
        "drop_identical": not keep_identical,
        "seed": sample_seed,
    }
    carry_out(models, table, overrides=overrides, source=source, out=out)
