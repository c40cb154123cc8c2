"""The command line: verbs only. Nothing heavy is imported before a verb needs it."""

from __future__ import annotations

import errno
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any

import typer

from crossling.cli.align import app as align_app
from crossling.cli.analyse import mount as mount_analyses
from crossling.cli.papers import reproduce
from crossling.cli.study import app as study_app

MENDABLE = {
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
}
"""Errors of the system that a user can mend: a place that cannot be written, a full disk."""

app = typer.Typer(
    name="crossling",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train a tagger, a classifier or a reader in one language, use it in a hundred.",
)


@app.callback()
def _load_plugins(
    plugins: Annotated[
        list[str] | None,
        typer.Option(
            "--plugin",
            metavar="FAMILY=FILE.py",
            help="Run a file that defines a custom kind, such as fusions=gated_mean.py. Repeat as needed.",
        ),
    ] = None,
) -> None:
    for plugin in plugins or ():
        from crossling.errors import UserError
        from crossling.registry import add_plugin

        family, equals, file = plugin.partition("=")
        if not equals:
            raise UserError(f"--plugin {plugin}: write FAMILY=FILE.py, such as fusions=gated_mean.py")
        add_plugin(family, file)


data_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, help="List data sets, or look into one.")
app.add_typer(data_app, name="data")
app.add_typer(study_app, name="study")
mount_analyses(app)
app.add_typer(align_app, name="align")
app.command()(reproduce)

RecipeArgument = Annotated[Path, typer.Argument(help="A recipe: a TOML file.", metavar="RECIPE.toml")]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: stage.0.epochs=2. Repeat as often as needed."),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="PATH", help="Where trained models and caches live (CROSSLING_STORE, .crossling)."),
]
SeedOption = Annotated[int | None, typer.Option(help="Which seed's model; default: the first.")]


def main() -> None:
    """Run a command; what the user can mend is told without a traceback, with exit code 2."""
    from crossling.errors import UserError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # what is read and written is UTF-8, wherever it is run
    try:
        app()
    except UserError as error:
        _tell(str(error))
        sys.exit(2)
    except OSError as error:
        if error.errno not in MENDABLE:
            raise
        _tell(f"{error.filename or 'output'}: {error.strerror}; name another place, or make room there")
        sys.exit(2)


def _tell(message: str) -> None:
    from crossling.report.terminal import print_error

    print_error(message)


@app.command()
def run(
    recipe: RecipeArgument,
    overrides: SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results; default: runs/NAME-OF-RECIPE.")] = None,
    store: StoreOption = None,
) -> None:
    """Train as a recipe says and score every language it names. Continues where a killed run stopped."""
    from crossling.recipe.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or ())
    _run(loaded, out=out or Path("runs") / recipe.stem, store=store, command=_command_line())


def _run(loaded: Any, *, out: Path, store: str | None, command: str, example: tuple[str, str] | None = None) -> None:
    """Carry out a recipe and show it; ``example`` is a language and a text to predict next, where one is at hand."""
    from dataclasses import replace

    from crossling.cli.console import show_run
    from crossling.report.terminal import TerminalProgress
    from crossling.store.artefacts import Store, find_store
    from crossling.study.recipe_run import run_recipe
    from crossling.study.run_report import summarise_run

    try:
        with TerminalProgress() as progress:
            runner = run_recipe(loaded, store=Store(find_store(store)), out=out, progress=progress, command=command)
    except KeyboardInterrupt:
        _tell("stopped; the same command goes on from the last checkpoint")
        raise typer.Exit(130) from None
    if runner.distributed.is_main and loaded.evaluate:
        summary = summarise_run(out, store=runner.store.root)
        language, text = example or (summary.results[-1].language, "")
        said = f"{_program()} predict {out} --language {language}"
        show_run(replace(summary, next_command=f"echo '{text}' | {said}" if text else f"{said} FILE"), out)


def _program() -> str:
    """How this very program can be called again: by its name, where the shell finds it."""
    import shutil

    started = Path(sys.argv[0])
    return "crossling" if shutil.which("crossling") or started.name != "crossling" else str(started)


def _command_line() -> str:
    import shlex

    return shlex.join(["crossling", *sys.argv[1:]])


