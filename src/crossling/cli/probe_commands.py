"""The verb ``crossling probe``; nothing heavy is imported before it is needed."""

from __future__ import annotations

from typing import Annotated, Any

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

TasksOption = Annotated[
    str,
    typer.Option(help="pos, ner, nli, paraphrase, sentiment, with commas between; pos=ud names a data set."),
]
ScoreOption = Annotated[str, typer.Option(help="The score to show; files hold all.")]
AgainstOption = Annotated[
    str | None,
    typer.Option(help="What models are held against; default: the encoder that each was before training."),
]
RowsOption = Annotated[
    int | None, typer.Option(help="Of each task, at most so many random training rows; default: all.")
]
TestRowsOption = Annotated[int | None, typer.Option(help="Of each test, at most so many random rows; default: all.")]


def list_tasks(text: str) -> dict[str, dict[str, Any]]:
    """``pos=ud,ner`` as the tables of tasks."""
    tasks: dict[str, dict[str, Any]] = {}
    for item in split_codes(text):
        name, sign, data = item.partition("=")
        tasks[name.strip()] = {"on": data.strip()} if sign else {}
    return tasks


def probe(
    models: ModelsArgument,
    tasks: TasksOption,
    languages: LanguagesOption = "",
    score: ScoreOption = "macro_f1",
    against: AgainstOption = None,
    choose: Annotated[
        list[str] | None,
        typer.Option(metavar="CROSS:MULTI", help="Which auxiliary tasks two models' results speak for. Repeatable."),
    ] = None,
    min_gain: Annotated[float, typer.Option(help="Points that a chosen task's result must rise by.")] = 0.5,
    rows: RowsOption = None,
    test_rows: TestRowsOption = None,
    samples: Annotated[
        int | None, typer.Option(help="Train again on so many bootstrap samples, for the spread; default: none.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="The layer that is read; default: the last.")] = None,
    source: SourceOption = None,
    overrides: SetOption = None,
    out: OutOption = None,
) -> None:
    """What a linear probe reads from frozen encoders: how much more, or less, than from what they were."""
    from crossling.report.terminal import TerminalProgress
    from crossling.scores.metrics import explain
    from crossling.study.probing import analyse_with_bases, check_names, parse_pairs, present_probing
    from crossling.study.show_analysis import show_analysis, write_analysis

    table = {
        "kind": "probe",
        "tasks": list_tasks(tasks),
        "languages": split_codes(languages),
        "rows": rows,
        "test_rows": test_rows,
        "samples": samples,
        "layer": layer,
    }
    settings = read_settings(table, overrides)
    explain(score)  # an unknown one is an error now rather than after the work
    pairs = parse_pairs(choose or (), option="--choose")
    check_names(models, [name for pair in pairs for name in pair], option="--choose")
    with TerminalProgress() as progress:
        compared = analyse_with_bases(models, settings, against=against, source=source, progress=progress)
    if compared.bases:
        present_probing(compared, score=score, pairs=pairs, min_gain=min_gain, path=out)
    else:  # encoders as they were: there is nothing to subtract
        show_analysis(compared.analysis, write_analysis(compared.analysis, out))
