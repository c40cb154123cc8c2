"""Kinds are files: a module that defines the settings of a kind, found by its name and imported on use.

A kind comes from one of three places: the package itself (``crossling/<family>/<name>.py``), an installed package
with an entry point ``name`` in the group ``crossling.<family>``, or a plugin: a file ``name.py`` that a recipe names
under ``plugins``. No name is given twice.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from crossling.errors import RecipeError, nearest
from crossling.limits import read_regular

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
DEFINES = {
    "readers": ("Settings", "VERSION", "record_kind", "files", "read"),
    "tasks": ("Settings", "VERSION", "Task"),
    "objectives": ("Objective",),
    "fusions": ("Settings", "build"),
    "stages": ("Settings", "VERSION", "open_stage_data", "identity_inputs", "train"),
    "analyses": ("Settings", "VERSION", "SCHEMA", "open_analysis_data", "analyse"),
    "criteria": ("Settings", "LABELS", "score"),
    "aligners": ("Settings", "VERSION", "align"),
}
"""What the module of a kind defines; the Protocol in the family's ``__init__`` says what each of them is."""
_DEFINES_KIND = re.compile(r"^class (?:Settings|Objective)\b", re.MULTILINE)
"""What distinguishes a kind from a module that kinds of its family share."""


@dataclass(frozen=True)
class Plugin:
    """A kind from a file that a recipe names."""

    path: Path
    digest: str
    module: ModuleType


_plugins: dict[tuple[str, str], Plugin] = {}
"""By family and name; for as long as the process lives, since what a recipe names is used long after it was read."""


def list_kinds(family: str) -> tuple[str, ...]:
    """Names of all kinds of a family, found without importing those of the package and of installed ones."""
    plugins = (name for of, name in _plugins if of == family)
    return tuple(sorted({*_list_own(family), *_list_installed(family), *plugins}))


def load_kind(family: str, name: str) -> ModuleType:
    """The module that defines a kind; an unknown name is an error that shows the valid ones."""
    if plugin := _plugins.get((family, name)):
        return plugin.module
    if name in _list_own(family):
        return importlib.import_module(f"{FAMILIES[family]}.{name}")
    if point := _list_installed(family).get(name):
        return _load_installed(family, point)
    raise RecipeError(
        f"unknown kind {name!r} of {family}.{nearest(name, list_kinds(family))} A custom kind: name its file in the "
        f'recipe, plugins = {{ {family} = ["{name}.py"] }}, or use crossling --plugin {family}={name}.py'
    )


@cache
def _list_own(family: str) -> frozenset[str]:
    folders = importlib.import_module(FAMILIES[family]).__path__
    files = [path for folder in folders for path in Path(folder).glob("[!_]*.py")]
    return frozenset(path.stem for path in files if _DEFINES_KIND.search(path.read_text(encoding="utf-8")))


@cache
def _list_installed(family: str) -> Mapping[str, EntryPoint]:
    """Kinds that installed packages declare, by name."""
    from importlib.metadata import entry_points  # not for --help

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"crossling.{family}"):
        other = found.get(point.name, point)
        if point.name in _list_own(family) or other.value != point.value:
            owner = "crossling" if point.name in _list_own(family) else f"package {_name_package(other)}"
            raise RecipeError(
                f"package {_name_package(point)}: its entry point crossling.{family} {point.name!r} has the name of a "
                f"kind of {owner}; rename the entry point, or uninstall the package"
            )
        found[point.name] = point
    return found


def _name_package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value


def _load_installed(family: str, point: EntryPoint) -> ModuleType:
    where = f"package {_name_package(point)}: entry point crossling.{family} {point.name!r}"
    try:
        module = importlib.import_module(point.value)
    except ImportError as error:
        raise RecipeError(f"{where}: {point.value} cannot be imported: {error}") from error
    _check_kind(module, family, point.name, where)
    return module


def add_plugin(family: str, path: str | Path) -> Path:
    """Run a file and take what it defines as the kind of its name; returns its absolute path.

    The same file again changes nothing, unless it was edited: then the new content counts.
    """
    path = Path(path).expanduser().absolute()
    if family not in FAMILIES:
        raise RecipeError(f"{family!r}: no family of kinds.{nearest(family, FAMILIES)}")
    try:
        source = read_regular(path)
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read: {error.strerror}; a plugin is a Python file") from None
    _check_name(family, path)
    digest, known = hashlib.sha256(source).hexdigest()[:20], _plugins.get((family, path.stem))
    if known is None or known.digest != digest:
        if known is not None and known.path != path:
            raise RecipeError(f"{path}: {path.stem!r} of {family} was already read from {known.path}; rename one file")
        module = _run_file(f"crossling_plugins.{family}.{path.stem}", path, source)
        _check_kind(module, family, path.stem, str(path))
        _plugins[family, path.stem] = Plugin(path, digest, module)
    return path


def _check_name(family: str, path: Path) -> None:
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise RecipeError(f"{path}: a plugin is a Python file whose name is the kind's, such as gated_mean.py")
    installed = _list_installed(family).get(path.stem)
    if path.stem in _list_own(family) or installed:
        owner = f"package {_name_package(installed)}" if installed else "crossling"
        raise RecipeError(f"{path}: {path.stem!r} is a kind of {family} that {owner} has already; rename the file")


def _run_file(name: str, path: Path, source: bytes) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # where pydantic and dataclasses look up annotations
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [None])[-1]
        raise RecipeError(f"{path}:{line}: {type(error).__name__}: {error}; fix the plugin") from error
    return module


def _check_kind(module: ModuleType, family: str, name: str, where: str) -> None:
    """Refuse a module from outside that is no kind of its family."""
    missing = [wanted for wanted in DEFINES[family] if not hasattr(module, wanted)]
    if missing:
        raise RecipeError(f"{where}: defines no {', '.join(missing)}; {FAMILIES[family]} says what each is")
    field = getattr(getattr(module, "Settings", None), "model_fields", {}).get("kind")
    if field is not None and field.default != name:
        raise RecipeError(f'{where}: its name is {name!r}, so its Settings need kind: Literal["{name}"] = "{name}"')


def identify_plugins(*values: object) -> dict[str, str]:
    """Hashes of the code of all kinds from outside that are named in nested tables; nothing for the package's own.

    They count in the identity of whatever the kinds make: changed code is other work.
    """
    found: dict[str, str] = {}
    for name in {name for value in values for name in _find_names(value)}:
        for family in FAMILIES:
            if plugin := _plugins.get((family, name)):
                found[f"{family}.{name}"] = plugin.digest
            elif point := _list_installed(family).get(name):
                found[f"{family}.{name}"] = _hash_module(_load_installed(family, point))
    return found


def _find_names(value: object) -> Iterator[str]:
    """What nested tables name as ``kind`` or, of a reader, as ``format``."""
    if isinstance(value, Mapping):
        yield from (str(value[key]) for key in ("kind", "format") if isinstance(value.get(key), str))
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _find_names(part)


@cache
def _hash_module(module: ModuleType) -> str:
    return hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()[:20]
