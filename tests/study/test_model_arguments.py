"""Models named on the command line: runs, saved models and original encoders, with or without a custom name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crossling.analyses.models import Pretrained
from crossling.analyses.result import write_result
from crossling.analyses.settings import parse_settings
from crossling.analyses.similarity import summarise
from crossling.cli.main import app
from crossling.encoders.loading import load_encoder
from crossling.errors import ArtefactError
from crossling.models.model import ModelCard, build_model, save_model
from crossling.study.analyse import analyse
from crossling.study.model_arguments import ModelArgument, find_models, split_argument

SIMILARITY = {"kind": "similarity", "on": "phrasebook-parallel", "languages": ["de", "hi"], "sentences": 4}
RECIPE = """
source = "de"
[encoder]
name = "{encoder}"
[[stage]]
kind = "adapt"
train = "phrasebook-ner:de"
[[stage]]
kind = "finetune"
task = "ner"
train = "phrasebook-ner:de"
"""


def save_small(folder: Path, encoder: Path, *, source: str = "en") -> Path:
    model = build_model(load_encoder(str(encoder)), {"kind": "last"})
    save_model(model, ModelCard(str(encoder), model.encoder.identity, source=source), folder)
    return folder


@pytest.fixture
def run_folder(tmp_path: Path, flat_folder: Path) -> Path:
    """A run of two stages and two seeds, as far as analyses look at it."""
    stages = {seed: [f"adapt-{seed}", f"finetune-{seed}"] for seed in ("1", "2")}
    for identity in (one for both in stages.values() for one in both):
        save_small(tmp_path / "store" / "artefacts" / identity, flat_folder, source="de")
    run = tmp_path / "tagger"
    run.mkdir()
    (run / "run.json").write_text(json.dumps({"store": str(tmp_path / "store"), "stages": stages}), encoding="utf-8")
    (run / "recipe.toml").write_text(RECIPE.format(encoder=flat_folder), encoding="utf-8")
    return run


def test_the_base_of_a_run_is_named_as_in_its_recipe(run_folder: Path) -> None:
    """The store may have found the model of an equal encoder at another place, whose name its card has."""
    (run_folder / "recipe.toml").write_text(RECIPE.format(encoder="./here"), encoding="utf-8")
    assert [one.encoder for one in find_models([str(run_folder)]).models] == [Pretrained("./here")] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("runs/ner", ModelArgument("runs/ner")),
        ("runs/ner@0", ModelArgument("runs/ner", "", "0")),
        ("plain=runs/ner", ModelArgument("runs/ner", "plain")),
        ("a b=runs/ner@-1", ModelArgument("runs/ner", "a b", "-1")),
        ("original=multilingual-e5-small", ModelArgument("multilingual-e5-small", "original")),
        ("xlm-roberta-base@refs/pr/3", ModelArgument("xlm-roberta-base", "", "refs/pr/3")),
        ("runs/layer=3", ModelArgument("runs/layer=3")),
    ],
)
def test_arguments_are_taken_apart(text: str, expected: ModelArgument) -> None:
    assert split_argument(text) == expected


def test_what_exists_is_a_path_whatever_its_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("layer=3@1", "a@0"):
        Path(name).mkdir()
        assert split_argument(name) == ModelArgument(name)
        assert split_argument(f"best={name}") == ModelArgument(name, "best")


def test_a_run_is_its_last_stage_or_the_one_named(run_folder: Path) -> None:
    found = find_models([run_folder, f"{run_folder}@0", f"second={run_folder}@1"])
    assert [(one.label, one.seed) for one in found.models] == [
        *(("tagger", 1), ("tagger", 2)),
        *(("tagger@0", 1), ("tagger@0", 2)),
        *(("second", 1), ("second", 2)),
    ]
    models = [Path(str(one.location)).name for one in found.models]
    assert models == ["finetune-1", "finetune-2", "adapt-1", "adapt-2", "finetune-1", "finetune-2"]
    assert {one.source for one in found.models} == {"de"}
    assert found.home() is None, "of several places none is home"
    assert find_models([run_folder]).home() == run_folder


def test_a_seed_of_a_run_is_one_model(run_folder: Path) -> None:
    found = find_models([run_folder / "seed-2", f"first={run_folder}/seed-1@0"])
    assert [(one.label, one.seed) for one in found.models] == [("tagger", 2), ("first", 1)]
    assert [Path(str(one.location)).name for one in found.models] == ["finetune-2", "adapt-1"]
    with pytest.raises(ArtefactError, match="has no seed 3; it has 1, 2"):
        find_models([run_folder / "seed-3"])


def test_an_original_encoder_stands_beside_trained_models(
    run_folder: Path, tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CROSSLING_STORE", str(tmp_path / "other"))
    monkeypatch.chdir(tmp_path)
    settings = parse_settings({**SIMILARITY, "languages": ["en", "hi"]})
    found = analyse([f"original={flat_folder}", run_folder], settings)
    rows = found.table.to_pylist()
    assert [(row["model"], row["seed"], row["language"]) for row in rows] == [
        (model, seed, code)
        for model, seed in (("original", None), ("tagger", 1), ("tagger", 2))
        for code in ("en", "hi")
    ]
    # Nothing was trained, so all are the encoder; and all compare with German, which the run was trained on.
    assert len({row["cosine"] for row in rows if row["language"] == "hi"}) == 1
    (table,) = summarise(found)
    assert table.head[:2] == ("model", "language")
    assert [row[:2] for row in table.rows] == [
        ("original", "en"), ("original", "hi"), ("tagger", "en"), ("tagger", "hi")
    ]  # fmt: skip
    assert write_result(found)[1][0] == Path("analyses/similarity-phrasebook-parallel.csv")
    assert (tmp_path / "analyses" / "similarity-phrasebook-parallel.md").is_file()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("analysed again")

    monkeypatch.setattr("crossling.analyses.similarity.analyse", refuse)
    assert analyse([f"original={flat_folder}", run_folder], settings).table.equals(found.table)
    with pytest.raises(AssertionError, match="analysed again"):
        analyse([flat_folder], settings, source="fr")


def test_the_base_of_every_model_is_known(run_folder: Path, tmp_path: Path, flat_folder: Path) -> None:
    saved = save_small(tmp_path / "saved", flat_folder)
    found = find_models([run_folder, saved, flat_folder, "multilingual-e5-small@x"])
    assert [one.encoder.name for one in found.models] == [str(flat_folder)] * 4 + ["multilingual-e5-small"]
    assert found.models[-1].location == Pretrained("multilingual-e5-small", "x")
    assert [one.label for one in found.models[2:]] == ["saved", flat_folder.name, "multilingual-e5-small@x"]
    assert (found.models[2].source, found.models[3].source) == ("en", None)


def test_models_that_are_not_there_are_refused(run_folder: Path, tmp_path: Path, flat_folder: Path) -> None:
    with pytest.raises(ArtefactError, match="two models are called 'tagger'"):
        find_models([run_folder, run_folder])
    with pytest.raises(ArtefactError, match=r"tagger@2: no such stage; it has 2: @0 to @1"):
        find_models([f"{run_folder}@2"])
    with pytest.raises(ArtefactError, match="no such stage"):
        find_models([f"{run_folder}@last"])
    with pytest.raises(ArtefactError, match="neither the folder of a study"):
        find_models([tmp_path / "store"])
    with pytest.raises(ArtefactError, match=r"taggr: no such folder.* Did you mean 'tagger'\? In .*tagger"):
        find_models([run_folder.with_name("taggr")])
    for lost in ("nowhere/run/x", "./nowhere", "/nowhere"):
        with pytest.raises(ArtefactError, match=f"{lost}: no such folder"):
            find_models([lost])
    assert find_models(["google/mt5"]).models[0].encoder.name == "google/mt5", "a name on the hub, if any"
    with pytest.raises(ArtefactError, match="no results yet"):
        find_models([tmp_path / "never.toml"])
    saved = save_small(tmp_path / "saved", flat_folder)
    with pytest.raises(ArtefactError, match="no other stages"):
        find_models([f"{saved}@0"])
    (tmp_path / "store" / "artefacts" / "adapt-2" / "model.json").unlink()
    with pytest.raises(ArtefactError, match=r"adapt-2: the model is gone"):
        find_models([f"{run_folder}@0"])


def test_the_command_takes_several_models(run_folder: Path, tmp_path: Path, flat_folder: Path) -> None:
    models = [f"original={flat_folder}", f"trained={run_folder}"]
    options = [
        "--on",
        "phrasebook-parallel",
        "--languages",
        "en,hi",
        "--sentences",
        "4",
        "--out",
        str(tmp_path / "x.csv"),
    ]
    result = CliRunner().invoke(app, ["analyse", "similarity", *models, *options])
    assert result.exit_code == 0, result.output
    assert "original" in result.output
    assert "trained" in result.output
    assert (tmp_path / "x.csv").read_text(encoding="utf-8").count("\n") == 1 + 3 * 2
