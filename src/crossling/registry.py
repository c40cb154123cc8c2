"""Kinds are files: the module ``crossling/<family>/<name>.py`` defines the kind ``name`` and is imported on use."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache
from types import ModuleType

from crossling.errors import RecipeError, nearest

FAMILIES = {
    "readers": "crossling.data.readers",
    "tasks": "crossling.tasks",
    "objectives": "crossling.objectives",
    "fusions": "crossling.fusions",
    "stages": "crossling.stages",
    "analyses": "crossling.analyses",
    "criteria": "crossling.criteria",
    "aligners": "crossling.alignment.aligners",
}


@cache
def list_kinds(family: str) -> tuple[str, ...]:
    """Names of all kinds of a family, found by file name without importing them."""
    package = importlib.import_module(FAMILIES[family])
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def load_kind(family: str, name: str) -> ModuleType:
    """The module that defines a kind; an unknown name is an error that shows the valid ones."""
    if name not in list_kinds(family):
        raise RecipeError(f"unknown kind {name!r} of {family}.{nearest(name, list_kinds(family))}")
    return importlib.import_module(f"{FAMILIES[family]}.{name}")
