"""Scores, checked recipes and predictions on the terminal: nothing cut off, nothing taken for markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from crossling.cli.show_run import choose_writer, show_check, show_run
from crossling.cli.show_study import show_comparison
from crossling.data.records import TaggedSentence
from crossling.errors import UserError
from crossling.report.run_summary import RunSummary, gather_result
from crossling.report.terminal import print_facts
from crossling.scores.predictions import Predictions
from crossling.study.compare import StudyComparison
from crossling.study.memory import Inspection
from examples import make_rows

LONG = "漢字" * 80
WORD = {"word": "[b]我", "start": 2, "end": 6, "tag": "B-PER", "confidence": 0.875}
SPAN = {"span": "[b]我", "label": "PER", "start": 2, "end": 6, "confidence": 0.875}


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def show(capsys: pytest.CaptureFixture[str], found: list[dict[str, Any]], output: str) -> str:
    choose_writer(output)(iter(found))
    return capsys.readouterr().out


def squeeze(text: str) -> str:
    return "".join(c for c in text if c not in " \n")


def test_spans_are_listed_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        {"line": 3, "text": "x", "spans": [SPAN], "words": [WORD]},
        {"line": 7, "text": "y", "spans": [], "words": []},
    ]
    printed = show(capsys, found, "table")
    [row] = [line for line in printed.splitlines() if "PER" in line]
    assert row.split() == ["3", "[b]我", "PER", "2–6", "0.88"]
    assert "B-PER" not in printed
    assert any("7" in line and "no span" in line for line in printed.splitlines())


def test_words_are_listed_where_tags_are_no_spans(capsys: pytest.CaptureFixture[str]) -> None:
    printed = show(capsys, [{"line": 3, "text": "x", "words": [WORD]}], "table")
    assert "[b]我" in printed and "B-PER" in printed and "2–6" in printed


def test_long_text_without_spaces_is_not_cut_off(capsys: pytest.CaptureFixture[str]) -> None:
    printed = show(capsys, [{"line": 1, "text": LONG, "label": "good", "confidence": 1.0}], "table")
    assert LONG.count("漢") == printed.count("漢") and "…" not in printed
    print_facts({"context": LONG})
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

    choose_writer("jsonl")(come())
    assert '"line": 2' in capsys.readouterr().out


def test_unknown_format_is_refused() -> None:
    with pytest.raises(UserError, match="Did you mean 'conll'"):
        choose_writer("conl")


def test_check_shows_recipe_data_and_forecast(capsys: pytest.CaptureFixture[str]) -> None:
    recipe = 'seeds = [1]\n[[stage]]\nkind = "finetune"\n'
    show_check(Inspection(recipe, [("stage.0: train", make_rows(TaggedSentence, 7))], {"stage.0": "about 2 GB"}))
    printed = capsys.readouterr().out
    assert printed.startswith(recipe)
    assert "made-TaggedSentence:en" in printed and " 7 " in printed and "about 2 GB" in printed


def test_run_shows_scores_files_and_next_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    show_run(summary, tmp_path, program="bin/crossling")
    printed = capsys.readouterr().out
    assert "50.0" in printed and "bin/crossling predict made FILE" in printed
    assert f"page:    {tmp_path}/page.html" in printed


def test_comparison_ends_with_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    show_comparison(StudyComparison("s", (), (), (), ("seed-scores.csv",)), Path("studies/s"))
    assert capsys.readouterr().out.endswith("next:    crossling study report studies/s\n")
