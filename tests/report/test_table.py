"""The one table type: every format of it shows the same cells."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest
from markupsafe import Markup
from rich.console import Console

from crossling.report.table import PageRow, Table

ROWS = (("", "a_b", "1.5 ± 0.1 ▲"), ("", "<c>", "–"), ("", "mean", "1.0"))
TABLE = Table("A | title", ("task", "system", "score"), ROWS, 2, ("A note.",), "t", kinds=("source", "", "average"))


def print_table(table: Table, width: int = 80, **options: bool) -> str:
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(table.to_rich(**options))
    return text.getvalue()


def test_json_reads_back_equal() -> None:
    assert Table.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE
    with_page = replace(TABLE, page=(PageRow("g"),) * 3)
    assert Table.from_json(json.loads(json.dumps(with_page.to_json()))) == TABLE


def test_csv_has_the_cells_as_they_are() -> None:
    assert list(csv.reader(io.StringIO(TABLE.to_csv()))) == [list(TABLE.head), *map(list, ROWS)]


def test_markdown_escapes_and_sets_means_in_italics() -> None:
    assert TABLE.to_markdown(level=3).splitlines() == [
        "### A \\| title",
        "",
        "| task | system | score |",
        "| --- | --- | --: |",
        "|  | a_b | 1.5 ± 0.1 ▲ |",
        "|  | \\<c> | – |",
        "|  | *mean* | *1.0* |",
        "",
        "- A note.",
    ]


def test_latex_has_a_rule_above_the_means() -> None:
    lines = TABLE.without_empty_names().to_latex().splitlines()
    assert lines[:4] == ["% A | title", "% A note.", r"% needs \usepackage{booktabs,amssymb}", r"\begin{tabular}{lr}"]
    assert lines[4:] == [
        r"\toprule", r"system & score \\", r"\midrule",
        r"a\_b & 1.5 $\pm$ 0.1$^{\blacktriangle}$ \\", r"$<$c$>$ & -- \\", r"\midrule", r"mean & 1.0 \\",
        r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip


def test_html_escapes_cells_and_marks_kinds() -> None:
    html = TABLE.without_empty_names().to_html(caption="<c>", view="scores")
    assert html.startswith('<table class="sheet plain" data-view="scores"><caption>&lt;c&gt;</caption>')
    assert '<tr class="line source"><th scope="row">a_b</th><td class="value">1.5 ± 0.1 ▲</td></tr>' in html
    assert '<tr class="line"><th scope="row">&lt;c&gt;</th>' in html and "<c>" not in html


def test_html_of_a_page_groups_rows() -> None:
    page = (PageRow("x", {"data-key": '"'}, (Markup("<b>1</b>"),)), PageRow("y"), PageRow(""))
    html = replace(TABLE.select([1]), page=page).to_html()
    assert '<tbody class="group single"><tr class="line source" data-key="&#34;"><th scope="row"><b>1</b></th>' in html
    assert html.count('<tbody class="group single">') == 2 and '<tbody class="means"><tr class="line average">' in html


@pytest.mark.parametrize("width", [44, 60])
def test_terminal_never_cuts_a_figure(width: int) -> None:
    head = ("system", "base", *(f"s{n}" for n in range(12)))
    row = ("a rather long name", "1.00 ± 0.01", *(f"{n}.25 ± 0.05" for n in range(12)))
    printed = print_table(Table("", head, (row,), repeated=1), width)
    assert all(cell in printed for cell in row[1:])
    parts = sum("base" in line for line in printed.splitlines())
    assert printed.count("1.00 ± 0.01") == parts > 1, "the repeated column stands in every part"


def test_terminal_shows_title_and_notes_only_where_asked() -> None:
    assert "A note." not in print_table(TABLE) and "A | title" not in print_table(TABLE)
    whole = print_table(TABLE, whole=True)
    assert whole.strip().startswith("A | title") and "A note." in whole and "<c>" in whole
