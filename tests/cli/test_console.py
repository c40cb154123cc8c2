"""What is shown: nothing cut off, nothing taken for markup, every result in its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.cli.console import (
    choose_writer,
    show_catalogue,
    show_check,
    show_coverage,
    show_encoder,
    show_facts,
    show_predictions,
    show_rows,
    show_run,
)
from crossling.data.catalogue import describe, list_entries
from crossling.data.records import LabelledText, Question, TaggedSentence
from crossling.encoders.coverage import Coverage, Neighbour
from crossling.errors import UserError
from crossling.report.run_summary import RunSummary, gather_result
from crossling.study.memory import Inspection
from examples import make_rows
from tiny import tiny_encoder

LONG = "漢字" * 80
WORD = {"word": "[b]我", "start": 2, "end": 6, "tag": "B-PER", "confidence": 0.875}
SPAN = {"span": "[b]我", "label": "PER", "start": 2, "end": 6, "confidence": 0.875}


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def show(capsys: pytest.CaptureFixture[str], found: list[dict[str, Any]], output: str) -> str:
    show_predictions(iter(found), output)
    return capsys.readouterr().out


def squeeze(text: str) -> str:
    return "".join(c for c in text if c not in " \n│┃")


def test_spans_are_listed_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        {"line": 3, "text": "x", "spans": [SPAN], "words": [WORD]},
        {"line": 7, "text": "y", "spans": [], "words": []},
    ]
    printed = show(capsys, found, "table")
    [row] = [line for line in printed.splitlines() if "PER" in line]
    assert [cell.strip() for cell in row.strip("│").split("│")] == ["3", "[b]我", "PER", "2–6", "0.88"]
    assert "B-PER" not in printed
    assert any("7" in line and "no span" in line for line in printed.splitlines())


def test_words_are_listed_where_tags_are_no_spans(capsys: pytest.CaptureFixture[str]) -> None:
    printed = show(capsys, [{"line": 3, "text": "x", "words": [WORD]}], "table")
    assert "[b]我" in printed and "B-PER" in printed and "2–6" in printed


def test_long_text_without_spaces_is_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    printed = show(capsys, [{"line": 1, "text": LONG, "label": "good", "confidence": 1.0}], "table")
    assert LONG.count("漢") == printed.count("漢") and "…" not in printed
    show_facts({"context": LONG})
    assert squeeze(capsys.readouterr().out).endswith(LONG)


def test_answers_show_their_characters_and_not_their_context(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        {"line": 1, "question": "wer?", "context": LONG, "answer": "ich", "start": 4, "end": 7, "confidence": 0.5},
        {"line": 2, "question": "was?", "context": LONG, "answer": "", "start": -1, "end": -1, "confidence": 0.0},
    ]
    printed = show(capsys, found, "table")
    assert "漢" not in printed and "4–7" in printed and "-1" not in printed


def test_columns_and_json_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    found = [{"line": 1, "text": "x", "words": [WORD, WORD]}, {"line": 2, "text": "", "words": []}]
    assert show(capsys, found, "conll") == "[b]我\tB-PER\n[b]我\tB-PER\n\n\n"
    lines = show(capsys, found, "jsonl").splitlines()
    assert [json.loads(line) for line in lines] == found
    assert "我" in lines[0]


def test_results_are_written_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    def come() -> Any:
        yield {"line": 1, "label": "a"}
        assert '"line": 1' in capsys.readouterr().out
        yield {"line": 2, "label": "b"}

    show_predictions(come(), "jsonl")
    assert '"line": 2' in capsys.readouterr().out


def test_an_unknown_format_is_told_at_once() -> None:
    with pytest.raises(UserError, match="Did you mean 'conll'"):
        choose_writer("conl")


def test_every_data_set_is_listed_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CROSSLING_DATA", raising=False)
    show_catalogue()
    printed = capsys.readouterr().out
    for name, version in list_entries():
        shown = f"{name}@{version}" if version else name
        [row] = [line for line in printed.splitlines() if line.startswith(f"│ {shown} ")]
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


def test_checks_show_recipe_data_and_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = 'seeds = [1]\n[[stage]]\nkind = "finetune"\n'
    show_check(Inspection(recipe, [("stage.0: train", make_rows(TaggedSentence, 7))], {"stage.0": "about 2 GB"}))
    printed = capsys.readouterr().out
    assert printed.startswith(recipe)
    assert "made-TaggedSentence:en" in printed and " 7 " in printed and "about 2 GB" in printed


def test_encoders_show_their_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    show_encoder(tiny_encoder("bert", layers=2, pooler=True))
    printed = capsys.readouterr().out
    assert "2 a layer, 4 in all" in printed and "pooler" in printed and "yes" in printed


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
    assert "No language of the embedded corpus is cut alike" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "can write this text"),
        ({"unknown_words": 0.3}, "cannot write 30% of the words"),
        ({"fertility": 3.0}, "to shreds"),
        ({"density": 0.4}, "to shreds"),
        ({"scripts": (("Hiragana", 0.4), ("Han", 0.3), ("Latin", 0.3))}, "single characters"),
        ({"scripts": (("Thai", 0.9), ("Latin", 0.1))}, "the encoder's own pieces"),
    ],
)
def test_coverage_says_what_its_numbers_mean(changes: dict[str, Any], words: str) -> None:
    facts = make_coverage(**changes).facts()
    assert words in f"{facts['words']} {facts['in short']}"


def test_a_run_leaves_its_tables_and_its_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from crossling.scores.predictions import Predictions

    predictions = Predictions.from_classes(
        "hi", "made:hi", labels=["a", "b"], gold=[0, 1], predicted=[0, 0], confidence=[0.9, 0.8]
    )
    summary = RunSummary(
        title="made",
        encoder="tiny",
        task="sentiment",
        source="en",
        main_score="accuracy",
        results=(gather_result("made", [predictions], samples=[]),),
        next_command="crossling predict made FILE",
    )
    show_run(summary, tmp_path)
    printed = capsys.readouterr().out
    assert "50.0" in printed and "crossling predict made FILE" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"scores.md", "scores-made.csv", "page.html"}
    assert "50.0" in (tmp_path / "scores.md").read_text(encoding="utf-8")
