"""``crossling check`` refuses what a run would stumble over, with the recipe's key, what is wrong and how to fix it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossling.limits import MOST_LABELS
from hostile_files import BadRecipe, load_good_recipes, to_toml

FINETUNE, FUSED, ADJUST, ADAPT, CLASSIFY = 0, 1, 3, 4, 5
"""Places of the good recipes in their list."""


@pytest.fixture
def check(tiny_folder: Path, tmp_path: Path) -> Callable[..., str]:
    recipes = load_good_recipes(str(tiny_folder), tmp_path / "data")

    def run(number: int, edit: Callable[[dict[str, Any]], None] = lambda table: None) -> str:
        table = json.loads(json.dumps(recipes[number]))
        edit(table)
        (tmp_path / "recipe.toml").write_text(to_toml(table), encoding="utf-8")
        return BadRecipe("none", tmp_path / "recipe.toml").check(tmp_path / "store")

    return run


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (None, r"links: no file"),
        ("0-0\n" * 11, r"has 11 lines, but there are 12 sentence pairs"),
        ("0-0\n" * 13, r"has 13 lines, but there are 12 sentence pairs"),
        ("0-0\n0=1\n" + "0-0\n" * 10, r":2: '0=1' is no link"),
        ("0-0\n0-7\n" + "0-0\n" * 10, r":2: the link 0-7 leads outside 3 and 2 words"),
        ("0-0\n1-2\n" + "0-0\n" * 10, r":2: the link 1-2 leads outside .* are the two sides swapped"),
        ("0-0\n0-0\xff\n" + "0-0\n" * 10, r":2: .* is no link"),
        ("0-0 " * 12, r"has 1 lines"),
        ("\0\n" * 12, r":1: the line has a NUL"),
    ],
)
def test_link_files_are_checked(check: Callable[..., str], tmp_path: Path, links: str | None, message: str) -> None:
    path = tmp_path / "data" / "links.txt"
    path.unlink() if links is None else path.write_text(links, encoding="utf-8")
    found = check(ADJUST)
    assert "stage.0" in found
    assert re.search(message, found)


def test_link_files_that_are_no_files_are_refused(check: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "data" / "links.txt").unlink()
    os.mkfifo(tmp_path / "data" / "links.txt")
    assert "links: no file" in check(ADJUST)
    for name in ("x" * 5_000, "a\0b"):
        assert "links: no file" in check(ADJUST, lambda table, name=name: table["stage"][0].update(links=name))


def test_sides_of_unequal_length_are_refused(check: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "data" / "pairs.ru"
    path.write_text(path.read_text(encoding="utf-8") + "один\n", encoding="utf-8")
    found = check(ADJUST)
    assert "stage.0" in found and "pairs.ru has 13" in found and "pairs.ru:13 has no partner" in found


def test_swapped_sides_are_refused(check: Callable[..., str], tmp_path: Path) -> None:
    english, russian = (tmp_path / "data" / f"pairs.{code}" for code in ("en", "ru"))
    first, second = english.read_bytes(), russian.read_bytes()
    english.write_bytes(second)
    russian.write_bytes(first)
    found = check(ADJUST, lambda table: table["stage"][0].pop("links"))
    assert "by its letters the first side is Russian and the second English" in found


def test_swapped_sides_in_languages_of_one_script_are_refused(check: Callable[..., str], tmp_path: Path) -> None:
    """German and English in files whose names do not tell which is which."""
    pairs = [
        ("She reads the newspaper every morning.", "Sie liest jeden Morgen die Zeitung."),
        ("We want to go home now.", "Wir wollen jetzt nach Hause gehen."),
        ("There was nothing left in the kitchen.", "In der Küche war nichts mehr übrig."),
        ("He asked what I thought of the book.", "Er fragte, was ich von dem Buch halte."),
    ]
    for name, side in zip("xy", zip(*pairs, strict=True), strict=True):
        (tmp_path / "data" / f"{name}.txt").write_text("\n".join(side) + "\n", encoding="utf-8")

    def read(source: str, target: str) -> Callable[[dict[str, Any]], None]:
        files = {key: str(tmp_path / "data" / f"{name}.txt") for key, name in (("source", source), ("target", target))}

        def edit(table: dict[str, Any]) -> None:
            table["stage"][0]["parallel"] = [{"format": "parallel", "language": "en-de", **files}]
            del table["stage"][0]["links"]

        return edit

    assert check(ADJUST, read("x", "y")) == ""
    found = check(ADJUST, read("y", "x"))
    assert "stage.0" in found and "y.txt" in found
    assert "by its letters the first side is German and the second English, but its language is en-de" in found


def test_a_missing_side_is_refused(check: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "data" / "pairs.ru").unlink()
    assert "pairs.ru: there is no such file" in check(ADJUST)


@pytest.mark.parametrize(
    ("number", "edit", "message"),
    [
        (FUSED, lambda t: t["stage"][0]["fusion"].update(layer=99), "stage.0: fusion.layer = 99: the encoder has 3"),
        (FUSED, lambda t: t["stage"][0]["fusion"].update(r=3), "stage.0: fusion.r = 3"),
        (ADJUST, lambda t: t["stage"][0].update(layer=9), "stage.0: layer = 9: the encoder has 3 layers"),
        (ADJUST, lambda t: t["stage"][1]["replay"].update(layer=9), "stage.1: replay.layer = 9: the encoder has 3"),
        (FINETUNE, lambda t: t.update(stage=[]), "stage: missing"),
        (FINETUNE, lambda t: t["stage"][0]["train"].update(language="../../x"), "'../../x' is no code"),
        (FINETUNE, lambda t: t["stage"][0]["train"].update(language="e\x1b[31m"), "is no code"),
        (FINETUNE, lambda t: t.update(source="../en"), "source = '../en'"),
        (FINETUNE, lambda t: t["stage"][0]["train"].update(limit=10**30), "limit = 1000"),
        (FINETUNE, lambda t: t["stage"][0]["train"].update(sample_seed=2**64), "sample_seed = 18446744073709551616"),
        (FINETUNE, lambda t: t["encoder"].update(name="x" * 5_000), "encoder 'xxx"),
        (FINETUNE, lambda t: t["encoder"].update(name="/x\0"), "no such folder"),
        (CLASSIFY, lambda t: t["stage"][0]["train"].update(path="/dev/zero"), "/dev/zero: cannot be read (is not a"),
    ],
)
def test_mismatched_data_and_settings_are_refused_with_their_key(
    check: Callable[..., str], number: int, edit: Callable[[dict[str, Any]], None], message: str
) -> None:
    assert message in check(number, edit)


def test_more_labels_than_can_be_stored_are_refused_before_training(check: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "data" / "text.txt").write_text("the cat\n" * (MOST_LABELS + 1), encoding="utf-8")
    lines = [f"label-{number}\n" for number in range(MOST_LABELS + 1)]
    (tmp_path / "data" / "labels.txt").write_text("".join(lines), encoding="utf-8")

    def whole(table: dict[str, Any]) -> None:
        for key in ("limit", "sample_seed"):
            del table["stage"][0]["train"][key]

    found = check(CLASSIFY, whole)
    assert "stage.0" in found and "32,768 different labels" in found and "at most 32,767" in found


def test_deep_recipes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    for text in (
        f"a = {'[' * 5_000}{']' * 5_000}",
        ".".join(["a"] * 5_000) + " = 1",
        f"[{'.'.join(['a'] * 40)}]\nb = 1",
    ):
        path.write_text(text, encoding="utf-8")
        found = BadRecipe("deep", path).check(tmp_path)
        assert str(path) in found and ("deeper than 32" in found or "not valid TOML" in found)


@pytest.mark.parametrize("kind", ["utf-16", "latin-1"])
def test_recipes_in_other_encodings_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_bytes('source = "é"\n'.encode(kind))
    assert "not UTF-8 text" in BadRecipe("encoding", path).check(tmp_path)


def test_a_recipe_with_a_byte_order_mark_is_read(check: Callable[..., str], tmp_path: Path) -> None:
    assert check(FINETUNE) == ""
    path = tmp_path / "recipe.toml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    assert BadRecipe("mark", path).check(tmp_path / "store") == ""
