"""The catalogue: from a name in a recipe to rows, out of a folder, the hub, or the user's own files."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossling.data import treebanks
from crossling.data.cache import open_file_rows
from crossling.data.declarations import (
    Declaration,
    FolderSource,
    check_spec,
    fill_names,
    list_names,
    load_declaration,
)
from crossling.data.readers._lines import OnError
from crossling.data.rows import KINDS, Rows, join_rows
from crossling.data.spec import Spec, check_table, parse_spec, parse_split
from crossling.errors import DataError, nearest
from crossling.registry import list_kinds

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "CROSSLING_DATA"
PATH_KEYS = ("path", "source", "target", "labels_path", "links_path", "references")
"""Settings of readers that are files; a declaration gives them relative to the folder."""


@dataclass(frozen=True, slots=True)
class SetDescription:
    """What ``crossling data`` shows of a set."""

    name: str
    title: str
    kind: str
    task: str
    languages: tuple[str, ...]
    other_languages: bool
    splits: tuple[str, ...]
    rows: Mapping[str, int]
    versions: tuple[str, ...]
    folder: str
    hub: str
    home: str
    licence: str
    citation: str
    note: str
    at_hand: tuple[str, ...]
    """Specs whose files lie in the folder named by CROSSLING_DATA."""


def open_data(spec: str | Mapping[str, Any], *, split: str = "", store: Path) -> Rows:
    """Rows of a data set: ``name[@version]:language[:split[rows]]``, or a table.

    A table is ``{data = "panx:hi", limit = 100}``, or one's own files: ``{format, path, language, …}`` with
    the reader's settings. ``limit`` takes the first rows, or with ``sample_seed`` random ones; ``on_error`` is
    "raise" or "skip".

    A split in the spec wins over the argument, so that a recipe can test on ``panx:de:dev``.
    """
    if isinstance(spec, str):
        return _open_set(parse_spec(spec), split=split, store=store)
    if not isinstance(spec, Mapping):
        raise DataError(f"data is a name such as panx:de or a table, not {type(spec).__name__}")
    return _open_table(dict(spec), split=split, store=store)


def list_sets() -> tuple[str, ...]:
    """Names of all sets, sorted."""
    return list_names()


def choose_split(text: str) -> str:
    """The split to show of a set where nobody named one: test, else dev, else train, of those at hand first."""
    spec = parse_spec(text)
    if spec.split:
        return spec.split
    declared = load_declaration(spec.name, spec.version)
    wanted = [split for split in ("test", "dev", "train") if split in declared.splits]
    at_hand = [parse_spec(item) for item in _list_at_hand(spec.name, spec.version, declared)]
    there = {item.split for item in at_hand if item.language.partition("_")[0] == spec.language.partition("_")[0]}
    return next((split for split in wanted if split in there), wanted[0])


def describe(name: str, version: str = "") -> SetDescription:
    """All that the catalogue knows of a set, and what of it is at hand; reads no rows."""
    declared = load_declaration(name, version)
    return SetDescription(
        name=name,
        title=declared.title,
        kind=declared.kind,
        task=declared.task,
        languages=declared.languages,
        other_languages=declared.other_languages,
        splits=declared.splits,
        rows=declared.rows,
        versions=tuple(sorted(declared.versions)),
        folder=_show_folder(declared),
        hub=declared.hub.repository if declared.hub else "",
        home=declared.home,
        licence=declared.licence,
        citation=declared.citation,
        note=declared.note,
        at_hand=tuple(_list_at_hand(name, version, declared)),
    )


def _open_table(table: dict[str, Any], *, split: str, store: Path) -> Rows:
    """Rows of a table: ``{data, limit, …}``, or ``{format, path, language, …}`` for one's own files."""
    check_table(table)
    limit, seed = _pop_number(table, "limit", least=1), _pop_number(table, "sample_seed", least=0)
    on_error = _pop_on_error(table)
    if "data" in table:
        name = table.pop("data")
        if not isinstance(name, str):
            raise DataError(f"data = {name!r} is not a name such as panx:de")
        rows = _open_set(parse_spec(name), split=split, store=store, on_error=on_error, settings=table)
    else:
        format_name, language = table.pop("format"), table.pop("language", None)
        if format_name not in list_kinds("readers"):
            readers = list_kinds("readers")
            raise DataError(f"format = {format_name!r}: unknown.{nearest(format_name, readers)}")
        if not isinstance(language, str) or not language:
            raise DataError(f'a {format_name} file needs its language, as in language = "sw"')
        shown = table.get("path") or table.get("source") or format_name
        rows = open_file_rows(format_name, table, language=language, name=str(shown), store=store, on_error=on_error)
    return _limit_rows(rows, limit, seed)


