"""Kinds from outside the package: files that a recipe names, and entry points of installed packages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import crossling
from crossling import registry
from crossling.cli.main import app
from crossling.errors import ArtefactError, RecipeError
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import load_recipe, parse_recipe
from crossling.registry import FAMILIES, add_plugin, identify_plugins, list_kinds, load_kind
from crossling.store.artefacts import Store
from crossling.study.grid import load_study
from crossling.study.recipe_run import RecipeRun
from crossling.study.scheduling import run_study
from crossling.training.distributed import setup_distributed

PAGE = Path(__file__).parent.parent / "docs" / "recipes.md"
TRAIN = "phrasebook-ner:en:train[:40]"
DEV = "phrasebook-ner:en:dev[:10]"


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test sees another's kinds."""
    monkeypatch.setattr(registry, "_plugins", {})
    registry._list_installed.cache_clear()
    yield
    registry._list_installed.cache_clear()


def read_listing() -> str:
    """The fusion that docs/recipes.md shows."""
    (listing,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert isinstance(listing, str)
    return listing


def write_plugin(folder: Path, name: str = "gated_mean") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.py"
    path.write_text(read_listing().replace("gated_mean", name), encoding="utf-8")
    return path


def write_recipe(folder: Path, encoder: Path, **tables: object) -> Path:
    """A recipe that fine-tunes with the custom fusion, after a stage that does not use it."""
    adapt = {"kind": "adapt", "train": DEV, "epochs": 1, "head": {"epochs": 1}}
    finetune = {"kind": "finetune", "task": "ner", "train": TRAIN, "dev": DEV, "epochs": 1}
    whole = {
        **tables,
        "encoder": {"name": str(encoder)},
        "stage": [adapt, {**finetune, "fusion": {"kind": "gated_mean", "layer": 1}}],
        "evaluate": [{"on": "phrasebook-ner", "split": "test[:5]", "languages": ["de"]}],
    }
    path = folder / "gated.toml"
    path.write_text(to_toml(whole), encoding="utf-8")
    return path


def install_package(site: Path, monkeypatch: pytest.MonkeyPatch, *points: str, name: str = "gates") -> None:
    """A package that pip might have installed, with entry points of crossling."""
    write_plugin(site / f"{name}_package")
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("\n".join(points) + "\n")
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("forked_workers")
def test_custom_fusion_in_a_file_trains_and_predicts(
    flat_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a study: its worker is another process, which finds plugins through the stored recipe alone."""
    write_plugin(tmp_path / "mine")
    write_recipe(tmp_path, flat_folder, plugins={"fusions": ["mine/gated_mean.py"]}, run={"threads": 1})
    study = tmp_path / "study.toml"
    study.write_text('seeds = [1]\nbaseline = "gated"\n[systems.gated]\nrecipe = "gated.toml"\n', encoding="utf-8")
    outcome = run_study(load_study(study), out=tmp_path / "out", store=Store(tmp_path / "store"))
    assert outcome.done == 1 and not outcome.failed
    monkeypatch.setattr(registry, "_plugins", {})
    monkeypatch.chdir("/")
    model = crossling.load(tmp_path / "out" / "gated")
    assert model.card.fusion == {"kind": "gated_mean", "layer": 1}
    said = crossling.predict(model, ["Anna lives in Paris."], language="en")
    crossling.save(model, tmp_path / "saved")
    monkeypatch.setattr(registry, "_plugins", {})
    with pytest.raises(RecipeError, match="unknown kind 'gated_mean'.*--plugin fusions=gated_mean.py"):
        crossling.load(tmp_path / "saved")
    plugin = f"fusions={tmp_path / 'mine' / 'gated_mean.py'}"
    command = ["--plugin", plugin, "predict", str(tmp_path / "saved"), "--format", "jsonl"]
    done = CliRunner().invoke(app, command, input="Anna lives in Paris.\n", catch_exceptions=False)
    assert '"text": "Anna lives in Paris."' in done.stdout
    monkeypatch.setattr(registry, "_plugins", {})
    again = crossling.load(tmp_path / "saved", plugins={"fusions": [str(tmp_path / "mine" / "gated_mean.py")]})
    assert crossling.predict(again, ["Anna lives in Paris."], language="en") == said


def test_custom_fusion_of_an_installed_package_trains(
    flat_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_package(tmp_path / "site", monkeypatch, "[crossling.fusions]", "gated_mean = gates_package.gated_mean")
    assert "gated_mean" in list_kinds("fusions")
    model = crossling.finetune(
        str(flat_folder), "ner", TRAIN, dev=DEV, epochs=1, fusion={"kind": "gated_mean", "layer": 1}
    )
    assert model.card.fusion == {"kind": "gated_mean", "layer": 1}
    assert set(model.card.plugins) == {"fusions.gated_mean"}


def test_content_of_a_plugin_counts_in_stages_that_use_it(flat_folder: Path, tmp_path: Path) -> None:
    def identify() -> tuple[str, ...]:
        recipe = load_recipe(path)
        run = RecipeRun(recipe, Store(tmp_path / "store"), tmp_path / "out", setup_distributed(recipe.run))
        return run.identify_stages(1)

    plugin = write_plugin(tmp_path)
    path = write_recipe(tmp_path, flat_folder, plugins={"fusions": ["gated_mean.py"]})
    before = identify()
    plugin.write_text(read_listing() + "\n# Another version.\n", encoding="utf-8")
    after = identify()
    assert before[0] == after[0], "adapt does not use the fusion"
    assert before[1] != after[1]


def test_model_trained_with_edited_plugin_is_not_loaded(flat_folder: Path, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    model = crossling.finetune(
        str(flat_folder),
        "ner",
        TRAIN,
        dev=DEV,
        epochs=1,
        fusion={"kind": "gated_mean", "layer": 1},
        plugins={"fusions": [str(plugin)]},
    )
    crossling.save(model, tmp_path / "saved")
    plugin.write_text(read_listing() + "\n# Another version.\n", encoding="utf-8")
    with pytest.raises(ArtefactError, match=r"fusions\.gated_mean has changed"):
        crossling.load(tmp_path / "saved", plugins={"fusions": [str(plugin)]})


def test_criterion_of_a_study_may_be_a_plugin(flat_folder: Path, tmp_path: Path) -> None:
    criterion = """
from typing import Literal
from crossling.recipe.recipe import FrozenSettings
LABELS = "none"
class Settings(FrozenSettings):
    kind: Literal["lowest"] = "lowest"
def score(cells, context):
    return 0.0
"""
    write_plugin(tmp_path)
    (tmp_path / "lowest.py").write_text(criterion, encoding="utf-8")
    write_recipe(tmp_path, flat_folder, plugins={"fusions": ["gated_mean.py"], "criteria": ["lowest.py"]})
    study = tmp_path / "study.toml"
    study.write_text(
        'seeds = [1]\nbaseline = "gated"\n[systems.gated]\nrecipe = "gated.toml"\n'
        '[systems.gated.axes]\n"stage.1.fusion.layer" = [1, 2]\n'
        '[[choose]]\nsystem = "gated"\naxis = "stage.1.fusion.layer"\ncriterion = "lowest"\n',
        encoding="utf-8",
    )
    assert load_study(study).settings.choose[0].criterion_table == {"kind": "lowest"}, "an unknown kind is an error"


def test_resolved_recipe_names_the_absolute_path(flat_folder: Path, tmp_path: Path) -> None:
    plugin = write_plugin(tmp_path)
    recipe = load_recipe(write_recipe(tmp_path, flat_folder, plugins={"fusions": "gated_mean.py"}))
    assert recipe.plugins == {"fusions": (str(plugin),)}
    assert parse_recipe(recipe.model_dump(mode="json")) == recipe
    assert "plugins" not in load_recipe(PAGE.parents[1] / "recipes" / "ner.toml").model_dump(mode="json")


@pytest.mark.parametrize("family", FAMILIES)
def test_built_in_kinds_change_no_identity(family: str) -> None:
    assert identify_plugins([{"kind": name, "format": name} for name in list_kinds(family)]) == {}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gated.py", "class Settings:\n    x = 1 +\n", r"gated\.py:2: SyntaxError"),
        ("gated.py", "import torch\n\nimport no_such_package\n", r"gated\.py:3: ModuleNotFoundError.*no_such_package"),
        ("gated.py", "x = 1\n", "defines no Settings, build; crossling.fusions says what each is"),
        ("mean.py", "class Settings: ...\n", "'mean' is a kind of fusions that crossling has already; rename"),
        ("my-fusion.py", "class Settings: ...\n", "whose name is the kind's"),
        ("other.py", None, r'Settings need kind: Literal\["other"\] = "other"'),
    ],
)
def test_broken_plugin_is_reported_with_its_line(
    tmp_path: Path, flat_folder: Path, name: str, content: str | None, message: str
) -> None:
    (tmp_path / name).write_text(read_listing() if content is None else content, encoding="utf-8")
    with pytest.raises(RecipeError, match=rf"plugins\.fusions: .*{message}"):
        load_recipe(write_recipe(tmp_path, flat_folder, plugins={"fusions": [name]}))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"fusion": ["gated_mean.py"]}, "Did you mean 'fusions'"),
        ({"fusions": ["gone.py"]}, "gone.py: cannot be read: No such file"),
        (["gated_mean.py"], "must be a table of files by family"),
    ],
)
def test_wrong_table_of_plugins_is_refused(tmp_path: Path, flat_folder: Path, table: object, message: str) -> None:
    write_plugin(tmp_path)
    with pytest.raises(RecipeError, match=message):
        load_recipe(write_recipe(tmp_path, flat_folder, plugins=table))


def test_two_files_of_one_name_are_refused_unless_equal(tmp_path: Path) -> None:
    add_plugin("fusions", write_plugin(tmp_path / "a"))
    other = write_plugin(tmp_path / "b")
    add_plugin("fusions", other)
    other.write_text(read_listing() + "\n# Another version.\n", encoding="utf-8")
    with pytest.raises(RecipeError, match="already read from .*rename one file"):
        add_plugin("fusions", other)


@pytest.mark.parametrize(
    ("point", "message"),
    [
        ("mean = gates_package.gated_mean", "package gates: .*'mean' has the name of a kind of crossling"),
        ("gone = gates_package.gone", "gates_package.gone cannot be imported"),
    ],
)
def test_wrong_entry_point_is_reported_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, message: str
) -> None:
    install_package(tmp_path / "site", monkeypatch, "[crossling.fusions]", point)
    with pytest.raises(RecipeError, match=message):
        load_kind("fusions", "gone")


def test_plugin_with_the_name_of_an_installed_kind_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_package(tmp_path / "site", monkeypatch, "[crossling.fusions]", "gated_mean = gates_package.gated_mean")
    with pytest.raises(RecipeError, match="that package gates has already"):
        add_plugin("fusions", write_plugin(tmp_path))
