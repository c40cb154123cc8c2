"""Registers crossling's classes with transformers, whichever of the two is imported first, and imports neither.

``import crossling`` must cost nothing, and registering needs transformers and torch. So it is done at once where
transformers' Auto classes are loaded already, else as soon as they are.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:
    Loader = MetaPathFinder = object  # importlib.abc takes as long to import as the rest of crossling's command line

AUTO_CLASSES = {
    "transformers.models.auto.configuration_auto": "crossling.models.auto_config",
    "transformers.models.auto.modeling_auto": "crossling.models.auto_model",
}
"""Modules of transformers, and the modules that register with each when they are imported."""


def register_when_loaded() -> None:
    """Register with every module of Auto classes, now or when it is loaded."""
    waiting = {name for name in AUTO_CLASSES if name not in sys.modules}
    for name in AUTO_CLASSES:
        if name not in waiting:
            importlib.import_module(AUTO_CLASSES[name])
    if waiting:
        sys.meta_path.insert(0, _Finder(waiting))


class _Finder(MetaPathFinder):
    """Finds the modules that are waited for, as others would, and has registration follow their loading."""

    def __init__(self, waiting: set[str]) -> None:
        self.waiting = waiting

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        self.waiting.discard(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        importlib.import_module(AUTO_CLASSES[module.__name__])
