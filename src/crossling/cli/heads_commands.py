"""The verbs of ``crossling heads``; nothing heavy is imported before it is needed."""

from __future__ import annotations

from typing import Annotated

import typer

from crossling.cli.analysis_options import (
    LanguagesOption,
    ModelsArgument,
    OutOption,
    SetOption,
    SourceOption,
    read_settings,
    split_codes,
)
from crossling.cli.probe_commands import (
    AgainstOption,
    RowsOption,
    TasksOption,
    TestRowsOption,
    list_tasks,
)

app = typer.Typer(no_args_is_help=True, help="Attention heads: how much training changed each, and what it knows.")


@app.command()
def updates(
    models: ModelsArgument,
    against: AgainstOption = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(metavar="FIRST:SECOND", help="Draw the difference of two models' maps. Repeatable."),
    ] = None,
    part: Annotated[
        str, typer.Option(help="What of a head: update (all of it), query, key, value or output.")
    ] = "update",
    normalise: Annotated[
        str, typer.Option(help="What maps are divided by: mean over heads, max, range, weights of the head, or none.")
    ] = "mean",
    out: OutOption = None,
) -> None:
    """How much training changed the weights of each attention head: maps, differences, rank correlations."""
    from crossling.report.terminal import TerminalProgress
    from crossling.study.analysing import analyse, parse_settings
    from crossling.study.head_updates import check_choices, find_against, present_updates
    from crossling.study.probing import check_names, parse_pairs

    check_choices(part, normalise)
    pairs = parse_pairs(compare or (), option="--compare")
    check_names(models, [name for pair in pairs for name in pair], option="--compare")
    settings = parse_settings({"kind": "heads", "against": find_against(models, against)})
    with TerminalProgress() as progress:
        found = analyse(models, settings, progress=progress)
    present_updates(found, part=part, normalise=normalise, pairs=pairs, path=out)


@app.command()
def probe(
    models: ModelsArgument,
    tasks: TasksOption,
    languages: LanguagesOption = "",
    score: Annotated[str, typer.Option(help="macro_f1 or accuracy.")] = "macro_f1",
    measure: Annotated[
        str, typer.Option(help="difference: what training added to a head's score; score: the score as it is.")
    ] = "difference",
    top: Annotated[
        str, typer.Option(help="How many heads are the best: 40,60,80 or 25%; default: as 40, 60 and 80 of 144.")
    ] = "",
    baseline: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=MODEL", help="What others are compared with; default: the first trained for it."),
    ] = None,
    against: AgainstOption = None,
    rows: RowsOption = None,
    test_rows: TestRowsOption = None,
    source: SourceOption = None,
    overrides: SetOption = None,
    out: OutOption = None,
) -> None:
    """What a linear probe reads from every attention head, and which of the best heads models share."""
    from crossling.errors import DataError
    from crossling.report.head_maps import parse_top
    from crossling.report.terminal import TerminalProgress
    from crossling.study.head_probing import check_choices, present_heads
    from crossling.study.probing import analyse_with_bases, check_names

    table = {
        "kind": "head_probe",
        "tasks": list_tasks(tasks),
        "languages": split_codes(languages),
        "rows": rows,
        "test_rows": test_rows,
    }
    settings = read_settings(table, overrides)
    named = dict(item.partition("=")[::2] for item in baseline or ())
    if not all(named.values()):
        raise DataError("--baseline: write a task and a model's name, such as pos=pos-cross")
    check_choices(score, measure)
    tops = split_codes(top)
    for text in tops:
        parse_top(text)
    check_names(models, list(named.values()), option="--baseline")
    with TerminalProgress() as progress:
        compared = analyse_with_bases(models, settings, against=against, source=source, progress=progress)
    chosen = measure if compared.bases else "score"  # of encoders as they were nothing was added
    present_heads(compared, score=score, measure=chosen, tops=tops, baselines=named, path=out)
