"""The terminal shows names and users' texts as they are."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import TextColumn

from crossling.cli.show_study import show_forecast
from crossling.report import terminal
from crossling.report.table import Table
from crossling.report.terminal import TerminalProgress, format_seconds, print_error, print_facts, print_message
from crossling.study.forecast import Forecast, TimeForecast, VariantForecast

TEXT = ":id: [b]:heart:[/b] :smiley:"


def test_emoji_names_and_markup_in_texts_stay_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    print_message(TEXT)
    print_error(TEXT)
    print_facts({"text": TEXT})
    terminal.out.print(Table("", (":id:", "text"), ((":heart:", TEXT),), names=2).to_rich())
    captured = capsys.readouterr()
    assert captured.out.count(TEXT) == 3 and captured.err.count(TEXT) == 1
    assert ":id:" in captured.out.splitlines()[-4]


def test_name_of_a_fact_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_facts({"[/b] :id:": "x"})
    assert "[/b] :id:" in capsys.readouterr().out


def test_bar_shows_names_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=200)
    monkeypatch.setattr(terminal, "err", screen)
    progress = TerminalProgress()
    progress.begin(f"predicting {TEXT}", 2)
    progress.advance(loss=TEXT)
    columns = [column for column in progress._bar.columns if isinstance(column, TextColumn)]
    shown = [column.render(progress._bar.tasks[0]).plain for column in columns]
    assert shown == [f"predicting {TEXT}", f"loss {TEXT}"]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (0.3, "under 1 s"), (31.5, "32 s"), (600, "10 min"), (5_400, "1.5 h"), (8.64e6, "2,400 h")],
)
def test_durations_have_the_unit_that_fits_their_size(seconds: float, shown: str) -> None:
    assert format_seconds(seconds) == shown


def test_forecast_of_a_study_shows_durations_as_people_write_them(capsys: pytest.CaptureFixture[str]) -> None:
    times = (TimeForecast(1, 0.00875, 0.0175), TimeForecast(2, 30.0, 3_000.0))
    show_forecast(Forecast((VariantForecast("", "plain", 3, 0, 3, 3),), (), times, on_gpu=False, basis=""))
    printed = capsys.readouterr().out
    assert "32 s" in printed and "63 s" in printed and "30.0 h" in printed and "3,000 h" in printed
    assert "0.00875" not in printed and "core time" in printed
