"""Data sets in the folder CROSSLING_DATA: the files of a spec, the specs that have files, what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossling.data import treebanks
from crossling.data.declarations import Declaration, FolderSource, fill_names
from crossling.data.spec import Spec, parse_spec

FOLDER_VARIABLE = "CROSSLING_DATA"
PATH_KEYS = ("path", "source", "target", "labels_path", "links_path", "references")
"""Settings of readers that are files; a declaration gives them relative to the folder."""


def find_folder() -> Path | None:
    """The folder of data sets, where one is named."""
    value = os.environ.get(FOLDER_VARIABLE)
    return Path(value).expanduser() if value else None


def find_sources(spec: Spec, declared: Declaration) -> tuple[str, list[dict[str, Any]]] | None:
    """The reader of a spec and its settings for each file, in the order of reading; or nothing.

    A set that a reader generates needs no files. Of several layouts, the first whose files exist is used.
    """
    if declared.reader is not None:
        return declared.reader.format, [_fill_settings(spec, declared, declared.reader, below=False)]
    for layout in declared.layouts():
        filled = _fill_joined(spec, declared, layout) if layout.join else [_fill_settings(spec, declared, layout)]
        if filled and _is_there(filled[0]):
            return layout.format, filled
    return None


def list_available(name: str, version: str, declared: Declaration) -> Iterable[str]:
    """Specs whose files are in the folder."""
    folder = find_folder()
    if folder is None or not any((folder / top).exists() for top in _list_tops(declared)):
        return
    if declared.treebanks:
        for treebank, split in sorted(treebanks.find_files(folder / "ud")):
            yield f"{name}:{treebank}:{split}"
        return
    for split in declared.splits:
        for spec in _list_specs(name, version, split, declared):
            needed = [spec, replace(spec, language=declared.original)] if declared.mixed else [spec]
            if all(_has_files(each, declared) for each in needed):
                yield str(spec)


def _list_tops(declared: Declaration) -> set[str]:
    """The top folders of a set's files: if none exists, thousands of pairs need no search."""
    paths = (layout.settings[key] for layout in declared.layouts() for key in PATH_KEYS if key in layout.settings)
    return {str(path).partition("/")[0] for path in paths if isinstance(path, str)}


def explain_missing(spec: Spec, declared: Declaration) -> str:
    """Which files are missing and where they were searched, and how to get the set."""
    lines = []
    folder = find_folder()
    if declared.layouts():
        absent = ", or ".join(_name_absent(spec, declared, layout) for layout in declared.layouts())
        if folder is None:
            lines.append(f"{FOLDER_VARIABLE} is not set; set it to a folder that has {absent}")
        else:
            lines.append(f"Not in the folder: {absent} ({FOLDER_VARIABLE} is {folder})")
            available = [item for item in list_available(spec.name, spec.version, declared) if _is_near(item, spec)]
            lines.append(f"Available: {', '.join(available) if available else f'nothing of {spec.name}'}")
    if declared.hub is not None:
        lines.append(f"On the hub: {declared.hub.repository}")
    if declared.home:
        names = fill_names(spec, declared, declared.layouts()[0]) if declared.layouts() else {}
        lines.append(f"Get it from {declared.home.format(**names)}")
    if declared.note:
        lines.append(declared.note)
    return ". ".join(text.rstrip(".") for text in lines) + "."


def describe_layouts(declared: Declaration) -> str:
    """The paths of a set's files below the folder, as declared."""
    return ", or ".join(
        ", ".join(str(layout.settings[key]) for key in PATH_KEYS if key in layout.settings)
        for layout in declared.layouts()
    )


def _fill_settings(spec: Spec, declared: Declaration, source: FolderSource, *, below: bool = True) -> dict[str, Any]:
    """A reader's settings for one spec: placeholders filled in, paths ``below`` the folder."""
    names = fill_names(spec, declared, source)
    filled: dict[str, Any] = {}
    for key, value in {**source.settings, **source.by_split.get(spec.split, {})}.items():
        filled[key] = value.format(**names) if isinstance(value, str) else value
        if key in PATH_KEYS and isinstance(value, str) and below:
            filled[key] = _locate(filled[key])
    if declared.pairs and spec.language.partition("-")[2] == declared.pivot and isinstance(filled.get("source"), int):
        filled |= {"source": filled["target"], "target": filled["source"]}  # the pivot's column is the first
    return filled


def _fill_joined(spec: Spec, declared: Declaration, source: FolderSource) -> list[dict[str, Any]]:
    """The settings of each of the files that a joined source is made of, sorted by name."""
    folder = find_folder()
    if folder is None:
        return []
    filled = _fill_settings(spec, declared, source)
    pattern = source.settings["path"].format(**fill_names(spec, declared, source))
    return [{**filled, "path": path} for path in sorted(folder.glob(pattern), key=lambda path: path.name)]


def _locate(relative: str) -> Path:
    """A file below the folder, gzipped or not; ``*`` in a declaration stands for a folder's name."""
    folder = find_folder() or Path()
    for candidate in (relative, f"{relative}.gz"):
        if "*" in candidate:
            found = sorted(folder.glob(candidate))
            if found:
                return found[0]
        elif (folder / candidate).is_file():
            return folder / candidate
    return folder / relative


def _list_paths(values: Mapping[str, Any]) -> list[Path]:
    return [value for key, value in values.items() if key in PATH_KEYS and isinstance(value, Path)]


def _is_there(values: Mapping[str, Any]) -> bool:
    """Whether all files of a reader's settings exist; none do without CROSSLING_DATA."""
    return find_folder() is not None and all(path.is_file() for path in _list_paths(values))


def _has_files(spec: Spec, declared: Declaration) -> bool:
    return any(_is_there(_fill_settings(spec, declared, layout)) for layout in declared.layouts())


def _name_absent(spec: Spec, declared: Declaration, layout: FolderSource) -> str:
    paths = _list_paths(_fill_settings(spec, declared, layout))
    return ", ".join(str(path) for path in paths if not path.is_file())


def _is_near(available: str, spec: Spec) -> bool:
    """Whether an available spec has the language or the split of another one."""
    other = parse_spec(available)
    language = spec.language.partition("_")[0]
    return other.language.partition("_")[0] == language or other.split == spec.split


def _list_specs(name: str, version: str, split: str, declared: Declaration) -> Iterable[Spec]:
    for first in declared.languages:
        if not declared.pairs and not declared.roles:
            yield Spec(name, first, version=version, split=split)
            continue
        for second in declared.languages:
            if declared.roles:
                parts = dict(zip(declared.roles, (first, second), strict=True))
                yield Spec(name, first, version=version, split=split, parts=parts)
            elif first < second and declared.pivot in ("", first, second):
                other = second if first == declared.pivot else first
                pair = f"{declared.pivot}-{other}" if declared.pivot else f"{first}-{second}"
                yield Spec(name, pair, version=version, split=split)
