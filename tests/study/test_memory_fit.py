"""Batches in parts where a stage does not fit into main memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.recipe.recipe import parse_recipe
from crossling.study import memory_fit
from crossling.study.memory import MemoryForecast
from crossling.study.memory_fit import find_main_memory, split_batches, suggest_batches

GIGABYTE = 1e9
STAGES = [
    {"kind": "finetune", "task": "ner", "train": "panx:en", "dev": "panx:en:dev", "initial_head": "shared"},
    {"kind": "average"},
]
RECIPE = parse_recipe({"encoder": {"name": "x"}, "stage": STAGES})
AVERAGE = MemoryForecast(1 * GIGABYTE, 0.0, 1 * GIGABYTE, is_trimmed=False)


@pytest.mark.parametrize(
    ("activations", "parts"), [(6.0, {}), (7.1, {0: 2}), (28.0, {0: 4}), (29.0, {0: 8}), (1e6, {0: 32})]
)
def test_batches_are_split_until_nine_tenths_of_memory_hold_a_stage(activations: float, parts: dict[int, int]) -> None:
    """2 GB are taken whatever the batch, of 10 GB: activations may have 7; no part is smaller than an example."""
    forecast = MemoryForecast(1 * GIGABYTE, activations * GIGABYTE, 1 * GIGABYTE, is_trimmed=True)
    assert split_batches(RECIPE, [forecast, AVERAGE], 10 * GIGABYTE) == parts


def test_suggestion_keeps_the_rows_of_an_update() -> None:
    tables = {"encoder": {"name": "x"}, "stage": [{**STAGES[0], "batch": 16, "accumulate": 2}, STAGES[1]]}
    forecast = MemoryForecast(0.0, 20 * GIGABYTE, 0.0, is_trimmed=False)
    assert split_batches(parse_recipe(tables), [forecast, AVERAGE], 1.0) == {0: 16}, "an average reads no batches"
    (line,) = suggest_batches(parse_recipe(tables), [forecast, AVERAGE], 10 * GIGABYTE)
    assert "more than this machine's 10.0 GB" in line
    assert line.endswith("--set stage.0.batch=4 --set stage.0.accumulate=8")


def test_memory_of_a_container_is_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = find_main_memory()
    limit, none = tmp_path / "limit", tmp_path / "none"
    limit.write_text("123456\n", encoding="ascii")
    none.write_text("max\n", encoding="ascii")
    monkeypatch.setattr(memory_fit, "LIMITS", (tmp_path / "missing", none, limit))
    assert find_main_memory() == 123456 < machine
    monkeypatch.setattr(memory_fit, "LIMITS", (none,))
    assert find_main_memory() >= machine


def test_parts_of_a_batch_are_equal() -> None:
    tables = {"encoder": {"name": "x"}, "stage": [{**STAGES[0], "batch": 24}]}
    forecast = MemoryForecast(0.0, 40 * GIGABYTE, 0.0, is_trimmed=False)
    assert split_batches(parse_recipe(tables), [forecast], 10 * GIGABYTE) == {0: 6}
