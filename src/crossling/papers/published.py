"""The papers' tables as printed, figure by figure, read from the package's data."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from crossling.errors import UserError, nearest

FOLDER = Path(__file__).parent
PAPERS = ("layer-fusion", "knowledge", "adjustment")
_FIGURE = re.compile(r"(?P<number>[+-]?\d+(\.(?P<decimals>\d+))?)(?P<mark>\**)")


@dataclass(frozen=True)
class PublishedValue:
    """A number as it was printed."""

    text: str
    """Empty where it could not be read in the paper's text."""
    value: float | None
    decimals: int = 0
    mark: str = ""
    """The paper's own stars for significance."""


@dataclass(frozen=True)
class PublishedTable:
    """A table of a paper."""

    paper: str
    number: int | str
    """Of a figure its name, ``figure-1``: what it shows is printed as pictures alone, so that none can be read."""
    holds: str
    """What it is about, in a line."""
    unit: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    figures: Mapping[tuple[str, str], PublishedValue]
    """By row and column; a cell that the paper leaves out is missing here too."""
    contradictions: tuple[str, ...]
    """Where the paper says of this table what it does not hold, or says two things."""

    @property
    def name(self) -> str:
        return f"{self.paper}/{self.number}"

    def value(self, row: str, column: str) -> float:
        """A figure that is known to be there."""
        found = self.figures[row, column].value
        assert found is not None
        return found


@dataclass(frozen=True)
class PublishedFacts:
    """Table 1 of a paper: its data sets or languages, as text."""

    name: str
    holds: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    texts: Mapping[tuple[str, str], str]


@dataclass(frozen=True)
class Paper:
    """A paper and its tables."""

    name: str
    title: str
    authors: str
    tables: Mapping[int, PublishedTable]
    figures: Mapping[str, PublishedTable]
    """Those that show results."""
    facts: PublishedFacts


@cache
def load_paper(name: str) -> Paper:
    """All that is on record of a paper."""
    facts = read_data(f"{name}-published.toml")
    tables = {int(number): _parse_table(name, int(number), table) for number, table in facts["tables"].items()}
    figures = {label: _parse_table(name, label, table) for label, table in facts.get("figures", {}).items()}
    return Paper(name, facts["title"], facts["authors"], tables, figures, _parse_facts(name, facts["facts"]))


def read_data(file: str) -> dict[str, Any]:
    """A TOML file of this package."""
    return tomllib.loads((FOLDER / file).read_text(encoding="utf-8"))


def list_tables() -> list[PublishedTable]:
    """The tables of all papers."""
    return [table for name in PAPERS for table in load_paper(name).tables.values()]


def list_figures() -> list[PublishedTable]:
    """The figures of all papers that show results, as tables of what they draw."""
    return [figure for name in PAPERS for figure in load_paper(name).figures.values()]


def find_table(name: str) -> PublishedTable:
    """A table by name, ``layer-fusion/2``, or a figure, ``adjustment/figure-1``."""
    known = {table.name: table for table in (*list_tables(), *list_figures())}
    if name not in known:
        raise UserError(f"{name!r}: no such table.{nearest(name, known)}")
    return known[name]


def _parse_facts(paper: str, table: Mapping[str, Any]) -> PublishedFacts:
    head, *lines = _split_cells(table["figures"])
    texts = {(row, column): text for row, *cells in lines for column, text in zip(head[1:], cells, strict=True)}
    return PublishedFacts(f"{paper}/1", table["holds"], tuple(row for row, *_ in lines), tuple(head[1:]), texts)


def _split_cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in text.strip("\n").splitlines()]


def _parse_table(paper: str, number: int | str, table: Mapping[str, Any]) -> PublishedTable:
    head, *lines = _split_cells(table["figures"])
    figures: dict[tuple[str, str], PublishedValue] = {}
    for row, *cells in lines:
        assert len(cells) == len(head) - 1, f"{paper}/{number}: {row} has {len(cells)} cells"
        for place, (column, text) in enumerate(zip(head[1:], cells, strict=True)):
            if text == "<":  # printed once for several columns
                figures[row, column] = figures[row, head[place]]
            elif text != "-":
                figures[row, column] = parse_value(text)
    return PublishedTable(
        paper,
        number,
        table["holds"],
        table["unit"],
        tuple(row for row, *_ in lines),
        tuple(head[1:]),
        figures,
        tuple(table.get("contradictions", ())),
    )


def parse_value(text: str) -> PublishedValue:
    """A printed number with its marks; an empty one could not be read."""
    if not text:
        return PublishedValue("", None)
    match = _FIGURE.fullmatch(text)
    assert match is not None, f"{text!r} is no figure"
    return PublishedValue(text, float(match["number"]), len(match["decimals"] or ""), match["mark"])
