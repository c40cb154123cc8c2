"""Parse a command without running it: verbs and options must exist."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import typer
import typer.main

from crossling.cli.main import app


@cache
def get_program() -> Any:
    """All verbs with their options, which takes longer to build than to ask."""
    return typer.main.get_command(app)


def parse_command(line: str) -> tuple[Any, list[str]]:
    """The verb of ``crossling …`` and the words after it; a word that the verb does not take is an error."""
    _, *words = shlex.split(line, comments=True)
    for sign in ("|", ">", "&&"):
        words = words[: words.index(sign)] if sign in words else words
    command = get_program()
    while hasattr(command, "commands") and words:
        if command.name == "align" and words[0] not in command.commands:
            words = ["run", *words]
        _, command, words = command.resolve_command(typer.Context(command), words)
    if not hasattr(command, "commands"):
        _, rest, _ = command.make_parser(typer.Context(command)).parse_args(list(words))
        assert rest == [], f"{line}: too many words"
    return command, words
