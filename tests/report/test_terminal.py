"""The terminal shows names and users' texts as they are."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import TextColumn

from crossling.cli.show_run import choose_writer
from crossling.cli.show_study import show_forecast
from crossling.errors import UserError
from crossling.report import terminal
from crossling.report.table import Table
from crossling.report.terminal import TerminalProgress, format_seconds, print_error, print_facts, print_message
from crossling.study.forecast import Forecast, TimeForecast, VariantForecast

TEXT = ":id: [b]:heart:[/b] :smiley:"


def test_lines_are_wrapped_for_a_terminal_and_not_for_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    name = "panx:en:train " * 20
    for shown, lines in ((io.StringIO(), 1), (StandIn(), 4)):
        terminal.SafeConsole(file=shown).print(name.strip())
        assert len(shown.getvalue().splitlines()) == lines
    monkeypatch.setenv("COLUMNS", "100")
    assert terminal.SafeConsole(file=io.StringIO()).width == 100


class StandIn(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True


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


HOSTILE = "a\x1b]0;owned\x07\x1b[31mred\r\x08\x9b2J\x7f\u202egnp.exe\u2066\u2028\ud800b"
"""A title, a colour, a deletion, an override of the order of letters, half a character."""
SHOWN = r"a\u001b]0;owned\u0007\u001b[31mred\u000d\u0008\u009b2J\u007f\u202egnp.exe\u2066\u2028\ud800b"


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal would be sent."""
    written = io.StringIO()
    for name in ("out", "err"):
        shown = terminal.SafeConsole(
            file=written, force_terminal=True, width=400, highlight=False, emoji=False, no_color=True
        )
        monkeypatch.setattr(terminal, name, shown)
    return written


def check_screen(written: io.StringIO) -> None:
    text = written.getvalue()
    assert SHOWN in text
    assert "\u202e" not in text and "\x9b" not in text and "\x07" not in text
    assert "\x1b]0;" not in text and "\x1b[31mred" not in text


def test_control_characters_in_messages_are_shown_escaped(screen: io.StringIO) -> None:
    for write in (print_message, print_error, lambda text: print_facts({text: text})):
        screen.seek(0)
        screen.truncate()
        write(HOSTILE)
        check_screen(screen)


def test_control_characters_in_tables_are_shown_escaped(screen: io.StringIO) -> None:
    table = Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, "1"),), notes=(HOSTILE,))
    terminal.out.print(table.to_rich(whole=True))
    check_screen(screen)
    assert screen.getvalue().count(SHOWN) == 4


def test_control_characters_in_progress_and_logs_are_shown_escaped(screen: io.StringIO) -> None:
    import logging

    before = logging.getLogger().handlers[:]
    try:
        with TerminalProgress() as progress:
            progress.begin(f"reading {HOSTILE}", 2, 1)
            progress.advance(loss=HOSTILE)
            progress.say(HOSTILE)
            logging.getLogger("crossling").warning("%s: broken", HOSTILE)
            progress._bar.refresh()
    finally:
        logging.getLogger().handlers = before
    check_screen(screen)


def test_control_characters_in_warnings_without_a_progress_bar_are_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.tsv").write_text("Anna\tB-PER\nbroken\n\nBob\tB-PER\n", encoding="utf-8")
    table = '{ format = "bio", path = "a\\u001b[31m.tsv", language = "en", on_error = "skip" }'
    command = [sys.executable, "-m", "crossling", "data", "show", table]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "a\\u001b[31m.tsv: 1 broken row skipped" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout


def test_warnings_for_a_pipe_end_where_their_text_ends() -> None:
    code = (
        "import logging; from crossling.report.terminal import TerminalProgress\n"
        "with TerminalProgress(): logging.getLogger('crossling').warning('%s is damaged', 'rows.tsv')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "WARNING  rows.tsv is damaged\n"


def test_messages_of_errors_hold_no_control_characters() -> None:
    assert str(UserError(f"{HOSTILE}: no such file\nsecond line")) == f"{SHOWN}: no such file\nsecond line"


@pytest.mark.parametrize("output", ["jsonl", "conll", "label_studio"])
def test_predictions_are_escaped_on_a_terminal_and_unchanged_in_a_pipe(
    output: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    word = "a\x9b2J\u202eb"
    found = [{"text": word, "words": [{"word": word, "tag": word, "start": 0, "end": 6, "confidence": 1.0}], "line": 1}]
    choose_writer(output)(found)
    assert word in capsys.readouterr().out
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    choose_writer(output)(found)
    printed = capsys.readouterr().out
    assert word not in printed and r"a\u009b2J\u202eb" in printed
