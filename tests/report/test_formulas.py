"""Cells that a spreadsheet would run as formulas are text in every CSV file, and are read back as they were."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import crossling
from crossling.analyses._probes.results import ProbingResult, read_csv, results_to_csv
from crossling.analyses.result import table_to_csv
from crossling.report.table import Table, neutralise, restore_cell

FORMULAS = (
    "=1+1",
    '=HYPERLINK("http://x","y")',
    "@SUM(A1)",
    "+cmd|' /C calc'!A0",
    "-cmd|' /C calc'!A0",
    "\t=1+1",
    "\r=1+1",
    "＝1+1",
    "-A1",
    "'=1+1",
)
FIGURES = ("-0.5", "+1.25", "-1.20 ± 0.30", "+0.31 ▲", "-", "–", "1e-05", "-1e-05", "-inf", "12,000", "")


@pytest.mark.parametrize("cell", FORMULAS)
def test_formulas_become_text(cell: str) -> None:
    read = next(csv.reader(io.StringIO(Table("", (cell,), ()).to_csv(), newline="")))
    assert read == [f"'{cell}"]
    assert restore_cell(read[0]) == cell


@pytest.mark.parametrize("cell", FIGURES)
def test_figures_stay_figures(cell: str) -> None:
    assert neutralise(cell) == restore_cell(cell) == cell


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.text(st.sampled_from("'=+-@\t\ra1. "), max_size=6))
def test_every_cell_is_read_back(cell: str) -> None:
    written = neutralise(cell)
    assert restore_cell(written) == cell
    assert written[:1] not in ("=", "@", "＝")


def test_analyses_write_text_and_read_it_back(tmp_path: Path) -> None:
    table = pa.table({"word": ["=1+1", "plain", None], "n": [-1, 2, 3]})
    assert table_to_csv(table).splitlines() == ['"word","n"', '"\'=1+1",-1', '"plain",2', ",3"]
    result = ProbingResult("=evil()", "1", "@probe", True, "de", "accuracy", 0, 0.5, "-base", 0.25, 100)
    (tmp_path / "probe.csv").write_text(results_to_csv([result]), encoding="utf-8")
    assert "'=evil()" in (tmp_path / "probe.csv").read_text(encoding="utf-8")
    assert read_csv(tmp_path / "probe.csv") == [result]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node to run the page's script")
def test_the_page_of_the_server_writes_text() -> None:
    script = Path(str(crossling.__file__)).parent / "inference" / "server" / "page" / "formats.js"
    rows = [
        {"line": 1, "model": "m", "result": {"text": cell, "label": "-0.5", "confidence": -0.5}} for cell in FORMULAS
    ]
    code = f"""
        const {{ writeFile }} = await import({json.dumps(script.as_uri())});
        process.stdout.write(writeFile("csv", {json.dumps(rows)}, ["m"], "words").text);
    """
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, check=True)
    cells = list(csv.DictReader(io.StringIO(done.stdout.decode().removeprefix("\ufeff"), newline="")))
    assert [row["text"] for row in cells] == [f"'{cell}" for cell in FORMULAS]
    assert {(row["label"], row["confidence"]) for row in cells} == {("-0.5", "-0.5")}
