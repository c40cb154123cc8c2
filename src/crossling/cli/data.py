"""Verbs for data and encoders: ``data``, ``encoder``, ``coverage``, ``trim``, ``extend`` and ``align``.

Nothing heavy is imported before a verb needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crossling.cli.options import EncoderArgument, StoreOption
from crossling.cli.paths import check_encoder, check_file

data_app = typer.Typer(no_args_is_help=False, invoke_without_command=True, help="List data sets; show the rows of one.")


@data_app.callback()
def data(context: typer.Context) -> None:
    """List data sets; show the rows of one."""
    if context.invoked_subcommand is None:
        from crossling.cli.show_data import show_catalogue

        show_catalogue()


@data_app.command("show")
def show_data(
    spec: Annotated[str, typer.Argument(help="A data set, such as panx:de or xnli:hi:dev[:100], or a recipe's table.")],
    rows: Annotated[int, typer.Option(help="How many rows to print.")] = 5,
    split: Annotated[str, typer.Option(help="The split, where the name does not say; test where there is one.")] = "",
    store: StoreOption = None,
) -> None:
    """Show rows and label counts of a data set."""
    from crossling.cli.show_data import show_cleaning, show_rows
    from crossling.data.catalogue import choose_split, open_data
    from crossling.data.spec import parse_data
    from crossling.store.artefacts import find_store

    named = parse_data(spec)
    found = open_data(named, split=split or choose_split(named), store=find_store(store))
    show_rows(found, rows)
    show_cleaning(named, found)


def encoder(
    name: EncoderArgument,
    languages: Annotated[
        str, typer.Option(help="Languages to tokenize, such as de,hi,sw; default: those of the embedded corpus.")
    ] = "",
    revision: Annotated[str | None, typer.Option(help="A branch, tag or commit on the hub.")] = None,
    store: StoreOption = None,
) -> None:
    """Check an encoder before it is downloaded: whether it works, its size, how it tokenizes languages, its licence.

    Of a hub's encoder, nothing is downloaded but its configuration and tokenizer. Exit code 2 if it cannot be used.
    """
    check_encoder(name)
    from crossling.cli.show_data import show_encoder
    from crossling.errors import EncoderError
    from crossling.store.artefacts import find_store
    from crossling.study.encoder_report import inspect_encoder

    codes = [code.strip() for code in languages.split(",") if code.strip()]
    report = inspect_encoder(name, codes, revision=revision, store=find_store(store))
    show_encoder(report)
    if reasons := report.checkpoint.reasons:
        raise EncoderError(f"encoder {name!r} cannot be used: " + "\n".join(reasons))


def coverage(
    name: EncoderArgument,
    file: Annotated[Path, typer.Argument(help="Text of the language, one sentence or paragraph a line.")],
) -> None:
    """See how well an encoder's vocabulary covers a language: subwords per word, unknown words, scripts."""
    check_encoder(name)
    check_file(file)
    from crossling.cli.show_data import show_coverage
    from crossling.encoders.coverage import measure_coverage
    from crossling.encoders.loading import load_encoder

    show_coverage(measure_coverage(load_encoder(name), file))


def trim(
    name: EncoderArgument,
    on: Annotated[list[str], typer.Option("--on", help="Data set (panx:de:dev) or text file. Repeat as needed.")],
    out: Annotated[Path, typer.Option(help="Folder for the smaller encoder.")],
    blocks: Annotated[
        bool,
        typer.Option("--blocks", help="Of an encoder from a package: keep its quantised blocks, a quarter the size."),
    ] = False,
    layers: Annotated[int | None, typer.Option(help="Keep this many layers, from the lowest on; default: all.")] = None,
    store: StoreOption = None,
) -> None:
    """Make a smaller encoder: a vocabulary of only the subwords that some data uses, and fewer layers."""
    check_encoder(name)
    for file in (one for one in on if ":" not in one):  # a data set is named with its language
        check_file(Path(file))
    from crossling.encoders.trimming import trim_on
    from crossling.report.terminal import print_message
    from crossling.store.artefacts import find_store

    print_message(trim_on(name, on, out, blocks=blocks, layers=layers, store=find_store(store)))


