"""The verbs of ``crossling align``; nothing heavy is imported before a verb needs it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

DEFAULT = "run"


class _RunByDefault(TyperGroup):
    """``crossling align SRC TGT`` means ``crossling align run SRC TGT``; a file named like a verb is ``./score``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_RunByDefault,
    no_args_is_help=True,
    help="Link the words of sentences and their translations: crossling align SRC TGT --out LINKS.",
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


@app.command(DEFAULT)
def run(
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
    """Link words and write the links in Pharaoh format, counted from 0. The default: crossling align SRC TGT."""
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


@app.command()
def score(
    links: Annotated[Path, typer.Argument(help="Links in Pharaoh format, counted from 0.")],
    gold: Annotated[Path, typer.Argument(help="Gold links: 3-4 sure, 3p4 possible.")],
    base: BaseOption = None,
) -> None:
    """Precision, recall, F1 and alignment error rate against links that people drew."""
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


@app.command()
def draw(
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
    from crossling.report.terminal import print_message

    out.write_text(draw_pair(links, source, target, line=line, gold=gold, base=base), encoding="utf-8")
    print_message(f"the links of line {line}: {out}")
