"""A run's results are gathered over seeds without losing or mixing any, and shown in tables with means."""

from __future__ import annotations

import csv
import io
import math

import pytest
from rich.console import Console

from crossling.errors import ArtefactError
from crossling.report.run_summary import (
    LanguageResult,
    RunSummary,
    TagSample,
    average,
    format_percent,
    gather_result,
    list_seeds,
    score_data,
    score_table,
    score_tables,
)
from crossling.scores.predictions import Predictions


def make_classes(predicted: list[int], labels: tuple[str, ...] = ("a", "b"), language: str = "de") -> Predictions:
    gold = [0, 1, 1, 0]
    return Predictions.from_classes(
        language, "x:de", labels=labels, gold=gold, predicted=predicted, confidence=[1.0] * 4
    )


def test_scores_are_gathered_by_seed() -> None:
    result = gather_result("x", [make_classes([0, 1, 1, 0]), make_classes([0, 0, 1, 0])])
    assert result.scores["accuracy"] == (1.0, 0.75)
    assert result.mean("accuracy") == pytest.approx(0.875)
    assert result.spread("accuracy") == pytest.approx(0.1767767)
    assert (result.language, result.data, result.examples) == ("de", "x", 4)


def test_confusions_are_added_by_label_name() -> None:
    result = gather_result("x", [make_classes([0, 1, 1, 0]), make_classes([0, 1, 1, 1], labels=("b", "a"))])
    assert result.confusion is not None
    assert result.confusion.gold == result.confusion.predicted == ("a", "b")
    # The first seed is all right; in the second, code 0 is b: gold b a a b against predicted b a a a.
    assert result.confusion.counts.tolist() == [[4, 0], [1, 3]]


def test_one_seed_has_no_spread_and_a_missing_score_no_mean() -> None:
    result = gather_result("x", [make_classes([0, 1, 1, 0])])
    assert result.spread("accuracy") is None
    assert math.isnan(result.mean("span_f1"))


def test_answers_have_no_confusion() -> None:
    answers = Predictions.from_answers(
        "de", "q", ids=["1"], gold=[["a"]], predicted=["a"], starts=[0], confidence=[1.0]
    )
    result = gather_result("q", [answers], variant="question=en")
    assert result.confusion is None
    assert (result.variant, result.scores["qa_f1"]) == ("question=en", (1.0,))


def test_predictions_of_different_kinds_are_refused() -> None:
    with pytest.raises(ArtefactError, match="different kinds"):
        gather_result("x", [make_classes([0, 1, 1, 0]), make_classes([0, 1, 1, 0], language="fr")])
    with pytest.raises(ArtefactError, match="no predictions"):
        gather_result("x", [])


def test_a_sample_has_a_tag_for_every_word() -> None:
    with pytest.raises(AssertionError):
        TagSample(("a", "b"), ("X",), ("X",))
    assert isinstance(gather_result("x", [make_classes([0, 1, 1, 0])]), LanguageResult)


def make_result(language: str, *values: float, data: str = "panx", **more: object) -> LanguageResult:
    scores = {"accuracy": tuple(value / 2 for value in values), "span_f1": values}
    return LanguageResult(data, language, scores, examples=1000, **more)  # type: ignore[arg-type]


def make_summary(*results: LanguageResult, **changes: object) -> RunSummary:
    values = {"title": "A [bold] run", "encoder": "e", "task": "ner", "source": "en", "main_score": "span_f1"}
    return RunSummary(**{**values, **changes}, results=results)  # type: ignore[arg-type]


THREE = (make_result("zh", 0.4, 0.6), make_result("de", 0.7, 0.8), make_result("en", 0.9, 0.9))


def test_source_first_then_by_code_then_averages() -> None:
    table = score_table(make_summary(*THREE))
    assert table.head == ("code", "language", "rows", "span_f1", "accuracy")
    assert [row[0] for row in table.rows] == ["en", "de", "zh", "", ""]
    assert table.kinds == ("source", "", "", "average", "average")
    assert [row[3] for row in table.rows] == [
        "90.0 ± 0.0",
        "75.0 ± 7.1",
        "50.0 ± 14.1",
        "71.7 ± 7.1",  # seeds: (40+70+90)/3 and (60+80+90)/3
        "62.5 ± 10.6",
    ]
    assert [row[1] for row in table.rows[-2:]] == ["mean of 3", "mean of 2 zero-shot"]


