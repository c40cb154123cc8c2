"""The analysis of CONTRIBUTING.md, run as it stands there, from a file outside the package."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from crossling import registry
from crossling.analyses.result import find_results
from crossling.cli.main import app
from crossling.encoders.loading import load_encoder
from crossling.models.model import ModelCard, build_model, save_model

NAME = "layer_updates"


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The listing as a file, and the words that name it on the command line."""
    text = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## Add an analysis")[2]
    (listing,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    path = tmp_path / f"{NAME}.py"
    path.write_text(listing, encoding="utf-8")
    monkeypatch.setattr(registry, "_plugins", {})
    monkeypatch.setenv("CROSSLING_STORE", str(tmp_path / "store"))
    return ["--plugin", f"analyses={path}", "analyse", NAME]


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def test_new_analysis_has_options_tables_figures_and_files(
    plugin: list[str], tmp_path: Path, tiny_folder: Path
) -> None:
    shown = call(*plugin, "--help")
    assert "--biases" in shown and "Count biases and normalisation layers" in shown and "--logarithmic" in shown
    encoder = load_encoder(str(tiny_folder))
    with torch.no_grad():
        for parameter in encoder.model.encoder.layer[1].parameters():
            parameter.mul_(1.5)
    folder = tmp_path / "tuned"
    save_model(build_model(encoder, {"kind": "last"}), ModelCard(str(tiny_folder), encoder.identity), folder)
    said = call(*plugin, f"original={tiny_folder}", str(folder), "--biases", "--out", str(tmp_path / "out" / "u.csv"))
    assert "Updates of layers" in said and "tuned" in said
    with (tmp_path / "out" / "u.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    updates = [float(row["update"]) for row in rows if row["model"] == "tuned"]
    assert updates == pytest.approx([0, 0.5, *[0] * (encoder.layers - 2)], abs=1e-6)
    assert {float(row["update"]) for row in rows if row["model"] == "original"} == {0}
    weights = sum(parameter.numel() for parameter in encoder.model.encoder.layer[0].parameters())
    assert {int(row["weights"]) for row in rows} == {weights}
    (result,) = find_results(tmp_path / "out")
    assert result.kind == NAME and result.settings == '{"biases": true}'
    assert result.figures["u"].read_text(encoding="utf-8").startswith("<?xml")
