"""The catalogue of data sets: from a name in a recipe to rows.

Where each set comes from (TyDi QA, XNLI, PAN-X, …) stands in ``sets.toml``: its files below the folder CROSSLING_DATA,
its repository on the hub, its home page, languages, splits and row counts. Custom files are named by a table.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crossling.data import treebanks
from crossling.data.cache import TABLE_KEYS, check_reader_files, open_file_rows
from crossling.data.cleaning import clean_rows
from crossling.data.declarations import Declaration, check_spec, fill_names, list_names, load_declaration
from crossling.data.folder import describe_layouts, explain_missing, find_folder, find_sources, list_available
from crossling.data.mixed_languages import open_mixed, open_sides
from crossling.data.readers.text_files import OnError
from crossling.data.rows import KINDS, Rows, join_rows
from crossling.data.sniffing import find_file_language
from crossling.data.spec import Spec, check_code, check_table, parse_spec, parse_split
from crossling.errors import DataError, MissingDataError, nearest
from crossling.limits import LARGEST_SEED, MOST_COUNTED
from crossling.registry import list_kinds

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SetDescription:
    """What ``crossling data`` shows of a set."""

    name: str
    title: str
    kind: str
    task: str
    languages: tuple[str, ...]
    other_languages: bool
    roles: tuple[str, ...]
    """Roles that may be in a language each: ``name:role=code,role=code``."""
    splits: tuple[str, ...]
    rows: Mapping[str, int]
    versions: tuple[str, ...]
    folder: str
    hub: str
    home: str
    licence: str
    citation: str
    note: str
    available: tuple[str, ...]
    """Specs whose files lie in the folder named by CROSSLING_DATA."""


def open_data(spec: str | Mapping[str, Any], *, split: str = "", store: Path) -> Rows:
    """Rows of a data set: ``name[@version]:language[:split[rows]]``, or a table.

    A table is ``{data = "panx:hi", limit = 100}``, or names custom files: ``{format, path, language, …}`` with the
    reader's settings. ``limit`` takes the first rows, or random ones with ``sample_seed``; ``clean`` removes unfit
    pairs of a parallel set (see ``cleaning``); ``on_error`` is "raise" or "skip"; by default it is
    "raise", and "skip" for splits that were published with empty rows.

    A split in the spec wins over the argument, so that a recipe can test on ``panx:de:dev``.
    """
    if isinstance(spec, str):
        return _open_set(parse_spec(spec), split=split, store=store)
    if not isinstance(spec, Mapping):
        raise DataError(f"data is a name such as panx:de or a table, not {type(spec).__name__}")
    return _open_table(dict(spec), split=split, store=store)


def check_files(table: Mapping[str, Any]) -> None:
    """Refuse a table whose custom files are not there; reads no rows."""
    values = {key: value for key, value in table.items() if key not in TABLE_KEYS}
    format_name, language = table["format"], table.get("language")
    if format_name in list_kinds("readers") and isinstance(language, str):  # else opening it says what is wrong
        check_reader_files(format_name, values, language=language)


def list_sets() -> tuple[str, ...]:
    """Names of all sets, sorted."""
    return list_names()


def list_entries() -> tuple[tuple[str, str], ...]:
    """(name, version) of all sets and their named versions, the set itself with none."""
    return tuple((name, version) for name in list_names() for version in ("", *sorted(load_declaration(name).versions)))


def choose_split(data: str | Mapping[str, Any], order: Sequence[str] = ("test", "dev", "train")) -> str:
    """The split to read if none is named: the first of ``order`` that the set has; available ones first."""
    text = data if isinstance(data, str) else data.get("data")
    if not isinstance(text, str):
        return ""  # custom files have no splits
    spec = parse_spec(text)
    if spec.split:
        return spec.split
    declared = load_declaration(spec.name, spec.version)
    wanted = [split for split in order if split in declared.splits]
    available = [parse_spec(item) for item in list_available(spec.name, spec.version, declared)]
    there = {item.split for item in available if item.language.partition("_")[0] == spec.language.partition("_")[0]}
    return next((split for split in wanted if split in there), wanted[0])


def has_files(text: str) -> bool:
    """Whether a named set can be read without the hub: its files are in the folder, or it needs none."""
    spec = parse_spec(text)
    if spec.name not in list_names():
        return False
    declared = load_declaration(spec.name, spec.version)
    if declared.reader is not None:
        return spec.language in declared.languages and spec.split in declared.splits
    if declared.treebanks:
        there = [parse_spec(item) for item in list_available(spec.name, spec.version, declared)]
        return any(
            item.split == spec.split and spec.language in (item.language, _name_language(item)) for item in there
        )
    if declared.roles and not spec.parts:
        spec = replace(spec, parts=dict.fromkeys(declared.roles, spec.language))
    return find_sources(spec, declared) is not None


def describe(name: str, version: str = "") -> SetDescription:
    """All that the catalogue knows of a set, and which files of it are available; reads no rows."""
    declared = load_declaration(name, version)
    return SetDescription(
        name=name,
        title=declared.title,
        kind=declared.kind,
        task=declared.task,
        languages=declared.languages,
        other_languages=declared.other_languages,
        roles=() if declared.mixed else declared.roles or tuple(declared.sides),
        splits=declared.splits,
        rows=declared.rows,
        versions=tuple(sorted(declared.versions)),
        folder=describe_layouts(declared),
        hub=declared.hub.repository if declared.hub else "",
        home=declared.home,
        licence=declared.licence,
        citation=declared.citation,
        note=declared.note,
        available=tuple(list_available(name, version, declared)),
    )


def _open_table(table: dict[str, Any], *, split: str, store: Path) -> Rows:
    """Rows of a table: ``{data, limit, …}``, or ``{format, path, language, …}`` for custom files.

    Cleaning comes before ``limit``.
    """
    check_table(table)
    cleaning = table.pop("clean", None)
    limit = _pop_number(table, "limit", least=1, most=MOST_COUNTED)
    seed = _pop_number(table, "sample_seed", least=0, most=LARGEST_SEED)
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
        check_code(language)
        sides = [str(table[side]) for side in ("source", "target") if isinstance(table.get(side), str | Path)]
        if "path" not in table and len(sides) == 2:
            _check_side_names(sides, language)
        shown = table.get("path") or " and ".join(sides) or format_name
        rows = open_file_rows(
            format_name, table, language=language, name=str(shown), store=store, on_error=on_error or "raise"
        )
    if cleaning is not None:
        rows = clean_rows(rows, cleaning, store=store)
    return _limit_rows(rows, limit, seed)


def _check_side_names(sides: Sequence[str], language: str) -> None:
    """Refuse two files whose names say that they are in each other's language."""
    named = [find_file_language(Path(side)) for side in sides]
    languages = language.split("-")
    if all(named) and named != languages and named[::-1] == languages:
        raise DataError(
            f"source = {sides[0]!r} and target = {sides[1]!r}: by their names they are {named[0]} and {named[1]}, but "
            f'language = "{language}" has {languages[0]} first; exchange the files, or write "{"-".join(named)}"'
        )


