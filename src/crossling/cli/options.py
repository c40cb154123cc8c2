"""Arguments and options that several verbs share."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from crossling.addresses import mask_credentials

RecipeArgument = Annotated[Path, typer.Argument(help="A recipe: a TOML file.", metavar="RECIPE.toml")]
EncoderArgument = Annotated[
    str, typer.Argument(help="A hub name, a folder, or multilingual-e5-small.", metavar="ENCODER")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key: stage.0.epochs=2. Repeat as often as needed."),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="PATH", help="Where trained models and caches live (CROSSLING_STORE, .crossling)."),
]


def name_command() -> str:
    """The command that was given, for the record of what it made, without credentials."""
    return mask_credentials(shlex.join(["crossling", *sys.argv[1:]]))


def name_program() -> str:
    """What this program can be called by again: its name, where the shell finds it, or else its path."""
    started = Path(sys.argv[0])
    return "crossling" if shutil.which("crossling") or started.name != "crossling" else str(started)
