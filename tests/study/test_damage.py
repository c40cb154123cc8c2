"""Damage to what a run or a study stored: the same command notices it and makes it again."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from crossling.errors import ArtefactError
from crossling.recipe.recipe import load_recipe
from crossling.store.artefacts import DamagedError, Store
from crossling.study.grid import load_study
from crossling.study.recipe_run import run_recipe
from crossling.study.scheduling import run_study
from crossling.study.status import find_schedulers
from faults import Results, fill_with_zeros, flip_bit, truncate, write_work
from inline_pool import InlinePool
from small_study import TWO_SYSTEMS


@pytest.fixture(scope="module")
def works(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of a finished run and of a finished study, each with its store."""
    folder = tmp_path_factory.mktemp("finished")
    recipe = write_work(folder / "work")
    recipe.with_name("study.toml").write_text(TWO_SYSTEMS, encoding="utf-8")
    for name in ("run", "study"):
        repeat(folder / name)
    return folder / "run", folder / "study"


def repeat(folder: Path, *, work: Path | None = None) -> None:
    """The command that made a folder, again."""
    work = work or folder.parent / "work"
    store = Store(folder / "store")
    if folder.name == "run":
        run_recipe(load_recipe(work / "ner.toml"), store=store, out=folder / "out")
    else:
        outcome = run_study(load_study(work / "study.toml"), out=folder / "out", store=store, pool=InlinePool())
        assert not outcome.failed


def exchange(first: Path, second: Path) -> None:
    mine, its = first.read_bytes(), second.read_bytes()
    first.write_bytes(its)
    second.write_bytes(mine)


def exchange_predictions(folder: Path) -> None:
    """Of two sets, and of two models for the same set."""
    first, second, third, *_ = sorted(folder.glob("store/predictions/*/*.parquet"))
    exchange(first, second)
    exchange(first, third)


def exchange_record_and_card(folder: Path) -> None:
    artefact = min((folder / "store/artefacts").iterdir())
    exchange(artefact / "complete.json", artefact / "model.json")
    flip_bit(artefact / "model.safetensors", random.Random(0))


def exchange_records(folder: Path) -> None:
    """Of a model and of the run."""
    exchange(min(folder.glob("store/artefacts/*/complete.json")), folder / "out" / "run.json")


def change_a_loss(folder: Path) -> None:
    path = min(folder.glob("store/artefacts/*/complete.json"))
    record = json.loads(path.read_text(encoding="utf-8"))
    record["history"][0]["loss"] += 1
    path.write_text(json.dumps(record), encoding="utf-8")


def truncate_records(folder: Path) -> None:
    for path in folder.glob("store/artefacts/*/complete.json"):
        truncate(path, random.Random(1))


def zero_cell_marker(folder: Path) -> None:
    fill_with_zeros(min(folder.glob("out/*/*/complete.json")), random.Random(0))


def truncate_predictions_of_a_cell(folder: Path) -> None:
    truncate(min(folder.glob("out/*/*/predictions/*/*.parquet")), random.Random(0))


def exchange_cells(folder: Path) -> None:
    exchange(*sorted(folder.glob("out/plain/*/predictions/test/hi.parquet")))


def flip_bits_of_models(folder: Path) -> None:
    """Of first stages, too, which nothing reads once the second is trained."""
    for path in folder.glob("store/artefacts/*/model.safetensors"):
        flip_bit(path, random.Random(2))


RUN, STUDY = 0, 1


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        (RUN, exchange_predictions),
        (RUN, exchange_record_and_card),
        (RUN, exchange_records),
        (RUN, change_a_loss),
        (RUN, truncate_records),
        (STUDY, zero_cell_marker),
        (STUDY, truncate_predictions_of_a_cell),
        (STUDY, exchange_cells),
        (STUDY, flip_bits_of_models),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_command_makes_again_what_was_damaged(
    works: tuple[Path, Path], tmp_path: Path, kind: int, damage: Callable[[Path], None]
) -> None:
    expected = Results.read(works[kind] / "store", works[kind] / "out")
    folder = shutil.copytree(works[kind], tmp_path / works[kind].name)
    damage(folder)
    repeat(folder, work=works[kind].parent / "work")
    assert not expected.compare(folder / "store", folder / "out")


def test_damaged_record_is_not_read_in_silence(works: tuple[Path, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(works[0], tmp_path / "run")
    change_a_loss(folder)
    store = Store(folder / "store")
    identity = min(store.root.glob("artefacts/*")).name
    with pytest.raises(DamagedError, match="complete.json: is damaged"):
        store.fetch(identity)
    assert not store.is_whole(identity) and store.is_complete(identity)
    fill_with_zeros(store.artefact(identity) / "complete.json", random.Random(0))
    with pytest.raises(ArtefactError, match="complete.json: is damaged"):
        store.record(identity)


def test_damaged_file_of_a_scheduler_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "runners").mkdir()
    for number, text in enumerate(('{"study": 1}', "[]", '{"working": [1]}', '{"working": {}, "other": 2}', "\0")):
        (tmp_path / "runners" / f"{number}.json").write_text(text, encoding="utf-8")
    assert find_schedulers(tmp_path) == []
