"""docs/papers.md lists every equation, table and figure of the papers, and every entry of it leads somewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from command_line import parse_command
from crossling.papers.published import PAPERS, find_table, load_paper

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
FACTS = [load_paper(paper).facts.name for paper in PAPERS]
ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII")
LISTED = {
    "Feature aggregation": [
        *(f"Equation {number}" for number in range(1, 5)),
        *(f"Figure {number}" for number in range(1, 5)),
        *(f"Table {number}" for number in ROMAN),
    ],
    "Multilingual knowledge": [
        *(f"Table {number}" for number in range(1, 7)),
        *(f"Figure {number}" for number in ("1", "A1", "A2", "A3", "A4")),
    ],
    "Cross-lingual adjustment": [
        *(f"Equation {number}" for number in (1, 2)),
        *(f"Figure {number}" for number in (1, 2)),
        *(f"Table {number}" for number in range(1, 10)),
    ],
}
"""What the papers have, appendices included."""
CODE = sorted(set(re.findall(r"`(crossling/[\w/]+\.py): ([\w.]+)`", PAGE)))
COMMANDS = sorted(set(re.findall(r"`(crossling [^`]+)`", PAGE)) - {"crossling reproduce"})


@pytest.mark.parametrize("paper", LISTED)
def test_page_lists_every_equation_table_and_figure(paper: str) -> None:
    section = PAGE.split(f"## {paper}")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")][2:]
    named = [row[0] for row in rows]
    assert [name for name in LISTED[paper] if named.count(name) != 1] == []
    for row in rows:
        assert any(".py: " in cell or cell.startswith("not covered") for cell in row[2:]), row


@pytest.mark.parametrize(("file", "name"), CODE)
def test_code_is_where_the_page_says(file: str, name: str) -> None:
    body = ast.parse((ROOT / "src" / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = next((node for node in body if _name(node) == part), None)
        assert found is not None, f"{file} has no {name}"
        body = getattr(found, "body", [])


def _name(node: ast.stmt) -> str:
    """The name that a class, a function or an annotated field defines."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return node.name
    return node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else ""


@pytest.mark.parametrize("line", COMMANDS)
def test_commands_of_the_page_are_valid(line: str) -> None:
    command, words = parse_command(line)
    if command.name == "reproduce":
        assert words[0] in FACTS or find_table(words[0])
    if command.name == "run":
        assert (ROOT / words[0]).is_file()


def test_every_table_of_results_has_its_command() -> None:
    for paper in ("layer-fusion", "knowledge", "adjustment"):
        found = load_paper(paper)
        for table in (found.facts, *found.tables.values(), *found.figures.values()):
            assert f"crossling reproduce {table.name}" in COMMANDS
