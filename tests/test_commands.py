"""Every command in the documentation and in the comments of recipes has verbs and options that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import parse_command

ROOT = Path(__file__).parent.parent
FILES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "recipes").rglob("*.toml")]
)
NOT_COMMANDS = re.compile(r"crossling (--|implements|analyse (KIND|layer_updates)\b)|…")
"""Options of the program, sentences, the kind that CONTRIBUTING adds, and commands that are cut short."""


def _find_commands(path: Path) -> list[str]:
    """Lines of listings and comments that begin with the program's name, and such words within a sentence."""
    text = re.sub(r"\\\n\s*(#\s*)?", " ", path.read_text(encoding="utf-8"))
    found = re.findall(r"^(?:    |# +)?(crossling .+)$", text, flags=re.MULTILINE)
    found += re.findall(r"`(crossling [^`\n]+)`", text)
    return [line for line in found if not NOT_COMMANDS.search(line)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_are_valid(path: Path) -> None:
    for line in _find_commands(path):
        command, words = parse_command(line)
        if command.name in ("run", "check") and words and words[0].startswith("recipes/"):
            assert (ROOT / words[0]).is_file(), line


def test_commands_are_found() -> None:
    assert sum(len(_find_commands(path)) for path in FILES) > 200


def test_an_unknown_option_or_verb_is_an_error() -> None:
    for line in ("crossling run x.toml --sett a=1", "crossling analyse distance x", "crossling probe x"):
        with pytest.raises(Exception, match="No such|unknown kind"):
            parse_command(line)
