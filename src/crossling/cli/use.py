"""Verbs that use a trained model. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crossling.cli.options import StoreOption

ModelArgument = Annotated[
    Path, typer.Argument(help="The folder of a run (RUN/seed-2 for one of its seeds), or of a saved model.")
]
LanguageOption = Annotated[
    str | None, typer.Option(help="The text's language code; default: the one that the model learnt from.")
]
WordsOption = Annotated[
    bool, typer.Option("--words", help="Words are already split: one a line, an empty line ends a sentence.")
]
EngineOption = Annotated[
    str, typer.Option(help="torch, onnx, or auto: onnx for a folder that was exported to it, else torch.")
]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="CPU threads of a model; default: all cores.")]
PrecisionOption = Annotated[
    str,
    typer.Option(help="Of torch's matrix products: float32, bfloat16, or auto: bfloat16 on a GPU, float32 on a CPU."),
]
SeedOption = Annotated[int | None, typer.Option(help="Which seed's model; default: the first.")]


def predict(
    run: ModelArgument,
    file: Annotated[Path | None, typer.Argument(help="Text to read; default: standard input.")] = None,
    language: LanguageOption = None,
    words: WordsOption = False,
    output: Annotated[
        str, typer.Option("--format", help="table, conll, jsonl or label_studio (tasks with pre-annotations).")
    ] = "table",
    seed: SeedOption = None,
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    precision: PrecisionOption = "auto",
) -> None:
    """Tag, classify or answer new text with a trained model.

    A text a line; pairs (question and context too) with a tab between. Every line that is not empty has a result.
    Characters are counted from 0 in the line as it is, of an answer in the context.
    """
    from crossling.cli.paths import check_file
    from crossling.cli.show_run import choose_writer
    from crossling.report.terminal import TerminalProgress, print_error
    from crossling.study.run_record import find_model

    write = choose_writer(output)
    check_file(file)
    model = find_model(run, seed=seed)
    if file is None and sys.stdin.isatty():
        print_error("reading from the keyboard: a text a line, then Ctrl-D")

    from crossling.inference.predictor import predict_file

    with TerminalProgress() as progress:
        # A bar would run through results that come to the same terminal.
        shown = None if sys.stdout.isatty() else progress
        predict_model = partial(predict_file, model, engine=engine, threads=threads, precision=precision)
        write(predict_model(file, language=language, words=words, progress=shown))


def suggest(
    run: ModelArgument,
    file: Annotated[Path, typer.Argument(help="Text without labels, a text a line; pairs with a tab between.")],
    out: Annotated[
        Path, typer.Option(help="Where they go: .json for Label Studio, .jsonl, or .conll for tags.", metavar="FILE")
    ],
    count: Annotated[int, typer.Option(help="How many to choose.", min=1)] = 100,
    language: LanguageOption = None,
    words: WordsOption = False,
    by: Annotated[
        str, typer.Option(help="Of tags: mean uncertainty of a text's words, or that of the least sure word (least).")
    ] = "mean",
    seed: SeedOption = None,
) -> None:
    """Choose the texts to label next (active learning).

    Those that the model is least sure of and that differ from each other, with its predictions to be corrected.
    """
    from crossling.inference.suggest import suggest_file
    from crossling.report.terminal import TerminalProgress, print_message
    from crossling.study.run_record import find_model

    with TerminalProgress() as progress:
        chosen = suggest_file(
            find_model(run, seed=seed), file, out, count=count, language=language, words=words, by=by, progress=progress
        )
    uncertainties = [one.uncertainty for one in chosen]
    print_message(
        f"{out}: {len(chosen):,} texts to label, uncertainty {min(uncertainties):.2f} to {max(uncertainties):.2f}"
    )


def export(
    run: ModelArgument,
    out: Annotated[Path, typer.Argument(help="The new folder.")],
    to: Annotated[
        str,
        typer.Option(
            help="crossling: to predict with torch or to train further. onnx: for ONNX Runtime. transformers: for its "
            "Auto classes."
        ),
    ] = "crossling",
    vocabulary: Annotated[
        str,
        typer.Option(help="whole: reads any language. used: only the subwords of its training text and of --on."),
    ] = "whole",
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="Data set (panx:de:dev) or text file whose subwords stay. Repeat as needed."),
    ] = None,
    precision: Annotated[
        str, typer.Option(help="float32, or with --to onnx int8: a quarter of the size, more than twice as fast.")
    ] = "float32",
    measure: Annotated[
        list[str] | None,
        typer.Option("--measure", help="Labelled set (panx:sw:dev) to score in both precisions. Repeat as needed."),
    ] = None,
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Also upload it to the hub, private where it is new.")
    ] = None,
    seed: SeedOption = None,
    store: StoreOption = None,
) -> None:
    """Write a trained model into a folder that needs nothing else.

    It holds encoder, tokenizer, heads, labels, and a README made from the record. Copy it to another machine: predict,
    serve and crossling.load read it there, and a recipe can start from its encoder. With --to transformers, programs
    that know nothing of crossling read it.
    """
    from crossling.report.terminal import print_message
    from crossling.store.artefacts import find_store
    from crossling.study.export import export_model
    from crossling.study.pushing import check_name, push_folder

    if push is not None:
        check_name(push)
    line = export_model(
        run,
        out,
        to=to,
        vocabulary=vocabulary,
        on=on or (),
        precision=precision,
        measure=measure or (),
        seed=seed,
        store=find_store(store),
    )
    print_message(line)
    if push is not None:
        print_message(f"uploaded to {push_folder(out, push)}")


def serve(
    models: Annotated[
        list[str],
        typer.Argument(metavar="[NAME=]FOLDER…", help="Folders of runs or of saved models, each with a name or not."),
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 for all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen at; 0 for any that is free.")] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(help="A file with the token that clients must send; default: the variable CROSSLING_TOKEN."),
    ] = None,
    no_auth: Annotated[
        bool, typer.Option("--no-auth", help="Serve other machines without a token, and by any host name.")
    ] = False,
    cors_origin: Annotated[
        list[str] | None,
        typer.Option(metavar="URL", help="A site whose pages may call the server. Repeat as needed."),
    ] = None,
    seed: SeedOption = None,
    engine: EngineOption = "auto",
    threads: ThreadsOption = None,
    precision: PrecisionOption = "auto",
    batch: Annotated[int, typer.Option(help="Inputs that go through a model together.")] = 32,
    wait: Annotated[float, typer.Option(help="Milliseconds that an input waits for others to share its batch.")] = 2.0,
    max_body: Annotated[int, typer.Option(help="Bytes of a request.")] = 1_048_576,
    max_items: Annotated[int, typer.Option(help="Texts, pairs or questions of a request.")] = 256,
    max_characters: Annotated[int, typer.Option(help="Characters of a text.")] = 10_000,
    max_total: Annotated[int, typer.Option(help="Characters of a request.")] = 200_000,
    max_queue: Annotated[int, typer.Option(help="Inputs that wait for a model.")] = 1_024,
    max_requests: Annotated[int, typer.Option(help="Requests that are answered at a time.")] = 256,
    timeout: Annotated[float, typer.Option(help="Seconds for a request to arrive, and again to be answered.")] = 30.0,
) -> None:
    """Serve trained models over HTTP, with a page to try them.

    Logs are JSON lines without any text of users. Ctrl-C or SIGTERM stops it when all accepted requests are answered.
    """
    from crossling.errors import UserError
    from crossling.inference.server.limits import Limits

    limits = Limits(
        body=max_body,
        items=max_items,
        characters=max_characters,
        total=max_total,
        queue=max_queue,
        requests=max_requests,
        seconds=timeout,
        batch=batch,
        wait=wait / 1000,
    )
    try:
        from crossling.inference.server import process
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn", "h11"):
            raise
        raise UserError(f"serve needs {error.name}: pip install 'crossling[serve]'") from None
    from crossling.inference.predictor import Predictor
    from crossling.report.terminal import print_message
    from crossling.study.run_record import find_model

    named = process.name_models(models)
    process.serve(
        {name: find_model(folder, seed=seed) for name, folder in named.items()},
        host=host,
        port=port,
        token=process.read_token(token_file),
        no_auth=no_auth,
        origins=cors_origin or (),
        limits=limits,
        load=partial(Predictor.load, engine=engine, threads=threads, precision=precision),
        ready=lambda address: print_message(f"page:    {address}/"),
    )
