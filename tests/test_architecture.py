"""Dependencies point one way, and what must be light imports nothing heavy."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from crossling.registry import list_kinds

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "crossling"

LAYERS = (
    {"errors", "registry", "progress", "processes", "addresses", "files", "limits", "gpu_context"},
    {"recipe", "data", "phrasebook", "scores", "store"},
    {"report"},
    {"encoders"},
    {"fusions", "aligners"},
    {"models", "objectives"},
    {"tasks"},
    {"training"},
    {"inference"},
    {"stages"},
    {"analyses"},
    {"criteria"},
    {"study"},
    {"papers"},
    {"api"},
    {"spacy_component"},
    {"cli"},
    {"__init__", "__main__"},
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
NO_TORCH = ("report", "scores", "store", "data", "phrasebook")
SIBLINGS = ("stages", "tasks", "objectives", "fusions", "analyses", "criteria", "aligners")
LONGEST_CHAIN = 13
"""Modules that one import may pass through at most: who reads a file must keep what is below it in mind."""


def _modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _name(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


@cache
def _imports(path: Path, *, at_import_time: bool) -> frozenset[str]:
    """Modules imported by a file, ``from x import y`` as x and x.y: all, or only those that importing it imports."""
    found: set[str] = set()

    def visit(node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            if at_import_time and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                found.update((child.module, *(f"{child.module}.{alias.name}" for alias in child.names)))
            visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(found)


def _find_longest_chain() -> list[str]:
    """The modules of the longest path of imports at import time."""
    names = {".".join(("crossling", *path.relative_to(SOURCE).with_suffix("").parts)): path for path in _modules()}
    files = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {name: _imports(path, at_import_time=True) & files.keys() - {name} for name, path in files.items()}

    @cache
    def follow(name: str) -> tuple[str, ...]:
        return (name, *max((follow(other) for other in graph[name]), key=len, default=()))

    return list(max(map(follow, graph), key=len))


def test_every_module_has_a_layer() -> None:
    assert {_name(path) for path in _modules()} <= set(RANK)


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_down(path: Path) -> None:
    own = RANK[_name(path)]
    for module in _imports(path, at_import_time=False):
        if module.startswith("crossling.") and module.split(".")[1] in RANK:
            assert RANK[module.split(".")[1]] <= own, f"{path} imports {module}, which stands above it"


def test_chains_of_imports_are_short() -> None:
    chain = _find_longest_chain()
    assert len(chain) <= LONGEST_CHAIN, " > ".join(chain)


@pytest.mark.parametrize("path", _modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_kinds_do_not_import_their_siblings(path: Path) -> None:
    family = _name(path)
    if family not in SIBLINGS or path.stem not in list_kinds(family):
        return
    for module in _imports(path, at_import_time=False):
        parts = module.split(".")
        if parts[:2] == ["crossling", family] and len(parts) > 2:
            assert parts[2] not in list_kinds(family), f"{path} imports its sibling {module}"


@pytest.mark.parametrize("name", NO_TORCH)
def test_light_packages_import_no_torch(name: str) -> None:
    files = [path for path in _modules() if _name(path) == name]
    assert files, name
    for path in files:
        assert not {m.split(".")[0] for m in _imports(path, at_import_time=False)} & {"torch", "transformers"}, path


def test_matplotlib_is_set_up_in_one_place() -> None:
    found = {path for path in _modules() for module in _imports(path, at_import_time=False) if "matplotlib" in module}
    assert found == {SOURCE / "report" / "figures.py"}


def test_files_are_replaced_in_one_place() -> None:
    """Written apart, then renamed: whoever does it anew forgets fsync, or what is left behind by a crash."""
    idiom = re.compile(r"os\.replace|os\.rename|\b(?:partial|temporary|temp|tmp|scratch)\w*\.(?:replace|rename)\(")
    found = {path.name for path in _modules() if idiom.search(path.read_text(encoding="utf-8"))}
    assert found == {"files.py"}


def test_help_imports_neither_torch_nor_pydantic() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['crossling', '--help']\n"
        "from crossling.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'torch', 'pydantic', 'transformers', 'pyarrow', 'numpy', 'datasets', 'fsspec', 'ray'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "predict" in done.stdout


BESIDE = sorted(path for folder in ("benchmarks", "docs", "tests") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", BESIDE, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_other_folders_import_exists(path: Path) -> None:
    """A benchmark that is not run every day breaks unnoticed when a name moves."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "crossling":
            try:
                module = importlib.import_module(node.module)
                for name in (alias.name for alias in node.names):
                    if not hasattr(module, name):
                        importlib.import_module(f"{node.module}.{name}")
            except ModuleNotFoundError as error:
                if str(error.name).partition(".")[0] != "triton":  # only where torch is one for CUDA
                    raise