def _pop_number(table: dict[str, Any], key: str, *, least: int, most: int) -> int | None:
    value = table.pop(key, None)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most):
        raise DataError(f"{key} = {value!r:.40} is not a whole number from {least} to {most:,}")
    return value


def _pop_on_error(table: dict[str, Any]) -> OnError | None:
    value = table.pop("on_error", None)
    if value not in (None, "raise", "skip"):
        raise DataError(f'on_error = {value!r}; write "raise" or "skip"')
    return "skip" if value == "skip" else "raise" if value else None


def _limit_rows(rows: Rows, limit: int | None, seed: int | None) -> Rows:
    """The first rows, or a seeded sample: the same rows in every language of a parallel set."""
    if seed is None:
        return rows if limit is None else rows.head(limit)
    return rows.sample(limit, seed=seed)


def _open_set(
    spec: Spec,
    *,
    split: str,
    store: Path,
    on_error: OnError | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Rows:
    if not spec.split and split:
        wanted, start, stop = parse_split(split)
        spec = replace(spec, split=wanted, start=start, stop=stop)
    declared = load_declaration(spec.name, spec.version)
    if declared.roles and not spec.parts and spec.language:
        spec = replace(spec, parts=dict.fromkeys(declared.roles, spec.language))
    check_spec(spec, declared)
    usual: OnError = "skip" if spec.split in declared.empty_rows else "raise"
    opener = _Opener(declared, store, on_error or usual, dict(settings or {}))
    rows = opener.open(replace(spec, start=None, stop=None))
    part = rows.select(spec.start, spec.stop).rename(str(spec))
    if not len(part):
        raise DataError(f"{spec}: there are no such rows; the split has {len(rows):,}")
    return part


@dataclass(frozen=True, slots=True)
class _Opener:
    """Opens whole splits of one set."""

    declared: Declaration
    store: Path
    on_error: OnError
    settings: dict[str, Any]
    """The reader's settings in the table."""

    def open(self, spec: Spec) -> Rows:
        """Rows of files or of the hub, or rows put together from two languages."""
        if self.declared.mixed:
            plain = replace(self, settings={})  # the table's settings say how to mix, not how to read
            return open_mixed(
                spec, self.declared, plain._open_language(spec), self.settings, store=self.store, on_error=self.on_error
            )
        if self.declared.sides and spec.parts:
            if len(set(spec.parts.values())) == 1:
                return self._open_language(spec)(spec.language)
            return open_sides(spec, self.declared, self._open_language(spec), store=self.store, on_error=self.on_error)
        return self._open_plain(spec)

    def _open_language(self, spec: Spec) -> Callable[[str], Rows]:
        """Opens the split of a spec in one language, as the files have it."""
        version = "" if self.declared.mixed else spec.version
        return lambda language: self._open_plain(replace(spec, language=language, parts={}, version=version))

    def _open_plain(self, spec: Spec) -> Rows:
        if self.declared.treebanks:
            spec = replace(spec, language=_choose_treebank(spec, self.declared))
        rows = self._read_files(spec)
        if rows is None:
            rows = self._read_hub(spec)
        _check_count(rows, self.declared, spec)
        return rows

    def _read_files(self, spec: Spec) -> Rows | None:
        found = find_sources(spec, self.declared)
        if found is None:
            return None
        format_name, parts = found
        opened = [
            open_file_rows(
                format_name,
                {**values, **self.settings},
                language=_name_language(spec),
                name=str(spec),
                store=self.store,
                on_error=self.on_error,
            )
            for values in parts
        ]
        return join_rows(opened, name=str(spec)) if len(opened) > 1 else opened[0]

    def _read_hub(self, spec: Spec) -> Rows:
        declared = self.declared
        fault = (spec.name, spec.version, spec.split)
        if declared.hub is None:
            message = f"{spec}: {explain_missing(spec, declared)}"
            raise MissingDataError(message, name=str(spec), fault=fault)
        if self.settings:
            raise DataError(f"{spec} comes from the hub, where {', '.join(self.settings)} cannot be set")
        from crossling.data.hub import NotFromHubError, open_hub_rows

        try:
            return open_hub_rows(
                declared.hub,
                fill_names(spec, declared, declared.hub),
                kind=KINDS[declared.kind],
                language=_name_language(spec),
                name=str(spec),
                store=self.store,
                on_error=self.on_error,
                has_empty_rows=spec.split in declared.empty_rows,
            )
        except NotFromHubError as error:
            message = f"{error}. {explain_missing(spec, declared)}"
            raise MissingDataError(message, name=str(spec), fault=fault) from error


def _name_language(spec: Spec) -> str:
    """The language's code without its treebank."""
    return spec.language.partition("_")[0]


def _choose_treebank(spec: Spec, declared: Declaration) -> str:
    """The treebank of a language, the folder's files first."""
    if "_" in spec.language:
        return spec.language
    folder = find_folder()
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


def _check_count(rows: Rows, declared: Declaration, spec: Spec) -> None:
    """Warn of a row count that is not the published one: scores would not be comparable."""
    expected, found = declared.expected_rows(spec), len(rows) + rows.skipped
    if expected is not None and expected != found:
        logger.warning(
            "%s: found %s rows where the published set has %s; scores on it are not comparable with published ones. "
            "Was a file cut short, or is it another release?",
            spec,
            f"{found:,}",
            f"{expected:,}",
        )