@app.command()
def check(recipe: RecipeArgument, overrides: SetOption = None, store: StoreOption = None) -> None:
    """Validate a recipe; show it resolved, the data it would read, and how much memory it would take."""
    from crossling.cli.console import show_check
    from crossling.recipe.recipe import load_recipe
    from crossling.store.artefacts import find_store
    from crossling.study.memory import inspect_recipe

    show_check(inspect_recipe(load_recipe(recipe, overrides or ()), store=find_store(store)))


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a saved model.")],
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
    """Tag, classify or answer new text, a text a line; pairs (question and context too) with a tab between.

    Characters are counted from 0 in the line as it is, of an answer in the context; table, conll and jsonl have a
    result for every line that is not empty.
    """
    from crossling.cli.console import choose_writer

    write = choose_writer(output)
    if file is None and sys.stdin.isatty():
        _tell("reading from the keyboard: a text a line, then Ctrl-D")

    from crossling.inference.predictor import predict_file
    from crossling.report.terminal import TerminalProgress
    from crossling.study.folder import find_model

    with TerminalProgress() as progress:
        # A bar would run through results that come to the same terminal.
        shown = None if sys.stdout.isatty() else progress
        write(predict_file(find_model(run, seed=seed), file, language=language, words=words, progress=shown))


@data_app.callback()
def data(context: typer.Context) -> None:
    """List the catalogue of data sets."""
    if context.invoked_subcommand is None:
        from crossling.cli.console import show_catalogue

        show_catalogue()


@data_app.command("show")
def show_data(
    spec: Annotated[str, typer.Argument(help="A data set, such as panx:de or xnli:hi:dev[:100], or a recipe's table.")],
    rows: Annotated[int, typer.Option(help="How many rows to print.")] = 5,
    split: Annotated[str, typer.Option(help="The split, where the name does not say; test where there is one.")] = "",
    store: StoreOption = None,
) -> None:
    """Print rows and label counts of a data set."""
    from crossling.cli.console import show_cleaning, show_rows
    from crossling.data.catalogue import choose_split, open_data
    from crossling.data.spec import parse_data
    from crossling.store.artefacts import find_store

    named = parse_data(spec)
    found = open_data(named, split=split or choose_split(named), store=find_store(store))
    show_rows(found, rows)
    show_cleaning(named, found)


@app.command()
def encoder(
    name: Annotated[str, typer.Argument(help="A hub name, a folder, or multilingual-e5-small.")],
) -> None:
    """Describe an encoder: layers, heads, width, vocabulary."""
    from crossling.cli.console import show_encoder
    from crossling.encoders.loading import load_encoder

    show_encoder(load_encoder(name))


@app.command()
def coverage(
    name: Annotated[str, typer.Argument(help="A hub name, a folder, or multilingual-e5-small.", metavar="ENCODER")],
    file: Annotated[Path, typer.Argument(help="Text of the language, one sentence or paragraph a line.")],
) -> None:
    """Before any training: how well an encoder can write a language."""
    from crossling.cli.console import show_coverage
    from crossling.encoders.coverage import measure_coverage
    from crossling.encoders.loading import load_encoder

    show_coverage(measure_coverage(load_encoder(name), file))


@app.command()
def trim(
    name: Annotated[str, typer.Argument(help="A hub name, a folder, or multilingual-e5-small.", metavar="ENCODER")],
    on: Annotated[list[str], typer.Option("--on", help="Data set (panx:de:dev) or text file. Repeat as needed.")],
    out: Annotated[Path, typer.Option(help="Folder for the smaller encoder.")],
    blocks: Annotated[
        bool,
        typer.Option("--blocks", help="Of the offline encoder: keep its 4-bit blocks, a quarter the size."),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Write a smaller encoder that has only the subwords that some data uses."""
    from crossling.encoders.trimming import trim_on
    from crossling.report.terminal import print_message
    from crossling.store.artefacts import find_store

    print_message(trim_on(name, on, out, blocks=blocks, store=find_store(store)))


@app.command()
def extend(
    name: Annotated[str, typer.Argument(help="A hub name, a folder, or multilingual-e5-small.", metavar="ENCODER")],
    on: Annotated[Path, typer.Option("--on", help="Text of the language, one sentence or paragraph a line.")],
    pieces: Annotated[int, typer.Option(help="How many subwords to add, such as 10000.")],
    out: Annotated[Path, typer.Option(help="Folder for the larger encoder.")],
) -> None:
    """Write a larger encoder with subwords for a language, learnt from text; adapt it to that text next."""
    from crossling.cli.console import show_extended
    from crossling.encoders.extending import extend_on
    from crossling.report.terminal import TerminalProgress

    with TerminalProgress() as progress:
        done = extend_on(name, on, pieces=pieces, out=out, progress=progress)
    show_extended(done)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("demo"),
    overrides: SetOption = None,
    store: StoreOption = None,
) -> None:
    """A tour in minutes, without a network: four ways to train in English, scored in eight languages, with a report."""
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
            study, out=out, store=Store(find_store(store)), workers=None, progress=progress, command=_command_line()
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
    print_message(f"next:    echo 'Мария работает в Берлине.' | {_program()} predict {out / 'plain'} --language ru")


if __name__ == "__main__":
    main()