def _pop_number(table: dict[str, Any], key: str, *, least: int) -> int | None:
    value = table.pop(key, None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
        raise DataError(f"{key} = {value!r} is not a whole number from {least}")
    return value


def _pop_on_error(table: dict[str, Any]) -> OnError:
    value = table.pop("on_error", "raise")
    if value not in ("raise", "skip"):
        raise DataError(f'on_error = {value!r}; write "raise" or "skip"')
    return "skip" if value == "skip" else "raise"


def _limit_rows(rows: Rows, limit: int | None, seed: int | None) -> Rows:
    """The first rows, or a seeded sample; of one seed, a smaller sample is part of a larger one."""
    if seed is None:
        return rows if limit is None else rows.head(limit)
    order = list(range(len(rows)))
    random.Random(seed).shuffle(order)
    return rows.take(order[:limit])


def _open_set(
    spec: Spec,
    *,
    split: str,
    store: Path,
    on_error: OnError = "raise",
    settings: Mapping[str, Any] | None = None,
) -> Rows:
    if not spec.split and split:
        wanted, start, stop = parse_split(split)
        spec = replace(spec, split=wanted, start=start, stop=stop)
    declared = load_declaration(spec.name, spec.version)
    if declared.roles and not spec.parts and spec.language:
        spec = replace(spec, parts=dict.fromkeys(declared.roles, spec.language))
    check_spec(spec, declared)
    whole = replace(spec, start=None, stop=None)
    if declared.treebanks:
        whole = replace(whole, language=_choose_treebank(spec, declared))
    rows = _open_whole(whole, declared, store=store, on_error=on_error, settings=dict(settings or {}))
    _check_count(rows, declared, whole)
    part = rows.select(spec.start, spec.stop).rename(str(spec))
    if not len(part):
        raise DataError(f"{spec}: there are no such rows; the split has {len(rows):,}")
    return part


def _open_whole(spec: Spec, declared: Declaration, *, store: Path, on_error: OnError, settings: dict[str, Any]) -> Rows:
    name, language = str(spec), spec.language.partition("_")[0]
    source = declared.reader or declared.folder
    if source is not None:
        found = _fill_joined(spec, declared, source) if source.join else [_fill_settings(spec, declared, source)]
        if found and (declared.reader is not None or all(path.is_file() for path in _paths(found[0]))):
            parts = [
                open_file_rows(
                    source.format,
                    {**values, **settings},
                    language=language,
                    name=name,
                    store=store,
                    on_error=on_error,
                )
                for values in found
            ]
            return join_rows(parts, name=name) if len(parts) > 1 else parts[0]
    if declared.hub is None:
        raise DataError(f"{spec}: {_tell_missing(spec, declared)}")
    if settings:
        raise DataError(f"{name} comes from the hub, where {', '.join(settings)} cannot be set")
    from crossling.data.hub import NotFromHubError, open_hub_rows

    try:
        return open_hub_rows(
            declared.hub,
            fill_names(spec, declared, declared.hub),
            kind=KINDS[declared.kind],
            language=language,
            name=name,
            store=store,
            on_error=on_error,
        )
    except NotFromHubError as error:
        raise DataError(f"{error}. {_tell_missing(spec, declared)}") from error


def _find_folder() -> Path | None:
    value = os.environ.get(FOLDER_VARIABLE)
    return Path(value).expanduser() if value else None


def _fill_settings(spec: Spec, declared: Declaration, source: FolderSource) -> dict[str, Any]:
    """A reader's settings for one spec: placeholders filled in, paths below the folder."""
    names = fill_names(spec, declared, source)
    filled: dict[str, Any] = {}
    for key, value in {**source.settings, **source.by_split.get(spec.split, {})}.items():
        filled[key] = value.format(**names) if isinstance(value, str) else value
        if key in PATH_KEYS and isinstance(value, str) and declared.reader is None:
            filled[key] = _locate(filled[key])
    return filled


def _fill_joined(spec: Spec, declared: Declaration, source: FolderSource) -> list[dict[str, Any]]:
    """The settings of each of the files that a joined source is made of, sorted by name."""
    folder = _find_folder()
    if folder is None:
        return []
    filled = _fill_settings(spec, declared, source)
    pattern = source.settings["path"].format(**fill_names(spec, declared, source))
    return [{**filled, "path": path} for path in sorted(folder.glob(pattern), key=lambda path: path.name)]


def _locate(relative: str) -> Path:
    """A file below the folder, packed or not; ``*`` in a declaration stands for a folder's name."""
    folder = _find_folder() or Path()
    for candidate in (relative, f"{relative}.gz"):
        if "*" in candidate:
            found = sorted(folder.glob(candidate))
            if found:
                return found[0]
        elif (folder / candidate).is_file():
            return folder / candidate
    return folder / relative


def _paths(values: Mapping[str, Any]) -> list[Path]:
    """The files of filled-in settings; without the folder's variable there are none to be found."""
    paths = [value for key, value in values.items() if key in PATH_KEYS and isinstance(value, Path)]
    return paths if _find_folder() else [Path("?")]


def _tell_missing(spec: Spec, declared: Declaration) -> str:
    """What was looked for and where, and how the set can be had."""
    told = []
    folder = _find_folder()
    if declared.folder is not None:
        filled = _fill_settings(spec, declared, declared.folder)
        sought = [value for key, value in filled.items() if key in PATH_KEYS and isinstance(value, Path)]
        absent = ", ".join(str(path) for path in sought if not path.is_file())
        if folder is None:
            told.append(f"{FOLDER_VARIABLE} is not set; set it to a folder that has {absent}")
        else:
            told.append(f"Not in the folder: {absent} ({FOLDER_VARIABLE} is {folder})")
            at_hand = [item for item in _list_at_hand(spec.name, spec.version, declared) if _is_near(item, spec)]
            told.append(f"There: {', '.join(at_hand) if at_hand else f'nothing of {spec.name}'}")
    if declared.hub is not None:
        told.append(f"On the hub: {declared.hub.repository}")
    if declared.home:
        told.append(f"Get it from {declared.home}")
    if declared.note:
        told.append(declared.note)
    return ". ".join(text.rstrip(".") for text in told) + "."


def _is_near(at_hand: str, spec: Spec) -> bool:
    """Whether a spec at hand is in the language, or has the split, that was asked for."""
    other = parse_spec(at_hand)
    language = spec.language.partition("_")[0]
    return other.language.partition("_")[0] == language or other.split == spec.split


def _choose_treebank(spec: Spec, declared: Declaration) -> str:
    """The treebank that a language means, among the folder's files first."""
    if "_" in spec.language:
        return spec.language
    folder = _find_folder()
    there = treebanks.find_files(folder / "ud") if folder and declared.folder else {}
    chosen = treebanks.choose_treebank(
        spec.language,
        spec.split,
        (treebank for treebank, split in there if split == spec.split),
        name=spec.name,
    )
    if chosen is not None:
        return chosen
    known = treebanks.list_treebanks(spec.language, spec.split)
    chosen = treebanks.choose_treebank(spec.language, spec.split, known, name=spec.name)
    assert chosen is not None, "every language of the table has a treebank"
    return chosen


def _list_at_hand(name: str, version: str, declared: Declaration) -> Iterable[str]:
    """Specs whose files are in the folder."""
    folder = _find_folder()
    if declared.folder is None or folder is None:
        return
    if declared.treebanks:
        for treebank, split in sorted(treebanks.find_files(folder / "ud")):
            yield f"{name}:{treebank}:{split}"
        return
    for split in declared.splits:
        for spec in _list_specs(name, version, split, declared):
            values = _fill_settings(spec, declared, declared.folder)
            if all(path.is_file() for path in _paths(values)):
                yield str(spec)


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


def _show_folder(declared: Declaration) -> str:
    if declared.folder is None:
        return ""
    settings = declared.folder.settings
    return ", ".join(str(settings[key]) for key in PATH_KEYS if key in settings)


def _check_count(rows: Rows, declared: Declaration, spec: Spec) -> None:
    """A number of rows that is not the published one is told, for it makes scores hard to compare."""
    expected, found = declared.expected_rows(spec), len(rows) + rows.skipped
    if expected is not None and expected != found:
        logger.warning(
            "%s: found %s rows where the published set has %s; scores on it are not comparable with others'. "
            "Was a file cut short, or is it another release?",
            spec,
            f"{found:,}",
            f"{expected:,}",
        )
