"""Verbs that use a trained model. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from crossling.cli.options import StoreOption

ModelArgument = Annotated[
    Path, typer.Argument(help="The folder of a run (RUN/seed-2 for one of its seeds), or of a saved model.")
]
SeedOption = Annotated[int | None, typer.Option(help="Which seed's model; default: the first.")]


def predict(
    run: ModelArgument,
    file: Annotated[Path | None, typer.Argument(help="Text to read; default: standard input.")] = None,
    language: Annotated[
        str | None, typer.Option(help="The text's language code; default: the one that the model learnt from.")
    ] = None,
    words: Annotated[
        bool,
        typer.Option("--words", help="Words are already split: one a line, an empty line ends a sentence."),
    ] = False,
    output: Annotated[str, typer.Option("--format", help="table, conll or jsonl.")] = "table",
    seed: SeedOption = None,
) -> None:
    """Tag, classify or answer new text with a trained model.

    A text a line; pairs (question and context too) with a tab between. Every line that is not empty has a result.
    Characters are counted from 0 in the line as it is, of an answer in the context.
    """
    from crossling.cli.show_run import choose_writer
    from crossling.report.terminal import TerminalProgress, print_error

    write = choose_writer(output)
    if file is None and sys.stdin.isatty():
        print_error("reading from the keyboard: a text a line, then Ctrl-D")

    from crossling.inference.predictor import predict_file
    from crossling.study.folder import find_model

    with TerminalProgress() as progress:
        # A bar would run through results that come to the same terminal.
        shown = None if sys.stdout.isatty() else progress
        write(predict_file(find_model(run, seed=seed), file, language=language, words=words, progress=shown))


def export(
    run: ModelArgument,
    out: Annotated[Path, typer.Argument(help="The new folder.")],
    vocabulary: Annotated[
        str,
        typer.Option(help="whole: reads any language. used: only the subwords of its training text and of --on."),
    ] = "whole",
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Data set (panx:de:dev) or text file whose subwords stay. Repeat as needed."),
    ] = None,
    seed: SeedOption = None,
    store: StoreOption = None,
) -> None:
    """Write a trained model into a folder that needs nothing else.

    It holds encoder, tokenizer, heads and labels. Copy it to another machine; predict and crossling.load read it
    there, and a recipe can start from its encoder.
    """
    from crossling.report.terminal import print_message
    from crossling.store.artefacts import find_store
    from crossling.study.export import export_model

    print_message(export_model(run, out, vocabulary=vocabulary, on=on or (), seed=seed, store=find_store(store)))
