"""Paths that the user names, checked before anything is imported that takes seconds: a missing one shows at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.errors import DataError, EncoderError, Problems
from crossling.files import is_path_like
from crossling.limits import is_folder

if TYPE_CHECKING:
    from crossling.recipe.recipe import Recipe


def check_file(path: Path | None) -> None:
    """Refuse a file that is not there; none is the standard input."""
    if path is not None and path.is_dir():
        raise DataError(f"{path}: cannot be read: Is a directory")
    if path is not None and not path.exists():
        raise DataError(f"{path}: no such file; paths start from {Path.cwd()}")


def check_encoder(name: str) -> None:
    """Refuse an encoder that is named by a folder that is not there."""
    if is_path_like(name) and not is_folder(name):
        raise EncoderError(f"encoder {name!r}: no such folder.")


def check_recipes(recipes: Iterable[Recipe]) -> None:
    """Refuse recipes that name folders or custom files that are not there; all of them are reported at once."""
    from crossling.data.catalogue import check_files

    problems = Problems()
    for recipe in recipes:
        own = ((f"stage.{number}.encoder", recipe.own_encoder(number)) for number in range(len(recipe.stage)))
        for key, encoder in (("encoder", recipe.encoder), *own):
            with problems.collect(f"{key}.name"):
                if encoder is not None:
                    check_encoder(encoder.name)
        stages = ((f"stage.{n}", stage.model_dump(mode="json")) for n, stage in enumerate(recipe.stage))
        entries = ((f"evaluate.{n}", [spec for _, spec in e.specs()]) for n, e in enumerate(recipe.evaluate))
        for key, value in (*stages, *entries):
            for table in _find_tables(value):
                with problems.collect(key):
                    check_files(table)
    problems.raise_all()


def _find_tables(value: Any) -> Iterator[Mapping[str, Any]]:
    """All tables of custom files in nested values."""
    if isinstance(value, Mapping):
        if "format" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _find_tables(part)
