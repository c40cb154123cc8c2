"""The verb ``crossling perplexity``; nothing heavy is imported before it is needed."""

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


def perplexity(
    models: ModelsArgument,
    on: Annotated[
        str,
        typer.Option(help='A data set (ud, panx, xnli, …), or a file: { format = "text", path = …, language = … }.'),
    ],
    languages: LanguagesOption = "",
    split: Annotated[str, typer.Option(help="Default: test where there is one.")] = "",
    method: Annotated[
        str, typer.Option(help="original, or within_word_l2r: hide the rest of the word as well.")
    ] = "original",
    sentences: Annotated[int | None, typer.Option(help="Of each language, at most so many; default 1,000.")] = None,
    source: SourceOption = None,
    overrides: SetOption = None,
    out: OutOption = None,
) -> None:
    """How well encoders, fine-tuned or not, still know a language: their pseudo-perplexity under the original head."""
    from crossling.data.spec import parse_data

    table = {
        "kind": "perplexity",
        "on": parse_data(on),
        "languages": split_codes(languages),
        "split": split,
        "method": method,
        "sentences": sentences,
    }
    carry_out(models, table, overrides=overrides, source=source, out=out)
