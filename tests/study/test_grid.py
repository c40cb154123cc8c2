"""Study files: what they expand to, and every mistake reported at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossling.errors import DataError, RecipeError
from crossling.store.artefacts import Store
from crossling.study.forecast import forecast_study
from crossling.study.grid import load_study
from crossling.study.plan import plan_study
from small_study import TWO_SYSTEMS, write_recipe, write_study

STUDIES = Path(__file__).parents[2] / "recipes" / "studies"


def test_systems_become_variants_and_cells(tmp_path: Path, tiny_folder: Path) -> None:
    study = load_study(write_study(tmp_path, tiny_folder))
    assert [variant.label for variant in study.variants] == ["plain", "mean"]
    assert [cell.name for cell in study.cells] == ["plain/seed-1", "mean/seed-1", "plain/seed-2", "mean/seed-2"]
    assert study.variants[0].recipe.stage[0].fusion == {"kind": "last"}
    assert study.variants[1].recipe.stage[0].fusion["layer"] == 1
    assert study.variants[1].recipe.seeds == (1, 2)


def test_system_without_a_recipe_runs_on_every_task(tmp_path: Path, tiny_folder: Path) -> None:
    write_recipe(tmp_path, tiny_folder, "pos")
    text = """
seeds = [7]
baseline = "plain"
[tasks.ner]
recipe = "ner.toml"
[tasks.pos]
recipe = "pos.toml"
baseline = "mean"
[systems.plain]
[systems.mean]
set = { "stage.0.fusion" = { kind = "mean", layer = 1 } }
[systems.mean.axes]
"stage.0.lr" = [1e-3, 2e-3]
"stage.0.fusion.weight" = [0.25]
[systems.only]
tasks = ["pos"]
[systems.own]
tasks = ["ner"]
recipe = "ner.toml"
[choose]
system = "mean"
axis = "stage.0.lr"
"""
    study = load_study(write_study(tmp_path, tiny_folder, text))
    assert [variant.folder for variant in study.variants] == [
        "ner/plain",
        "ner/mean/lr=0.001/weight=0.25",
        "ner/mean/lr=0.002/weight=0.25",
        "ner/own",
        "pos/plain",
        "pos/mean/lr=0.001/weight=0.25",
        "pos/mean/lr=0.002/weight=0.25",
        "pos/only",
    ]
    assert study.variants[2].recipe.stage[0].lr == 2e-3
    assert study.settings.choose[0].criterion_table == {"kind": "source_dev"}


def test_overrides_reach_every_recipe_or_the_study(tmp_path: Path, tiny_folder: Path) -> None:
    path = write_study(tmp_path, tiny_folder)
    study = load_study(path, ["stage.0.epochs=4", "seeds=[5]"])
    assert {variant.recipe.stage[0].epochs for variant in study.variants} == {4}
    assert [cell.seed for cell in study.cells] == [5, 5]
    assert study.identity != load_study(path).identity == load_study(path).identity


def test_system_of_some_stages_keeps_their_numbers(tmp_path: Path, tiny_folder: Path) -> None:
    recipe = write_recipe(tmp_path, tiny_folder)
    tables = recipe.read_text(encoding="utf-8")
    first, rest = tables.split("[[stage]]", 1)
    adapted = '[[stage]]\nkind = "adapt"\ntrain = "panx:en"\nlr = 0.5\n\n[[stage]]'
    (tmp_path / "two.toml").write_text(first + adapted + rest, encoding="utf-8")
    text = """
