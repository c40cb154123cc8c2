"""Tables of scores: order, averages, and three ways to print them."""

from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from crossling.errors import ArtefactError
from crossling.report.summary import LanguageResult, RunSummary
from crossling.report.tables import average, format_percent, score_table, score_tables


def make_result(language: str, *values: float, data: str = "panx", **more: object) -> LanguageResult:
    scores = {"accuracy": tuple(value / 2 for value in values), "span_f1": values}
    return LanguageResult(data, language, scores, examples=1000, **more)  # type: ignore[arg-type]


def make_summary(*results: LanguageResult, **changes: object) -> RunSummary:
    values = {"title": "A [bold] run", "encoder": "e", "task": "ner", "source": "en", "main_score": "span_f1"}
    return RunSummary(**{**values, **changes}, results=results)  # type: ignore[arg-type]


THREE = (make_result("zh", 0.4, 0.6), make_result("de", 0.7, 0.8), make_result("en", 0.9, 0.9))


def test_source_first_then_by_code_then_averages() -> None:
    table = score_table(make_summary(*THREE))
    assert table.scores == ("span_f1", "accuracy")
    assert [row.code for row in table.rows] == ["en", "de", "zh", "", ""]
    assert [row.is_source for row in table.rows] == [True, False, False, False, False]
    assert [str(row.cells[0]) for row in table.rows] == [
        "90.0 ± 0.0",
        "75.0 ± 7.1",
        "50.0 ± 14.1",
        "71.7 ± 7.1",  # seeds: (40+70+90)/3 and (60+80+90)/3
        "62.5 ± 10.6",
    ]
    assert [row.name for row in table.rows[-2:]] == ["mean of 3", "mean of 2 zero-shot"]


def test_every_language_trained_on_is_left_out_of_the_zero_shot_mean() -> None:
    table = score_table(make_summary(*THREE, sources=("eng_Latn", "de")))
    assert table.rows[-1].name == "mean of 1 zero-shot"
    assert str(table.rows[-1].cells[0]) == "50.0 ± 14.1"


def test_no_zero_shot_mean_without_the_source() -> None:
    assert [row.name for row in score_table(make_summary(*THREE[:2])).rows if row.is_average] == ["mean of 2"]


def test_average_needs_equal_seeds_for_a_spread() -> None:
    cell = average([make_result("de", 0.5), make_result("es", 0.7, 0.9)], "span_f1")
    assert (cell.mean, cell.spread) == (pytest.approx(0.65), None)
    assert str(average([], "span_f1")) == "–"


def test_format_percent() -> None:
    assert format_percent(0.8184, 0.0031) == "81.8 ± 0.3"
    assert format_percent(1.0) == "100.0"
    assert format_percent(float("nan")) == "–"


def test_rich_table_fits_80_columns_and_shows_text_as_it_is() -> None:
    summary = make_summary(*THREE, make_result("no", 0.2, 0.3, variant="question=[red]"))
    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(score_table(summary).to_rich())
    printed = text.getvalue()
    lines = [line for line in printed.splitlines() if "±" in line]
    assert [line.split()[0] for line in lines[:4]] == ["en", "de", "no", "zh"]
    assert "A [bold] run: panx" in printed
    assert "question=[red]" in printed
    narrow = io.StringIO()
    Console(file=narrow, width=80, color_system=None).print(score_table(make_summary(*THREE)).to_rich())
    assert "…" not in narrow.getvalue()
    assert "German" in narrow.getvalue()


def test_markdown() -> None:
    lines = score_table(make_summary(*THREE)).to_markdown().splitlines()
    assert lines[0] == "| code | language | rows | span_f1 | accuracy |"
    assert lines[2] == "| en | English | 1,000 | 90.0 ± 0.0 | 45.0 ± 0.0 |"
    assert lines[-1].startswith("|  | *mean of 2 zero-shot* | *2,000* |")
    assert len({line.count("|") for line in lines}) == 1


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(score_table(make_summary(*THREE)).to_csv())))
    assert [row["code"] for row in rows] == ["en", "de", "zh"]
    assert float(rows[1]["span_f1_mean"]) == pytest.approx(75)
    assert float(rows[1]["span_f1_sd"]) == pytest.approx(7.071, abs=1e-3)


def test_one_table_for_each_data_set() -> None:
    summary = make_summary(*THREE, make_result("de", 0.1, data="masakhaner"))
    assert [table.title for table in score_tables(summary)] == [
        "A [bold] run: panx",
        "A [bold] run: masakhaner",
    ]
    with pytest.raises(ArtefactError, match="'panx'"):
        score_table(summary, "pan")
    with pytest.raises(ArtefactError, match="without results"):
        score_table(make_summary())
