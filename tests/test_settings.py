"""Every number that a recipe can set has bounds, and every value is accepted or refused with its key's name."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Iterator
from typing import Any

import annotated_types
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from crossling.errors import RecipeError
from crossling.recipe.identity import canonical_json
from crossling.recipe.overrides import parse_value, to_toml
from crossling.recipe.recipe import EncoderSettings, EvaluateSettings, Recipe, RunSettings, parse_recipe, validate_table
from crossling.registry import list_kinds, load_kind
from crossling.study.grid import StudySettings, SystemSettings
from hostile_files import HOSTILE_VALUES

FAMILIES = ("readers", "tasks", "fusions", "stages", "analyses", "criteria", "aligners")
REQUIRED: dict[str, Any] = {
    "path": "a.tsv",
    "links_path": "b.txt",
    "labels_path": "b.txt",
    "language": "en-hi",
    "source": "a.txt",
    "target": "b.txt",
    "task": "ner",
    "train": "panx:en",
    "dev": "panx:en",
    "split": "dev",
    "layer": 1,
    "parallel": ["ntrex:en-hi"],
    "on": "panx",
    "languages": ["de"],
    "tasks": ["ner"],
    "table": "a.parquet",
    "cross": "a",
    "multi": "b",
    "name": "multilingual-e5-small",
    "seeds": [1],
    "baseline": "a",
    "encoder": {"name": "multilingual-e5-small"},
    "systems": {"a": {"recipe": "a.toml"}},
}
"""A valid value of what some kinds cannot do without."""
EXTRA: dict[tuple[str, str], dict[str, Any]] = {
    ("readers", "tsv"): {"text": 1, "label": 2},
    ("readers", "phrasebook"): {"language": "en"},
    ("analyses", "probe"): {"languages": ["de"]},
    ("analyses", "head_probe"): {"languages": ["de"]},
    ("analyses", "gates"): {"languages": ["de"]},
    ("analyses", "distances"): {"on": "ntrex", "languages": ["de"]},
    ("analyses", "similarity"): {"on": "ntrex", "languages": ["de"]},
}
ENVELOPE = (Recipe, EncoderSettings, EvaluateSettings, RunSettings, StudySettings, SystemSettings)
CASES: list[tuple[str, type[BaseModel], dict[str, Any]]] = [
    *(
        (f"{family}.{kind}", load_kind(family, kind).Settings, EXTRA.get((family, kind), {}))
        for family in FAMILIES
        for kind in list_kinds(family)
    ),
    *((model.__name__, model, {}) for model in ENVELOPE),
]
CASE = pytest.mark.parametrize(("model", "extra"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])


def find_numbers(annotation: Any, metadata: list[Any]) -> Iterator[list[Any]]:
    """What is said of each number in an annotation."""
    if typing.get_origin(annotation) is typing.Annotated:
        inner, *said = typing.get_args(annotation)
        known = [part for one in said for part in (getattr(one, "metadata", None) or [one])]
        yield from find_numbers(inner, [*metadata, *known])
    elif annotation in (int, float):
        yield metadata
    elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
        for part in typing.get_args(annotation):
            yield from find_numbers(part, metadata)
    elif typing.get_origin(annotation) is not typing.Literal:
        for part in typing.get_args(annotation):
            yield from find_numbers(part, [])


def find_models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A settings model and those inside it."""
    yield model
    for field in model.model_fields.values():
        for part in (field.annotation, *typing.get_args(field.annotation)):
            for inner in (part, *typing.get_args(part)):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    yield from find_models(inner)


@CASE
def test_every_number_has_a_lower_and_an_upper_bound(model: type[BaseModel], extra: dict[str, Any]) -> None:
    for inner in find_models(model):
        assert inner.model_config.get("allow_inf_nan") is False, f"{inner}: infinity and NaN are no settings"
        for name, field in inner.model_fields.items():
            for said in find_numbers(field.annotation, field.metadata):
                low = any(isinstance(one, annotated_types.Ge | annotated_types.Gt) for one in said)
                high = any(isinstance(one, annotated_types.Le | annotated_types.Lt) for one in said)
                assert low and high, f"{inner.__module__}.{inner.__name__}.{name} lacks a bound"


