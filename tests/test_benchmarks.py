"""The harness of the benchmarks: rows judge themselves, and a run saves what it has. Nothing is timed here."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
KEYS = {"name", "what", "unit", "better", "ours", "peers", "ratios", "limit", "share_of_limit", "targets", "reached"}


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Modules of the benchmarks, forgotten afterwards: their names are short."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    yield importlib.import_module
    for name in set(sys.modules) - known:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def test_row_compares_measurements_with_its_targets(load: Callable[[str], Any]) -> None:
    rows = load("_rows")
    fast = rows.Row(
        "a", "b", "examples/s", 90.0, {"x": 30.0, "y": 100.0}, limit=120.0, targets={"x": 3.0, "limit": 0.8}
    )
    assert fast.ratios() == {"x": 3.0, "y": 0.9}
    assert fast.share() == 0.75
    assert fast.reached() == {"x": True, "limit": False}
    assert not fast.to_table()["met"]
    short = rows.Row("a", "b", "s", 2.0, {"x": 8.0}, targets={"x": 5.0, "value": 2.5, "absent": 9.0}, better="lower")
    assert short.ratios() == {"x": 4.0}
    assert short.reached() == {"x": False, "value": True}
    assert "ours is 4.00 x (target 5.00 x: NOT met)" in "\n".join(short.to_lines())
    assert rows.Row("a", "b", "s", 2.0).to_table()["met"] is None


def test_measured_rows_are_kept_for_the_same_machine(load: Callable[[str], Any], tmp_path: Path) -> None:
    rows = load("_rows")
    facts, path = {"machine": {"torch": "2"}, "quick": False}, tmp_path / "rows.json"
    board = rows.Board(path, facts)
    board.add(rows.Row("first", "b", "s", 1.0))
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == ["first"]
    board.add(rows.Row("second", "b", "s", 1.0))
    again = rows.Board(path, facts, keep=True)
    again.add(rows.Row("second", "b", "s", 5.0))
    assert [(row["name"], row["ours"]) for row in json.loads(path.read_text())["rows"]] == [("first", 1), ("second", 5)]
    with_peer = rows.Board(path, {**facts, "machine": {"torch": "2", "minicons": "1"}}, keep=True)
    with_peer.leave_out("third", "not here")
    found = json.loads(path.read_text())
    assert (len(found["rows"]), found["left_out"], found["machine"]["minicons"]) == (2, {"third": "not here"}, "1")
    with pytest.raises(SystemExit, match=r"another machine or size \(torch\)"):
        rows.Board(path, {**facts, "machine": {"torch": "3"}}, keep=True)
    assert json.loads(path.read_text()) == found


def test_only_real_subwords_count(load: Callable[[str], Any]) -> None:
    speed, size = load("_speed"), load("_synthetic").Size(100, 4, 2, 1, 8)
    # Two layers: four 4x4 and two 4x8 products a subword, and two of width 4 for each pair of subwords.
    by_subword, by_pair = 2 * 2 * (4 * 16 + 2 * 32), 2 * 2 * 2 * 4
    assert speed.count_operations(size, np.array([3, 5]), passes=1) == 8 * by_subword + (9 + 25) * by_pair
    assert speed.count_operations(size, np.array([3])) == 3 * (3 * by_subword + 9 * by_pair)


def test_peers_get_the_same_batches(load: Callable[[str], Any], tmp_path: Path) -> None:
    made, finetune = load("_synthetic"), load("finetune")
    from crossling.data.batching import Batch

    for kind in (made.TEXTS, made.WORDS):
        rows = made.make_rows(kind, 6, 300)
        examples = made.write_rows(kind, rows, tmp_path / f"{kind.name}.arrow")
        ours = finetune.build_objective(kind).collate(examples, Batch(np.arange(6), 128), size=6)
        theirs = made.collate(kind, rows, length=128)
        assert (ours["labels"] == theirs["labels"].numpy()).all()
        assert (np.maximum(ours["ids"], 0) == theirs["input_ids"].numpy()).all()
        assert (ours["mask"] == theirs["attention_mask"].numpy()).all()


def test_a_quick_run_saves_rows(
    load: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "minicons", None)  # as if it were not installed
    out = tmp_path / "rows.json"
    wanted = ["--only", "replay", "adjustment", "perplexity"]
    assert load("run").main(["--device", "cpu", "--quick", "--out", str(out), *wanted]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["quick"]
    assert {"torch", "transformers", "processor", "cores"} <= found["machine"].keys()
    assert found["matrix_rate"] > 0
    assert [row["name"] for row in found["rows"]] == ["replay", "adjustment"]
    assert list(found["left_out"]) == ["perplexity"]
    replay, adjustment = found["rows"]
    assert replay.keys() >= KEYS
    assert replay["ratios"].keys() == replay["peers"].keys() == {"plain fine-tuning"}
    assert replay["notes"]["times an epoch"] > 0
    assert adjustment["share_of_limit"] > 0
    assert "adjustment: " in capsys.readouterr().out


def test_a_quick_run_has_rows_of_what_grows_and_of_commands(load: Callable[[str], Any], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    wanted = ["--only", "evaluation", "commands", "status", "growth", "many-pairs"]
    assert load("run").main(["--device", "cpu", "--quick", "--out", str(out), *wanted]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in found["rows"]}
    assert rows["evaluation"]["peers"].keys() == {"language by language", "Trainer.predict"}
    places = [rows["evaluation"]["notes"][f"batches, {name}"] for name in ("ours", "language by language")]
    assert places[0] < places[1]  # one stream has as many batches, and less padding
    assert rows["import crossling"]["ratios"]["import transformers"] > 1
    assert rows["crossling --help"]["ours"] > 0 and rows["study status"]["notes"]["CPU s"] > 0
    for name in ("alignment, many pairs", *(() if "growth" in found["left_out"] else ("growth, pairs of texts",))):
        assert rows[name]["ours"] > 0 and rows[name]["notes"]["peak of the process, MB"] > 10


@pytest.mark.slow
def test_a_quick_run_has_every_row(load: Callable[[str], Any], tmp_path: Path) -> None:
    out, run = tmp_path / "rows.json", load("run")
    assert run.main(["--device", "cpu", "--quick", "--out", str(out)]) == 0
    found = json.loads(out.read_text(encoding="utf-8"))
    assert len(found["rows"]) >= sum("cpu" in entry.devices for entry in run.ENTRIES.values()) - len(found["left_out"])
    assert not [why for why in found["left_out"].values() if why.startswith("failed")]


@pytest.mark.slow
def test_a_quick_run_serves(load: Callable[[str], Any], tmp_path: Path) -> None:
    out = tmp_path / "rows.json"
    assert load("run").main(["--device", "cpu", "--quick", "--out", str(out), "--only", "serving"]) == 0
    rows = {row["name"]: row for row in json.loads(out.read_text(encoding="utf-8"))["rows"]}
    assert {"one sentence", "sentences of a file", "64 clients"} <= rows.keys()
    assert "serve" in rows["one sentence"]["peers"] and "transformers.pipeline" in rows["one sentence"]["peers"]
    assert rows["64 clients"]["notes"]["p99, ms"] > 0


def test_results_fill_the_tables_of_the_page(load: Callable[[str], Any], tmp_path: Path) -> None:
    rows = load("_rows")
    facts = {"machine": {"torch": "2", "processor": "p"}, "quick": False, "command": "c", "matrix_rate": 1e12}
    board = rows.Board(tmp_path / "cpu.json", facts)
    board.add(rows.Row("a", "b", "s", 2.0, {"x": 8.0, "y": 1.0}, targets={"x": 5.0, "value": 3.0}, better="lower"))
    board.add(rows.Row("alone", "b", "s", 2.0))
    rows.Board(tmp_path / "gpu.json", {**facts, "quick": True}).save()
    page = _load_page()
    results = page.read_results(tmp_path)
    assert list(results) == ["cpu"]  # tiny sizes never enter the page
    table = page.tabulate(results["cpu"])
    assert "| a: b | 2 s | x | 8 | 4.00 x |  | 3 s: met; 5.00 x: **not met** |" in table
    assert "|  |  | y | 1 | 0.50 x |  |  |" in table
    assert "| alone: b | 2 s |  |  |  |  |  |" in table
    text = "before\n<!-- cpu -->\nold\n<!-- end of cpu -->\nafter"
    assert page.fill(text, "cpu", table) == f"before\n<!-- cpu -->\n\n{table}\n\n<!-- end of cpu -->\nafter"
    page.draw(results, tmp_path / "figure.svg")
    assert "a / x" in (tmp_path / "figure.svg").read_text(encoding="utf-8")
    for marker in ("figure", "cpu", "gpu"):
        page.fill((ROOT / "docs" / "performance.md").read_text(encoding="utf-8"), marker, "")


def _load_page() -> Any:
    spec = importlib.util.spec_from_file_location("performance_page", ROOT / "docs" / "performance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_of_memory_that_fails_has_its_error_and_the_next_one_is_measured(
    load: Callable[[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    memory = load("memory")
    size = {"vocabulary": 40, "width": 8, "layers": 1, "heads": 2, "inner": 8}
    memory.measure_rows({"size": size, "cases": [[0, "freeze 6"], [20, "lora"]], "device": "cpu", "quick": True})
    failed, measured = map(json.loads, capsys.readouterr().out.splitlines())
    assert memory.describe_row(failed)[:3] == [
        "all",
        "freeze 6",
        "failed: RecipeError: freeze = 6: the encoder has 1 layers.",
    ]
    cells = memory.describe_row({**measured, "measured": 8e9, "forecast": 9e9})
    assert cells[:5] == ["20", "lora", "9.00", "8.00", "+12 %"] and len(cells) == len(memory.COLUMNS)
    assert measured["forecast"] > 0 and measured["speed"] > 0