def extend(
    name: EncoderArgument,
    on: Annotated[Path, typer.Option("--on", help="Text of the language, one sentence or paragraph a line.")],
    pieces: Annotated[int, typer.Option(help="How many subwords to add, such as 10000.")],
    out: Annotated[Path, typer.Option(help="Folder for the larger encoder.")],
) -> None:
    """Make a larger encoder: a vocabulary with more subwords for a language, learnt from its text.

    Their vectors are initial values: adapt the encoder to text of the language next.
    """
    check_encoder(name)
    check_file(on)
    from crossling.cli.show_data import show_extended
    from crossling.encoders.extending import extend_on
    from crossling.report.terminal import TerminalProgress

    with TerminalProgress() as progress:
        done = extend_on(name, on, pieces=pieces, out=out, progress=progress)
    show_extended(done)


DEFAULT = "run"


class _RunByDefault(TyperGroup):
    """``crossling align SRC TGT`` means ``crossling align run SRC TGT``; a file named like a verb is ``./score``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


align_app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Word alignment: link the words of sentences and their translations.",
)

SourceArgument = Annotated[
    Path, typer.Argument(help="Sentences, one a line, words with spaces between.", metavar="SRC")
]
TargetArgument = Annotated[
    Path | None,
    typer.Argument(help="Their translations; none where SRC has both, with ||| between.", metavar="[TGT]"),
]
BaseOption = Annotated[
    int | None,
    typer.Option(help="The number of a sentence's first word in GOLD; default: 1 if no 0 occurs.", min=0, max=1),
]


@align_app.command(DEFAULT)
def align(
    source: SourceArgument,
    target: TargetArgument = None,
    *,
    out: Annotated[Path, typer.Option(help="Where the links go, a line a pair: 0-0 1-2.", metavar="LINKS")],
    aligner: Annotated[str, typer.Option(help="neural, statistical or eflomal.")] = "neural",
    symmetrize: Annotated[
        str | None,
        typer.Option(help="intersection, union, grow-diag, grow-diag-final or grow-diag-final-and."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the aligner: layer=8. Repeat as needed."),
    ] = None,
) -> None:
    """Write word links in Pharaoh format, counted from 0. This is what crossling align SRC TGT does."""
    check_file(source)
    check_file(target)
    from crossling.aligners import align_words, parse_aligner
    from crossling.aligners.corpus import read_corpus
    from crossling.aligners.links import write_links
    from crossling.recipe.overrides import apply_overrides
    from crossling.report.terminal import TerminalProgress, print_message

    table = {"kind": aligner} | ({"symmetrize": symmetrize} if symmetrize else {})
    settings = parse_aligner(apply_overrides(table, overrides or ()))
    corpus = read_corpus(source, target)
    with TerminalProgress() as progress:
        links = align_words(corpus, settings, progress=progress)
    write_links(links, out)
    print_message(f"{len(links.pairs):,} links between the words of {len(corpus):,} sentence pairs: {out}")


@align_app.command("lexicon")
def make_lexicon(
    source: Annotated[
        Path | None, typer.Argument(help="Sentences, one a line, words with spaces between.", metavar="[SRC]")
    ] = None,
    target: TargetArgument = None,
    *,
    out: Annotated[Path, typer.Option(help="Where the lexicon goes.", metavar="LEXICON.tsv")],
    on: Annotated[
        list[str] | None,
        typer.Option("--on", help="A parallel data set (ntrex:en-de) in place of SRC, or a table. Repeat as needed."),
    ] = None,
    languages: Annotated[
        str, typer.Option(help="Of SRC and TGT: en-de. Default: what their names or that of the lexicon say.")
    ] = "",
    aligner: Annotated[str, typer.Option(help="neural, statistical or eflomal.")] = "neural",
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the aligner: layer=8. Repeat as needed."),
    ] = None,
    least: Annotated[int | None, typer.Option(help="The fewest links that an entry has.", show_default="2")] = None,
    most: Annotated[int | None, typer.Option(help="The most translations of a word.", show_default="3")] = None,
    probability: Annotated[
        float | None, typer.Option(help="The least p(target|source) of an entry.", show_default="0.1")
    ] = None,
    identical: Annotated[
        bool, typer.Option("--identical", help="Keep words that are the same in both languages.")
    ] = False,
    gold: Annotated[Path | None, typer.Option(help="Gold links of SRC, to score the lexicon by.")] = None,
    base: BaseOption = None,
    store: StoreOption = None,
) -> None:
    """Make a bilingual lexicon from parallel text: words, translations, probabilities."""
    from crossling.aligners.lexicon import (
        LexiconSettings,
        build_lexicon,
        choose_pair,
        link_files,
        link_sets,
        open_sets,
        write_lexicon,
    )
    from crossling.aligners.score import read_gold
    from crossling.cli.show_data import show_lexicon
    from crossling.data.cache import validate_settings
    from crossling.data.spec import parse_data
    from crossling.errors import UserError
    from crossling.recipe.overrides import apply_overrides
    from crossling.report.terminal import TerminalProgress
    from crossling.store.artefacts import find_store

    if (source is None) == (not on):
        raise UserError("name parallel text, either as files (SRC TGT) or as data sets (--on ntrex:en-de)")
    if gold and on:
        raise UserError("--gold: gold links belong to the lines of a file; name it as SRC, without --on")
    given = {"least": least, "most": most, "probability": probability, "identical": identical}
    settings = validate_settings(LexiconSettings, {k: v for k, v in given.items() if v is not None}, name="lexicon")
    right = read_gold(gold, base=base) if gold else None
    table = apply_overrides({"kind": aligner}, overrides or ())
    with TerminalProgress() as progress:
        if source is None:
            sets = open_sets([parse_data(spec) for spec in on or ()], store=find_store(store))
            linked = link_sets(sets, aligner=table, progress=progress)
        else:
            pair = choose_pair(languages, source, target, out)
            linked = link_files(source, target, language_pair=pair, aligner=table, progress=progress)
    lexicon = build_lexicon(linked, settings)
    write_lexicon(lexicon, out)
    show_lexicon(lexicon, linked, out, gold=right, identical=identical)


@align_app.command("score")
def score_links_file(
    links: Annotated[Path, typer.Argument(help="Links in Pharaoh format, counted from 0.")],
    gold: Annotated[Path, typer.Argument(help="Gold links: 3-4 sure, 3p4 possible.")],
    base: BaseOption = None,
) -> None:
    """Precision, recall, F1 and alignment error rate of links, by gold links."""
    from crossling.aligners.links import read_links
    from crossling.aligners.score import read_gold, score_links
    from crossling.report.terminal import print_message

    right = read_gold(gold, base=base)
    result = score_links(read_links(links), right)
    if base is None:
        why = "no word 0 occurs" if right.base else "a word 0 occurs"
        print_message(
            f"{gold}: words are counted from {right.base}, for {why} (--base {1 - right.base} if that is wrong)"
        )
    print_message(
        f"AER {result.aer:.4f}  precision {result.precision:.4f}  recall {result.recall:.4f}  F1 {result.f1:.4f}"
    )
    print_message(
        f"{result.proposed:,} links, {result.right:,} of them right; {result.found:,} of {result.sure:,} sure ones"
    )


@align_app.command("draw")
def draw_links(
    links: Annotated[Path, typer.Argument(help="Links in Pharaoh format, counted from 0.")],
    source: SourceArgument,
    target: TargetArgument = None,
    *,
    line: Annotated[int, typer.Option(help="Which pair: its line, from 1.", min=1)] = 1,
    gold: Annotated[Path | None, typer.Option(help="Gold links, to be drawn too.")] = None,
    base: BaseOption = None,
    out: Annotated[Path, typer.Option(help="The picture.", metavar="FILE.svg")],
) -> None:
    """Draw one pair's links as a grid of words."""
    from crossling.aligners.picture import draw_pair
    from crossling.files import write_atomic
    from crossling.report.terminal import print_message

    write_atomic(out, draw_pair(links, source, target, line=line, gold=gold, base=base))
    print_message(f"the links of line {line}: {out}")
