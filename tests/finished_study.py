"""The folder of a study that looks as if it had been run: predictions made up, right to a known share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crossling.encoders.cache import EncoderCache
from crossling.files import write_once
from crossling.scores.predictions import Predictions, write_predictions
from crossling.store.artefacts import Store
from crossling.study.folder import PlannedCell
from crossling.study.grid import load_study
from crossling.study.plan import write_plan
from crossling.study.recipe_run import RecipeRun
from crossling.training.distributed import setup_distributed
from small_study import write_recipe, write_study

CHOOSING = """
seeds = [1, 2]
baseline = "plain"
second = "other"
[tasks.ner]
recipe = "ner.toml"
[tasks.pos]
recipe = "pos.toml"
second = "mean"
[systems.plain]
[systems.other]
set = { "stage.0.lr" = 2e-3 }
[systems.mean]
set = { "stage.0.fusion" = { kind = "mean", layer = 1 } }
[systems.mean.axes]
"stage.0.fusion.weight" = [0.25, 0.75]
[choose]
system = "mean"
axis = "stage.0.fusion.weight"
"""
RIGHT = {"plain": 0.3, "other": 0.5, "mean weight=0.25": 0.6, "mean weight=0.75": 0.95}
DEV = {"mean weight=0.25": 0.8, "mean weight=0.75": 0.9}
ROWS = 120


def finish_study(folder: Path, encoder: Path, text: str = CHOOSING) -> Path:
    """The study's folder, with every cell done and a record of every training in the store ``folder / "s"``."""
    write_recipe(folder, encoder, "pos")
    study = load_study(write_study(folder, encoder, text))
    store, out = Store(folder / "s"), folder / "out"
    cells = []
    for cell in study.cells:
        variant = cell.variant
        stage = f"finetune-1-{variant.folder.replace('/', '-')}-{cell.seed}"
        planned = PlannedCell(
            cell.name, variant.folder, variant.task, variant.system, variant.label, cell.seed, (stage,), cell.name
        )
        cells.append(planned)
        store.artefact(stage).mkdir(parents=True)
        store.complete(stage, make_record(DEV.get(variant.label, 0.1) + cell.seed / 1000))
        predictions = make_predictions(RIGHT.get(variant.label, 0.4), cell.seed, spans=variant.task == "ner")
        write_predictions(out / cell.name / "predictions" / "test" / "hi.parquet", predictions)
        write_once(out / cell.name / "complete.json", {"identity": cell.name, "seconds": 1, "machine": {"torch": "2"}})
    encoders = EncoderCache()  # one for all, as a study that is planned has
    runs = {
        variant.folder: RecipeRun(
            variant.recipe, store, out / variant.folder, setup_distributed(variant.recipe.run), encoders=encoders
        )
        for variant in study.variants
    }
    write_plan(study, cells, out, store=store, command="crossling study run", runs=runs)
    return out


def make_record(dev_score: float) -> dict[str, object]:
    """What a training leaves behind."""
    history = [{"step": step, "loss": 1 / step} for step in range(1, 11)]
    history += [{"step": 5, "dev": dev_score / 2}, {"step": 10, "dev": dev_score}]
    work = {"seconds": 2.0, "subwords": 1000}
    return {"dev_score": dev_score, "steps": 10, "training_seconds": 2.0, "history": history, "work": work}


def make_predictions(right: float, seed: int, *, spans: bool) -> Predictions:
    """Tags of which about this share is right."""
    dice = np.random.default_rng(seed)
    gold = [[int(code) for code in dice.integers(0, 2, 4)] for _ in range(ROWS)]
    predicted = [[code if dice.random() < right else 1 - code for code in sentence] for sentence in gold]
    return Predictions.from_tags(
        "hi",
        "test",
        labels=("O", "B-X"),
        scheme="bio" if spans else "none",
        gold=[[0, 1, 0, 1]] * ROWS,
        predicted=[
            [g ^ s ^ t for g, s, t in zip(a, b, (0, 1, 0, 1), strict=True)]
            for a, b in zip(gold, predicted, strict=True)
        ],
        confidence=[[1.0] * 4] * ROWS,
        meta={"seed": seed},
    )