seeds = [1]
baseline = "original"
[tasks.ner]
recipe = "two.toml"
set = { "stage.1.lr" = 0.25, "stage.1.batch" = 3 }
[systems.original]
stages = [1]
[systems.adapted]
set = { "stage.1.batch" = 4 }
"""
    path = tmp_path / "study.toml"
    path.write_text(text, encoding="utf-8")
    original, adapted_variant = load_study(path, ["stage.1.epochs=7", "stage.0.epochs=9"]).variants
    assert [stage.kind for stage in original.recipe.stage] == ["finetune"]
    assert [stage.epochs for stage in adapted_variant.recipe.stage] == [9, 7]
    tuned = original.recipe.stage[0], adapted_variant.recipe.stage[1]
    assert [(stage.epochs, stage.lr, stage.batch) for stage in tuned] == [(7, 0.25, 3), (7, 0.25, 4)]


MISTAKES = {
    "unknown key": (TWO_SYSTEMS.replace("baseline =", "base_line ="), ["base_line", "'baseline'"]),
    "baseline": (TWO_SYSTEMS.replace('"plain"', '"plian"', 1), ["baseline = 'plian'", "Did you mean 'plain'"]),
    "two at once": (
        TWO_SYSTEMS.replace("recipe", "recipee", 1).replace("[1, 2]", "[1, 1]"),
        ["systems.plain.recipee", "different"],
    ),
    "no file": (TWO_SYSTEMS.replace("ner.toml", "nerr.toml", 1), ["nerr.toml: no such file", "'ner.toml'"]),
    "value in a recipe": (TWO_SYSTEMS.replace('"mean"', '"meen"'), ["systems.mean", "meen"]),
    "list item": (TWO_SYSTEMS.replace("stage.0.fusion", "stage.3.fusion"), ["stage.3", "1 items"]),
    "stages": (
        TWO_SYSTEMS.replace("[systems.mean]", "[systems.mean]\nstages = [1]"),
        ["stages: 1", "1 stages, 0 to 0"],
    ),
    "baseline with axes": (
        TWO_SYSTEMS.replace('"plain"', '"mean"', 1) + '[systems.mean.axes]\n"stage.0.lr" = [1.0, 2.0]\n',
        ["has axes", "[choose]"],
    ),
    "repeated value": (TWO_SYSTEMS + '[systems.mean.axes]\n"stage.0.lr" = [1.0, 1.0]\n', ["all different"]),
    "criterion": (
        TWO_SYSTEMS + '[systems.mean.axes]\n"stage.0.lr" = [1.0]\n'
        '[choose]\nsystem = "mean"\naxis = "stage.0.lr"\ncriterion = "source_def"\n',
        ["source_def", "source_dev"],
    ),
    "axis of a choice": (
        TWO_SYSTEMS + '[choose]\nsystem = "mean"\naxis = "stage.0.lr"\n',
        ["choose.axis", "not an axis of mean"],
    ),
    "task": (TWO_SYSTEMS.replace("[systems.mean]", '[systems.mean]\ntasks = ["nre"]'), ["'nre' is no task"]),
    "no recipe": (TWO_SYSTEMS.replace('recipe = "ner.toml"', "", 1), ["systems.plain.recipe: missing"]),
    "two systems in one folder": (TWO_SYSTEMS.replace("systems.mean", 'systems."plain/"'), ["share the folder"]),
    "a recipe": ('[encoder]\nname = "x"\n', ["is a recipe, not a study"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_reported_with_their_keys(tmp_path: Path, tiny_folder: Path, name: str) -> None:
    text, expected = MISTAKES[name]
    with pytest.raises(RecipeError) as caught:
        load_study(write_study(tmp_path, tiny_folder, text))
    for part in expected:
        assert part in str(caught.value)


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_studies_are_valid(path: Path) -> None:
    study = load_study(path)
    assert len(study.cells) == len(study.settings.seeds) * len(study.variants) > 2


def test_all_systems_of_the_study_of_adjustment_read_the_same_parallel_text() -> None:
    study = load_study(STUDIES / "adjustment.toml")
    texts: dict[str, set[tuple[object, ...]]] = {}
    for variant in study.variants:
        for stage in variant.recipe.stage:
            for read in (stage, getattr(stage, "replay", None)):
                if parallel := getattr(read, "parallel", ()):
                    texts.setdefault(variant.system, set()).add(tuple(parallel))
    everyday = texts.pop("everyday")
    assert "original" not in texts and len(set.union(*texts.values())) == 1
    [(ntrex, tatoeba)] = zip(set.union(*texts.values()), everyday, strict=True)
    assert [str(one).partition(":")[2] for one in ntrex] == [str(one).partition(":")[2] for one in tatoeba]


SCALED = """
seeds = [1, 2]
baseline = "plain"
[set]
"stage.0.lr" = 1e-3
"stage.0.epochs" = 3
"stage.0.batch" = 4
[tasks.ner]
recipe = "ner.toml"
set = { "stage.0.epochs" = 2 }
[systems.plain]
[systems.large]
set = { "stage.0.batch" = 8 }
[small]
seeds = [5]
set."stage.0.lr" = 2e-3
tasks.ner.set."stage.0.epochs" = 1
"""


def test_keys_of_every_recipe_come_before_those_of_a_task_and_a_system(tmp_path: Path, tiny_folder: Path) -> None:
    stages = [v.recipe.stage[0] for v in load_study(write_study(tmp_path, tiny_folder, SCALED)).variants]
    assert [(stage.lr, stage.epochs, stage.batch) for stage in stages] == [(1e-3, 2, 4), (1e-3, 2, 8)]


def test_small_scale_replaces_single_values_of_a_study(tmp_path: Path, tiny_folder: Path) -> None:
    path = write_study(tmp_path, tiny_folder, SCALED)
    small = load_study(path, ["stage.0.batch=2"], small=True)
    assert small.settings.seeds == (5,)
    assert [(v.recipe.stage[0].lr, v.recipe.stage[0].epochs) for v in small.variants] == [(2e-3, 1)] * 2
    assert {v.recipe.stage[0].batch for v in small.variants} == {2}, "the command line comes last"
    assert "small" not in load_study(path).settings.model_dump(), "what is not run is no part of the study's identity"


def test_systems_that_learn_from_scored_text_say_so_in_every_table(tmp_path: Path) -> None:
    stages = (
        '[[stage]]\nkind = "finetune"\ntask = "ner"\ntrain = "panx:en"\n[[stage]]\nkind = "teach"\ntext = "panx:de"\n'
    )
    (tmp_path / "r.toml").write_text(f'[encoder]\nname = "x"\n{stages}', encoding="utf-8")
    text = 'seeds = [1]\nbaseline = "a"\n[systems.a]\nrecipe = "r.toml"\n[systems.b]\nrecipe = "r.toml"\n'
    (tmp_path / "s.toml").write_text(text + 'set = { "stage.1.transductive" = true }\n', encoding="utf-8")
    study = load_study(tmp_path / "s.toml")
    assert [(variant.label, variant.folder) for variant in study.variants] == [("a", "a"), ("b (transductive)", "b")]


def test_mistakes_of_a_study_its_names_and_its_recipes_are_reported_at_once(tmp_path: Path, tiny_folder: Path) -> None:
    text = """
