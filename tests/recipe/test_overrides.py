"""TOML in and out: overrides, files that cannot be read, resolved recipes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from crossling.errors import RecipeError
from crossling.recipe.overrides import apply_overrides, to_toml
from crossling.recipe.recipe import load_recipe, parse_recipe

MINIMAL = {
    "encoder": {"name": "multilingual-e5-small"},
    "stage": [{"kind": "finetune", "task": "ner", "train": "panx:en"}],
    "evaluate": [{"on": "panx", "languages": ["no", "de"]}],
}


@pytest.mark.parametrize(
    ("override", "path", "value"),
    [
        ("stage.0.epochs=2", ("stage", 0, "epochs"), 2),
        ('evaluate.0.languages=["de"]', ("evaluate", 0, "languages"), ["de"]),
        ("encoder.name=some/model", ("encoder", "name"), "some/model"),
        ("seeds=[1, 2]", ("seeds",), [1, 2]),
        ("run.threads=1", ("run", "threads"), 1),
        ("stage.0.train=panx:no", ("stage", 0, "train"), "panx:no"),
        ('evaluate.0={ on = "x", languages = ["a"] }', ("evaluate", 0, "on"), "x"),
        ('stage.1={ kind = "average", models = 3 }', ("stage", 1, "models"), 3),
    ],
)
def test_overrides_reach_their_place(override: str, path: tuple[str | int, ...], value: object) -> None:
    node: object = apply_overrides(MINIMAL, [override])
    for part in path:
        node = node[part]  # type: ignore[index]
    assert node == value


@pytest.mark.parametrize(
    "override", ["stage.1.epochs=2", 'stage.2={ kind = "average" }', "stage.x.epochs=2", "epochs", "=3", "source.x.y=1"]
)
def test_overrides_of_missing_keys_are_refused(override: str) -> None:
    with pytest.raises(RecipeError, match="--set"):
        apply_overrides({**MINIMAL, "source": "en"}, [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stage.0.train.limit=200", "is 'panx:en', no table; write stage.0.train={ data = \"panx:en\", limit = 200 }"),
        ("evaluate.0.on.limit=9", "is 'panx', no table; write evaluate.0.on={ data = \"panx\", limit = 9 }"),
        ("stage.0.train.0.x.y=1", "stage.0.train is 'panx:en', no table"),
        ("encoder.name.x=1", "encoder.name is 'multilingual-e5-small', no table"),
    ],
)
def test_key_inside_the_name_of_a_data_set_is_shown_as_a_table(override: str, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        apply_overrides(MINIMAL, [override])
    assert str(caught.value).endswith(message)
    if "; write " in message:
        apply_overrides(MINIMAL, [message.partition("; write ")[2]])


def test_overrides_change_a_copy() -> None:
    apply_overrides(MINIMAL, ["stage.0.task=pos"])
    assert MINIMAL["stage"][0]["task"] == "ner"  # type: ignore[index]


@pytest.mark.parametrize("content", [b"seeds = [1,", b"\xff\xfe", b"= 3"])
def test_file_that_is_not_toml_is_reported_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.toml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match="broken.toml"):
        load_recipe(path)


def test_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "ner.toml").touch()
    with pytest.raises(RecipeError, match="Did you mean 'ner.toml'"):
        load_recipe(tmp_path / "nre.toml")


def test_resolved_recipe_reads_back_equal(tmp_path: Path) -> None:
    recipe = parse_recipe(MINIMAL)
    path = tmp_path / "resolved.toml"
    path.write_text(to_toml(recipe.model_dump(mode="json")), encoding="utf-8")
    assert tomllib.loads(path.read_text(encoding="utf-8"))["stage"][0]["lr"] == recipe.stage[0].lr
    assert load_recipe(path) == recipe
