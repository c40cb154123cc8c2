"""Data sets and encoders on the terminal."""

from __future__ import annotations

from typing import Any

import pytest

from crossling.cli.show_data import show_catalogue, show_coverage, show_rows
from crossling.data.catalogue import describe, list_entries
from crossling.data.records import LabelledText, Question, TaggedSentence
from crossling.encoders.coverage import Coverage, Neighbour
from examples import make_rows


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_data_set_is_listed_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSSLING_DATA", raising=False)
    show_catalogue()
    printed = capsys.readouterr().out
    for name, version in list_entries():
        shown = f"{name}@{version}" if version else name
        [row] = [line for line in printed.splitlines() if line.startswith(f" {shown} ")]
        entry = describe(name, version)
        assert ("embedded" in row) == (not entry.hub and not entry.folder), row
    assert "xquad:context=en,question=zh" in printed


@pytest.mark.parametrize(
    ("kind", "text"),
    [(TaggedSentence, "cat/B-X"), (LabelledText, "label"), (Question, "answers")],
)
def test_rows_are_shown_with_their_labels(kind: Any, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = make_rows(kind, 5)
    show_rows(rows, 5)
    printed = capsys.readouterr().out
    assert f"5 rows of {kind.__name__}" in printed and text in printed and "/O" not in printed
    assert ("share" in printed) == (kind is not Question)


def make_coverage(*neighbours: Neighbour, **changes: Any) -> Coverage:
    values: dict[str, Any] = {
        "lines": 1,
        "words": 10,
        "pieces": 15,
        "fertility": 1.5,
        "whole": 0.5,
        "unknown_pieces": 0.0,
        "unknown_words": 0.0,
        "scripts": (("Latin", 1.0),),
        "unwritable": (),
        "neighbours": neighbours,
        "density": 3.0,
    }
    return Coverage(**(values | changes))


def test_coverage_shows_languages_that_have_something_in_common(capsys: pytest.CaptureFixture[str]) -> None:
    show_coverage(make_coverage(Neighbour("de", 0.41, 1.2), Neighbour("ru", 0.001, 1.5)))
    printed = capsys.readouterr().out
    assert "de German" in printed and "0.41" in printed and "Russian" not in printed
    assert "Compared with de ru" in printed
    show_coverage(make_coverage(Neighbour("ru", 0.001, 1.5)))
    assert "No language of the embedded corpus has similar subwords" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "its vocabulary covers this text"),
        ({"unknown_words": 0.3}, "cannot write 30% of the words"),
        ({"fertility": 3.0}, "many subwords"),
        ({"density": 0.4}, "many subwords"),
        ({"scripts": (("Hiragana", 0.4), ("Han", 0.3), ("Latin", 0.3))}, "single characters"),
        ({"scripts": (("Thai", 0.9), ("Latin", 0.1))}, "the encoder's own pieces"),
    ],
)
def test_coverage_says_what_its_numbers_mean(changes: dict[str, Any], words: str) -> None:
    facts = make_coverage(**changes).facts()
    assert words in f"{facts['words']} {facts['in short']}"