def make_table(model: type[BaseModel], extra: dict[str, Any]) -> dict[str, Any]:
    """A valid table of a kind."""
    needed = {name: REQUIRED[name] for name, field in model.model_fields.items() if field.is_required()}
    if "languages" in model.model_fields and "on" in needed:
        needed["languages"] = ["de"]
    return {**needed, **extra}


def load(model: type[BaseModel], table: dict[str, Any]) -> tuple[BaseModel | None, list[str]]:
    problems: list[str] = []
    found = validate_table(model, table, "stage.0", problems)
    assert (found is None) == bool(problems)
    return found, problems


@CASE
def test_values_are_accepted_or_refused_with_their_key(model: type[BaseModel], extra: dict[str, Any]) -> None:
    table = make_table(model, extra)
    loaded, problems = load(model, table)
    assert loaded is not None, problems
    names = [name for name in model.model_fields if name != "stage"]  # stages are read by their kinds

    @settings(max_examples=150, deadline=None, database=None, derandomize=True)
    @given(st.sampled_from(names), st.sampled_from(HOSTILE_VALUES) | st.integers() | st.floats() | st.text(max_size=5))
    def check(name: str, value: Any) -> None:
        found, problems = load(model, {**table, name: value})
        if found is None:
            assert any(name in problem for problem in problems), problems
            return
        stored = json.loads(canonical_json(found.model_dump(mode="json")))  # what identities and records are made of
        assert isinstance(stored, dict)
        assert math.isfinite(stored.get(name) if isinstance(stored.get(name), int | float) else 0)
        to_toml(stored)

    check()


def recipe(**stage: Any) -> dict[str, Any]:
    table = {"kind": "finetune", "task": "ner", "train": "panx:en", **stage}
    return {"encoder": {"name": "multilingual-e5-small"}, "stage": [table]}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("betas", [0.9, 1.0]),
        ("betas", [-0.1, 0.9]),
        ("betas", [math.nan, 0.9]),
        ("lr", math.inf),
        ("lr", math.nan),
        ("lr", -1.0),
        ("weight_decay", math.inf),
        ("weight_decay", -0.1),
        ("batch", 10**12),
        ("batch", 0),
        ("epochs", 10**30),
        ("accumulate", 2**40),
        ("clip", math.inf),
        ("eps", 0.0),
        ("task", 7),
        ("task", {"preset": {}}),
        ("dev", []),
        ("fusion", 3.5),
        ("fusion", {"kind": "dlfa", "layer": 10**9}),
    ],
)
def test_absurd_training_settings_name_their_key(key: str, value: Any) -> None:
    with pytest.raises(RecipeError, match=rf"stage\.0\.{key}"):
        parse_recipe(recipe(**{key: value}))


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30, True, 1.5])
def test_absurd_seeds_are_refused(seed: Any) -> None:
    with pytest.raises(RecipeError, match="seeds"):
        parse_recipe({**recipe(), "seeds": [seed]})


def test_the_largest_seed_makes_seeds_that_torch_takes() -> None:
    import torch

    from crossling.limits import LARGEST_SEED
    from crossling.training.loop import step_seed

    torch.Generator().manual_seed(step_seed(LARGEST_SEED + 100_000, 10**9, 1_000))


@pytest.mark.parametrize("threads", [0, -1, 10**9, 2**63])
def test_absurd_threads_are_refused(threads: int) -> None:
    with pytest.raises(RecipeError, match=r"run\.threads"):
        parse_recipe({**recipe(), "run": {"threads": threads}})


@pytest.mark.parametrize("text", ["[" * 10_000 + "]" * 10_000, "{a = " * 500 + "1" + "}" * 500, "9" * 5_000])
def test_endless_values_are_refused(text: str) -> None:
    with pytest.raises(RecipeError):
        parse_value(text)
