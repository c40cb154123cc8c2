"""Recipes: defaults, validation, all problems at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.errors import RecipeError, nearest
from crossling.recipe.overrides import apply_overrides
from crossling.recipe.recipe import load_recipe, parse_recipe

MINIMAL: dict[str, Any] = {
    "encoder": {"name": "multilingual-e5-small"},
    "stage": [{"kind": "finetune", "task": "ner", "train": "panx:en"}],
    "evaluate": [{"on": "panx", "languages": ["no", "de"]}],
}


def test_defaults_are_filled_in_and_norwegian_is_a_language() -> None:
    recipe = parse_recipe(MINIMAL)
    assert recipe.seeds == (1,)
    assert recipe.source == "en"
    assert recipe.stage[0].batch == 32
    assert recipe.stage[0].train == ("panx:en",)
    assert recipe.evaluate[0].specs() == (("no", "panx:no"), ("de", "panx:de"))


def test_stored_recipes_of_earlier_versions_load() -> None:
    stage = MINIMAL["stage"][0]
    old = parse_recipe({**MINIMAL, "stage": [{**stage, "table_update": "all"}]})
    assert old == parse_recipe(MINIMAL)
    with pytest.raises(RecipeError, match=r"stage\.0\.table_update"):
        parse_recipe({**MINIMAL, "stage": [{**stage, "table_update": "rows"}]})


def test_all_problems_are_shown_at_once_with_the_nearest_name() -> None:
    tables = {
        "seed": [1],
        "encoder": {"nam": "x", "trim": "no"},
        "stage": [
            {"kind": "finetun"},
            {"kind": "finetune", "task": "nerr", "train": "panx:en", "epoch": 3, "lr": -1.0, "fusion": {"kind": "lst"}},
        ],
        "evaluate": [{"on": "panx"}],
        "run": {"device": "gpu"},
    }
    with pytest.raises(RecipeError) as caught:
        parse_recipe(tables, where="r.toml")
    message = str(caught.value)
    assert message.startswith("r.toml: ")
    for part in (
        "seed: unknown key. Did you mean 'seeds'?",
        "encoder.name: missing",
        "encoder.nam: unknown key. Did you mean 'name'?",
        "encoder.trim = 'no'",
        "stage.0.kind = 'finetun': unknown. Did you mean 'finetune'?",
        "stage.1.task = 'nerr'",
        "Did you mean 'ner'?",
        "stage.1.epoch: unknown key. Did you mean 'epochs'?",
        "stage.1.lr = -1.0",
        "stage.1.fusion",
        "Did you mean 'last'?",
        "languages: missing",
        "run.device = 'gpu': unknown.",
    ):
        assert part in message, part
    assert len([line for line in message.splitlines() if line.startswith("  encoder.trim")]) == 1


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("seeds=1", "seeds = 1: must be a list, such as [1, 2, 3]"),
        ("run.track=wandb", "run.track = 'wandb': must be a list, such as [\"wandb\"]"),
        ("evaluate=3", "evaluate = 3: must be a list"),
        ("evaluate={ on = 'panx' }", "evaluate: must be a list"),
    ],
)
def test_single_value_in_place_of_a_list_is_shown_a_list(override: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe(apply_overrides(MINIMAL, [override]))
    assert str(caught.value).splitlines()[-1].strip() == message


def test_settings_are_frozen() -> None:
    recipe = parse_recipe(MINIMAL)
    with pytest.raises(ValueError, match="frozen"):
        recipe.source = "de"  # type: ignore[misc]


def test_custom_files_need_a_dev_set() -> None:
    table = {"kind": "finetune", "task": "ner", "train": {"format": "bio", "path": "x.tsv", "language": "sw"}}
    with pytest.raises(RecipeError, match="dev: missing"):
        parse_recipe({**MINIMAL, "stage": [table]})
    assert parse_recipe({**MINIMAL, "stage": [{**table, "select": "last"}]}).stage[0].dev_spec() is None


def test_unknown_key_inside_a_kind_suggests_the_nearest(tmp_path: Path) -> None:
    """Also where only the kind itself knows its keys, and before anything is trained."""
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        '[encoder]\nname = "x"\n[[stage]]\nkind = "finetune"\ntrain = "panx:en"\n'
        'task = { kind = "tag", score = "span_fl", lenght = 3 }\nfusion = { kind = "mean", layer = 1, wieght = 1.0 }\n'
        '[[stage]]\nkind = "finetune"\ntrain = "panx:en"\ntask = { kind = "tag", scheme = "none", score = "span_f1" }\n'
    )
    with pytest.raises(RecipeError) as caught:
        load_recipe(recipe)
    for part in (
        "stage.0.task.score = 'span_fl': unknown. Did you mean 'span_f1'?",
        "stage.0.task.lenght: unknown key. Did you mean 'length'?",
        "stage.0.fusion.wieght: unknown key. Did you mean 'weight'?",
        "stage.1.task: score = 'span_f1' is about spans",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("train", ["panx:en", "panx:en:train[:-2000]", {"data": "panx:en", "limit": 5}])
def test_dev_split_of_first_training_set_selects(train: object) -> None:
    table = {"kind": "finetune", "task": "ner", "train": [train, "panx:hi"]}
    recipe = parse_recipe({"encoder": {"name": "x"}, "stage": [table]})
    assert recipe.stage[0].dev_spec() == "panx:en"
    with pytest.raises(RecipeError, match="dev: missing"):
        own = {"format": "bio", "path": "a.tsv", "language": "en"}
        parse_recipe({"encoder": {"name": "x"}, "stage": [{**table, "train": own}]})


def test_a_valid_name_is_listed_once() -> None:
    assert nearest("languge", ["language", "path", "language"]) == " Did you mean 'language'? Valid: language, path."


def test_name_just_typed_is_never_suggested() -> None:
    assert nearest("overlap", ["overlap", "dropout"]) == " Valid: dropout."
    stage = {"kind": "finetune", "task": {"kind": "tag", "overlap": 3}, "train": "panx:en"}
    with pytest.raises(RecipeError) as caught:
        parse_recipe({**MINIMAL, "stage": [stage]})
    message = str(caught.value)
    assert "stage.0.task.overlap: unknown key. Valid: dropout, kind, length, scheme, score." in message
    stage = {**stage, "task": {"kind": "answer", "overlp": 3}}
    with pytest.raises(RecipeError, match="Did you mean 'overlap'"):
        parse_recipe({**MINIMAL, "stage": [stage]})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"on": {"format": "bio", "path": "a.tsv"}, "languages": ["de", "hi"]}, "write {language} in path"),
        ({"on": {"format": "bio", "path": "a.tsv"}}, 'language = "sw" in the table'),
        ({"on": {"data": "panx:hi"}, "languages": ["de"]}, "the table itself names a language, 'hi'"),
    ],
)
def test_languages_and_a_table_must_fit_together(entry: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        parse_recipe({**MINIMAL, "evaluate": [entry]})
    assert problem in str(caught.value)


def test_entry_without_a_name_is_stored_as_before() -> None:
    [entry] = parse_recipe(MINIMAL).evaluate
    assert set(entry.model_dump()) == {"on", "languages", "split", "batch"}
    assert set(entry.model_copy(update={"name": "x"}).model_dump()) == {"on", "languages", "name", "split", "batch"}
