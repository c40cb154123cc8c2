"""One contract for every registered kind: a new file of a family is tested without an edit here.

Readers have more of their own in data/test_readers_contract.py.
"""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from crossling.errors import RecipeError
from crossling.fusions import FusionKind
from crossling.inference.predictor import Predictor
from crossling.models.model import save_model
from crossling.objectives import Objective
from crossling.recipe.recipe import freeze
from crossling.registry import DEFINES, FAMILIES, list_kinds, load_kind
from crossling.stages import Stage
from crossling.tasks import Task
from examples import make_rows
from trained import list_inputs, train_tiny, wrap

CONFIGURED = [family for family in FAMILIES if family not in ("objectives", "readers")]
"""Objectives have no settings: tasks build them. Readers' are tested with their files."""
KINDS = [(family, kind) for family in CONFIGURED for kind in list_kinds(family)]
VERSIONED = ("readers", "tasks", "stages")
"""Families whose code counts in identities: a change of results is a new version."""
REQUIRED: dict[str, Any] = {
    "on": "phrasebook-pos",
    "layer": 1,
    "task": "ner",
    "train": "phrasebook-ner:en",
    "languages": ("hi",),
    "parallel": ("phrasebook-parallel:en-hi",),
    "tasks": ("pos", "ner"),
    "table": "probe.csv",
    "cross": "ner",
    "multi": "ner-multi",
}
"""A value for every setting that some kind cannot do without."""


def make_settings(family: str, kind: str) -> Any:
    """The fewest settings that a kind accepts."""
    model = load_kind(family, kind).Settings
    needed = {name for name, field in model.model_fields.items() if field.is_required() or name == "languages"}
    assert needed <= set(REQUIRED), f"{family} {kind} requires {needed}: give the new ones a value in REQUIRED"
    return model(**{name: REQUIRED[name] for name in needed})


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_settings_are_frozen_strict_and_documented(family: str, kind: str) -> None:
    module = load_kind(family, kind)
    assert issubclass(module.Settings, BaseModel)
    assert module.__doc__ and (module.Settings.__doc__ or module.Settings.__mro__[1].__doc__)
    settings = make_settings(family, kind)
    undocumented = [n for n, f in module.Settings.model_fields.items() if n != "kind" and not f.description]
    assert not undocumented, f"{family} {kind}: no docstring under {undocumented}"
    with pytest.raises(ValidationError, match="extra"):
        module.Settings(**settings.model_dump(), no_such_setting=1)
    for name in module.Settings.model_fields:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(settings, name, None)


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in FAMILIES for kind in list_kinds(family)])
def test_every_kind_defines_what_its_family_does(family: str, kind: str) -> None:
    assert [name for name in DEFINES[family] if not hasattr(load_kind(family, kind), name)] == []


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_settings_come_back_from_json(family: str, kind: str) -> None:
    """A recipe is saved beside its results, and a model's card holds settings."""
    settings = make_settings(family, kind)
    stored = json.loads(json.dumps(settings.model_dump(mode="json")))
    assert type(settings).model_validate(freeze(stored)) == settings
    assert stored.get("kind", kind) == kind


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in VERSIONED for kind in list_kinds(family)])
def test_kinds_that_count_in_identities_have_a_version(family: str, kind: str) -> None:
    version = load_kind(family, kind).VERSION
    assert isinstance(version, int) and version >= 1


def test_no_kind_imports_torch_before_it_is_used() -> None:
    """Checking a recipe reads all of its kinds' settings, which must not take seconds."""
    code = (
        "import sys\n"
        "from crossling.registry import list_kinds, load_kind\n"
        f"for family in {['readers', *CONFIGURED]}:\n"
        "    for kind in list_kinds(family):\n"
        "        load_kind(family, kind)\n"
        "        assert 'torch' not in sys.modules, (family, kind)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("family", FAMILIES)
def test_unknown_kind_suggests_the_nearest(family: str) -> None:
    first = list_kinds(family)[0]
    with pytest.raises(RecipeError, match=f"Did you mean '{first}'"):
        load_kind(family, f"{first}x")


@pytest.mark.parametrize("kind", list_kinds("objectives"))
def test_every_objective_fulfils_its_protocol(kind: str) -> None:
    defined = load_kind("objectives", kind).Objective
    wanted = [name for name in vars(Objective) if not name.startswith("_") and callable(getattr(Objective, name))]
    assert "sum_loss" in wanted
    assert all(callable(getattr(defined, name, None)) for name in wanted)


@pytest.mark.parametrize("fusion", list_kinds("fusions"))
@pytest.mark.parametrize("task", list_kinds("tasks"))
def test_every_task_on_every_fusion_trains_is_saved_and_predicts_the_same(
    task: str, fusion: str, tmp_path: Path, flat_folder: Path
) -> None:
    table = make_settings("fusions", fusion).model_dump()
    trained, card = train_tiny(flat_folder, tmp_path / "work", {"kind": task}, fusion=table, lr=1e-2)
    save_model(trained, card, tmp_path / "model")
    inputs = list_inputs(make_rows(load_kind("tasks", task).Task.record, 6, shift=3))
    before = wrap(trained, card).predict(inputs)
    loaded = Predictor.load(tmp_path / "model")
    assert loaded.predict(inputs) == before
    assert len(before) == len(inputs)
    assert loaded.card.fusion == table


PROTOCOLS: dict[str, Any] = {"fusions": FusionKind, "stages": Stage, "tasks": Task}


@pytest.mark.parametrize(("family", "kind"), [(family, kind) for family in PROTOCOLS for kind in list_kinds(family)])
def test_every_kind_has_the_functions_of_its_protocol(family: str, kind: str) -> None:
    """With the same parameters: modules are not checked against a protocol by the type checker."""
    module = load_kind(family, kind)
    defined = module.Task if family == "tasks" else module
    wanted = {name: value for name, value in vars(PROTOCOLS[family]).items() if inspect.isroutine(value)}
    wanted = {name: value for name, value in wanted.items() if not name.startswith("_")}
    assert wanted
    for name, value in wanted.items():
        function = value.__func__ if isinstance(value, staticmethod) else value
        found, stated = (
            [p for p in inspect.signature(f).parameters if p != "self"] for f in (getattr(defined, name), function)
        )
        assert found == stated, name