seds = [1]
baseline = "plan"
[systems.plain]
recipe = "ner.toml"
set = { "stage.0.epoch" = 2 }
[systems.mean]
recipe = "missing.toml"
"""
    with pytest.raises(RecipeError) as caught:
        load_study(write_study(tmp_path, tiny_folder, text))
    message = str(caught.value)
    assert message.splitlines()[0].endswith("5 problems")
    for part in (
        "seds: unknown key. Did you mean 'seeds'?",
        "seeds: missing",
        "baseline = 'plan': no such system. Did you mean 'plain'?",
        "stage.0.epoch: unknown key. Did you mean 'epochs'?",
        "missing.toml: no such file",
    ):
        assert part in message
    broken = text.replace('recipe = "missing.toml"', "recipe = 3")
    with pytest.raises(RecipeError) as caught:
        load_study(write_study(tmp_path, tiny_folder, broken))
    assert "systems.mean.recipe" in str(caught.value) and "stage.0.epoch" in str(caught.value)


def test_data_that_several_variants_miss_is_reported_once(tmp_path: Path, tiny_folder: Path) -> None:
    path = write_study(tmp_path, tiny_folder)
    wrong = ["stage.0.dev=phrasebook-ner:xx", 'evaluate=[{ on = "phrasebook-ner", languages = ["yy", "zz"] }]']
    with pytest.raises(DataError) as caught:
        plan_study(load_study(path, wrong), Store(tmp_path / "s"), tmp_path / "out")
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 2 variants cannot be run" and len(lines) == 4
    for line, part in zip(lines[1:], ("stage.0: ", "evaluate.0: ", "evaluate.0: "), strict=True):
        assert line.strip().startswith(f"plain, mean: {part}")


def test_layers_that_the_encoder_lacks_are_refused_before_training(tmp_path: Path, tiny_folder: Path) -> None:
    """By a dry run too, which plans as a run does."""
    fusion = '{ kind = "mean", layer = -9 }'
    study = load_study(write_study(tmp_path, tiny_folder), [f"systems.mean.set={{'stage.0.fusion' = {fusion}}}"])
    with pytest.raises(
        DataError, match=r"1 of 2 variants cannot be run\n  mean: stage\.0: fusion\.layer = -9: .* 3 lay"
    ):
        forecast_study(study, store=Store(tmp_path / "s"), out=tmp_path / "out")
