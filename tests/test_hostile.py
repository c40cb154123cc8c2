"""Untrusted input is refused with a message: hostile folders of models, bad data files, bad recipes."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from hostile import (
    ATTACKS,
    MARKER,
    list_files,
    load_good_recipes,
    make_bad_data,
    make_bad_recipe,
    make_good_folders,
    make_hostile_folder,
)
from hostile_files import BadRecipe, to_toml
from hostile_folders import FAMILIES, HostileFolder

ALLOWED = 200 << 10
"""Kilobytes by which a refusal may raise the memory in use: a part of what the configurations ask for."""
FILES, RECIPES = 400, 400


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("good")
    make_good_folders(root)
    for family in FAMILIES:  # what is corrupted is valid before
        for group in ("encoder", "standalone", "stored"):
            HostileFolder("none", root / group / family, group != "encoder").open()
    HostileFolder("none", root / "onnx" / "xlm-r", True).open()
    return root


@pytest.mark.parametrize("seed", range(len(ATTACKS)), ids=list(ATTACKS))
def test_hostile_folder_is_refused(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.chdir(tmp_path)
    folder = make_hostile_folder(good, tmp_path / "given" / "model", seed)
    before, memory = (list_files(tmp_path), list_files(good)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    message = folder.refusal()
    assert len(message) > 20
    assert (list_files(tmp_path), list_files(good)) == before, "nothing is written"
    assert not Path(MARKER).exists(), "no code is run"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < ALLOWED


def test_a_seed_makes_the_same_folder_and_another_one_another(good: Path, tmp_path: Path) -> None:
    def read(name: str, seed: int) -> dict[str, bytes]:
        folder = make_hostile_folder(good, tmp_path / name, seed).path
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    number = list(ATTACKS).index("a_huge_size (encoder)")
    assert read("first", number) == read("again", number) != read("other", number + len(ATTACKS))


def test_bad_data_files_are_read_or_refused(tmp_path: Path) -> None:
    found = [make_bad_data(tmp_path / str(seed), seed).read(tmp_path / "store") for seed in range(FILES)]
    refused = [message for message in found if isinstance(message, str)]
    assert FILES // 2 < len(refused) < FILES
    assert all(message.strip() for message in refused)


def test_bad_recipes_are_accepted_or_refused(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    recipes = load_good_recipes(str(good / "encoder" / "xlm-r"), tmp_path / "data")
    for number, tables in enumerate(recipes):
        path = tmp_path / f"good-{number}.toml"
        path.write_text(to_toml(tables), encoding="utf-8")
        assert BadRecipe("none", path).check(tmp_path / "store") == ""
    path = tmp_path / "bad.toml"
    found = [make_bad_recipe(recipes, path, seed).check(tmp_path / "store") for seed in range(RECIPES)]
    assert RECIPES // 2 < sum(map(bool, found)) < RECIPES
