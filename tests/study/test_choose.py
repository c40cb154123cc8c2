"""How good choices are: ranks, regret, a random pick beside them; analyses and criteria of a whole small study."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from typer.testing import CliRunner

from crossling.analyses.correlation import correlate_scores
from crossling.analyses.result import write_result
from crossling.analyses.settings import parse_settings
from crossling.cli.main import app
from crossling.errors import ArtefactError, RecipeError
from crossling.store.artefacts import Store
from crossling.study.analyse import analyse, average_models
from crossling.study.cell_scores import score_cells
from crossling.study.choose import (
    BEST,
    CHANCE,
    Choice,
    Pick,
    average_outcomes,
    expect_random,
    judge_choices,
    list_best,
    rank_pick,
    summarise_picks,
)
from crossling.study.compare import compare_study
from crossling.study.folder import read_plan
from crossling.study.grid import load_study
from crossling.study.model_arguments import find_models
from crossling.study.scheduling import run_study
from inline_pool import InlinePool
from small_study import write_study

SWEEP = """
seeds = [1, 2]
baseline = "plain"
[systems.plain]
recipe = "ner.toml"
[systems.fused]
recipe = "ner.toml"
set = { "stage.0.fusion" = { kind = "mean" } }
[systems.fused.axes]
"stage.0.fusion.layer" = [1, 2]
[[choose]]
system = "fused"
axis = "stage.0.fusion.layer"
[[choose]]
system = "fused"
axis = "stage.0.fusion.layer"
criterion = { kind = "cosine", on = "phrasebook-parallel", languages = ["de", "hi"], sentences = 8 }
[[choose]]
system = "fused"
axis = "stage.0.fusion.layer"
criterion = { kind = "margin", on = "phrasebook-parallel", languages = ["de", "hi"], sentences = 8 }
"""
SIMILARITY = {"kind": "similarity", "on": "phrasebook-parallel", "languages": ["de", "hi"], "sentences": 8}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, tiny_folder: Path) -> Path:
    """The folder of a small study that has been run: two layers, a baseline, two seeds."""
    folder = tmp_path_factory.mktemp("sweep")
    study = load_study(write_study(folder, tiny_folder, SWEEP))
    outcome = run_study(study, out=folder / "out", store=Store(folder / "store"), pool=InlinePool())
    assert outcome.failed == {}
    return folder / "out"


def test_ranks_are_shared_by_equals_and_regret_is_from_the_best() -> None:
    scores = {"a": 0.5, "b": 0.8, "c": 0.5, "d": 0.2}
    assert rank_pick(scores, "b") == (1, 0.0)
    assert rank_pick(scores, "a") == rank_pick(scores, "c") == (2, pytest.approx(0.3))
    assert rank_pick(scores, "d") == (4, pytest.approx(0.6))
    rank, share, regret = expect_random(scores)
    assert (rank, share) == (fmean([2, 1, 2, 4]), 3 / 4)
    assert regret == pytest.approx(0.8 - fmean(scores.values()))


def test_ties_of_a_criterion_are_named_and_averaged() -> None:
    scores = {"a": 0.5, "b": 0.9, "c": 0.9, "d": float("nan")}
    assert list_best(scores) == ["b", "c"]
    choice = Choice("", "dlfa", "layer", "cosine", "no labels", scores, "b", "folder", "dlfa (chosen by cosine)")
    assert "b and c are equal, and the first was taken" in choice.describe()
    assert "equal" not in replace(choice, scores={"a": 0.5, "b": 0.9}).describe()
    reached = {"a": 0.8, "b": 0.6, "c": 0.2, "d": 0.7}
    rank, good, regret = average_outcomes(reached, choice.tied)
    assert (rank, good, regret) == (3.5, 0.5, pytest.approx(0.4))
    with pytest.raises(ArtefactError, match="no value for any of a, b"):
        list_best({"a": float("nan"), "b": float("nan")})


def test_records_count_picks_among_the_best_three() -> None:
    picks = [
        Pick("margin", "pos", "dlfa", seed, f"layer {rank}", rank, 11, rank / 100, rank <= BEST)
        for seed, rank in ((1, 1), (2, 3), (3, 4))
    ]
    other = Pick("source_dev", "pos", "dlfa", 1, "layer 9", 9, 11, 0.02, 0.0)
    margin, source_dev = summarise_picks([*picks, other])
    assert (margin.criterion, margin.picks, source_dev.picks) == ("margin", 3, 1)
    assert margin.mean_rank == pytest.approx(8 / 3)
    assert margin.share_of_best == pytest.approx(2 / 3)
    assert margin.mean_regret == pytest.approx(0.08 / 3)
    assert source_dev.share_of_best == 0
    assert BEST == 3


def test_choices_of_a_study_are_judged_by_scores_of_other_languages(swept: Path) -> None:
    judged = judge_choices(swept)
    cells = score_cells(read_plan(swept), swept)
    means = {
        layer: fmean(c.zero_shot for c in cells if c.label == f"fused layer={layer}" and c.zero_shot is not None)
        for layer in (1, 2)
    }
    assert [(p.criterion, p.seed) for p in judged.picks] == [
        (criterion, seed) for criterion in ("source_dev", "cosine", "margin") for seed in (None, 1, 2)
    ]
    for pick in judged.picks:
        own = means[int(pick.chosen[-1])]
        assert pick.rank == 1 + sum(score > own for score in means.values())
        assert pick.regret == pytest.approx(max(means.values()) - own)
        assert (pick.values, pick.system) == (2, "fused")
    named = [record.criterion for record in judged.records]
    assert named == [f"{c}, {s}" for s in ("all seeds", "one seed") for c in ("source_dev", "cosine", "margin")] + [
        CHANCE
    ]
    assert judged.records[-1].picks == 1, "one axis to pick from, whatever the number of criteria"
    result = CliRunner().invoke(app, ["study", "choices", str(swept)])
    assert result.exit_code == 0, result.output
    assert CHANCE in result.output
    with (swept / "picks.csv").open(encoding="utf-8") as lines:
        assert [row["seed"] for row in csv.DictReader(lines)] == ["all", "1", "2"] * 3


def test_criteria_on_similarity_pick_what_the_analysis_says_and_use_no_label(swept: Path) -> None:
    comparison = compare_study(swept)
    table = analyse(swept, parse_settings(SIMILARITY)).table
    means = average_models(table, ("cosine", "margin"))
    for choice in comparison.choices[1:]:
        expected = {label: means["", label][choice.criterion] for label in ("fused layer=1", "fused layer=2")}
        assert choice.scores == pytest.approx(expected)
        assert choice.chosen == max(expected, key=lambda label: expected[label])
        assert choice.labels == "no label of any language, only parallel text: phrasebook-parallel in de, hi"
    assert [choice.name for choice in comparison.choices] == [
        f"fused (chosen by {criterion})" for criterion in ("source_dev", "cosine", "margin")
    ]
    assert "no label of any language" in (swept / "compare.md").read_text(encoding="utf-8")


def test_all_cells_are_analysed_and_correlated_with_scores(
    swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = analyse(swept, parse_settings(SIMILARITY))
    assert found.table.column_names[:4] == ["task", "model", "seed", "language"]
    assert len(found.table) == 3 * 2 * 2
    assert {point.label for point in found.variants} == {"plain", "fused layer=1", "fused layer=2"}
    assert [(c.measure, c.n) for c in correlate_scores(found.variants)] == [("cosine", 3), ("margin", 3)]
    _, files = write_result(found, tmp_path / "here.csv")
    assert {path.suffix for path in files} == {".csv", ".md", ".svg", ".parquet", ".json"}
    assert "fused layer=2" in (tmp_path / "here.svg").read_text(encoding="utf-8")
    assert "Pearson" in (tmp_path / "here.md").read_text(encoding="utf-8")
    with (tmp_path / "here.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["seed"] for row in rows[:4]] == ["1"] * 4
    assert float(rows[0]["cosine"]) == found.table.column("cosine")[0].as_py()

    def refuse(_: Path) -> None:
        raise AssertionError("a model was loaded again")

    monkeypatch.setattr("crossling.models.model.load_model", refuse)
    assert analyse(swept, parse_settings(SIMILARITY)).table.equals(found.table), "what was done is kept"


def test_a_run_and_a_model_are_analysed_too(swept: Path) -> None:
    run = analyse(swept / "plain", parse_settings(SIMILARITY))
    assert set(run.table.column("seed").to_pylist()) == {1, 2}
    assert run.variants == ()
    first = find_models([swept / "plain"]).models[0].location
    assert isinstance(first, Path)
    alone = analyse(first, parse_settings(SIMILARITY))
    assert alone.table.column("cosine").to_pylist() == run.table.column("cosine").to_pylist()[:2]
    stem = "similarity-phrasebook-parallel"
    assert {path.name for path in write_result(run)[1]} == {
        f"{stem}.{ending}" for ending in ("csv", "md", "parquet", "json")
    }


def test_command_writes_into_the_study_folder(swept: Path) -> None:
    arguments = ["--on", "phrasebook-parallel", "--languages", "de,hi", "--sentences", "8"]
    result = CliRunner().invoke(app, ["analyse", "similarity", str(swept), *arguments])
    assert result.exit_code == 0, result.output
    assert "zero-shot score" in result.output
    assert (swept / "similarity-phrasebook-parallel.svg").is_file()


def test_tables_have_means_by_group(swept: Path) -> None:
    titles = [line.title for line in compare_study(swept, groups=["family"]).parts[0].tables[0].lines]
    assert titles == ["hi Hindi"], "a group of one language has its line already"


def test_invalid_settings_and_unfinished_cells_raise(swept: Path, tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(RecipeError, match=r"similarity\.pool = 'max'"):
        parse_settings({**SIMILARITY, "pool": "max"})
    plan = json.loads((swept / "study.json").read_text(encoding="utf-8"))
    (tmp_path / "study.json").write_text(json.dumps({**plan, "cells": []}), encoding="utf-8")
    for variant in plan["variants"]:
        (tmp_path / variant["folder"]).mkdir(parents=True)
        recipe = (swept / variant["folder"] / "recipe.toml").read_bytes()
        (tmp_path / variant["folder"] / "recipe.toml").write_bytes(recipe)
    with pytest.raises(ArtefactError, match="no cell is finished"):
        analyse(tmp_path, parse_settings(SIMILARITY))
    assert judge_choices(tmp_path).picks == ()
    assert "not judged yet" in judge_choices(tmp_path).notes[0]
    settings = {**plan["settings"], "choose": []}
    (tmp_path / "study.json").write_text(json.dumps({**plan, "settings": settings}), encoding="utf-8")
    with pytest.raises(ArtefactError, match="no .choose. table"):
        judge_choices(tmp_path)
    wrong = SWEEP.replace('kind = "margin", on', 'kind = "margin", onn')
    with pytest.raises(RecipeError, match="onn"):
        load_study(write_study(tmp_path / "wrong", tiny_folder, wrong))
