"""What the verbs of analyses share: the list of models, common options, and the way from settings to files.

Nothing heavy is imported before a verb needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

ModelsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL",
        help="The folder of a study (or its file), of a run (RUN@0: after its first stage) or of a saved model; or an "
        "encoder as it was: multilingual-e5-small, a hub name, a folder. LABEL=WHERE gives a name.",
    ),
]
LanguagesOption = Annotated[str, typer.Option(help="Codes with commas between: de,hi,zh.")]
SourceOption = Annotated[
    str | None,
    typer.Option(help="The language that others are held against; default: what a model was trained on, en."),
]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="A CSV file; pictures go beside it. Default: in the folder of a study, run or model, else in analyses/.",
        metavar="FILE.csv",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any other setting of the analysis. Repeat as often as needed."),
]


def split_codes(text: str) -> list[str]:
    """``de, hi`` as a list."""
    return [code.strip() for code in text.split(",") if code.strip()]


def read_settings(table: Mapping[str, Any], overrides: Sequence[str] | None) -> Any:
    """An analysis's settings from options, of which those that are None were not set, and from ``--set``."""
    from crossling.recipe.overrides import apply_overrides
    from crossling.study.analysing import parse_settings

    given = {key: value for key, value in table.items() if value is not None}
    return parse_settings(apply_overrides(given, overrides or ()))


def carry_out(
    models: Sequence[str],
    table: Mapping[str, Any],
    *,
    overrides: Sequence[str] | None = None,
    source: str | None = None,
    out: Path | None = None,
) -> None:
    """Analyse models as a table of settings says, show what was found and write it; what is None was not set."""
    from crossling.report.terminal import TerminalProgress
    from crossling.study.analysing import analyse
    from crossling.study.show_analysis import show_analysis, write_analysis

    settings = read_settings(table, overrides)
    with TerminalProgress() as progress:
        found = analyse(models, settings, source=source, progress=progress)
    show_analysis(found, write_analysis(found, out))