def test_every_language_trained_on_is_left_out_of_the_zero_shot_mean() -> None:
    table = score_table(make_summary(*THREE, sources=("eng_Latn", "de")))
    assert table.rows[-1][1] == "mean of 1 zero-shot"
    assert table.rows[-1][3] == "50.0 ± 14.1"


def test_labels_with_few_gold_items_are_named_below_macro_f1_alone() -> None:
    results = [
        Predictions.from_classes(code, f"x:{code}", labels=("a", "b"), gold=gold, predicted=gold, confidence=[1.0] * 30)
        for code, gold in (("en", [0] * 15 + [1] * 15), ("de", [0] * 27 + [1] * 3))
    ]
    changes: dict[str, object] = {"main_score": "macro_f1"}
    summary = make_summary(*(gather_result("x", [run], variant=f"{run.language}_a") for run in results), **changes)
    note = (
        "Note: x: macro_f1 gives labels with fewer than 10 gold items the weight of the others, so that single items "
        "move it: de_a b (3); in a study, crossling study compare --score macro_f1_supported leaves them out."
    )
    table = score_table(summary)
    assert table.notes == (note,)
    assert note in table.to_markdown()
    assert score_table(make_summary(*summary.results, main_score="accuracy")).notes == ()
    assert score_table(make_summary(summary.results[0], **changes)).notes == ()


def test_no_zero_shot_mean_without_the_source() -> None:
    table = score_table(make_summary(*THREE[:2]))
    assert [row[1] for row, kind in zip(table.rows, table.kinds, strict=True) if kind == "average"] == ["mean of 2"]


def test_average_needs_equal_seeds_for_a_spread() -> None:
    cell = average([make_result("de", 0.5), make_result("es", 0.7, 0.9)], "span_f1")
    assert (cell.mean, cell.spread) == (pytest.approx(0.65), None)
    assert str(average([], "span_f1")) == "–"


def test_percentages_have_one_decimal_and_their_deviation() -> None:
    assert format_percent(0.8184, 0.0031) == "81.8 ± 0.3"
    assert format_percent(1.0) == "100.0"
    assert format_percent(float("nan")) == "–"


def test_terminal_table_fits_80_columns_and_escapes_markup() -> None:
    summary = make_summary(*THREE, make_result("no", 0.2, 0.3, variant="question=[red]"))
    text = io.StringIO()
    Console(file=text, width=100, color_system=None).print(score_table(summary).to_rich(whole=True))
    printed = text.getvalue()
    lines = [line for line in printed.splitlines() if "±" in line]
    assert [line.split()[0] for line in lines[:4]] == ["en", "de", "no", "zh"]
    assert "A [bold] run: panx" in printed
    assert "question=[red]" in printed
    narrow = io.StringIO()
    Console(file=narrow, width=80, color_system=None).print(score_table(make_summary(*THREE)).to_rich(whole=True))
    assert "…" not in narrow.getvalue()
    assert "German" in narrow.getvalue()


def test_markdown_has_all_scores_and_italic_means() -> None:
    lines = score_table(make_summary(*THREE)).to_markdown().splitlines()[2:]
    assert lines[0] == "| code | language | rows | span_f1 | accuracy |"
    assert lines[2] == "| en | English | 1,000 | 90.0 ± 0.0 | 45.0 ± 0.0 |"
    assert lines[-1].startswith("|  | *mean of 2 zero-shot* | *2,000* |")
    assert len({line.count("|") for line in lines}) == 1


def test_csv_reads_back() -> None:
    rows = list(csv.DictReader(io.StringIO(score_data(make_summary(*THREE)).to_csv())))
    assert [row["code"] for row in rows] == ["en", "de", "zh"]
    assert float(rows[1]["span_f1_mean"]) == pytest.approx(75)
    assert float(rows[1]["span_f1_sd"]) == pytest.approx(7.071, abs=1e-3)


def test_every_seed_is_a_line() -> None:
    mixed = make_result("es", 0.5, 0.6, data="xquad", variant="context=es,question=en")
    rows = list(csv.DictReader(io.StringIO(list_seeds(make_summary(*THREE, mixed, seeds=(3, 7))).to_csv())))
    found = {(row["data"], row["language"], row["seed"], row["score"]): float(row["percent"]) for row in rows}
    assert len(found) == len(rows) == 16
    assert found["panx", "zh", "7", "span_f1"] == 60 and found["panx", "de", "3", "accuracy"] == 35
    assert found["xquad", "context=es,question=en", "3", "span_f1"] == 50
    assert [row["score"] for row in rows] == ["span_f1", "accuracy"] * 8, "the main score first"


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
