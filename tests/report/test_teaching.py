"""Rounds of teaching as a table and a figure, from records of stages."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from crossling.report.teaching import show_rounds


def record(dev: float | None, **languages: tuple[int, int, float]) -> dict[str, Any]:
    found = {
        name: {"offered": offered, "kept": kept, "agreement": agreement, "classes": {"no": 1, "yes": kept - 1}}
        for name, (offered, kept, agreement) in languages.items()
    }
    return {"dev_score": dev, "teaching": {"languages": found}}


ROUNDS = [
    [record(0.5, de=(100, 20, 0.2), hi=(300, 30, 0.4)), record(0.7, de=(100, 40, 0.4), hi=(300, 30, 0.4))],
    [record(0.8, de=(100, 50, 0.5), hi=(300, 60, 0.6))],
]


def test_rounds_are_averaged_over_seeds() -> None:
    part = show_rounds({"taught": ROUNDS})
    assert part is not None
    (table,) = part.tables
    assert table.head == (
        *("system", "round", "language", "classes", "offered", "kept", "kept %", "all agree %", "dev %"),
    )
    rows = {row[1:3]: row[3:] for row in table.rows}
    assert rows["1", "de"] == ("no 3 %, yes 97 %", "100", "30", "30.0", "30.0", "")
    assert rows["1", "all"] == ("no 3 %, yes 97 %", "400", "60", "15.0", "37.5", "60.0")
    assert rows["2", "all"][1:] == ("400", "110", "27.5", "57.5", "80.0")


def test_a_figure_has_a_line_for_each_language() -> None:
    part = show_rounds({"taught": ROUNDS, "once": ROUNDS[:1]})
    assert part is not None
    (figure,) = part.figures  # a single round is no line
    assert figure.title == "taught: over rounds"
    svg = unquote(str(figure.drawing))
    for text in (">de<", ">hi<", ">all teachers agree, percent<", ">score on dev, percent<"):
        assert text in svg, text


def test_nothing_is_shown_where_nothing_was_taught() -> None:
    assert show_rounds({}) is None
    assert show_rounds({"plain": [[{"dev_score": 0.5}]]}) is None


def test_a_run_without_dev_or_classes_is_shown() -> None:
    facts = {"offered": 4, "kept": 2, "agreement": 0.5, "classes": {}}
    part = show_rounds({"": [[{"dev_score": None, "teaching": {"languages": {"de": facts}}}]] * 2})
    assert part is not None and part.figures
    assert part.tables[0].head[:2] == ("round", "language") and part.tables[0].rows[0][-1] == ""
