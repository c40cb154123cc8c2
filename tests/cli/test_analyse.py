"""``crossling analyse``: its options, on tiny models and the embedded corpus."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from crossling.analyses.settings import parse_pairs, parse_settings
from crossling.cli.analyse import _read_option
from crossling.cli.main import app
from crossling.encoders.loading import load_encoder
from crossling.errors import RecipeError, UserError
from crossling.models.model import ModelCard, build_model, save_model
from crossling.registry import list_kinds, load_kind

PROBE = ["--tasks", "pos=phrasebook-pos,sentiment=phrasebook-sentiment", "--languages", "en,de"]
FEW = ["--rows", "25", "--test-rows", "8"]


def save(folder: Path, encoder: Path, *, noise: float, tagger: bool = False) -> Path:
    """A model whose weights moved at random; with ``tagger``, its card says that it was trained on the same tags."""
    model = build_model(load_encoder(str(encoder)), {"kind": "last"})
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn(parameter.shape, generator=generator))
    labels = ["ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "VERB"]
    tasks = {"tag": {"settings": {"kind": "tag"}, "labels": labels}} if tagger else {}
    save_model(model, ModelCard(str(encoder), model.encoder.identity, tasks=tasks), folder)
    return folder


@pytest.fixture()
def models(tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("CROSSLING_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    return [
        f"{name}={save(tmp_path / name, tiny_folder, noise=noise)}" for name, noise in (("cross", 0.1), ("multi", 0.2))
    ]


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["analyse", *arguments], catch_exceptions=False, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def test_probe_writes_results_and_names_auxiliary_tasks(models: list[str], tmp_path: Path, tiny_folder: Path) -> None:
    said = call("probe", *models, *PROBE, *FEW, "--choose", "cross:multi", "--min-gain", "-100")
    assert "Probing results, macro_f1 of en, de together" in said
    assert "auxiliary tasks for what cross learnt: pos, sentiment." in said
    assert "labels of the target languages" in said
    with (tmp_path / "analyses" / "probe.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["model"] for row in rows} == {"cross", "multi"}
    assert {row["against"] for row in rows} == {tiny_folder.name}, "the encoder that they were"
    for row in rows:
        assert float(row["result"]) == pytest.approx(float(row["ceiling"]) - float(row["base"]), abs=2e-4)
    assert (tmp_path / "analyses" / "probe.svg").read_text(encoding="utf-8").startswith("<?xml")
    assert "labels of the target languages" in (tmp_path / "analyses" / "probe.md").read_text(encoding="utf-8")


def test_set_changes_a_key_inside_a_setting(models: list[str], tmp_path: Path) -> None:
    """The tables of tasks that ``--tasks`` names, each with its own training rows."""
    train = 'tasks.pos.train="phrasebook-pos:en:train[:20]"'
    call(
        "probe", models[0], "--tasks", "pos=phrasebook-pos", "--languages", "de", *FEW, "--set", train, "--out", "s.csv"
    )
    settings = json.loads(json.loads((tmp_path / "s.json").read_text(encoding="utf-8"))["settings"])
    assert settings["tasks"]["pos"] == {"on": "phrasebook-pos", "train": "phrasebook-pos:en:train[:20]"}


def test_probe_compares_with_the_model_that_against_names(models: list[str], tmp_path: Path) -> None:
    said = call("probe", models[1], *PROBE, *FEW, "--against", models[0], "--out", "here.csv")
    with (tmp_path / "here.csv").open(encoding="utf-8") as file:
        assert {(row["model"], row["against"]) for row in csv.DictReader(file)} == {("multi", "cross")}
    assert "than one on cross (the base)" in said


def test_probe_of_a_pretrained_encoder_shows_its_scores(models: list[str], tmp_path: Path, tiny_folder: Path) -> None:
    said = call("probe", str(tiny_folder), *PROBE, *FEW)
    assert "macro_f1" in said and "sentiment" in said
    assert (tmp_path / "analyses" / "probe.csv").is_file()


def test_head_updates_writes_normalised_updates_and_a_figure(models: list[str], tmp_path: Path) -> None:
    said = call("head_updates", *models, "--normalise", "max")
    assert "Spearman's rho" in said
    with (tmp_path / "analyses" / "head_updates.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * len({(row["layer"], row["head"]) for row in rows})
    assert max(float(row["normalised"]) for row in rows) == pytest.approx(1)
    means = {name: sum(float(r["update"]) for r in rows if r["model"] == name) for name in ("cross", "multi")}
    assert means["multi"] == pytest.approx(2 * means["cross"], rel=1e-3)
    assert "difference" in (tmp_path / "analyses" / "head_updates.svg").read_text(encoding="utf-8")


def test_head_updates_compares_with_the_model_that_against_names(models: list[str], tmp_path: Path) -> None:
    call("head_updates", models[1], "--against", models[0], "--part", "query", "--out", "u.csv")
    with (tmp_path / "u.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["model"] for row in rows} == {"multi"}
    assert all(0.05 < float(row["update"]) < 0.12 for row in rows), "0.1 times what normal numbers are on average"


def test_head_updates_of_a_pretrained_encoder_are_refused(models: list[str], tiny_folder: Path) -> None:
    with pytest.raises(UserError, match="was not trained"):
        call("head_updates", str(tiny_folder))


def test_head_probe_writes_tables_and_figures(models: list[str], tmp_path: Path, tiny_folder: Path) -> None:
    said = call("head-probe", *models, *PROBE, *FEW, "--baseline", "pos=cross", "--top", "2,50%")
    assert "Best attention heads that models share" in said
    assert "No model here was trained for sentiment" in said
    names = {path.name for path in (tmp_path / "analyses").iterdir()}
    assert names == {
        "head_probe.csv",
        "head_probe-shared.csv",
        "head_probe.md",
        "head_probe-pos.svg",
        "head_probe-sentiment.svg",
        "head_probe.parquet",
        "head_probe.json",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["head_updates", "--part", "all"], "part"),
        (["head_updates", "--normalise", "sum"], "normalise"),
        (["head_updates", "--compare", "cross:multy"], "Did you mean 'multi'"),
        (["head_probe", *PROBE, *FEW, "--top", "many"], "neither a number of heads"),
        (["head_probe", *PROBE, *FEW, "--baseline", "pos"], "write a task and a model's name"),
        (["probe", *PROBE, *FEW, "--score", "f1"], "unknown score"),
        (["probe", *PROBE, *FEW, "--choose", "cross"], "two models' names"),
        (["probe", "--tasks", "qa", "--languages", "en"], "answers are neither"),
    ],
)
def test_wrong_options_are_reported(models: list[str], arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, ["analyse", *arguments, *models], catch_exceptions=False)


def test_pairs_of_names_are_split_at_their_colon() -> None:
    assert parse_pairs(("a:b", "ner: x : ner: y")) == (("a", "b"), ("ner: x", "ner: y"))
    with pytest.raises(RecipeError, match="choose.*two models' names"):
        parse_settings({"kind": "probe", "tasks": "pos", "languages": ["de"], "choose": ["a"]})


def test_help_lists_every_kind_and_imports_no_settings() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['crossling', 'analyse', '--help']\n"
        "from crossling.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'torch', 'transformers', 'pyarrow', 'numpy', 'crossling.recipe.recipe'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for kind in list_kinds("analyses"):
        assert f" {kind} " in done.stdout


@pytest.mark.parametrize("kind", list_kinds("analyses"))
def test_every_setting_is_an_option_with_help(kind: str) -> None:
    shown = call(kind, "--help")
    words = " ".join(shown.replace("│", " ").split())
    for name, field in load_kind("analyses", kind).Settings.model_fields.items():
        if name != "kind":
            assert f"--{name.replace('_', '-')}" in words, name
            assert field.description.split()[0] in words


@pytest.mark.parametrize(
    ("kind", "name", "text", "value"),
    [
        ("distances", "languages", "es, hi", ["es", "hi"]),
        ("distances", "layer", "3", 3),
        ("distances", "layer", "fused", "fused"),
        ("distances", "on", '{ format = "parallel", source = "a" }', {"format": "parallel", "source": "a"}),
        ("distances", "aligner", "statistical", {"kind": "statistical"}),
        ("perplexity", "training", "{ epochs = 3 }", {"epochs": 3}),
        ("perplexity", "split", "2", "2"),
        ("probe", "min_gain", "-100", -100.0),
        ("probe", "tasks", "pos=ud,ner", {"pos": {"on": "ud"}, "ner": {}}),
        ("head_probe", "top", "2,50%", ["2", "50%"]),
        ("similarity", "seed", "many", "many"),
    ],
)
def test_option_text_becomes_the_type_of_its_setting(kind: str, name: str, text: str, value: object) -> None:
    found = _read_option(load_kind("analyses", kind).Settings.model_fields[name], text)
    assert found == value and type(found) is type(value)


def test_unknown_kind_is_reported_with_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean 'similarity'"):
        call("similarty", "x")
