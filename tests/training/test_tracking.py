"""Trackers: losses and scores arrive, and one that is not installed is reported before anything is trained."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from crossling.errors import RecipeError
from crossling.recipe.recipe import parse_recipe
from crossling.store.artefacts import Store
from crossling.study.recipe_run import run_recipe
from crossling.training import tracking

accumulation = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def make_tables(encoder: Path, *trackers: str) -> dict[str, Any]:
    return {
        "seeds": [1, 2],
        "encoder": {"name": str(encoder)},
        "stage": [
            {
                "kind": "finetune",
                "task": "ner",
                "train": "phrasebook-ner:en:train[:40]",
                "dev": "phrasebook-ner:en:dev[:8]",
                "epochs": 2,
                "batch": 4,
            }
        ],
        "run": {"track": list(trackers), "threads": 1},
    }


def read_events(out: Path) -> dict[str, list[tuple[int, float]]]:
    """Every scalar that was logged, by name, with its steps."""
    found: dict[str, list[tuple[int, float]]] = {}
    for folder in {path.parent for path in out.rglob("events.out.tfevents*")}:
        events = accumulation.EventAccumulator(str(folder))
        events.Reload()
        for tag in events.Tags()["scalars"]:
            found.setdefault(tag, []).extend((event.step, event.value) for event in events.Scalars(tag))
    return found


def test_tensorboard_gets_losses_and_scores_of_every_seed(tmp_path: Path, flat_folder: Path) -> None:
    store = Store(tmp_path / "store")
    run_recipe(parse_recipe(make_tables(flat_folder, "tensorboard")), store=store, out=tmp_path / "out")
    events = read_events(tmp_path / "out")
    assert {f"seed-{seed}/{name}" for seed in (1, 2) for name in ("loss", "dev")} <= events.keys()
    records = [store.record(path.name) for path in (tmp_path / "store" / "artefacts").iterdir()]
    logged = [[value for _, value in sorted(events[f"seed-{seed}/loss"])] for seed in (1, 2)]
    kept = [[row["loss"] for row in record["history"] if "loss" in row] for record in records]
    assert [step for step, _ in events["seed-1/loss"]] == [10, 20]
    assert sorted(kept) == [pytest.approx(losses, abs=1e-4) for losses in sorted(logged)]


def test_without_tracker_nothing_is_written(tmp_path: Path, flat_folder: Path) -> None:
    run_recipe(parse_recipe(make_tables(flat_folder)), store=Store(tmp_path / "store"), out=tmp_path / "out")
    assert not (tmp_path / "out" / "tracking").exists()


def test_missing_tracker_is_reported_before_training(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(tracking, "find_spec", lambda name: None if name in ("wandb", "mlflow") else real(name))
    recipe = parse_recipe(make_tables(flat_folder, "tensorboard", "wandb", "mlflow"))
    with pytest.raises(RecipeError, match="wandb, mlflow not installed; pip install wandb mlflow"):
        run_recipe(recipe, store=Store(tmp_path / "store"), out=tmp_path / "out")
    assert not (tmp_path / "store" / "artefacts").exists()


def test_unknown_tracker_is_reported_with_the_nearest_name(flat_folder: Path) -> None:
    with pytest.raises(RecipeError, match="run.track.0 = 'tensorbord'.*Did you mean 'tensorboard'"):
        parse_recipe(make_tables(flat_folder, "tensorbord"))
