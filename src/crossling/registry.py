"""Kinds are files: the module ``crossling/<family>/<name>.py`` defines the kind ``name`` and is imported on use."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
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
    "aligners": "crossling.aligners",
}
_DEFINES_KIND = re.compile(r"^class (?:Settings|Objective)\b", re.MULTILINE)
"""What tells a kind from a module that kinds of its family share."""


@cache
def list_kinds(family: str) -> tuple[str, ...]:
    """Names of all kinds of a family, found in their files without importing them."""
    folders = importlib.import_module(FAMILIES[family]).__path__
    files = [path for folder in folders for path in Path(folder).glob("[!_]*.py")]
    return tuple(sorted(path.stem for path in files if _DEFINES_KIND.search(path.read_text(encoding="utf-8"))))


def load_kind(family: str, name: str) -> ModuleType:
    """The module that defines a kind; an unknown name is an error that shows the valid ones."""
    if name not in list_kinds(family):
        raise RecipeError(f"unknown kind {name!r} of {family}.{nearest(name, list_kinds(family))}")
    return importlib.import_module(f"{FAMILIES[family]}.{name}")
