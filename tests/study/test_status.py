"""The state of a study, from its files alone."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from crossling import files
from crossling.cli import entry
from crossling.cli.main import main as parsed_main
from crossling.cli.show_study import ROWS, render_status, watch_status
from crossling.errors import ArtefactError
from crossling.files import append_line, read_lines, write_atomic, write_once
from crossling.report.terminal import format_seconds
from crossling.study.folder import Training, find_out, read_plan
from crossling.study.status import (
    STATES,
    JobProgress,
    RunningJob,
    StudyStatus,
    find_schedulers,
    read_status,
    remove_scheduler,
    write_scheduler,
)
from small_study import study_command


def make_folder(out: Path, cells: int = 6) -> Path:
    """A study of two systems: one cell done, one failed, one at work."""
    systems = {system: {"recipe": "ner.toml"} for system in ("plain", "fused")}
    seeds = list(range(1, cells // 2 + 1))
    plan = {
        "name": "made",
        "settings": {"seeds": seeds, "baseline": "plain", "systems": systems},
        "store": "store",
        "variants": [
            {"task": "", "system": system, "axes": {}, "label": system, "folder": system} for system in systems
        ],
        "cells": [
            {
                "name": f"{system}/seed-{seed}",
                "folder": system,
                "task": "",
                "system": system,
                "label": system,
                "seed": seed,
                "stages": ["first", f"{system}-{seed}"],
                "identity": f"{system}-{seed}",
            }
            for system in systems
            for seed in seeds
        ],
    }
    write_atomic(out / "study.json", json.dumps(plan))
    for name in ("plain/seed-1", "plain/seed-2", "fused/seed-1"):
        (out / name).mkdir(parents=True)
    write_once(out / "plain/seed-1/complete.json", {"identity": "plain-1", "seconds": 10.0})
    write_once(out / "plain/seed-2/complete.json", {"identity": "of other work", "seconds": 1.0})
    write_atomic(out / "fused/seed-1/failed.json", json.dumps({"error": "out of luck", "log": "logs/x.log"}))
    return out


def work(cell: str, *, stage: int | None = 1) -> RunningJob:
    progress = JobProgress("fine-tuning (seed 3)", 25, 100, {"loss": "0.5"})
    return RunningJob(1, cell, "j", stage, time.time() - 3, progress)


def render_text(status: StudyStatus, *, every: bool = False) -> str:
    console = Console(width=200, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    console.print(render_status(status, every=every))
    return console.export_text()


def states(out: Path) -> dict[str, str]:
    return {cell.name: cell.state for cell in read_status(out).cells}


def test_states_come_from_markers_and_running_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)
    out = make_folder(tmp_path)
    assert states(out)["plain/seed-1"] == "done"
    assert states(out)["plain/seed-2"] == "waiting", "a marker of other work does not count"
    assert states(out)["fused/seed-1"] == "failed"
    assert read_status(out).seconds_left is None, "no process runs it"
    write_scheduler(out, "s", workers=2, working=[work("plain/seed-3")])
    status = read_status(out)
    assert states(out)["plain/seed-3"] == "running"
    assert status.cells[2].share == 0.25
    # plain: one took 10 s, one is at 3 s for a quarter (12 s), so 11 s each; fused of the same task likewise.
    assert status.seconds_left == pytest.approx((11 * 0.75 + 3 * 11) / 2)
    remove_scheduler(out)
    assert states(out)["plain/seed-3"] == "waiting"


def test_scheduler_that_is_stopped_while_it_writes_its_state_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "publish", stop)
    monkeypatch.setattr(files.shutil, "rmtree", stop)  # a second Ctrl-C
    with pytest.raises(KeyboardInterrupt):
        write_scheduler(tmp_path, "s", workers=1, working=[])
    monkeypatch.undo()
    assert list((tmp_path / "runners").iterdir())
    remove_scheduler(tmp_path)
    assert not list((tmp_path / "runners").iterdir())


def test_dead_scheduler_does_not_count_as_running(tmp_path: Path) -> None:
    write_scheduler(tmp_path, "s", workers=1, working=[])
    path = next((tmp_path / "runners").iterdir())
    facts = json.loads(path.read_text(encoding="utf-8"))
    assert [one.process for one in find_schedulers(tmp_path)] == [os.getpid()]
    ended = subprocess.Popen(["true"])
    ended.wait()
    path.write_text(json.dumps({**facts, "process": ended.pid}), encoding="utf-8")
    assert find_schedulers(tmp_path) == []
    elsewhere = {**facts, "machine": "elsewhere", "updated": time.time() - 10}
    path.write_text(json.dumps(elsewhere), encoding="utf-8")
    assert len(find_schedulers(tmp_path)) == 1
    path.write_text(json.dumps({**elsewhere, "updated": time.time() - 100}), encoding="utf-8")
    assert find_schedulers(tmp_path) == []


def test_status_table_shows_counts_progress_errors_and_time(tmp_path: Path) -> None:
    out = make_folder(tmp_path)
    write_scheduler(out, "s", workers=1, working=[work("plain/seed-3")])
    text = render_text(read_status(out))
    for part in ("6 cells", "out of luck", "logs/x.log", "stage 2 of 2", "25/100", "loss 0.5", "left; 1 worker"):
        assert part in text, text
    assert [format_seconds(s) for s in (5, 600, 7200)] == ["5 s", "10 min", "2.0 h"]


def test_status_imports_nothing_heavy_and_exits_with_1_after_failures(tmp_path: Path) -> None:
    out = make_folder(tmp_path)
    code = (
        "import sys\n"
        f"sys.argv = ['crossling', 'study', 'status', {str(out)!r}]\n"
        "from crossling.cli.entry import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 1, stop.code\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'numpy', 'datasets', 'pydantic', 'typer'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "out of luck" in done.stdout


def test_status_of_many_systems_shows_those_in_trouble_and_counts_the_others(tmp_path: Path) -> None:
    facts = json.loads((make_folder(tmp_path) / "study.json").read_text(encoding="utf-8"))
    first = facts["cells"][0]
    facts["cells"] = [{**first, "name": f"s{n}/seed-1", "label": f"s{n}"} for n in range(100)]
    write_atomic(tmp_path / "study.json", json.dumps(facts))
    for number in range(98):
        write_once(tmp_path / f"s{number}/seed-1/complete.json", {"identity": first["identity"]})
    write_atomic(tmp_path / "s99/seed-1/failed.json", json.dumps({"error": "out of luck"}))
    status = read_status(tmp_path)
    assert [status.count(state) for state in STATES] == [98, 0, 1, 1]
    shown, every = (render_text(status, every=every) for every in (False, True))
    rows = [line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│")]
    assert rows == [*(f"s{n}" for n in range(ROWS - 2)), "s98", "s99", f"… and {100 - ROWS} more; --all", "100 cells"]
    assert all(f" s{n} " in every for n in range(100))
    assert "--all" not in every
    assert "… and 0 more" not in render_text(read_status(make_folder(tmp_path / "small")))


def test_parser_and_its_shortcut_show_the_same_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = []
    monkeypatch.setattr("gc.disable", lambda: None)  # the process of the tests goes on
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    monkeypatch.setattr("sys.argv", ["crossling", "study", "status", str(make_folder(tmp_path))])
    for main in (entry.main, parsed_main):
        with pytest.raises(SystemExit) as stop:
            main()
        shown.append((stop.value.code, capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert shown[0][0] == 1
    assert "out of luck" in shown[0][1]


def test_watch_ends_with_the_last_status_and_exit_code_of_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = make_folder(tmp_path)
    facts = json.loads((out / "study.json").read_text(encoding="utf-8"))

    def finish(seconds: float) -> None:
        for cell in facts["cells"]:
            if states(out)[cell["name"]] == "waiting":
                (out / cell["name"] / "complete.json").unlink(missing_ok=True)
                write_once(out / cell["name"] / "complete.json", {"identity": cell["identity"]})

    monkeypatch.setattr("crossling.cli.show_study.time.sleep", finish)
    monkeypatch.setattr("crossling.cli.show_study.out", Console(file=open(os.devnull, "w", encoding="utf-8")))  # noqa: PTH123, SIM115
    last = watch_status(out)
    assert last.is_over
    assert [last.count(state) for state in STATES] == [5, 0, 0, 1]


def test_time_left_is_the_mean_of_the_cells_nearest_in_kind(tmp_path: Path) -> None:
    dice = random.Random(1)
    cells = []
    for number in range(120):
        kind = {"task": dice.choice("abc"), "label": f"s{dice.randrange(12)}", "seed": number, "identity": "i"}
        cells.append({"name": f"{kind['label']}/seed-{number}", "stages": ["i"], **kind})
        if kind["task"] != "c" and dice.random() < 0.4:
            marker = {"identity": "i", "seconds": dice.random()}
            write_once(tmp_path / cells[-1]["name"] / "complete.json", marker)
            cells[-1]["seconds"] = marker["seconds"]
    write_atomic(tmp_path / "study.json", json.dumps({"name": "x", "cells": cells}))
    write_scheduler(tmp_path, "s", workers=3, working=[])
    known = [cell for cell in cells if "seconds" in cell]
    expected = 0.0
    for cell in (cell for cell in cells if "seconds" not in cell):
        same_task = [other for other in known if other["task"] == cell["task"]]
        alike = [other for other in same_task if other["label"] == cell["label"]] or same_task or known
        expected += sum(other["seconds"] for other in alike) / len(alike)
    assert read_status(tmp_path).seconds_left == pytest.approx(expected / 3)


def test_damaged_marker_counts_as_none_and_a_deleted_one_is_noticed(tmp_path: Path) -> None:
    out = make_folder(tmp_path)
    marker = out / "plain/seed-1/complete.json"
    for text in ("", "{", "[1]", '{"identity": "plain-1"', "\x00\x00"):
        marker.write_text(text, encoding="utf-8")
        assert states(out)["plain/seed-1"] == "waiting", text
    marker.write_bytes(b'{"identity": "plain-1", "x": "\xff"}')
    assert states(out)["plain/seed-1"] == "waiting"
    marker.write_text(json.dumps({"x": "y" * 200_000, "identity": "plain-1"}), encoding="utf-8")
    assert states(out)["plain/seed-1"] == "done", "of any size"
    marker.unlink()
    assert states(out)["plain/seed-1"] == "waiting"


def test_status_of_a_folder_without_study_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="not the folder of a study"):
        read_status(tmp_path)
    done = subprocess.run(study_command("status", tmp_path / "x.toml"), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "study run" in done.stderr
    assert find_out(Path("recipes/a.toml")) == Path("studies/a")
    assert find_out(tmp_path) == tmp_path


def test_plan_of_an_earlier_version_loads_and_a_broken_one_is_a_user_error(tmp_path: Path) -> None:
    plan = read_plan(make_folder(tmp_path))  # without identity, overrides, command, device, threads
    assert plan.settings.systems["fused"].recipe == "ner.toml"
    assert plan.cells[0].stages == ("first", "plain-1")
    plan.write(tmp_path)
    assert read_plan(tmp_path) == plan
    facts = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    for broken in ({**facts, "settings": {"seeds": []}}, {**facts, "cells": [{"name": "x"}]}):
        write_atomic(tmp_path / "study.json", json.dumps(broken))
        with pytest.raises(ArtefactError, match="run the study again"):
            read_plan(tmp_path)


def test_trainings_that_follow_one_another_are_not_written_twice(tmp_path: Path) -> None:
    plan = read_plan(make_folder(tmp_path))
    chained = tuple(replace(cell, trainings=cell.list_trainings()) for cell in plan.cells[:5])
    taught = replace(plan.cells[5], trainings=(Training("teacher", 1, 0), *plan.cells[5].list_trainings()))
    replace(plan, cells=(*chained, taught)).write(tmp_path)
    facts = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))
    assert ["trainings" in cell for cell in facts["cells"]] == [False] * 5 + [True]
    found = [cell.list_trainings() for cell in read_plan(tmp_path).cells]
    assert found == [cell.list_trainings() for cell in (*chained, taught)]


def test_unfinished_line_of_a_log_is_skipped(tmp_path: Path) -> None:
    append_line(tmp_path / "log", {"a": 1})
    with (tmp_path / "log").open("a", encoding="utf-8") as stream:
        stream.write('{"a": 2')
    assert read_lines(tmp_path / "log") == [{"a": 1}]
