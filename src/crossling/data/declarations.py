"""The entries of ``sets.toml``: where each data set comes from (files, hub), its languages, splits and row counts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from crossling.data.spec import Spec
from crossling.errors import DataError, nearest

HUB_SPLITS = {"dev": "validation"}


class _Declaration(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class FolderSource(_Declaration):
    """How a set lies in the folder named by CROSSLING_DATA; ``{language}`` and the like are filled in."""

    format: str
    """The reader."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """The reader's settings; those that end in a file's name are paths below the folder."""
    by_split: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Settings that differ in one split."""
    codes: dict[str, str] = Field(default_factory=dict)
    """What the files call a language, where that is not our code, or in which order they have a pair."""
    splits: dict[str, str] = Field(default_factory=dict)
    """What the files call a split, where that is not our name."""
    join: bool = False
    """The path's ``*`` stands for several files, whose rows are read one file after another."""


class HubSource(_Declaration):
    """How a set lies on the hub, as Parquet."""

    repository: str
    config: str = "{code}"
    revision: str = "main"
    columns: dict[str, str]
    """Our record's field -> the hub's column; a dot goes into a struct."""
    codes: dict[str, str] = Field(default_factory=dict)
    splits: dict[str, str] = Field(default_factory=lambda: dict(HUB_SPLITS))
    labels: dict[str, str] = Field(default_factory=dict)
    """The hub's label -> ours."""
    drop_tags: tuple[str, ...] = ()
    """Tags of tokens that are no words, such as the "_" of multi-word ranges."""
    id_prefix: str = ""
    """Keeps the rows whose id begins so, where all languages lie in one table."""


class Declaration(_Declaration):
    """One data set."""

    title: str
    kind: str
    """The record class of its rows."""
    task: str = ""
    """The preset that reads it."""
    languages: tuple[str, ...]
    """Codes; for parallel sets, the codes that pairs are made of."""
    other_languages: bool = False
    """Languages beyond those listed may exist."""
    pairs: bool = False
    """The language is a pair, such as en-hi."""
    pivot: str = ""
    """One side of every pair, where only pairs with it exist."""
    treebanks: bool = False
    """The language may be a treebank, and a language stands for one of its treebanks."""
    roles: tuple[str, ...] = ()
    """Languages by role, such as context and question, of which the files have all combinations."""
    sides: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Roles whose languages may differ though no file has them so: role -> the row's fields that are in its language.
    Such rows are put together from two languages' rows, which are translations of each other."""
    original: str = ""
    """The language that a set with sides was written in, and translated from."""
    mixed: bool = False
    """Every row has one of its sides in another language."""
    splits: tuple[str, ...]
    rows: dict[str, int] = Field(default_factory=dict)
    """Published number of rows: of a split, or of ``split:language`` where it differs (of a pair, sorted)."""
    empty_rows: tuple[str, ...] = ()
    """Splits that were published with rows without text: broken rows of their files, and such rows of the hub, are
    left out and counted, unless ``on_error`` is set."""
    folder: FolderSource | None = None
    other_folders: tuple[FolderSource, ...] = ()
    """Other ways in which it may lie in the folder, where the first is not found."""
    hub: HubSource | None = None
    reader: FolderSource | None = None
    """A reader that needs no files: it generates the rows."""
    home: str = ""
    """Where the set can be had by hand; placeholders are filled in."""
    licence: str
    citation: str = ""
    note: str = ""
    """What a user must know before trusting a score."""
    versions: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What differs in a named version of the set."""

    def layouts(self) -> tuple[FolderSource, ...]:
        """All ways in which the set may lie in the folder."""
        return (*((self.folder,) if self.folder else ()), *self.other_folders)

    def expected_rows(self, spec: Spec) -> int | None:
        """The published number of rows, where there is one."""
        language = spec.language
        if self.roles:
            language = ",".join(spec.parts.get(role, spec.language) for role in self.roles)
        elif self.pairs:
            language = "-".join(sorted(spec.language.split("-")))
        return self.rows.get(f"{spec.split}:{language}", self.rows.get(spec.split))


@cache
def _load_tables() -> dict[str, dict[str, Any]]:
    text = resources.files("crossling.data").joinpath("sets.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def list_names() -> tuple[str, ...]:
    """Names of all declared sets."""
    return tuple(sorted(_load_tables()))


@cache
def load_declaration(name: str, version: str = "") -> Declaration:
    """A set's declaration; a version's entries replace the set's own, table by table."""
    if name not in _load_tables():
        raise DataError(f"unknown data set {name!r}.{nearest(name, list_names())}")
    base = Declaration.model_validate(_load_tables()[name])
    if not version:
        return base
    if version in base.versions:
        return Declaration.model_validate({**_load_tables()[name], **base.versions[version], "versions": {}})
    if base.hub is None:
        raise DataError(f"{name} has no version {version!r}.{nearest(version, base.versions)}")
    # Any other version is a revision of the hub's repository; the folder's files are of no known revision.
    hub = base.hub.model_copy(update={"revision": version})
    return base.model_copy(update={"folder": None, "other_folders": (), "hub": hub})


def fill_names(spec: Spec, declaration: Declaration, source: FolderSource | HubSource) -> dict[str, str]:
    """What the placeholders of a source's templates stand for."""
    names = {"language": spec.language, "split": source.splits.get(spec.split, spec.split)}
    languages: Mapping[str, str] = {"": spec.language, **spec.parts}
    if declaration.pairs:
        first, _, second = spec.language.partition("-")
        foreign = second if first == declaration.pivot else first
        languages = {"source": first, "target": second, "foreign": foreign}
        names["pair"] = "-".join(sorted((first, second)))
        names["left"], _, names["right"] = source.codes.get(names["pair"], names["pair"]).partition("-")
    for role, language in languages.items():
        names[role or "language"] = language
        names[f"{role}_code" if role else "code"] = source.codes.get(language, language)
    return names


def check_spec(spec: Spec, declaration: Declaration) -> None:
    """Refuse a language, pair, role or split that the set does not have, and list those it has."""
    roles = declaration.roles or (() if declaration.mixed else tuple(declaration.sides))
    if roles and (spec.parts or declaration.roles):
        unknown = [role for role in spec.parts if role not in roles]
        if unknown:
            raise DataError(f"{spec}: unknown role {unknown[0]!r}.{nearest(unknown[0], roles)}")
        absent = [role for role in roles if role not in spec.parts]
        if absent and spec.language:
            shorter = replace(spec, split="", start=None, stop=None)
            raise DataError(f"{spec}: name the {absent[0]}'s language too, as in {shorter},{absent[0]}=en")
    elif spec.parts:
        raise DataError(f"{spec}: {spec.name} has one language, not one by role; write {spec.name}:{spec.language}")
    if not spec.language:
        shape = "en-hi" if declaration.pairs else declaration.languages[0]
        raise DataError(f"{spec}: name a language, as in {spec.name}:{shape}.{nearest('', declaration.languages)}")
    wanted = _split_pair(spec, declaration) if declaration.pairs else tuple(spec.parts.values()) or (spec.language,)
    for language in wanted:
        if language not in declaration.languages and not declaration.other_languages:
            raise DataError(f"{spec.name} has no language {language!r}.{nearest(language, declaration.languages)}")
    if spec.split and spec.split not in declaration.splits:
        raise DataError(f"{spec.name} has no split {spec.split!r}.{nearest(spec.split, declaration.splits)}")
    if not spec.split:
        raise DataError(f"{spec}: name a split, as in {spec}:{declaration.splits[-1]}")


def _split_pair(spec: Spec, declaration: Declaration) -> tuple[str, str]:
    first, _, second = spec.language.partition("-")
    if not first or not second or first == second:
        raise DataError(f"{spec}: {spec.name} needs a pair of languages, as in {spec.name}:en-hi")
    if declaration.pivot and declaration.pivot not in (first, second):
        raise DataError(f"{spec}: every pair of {spec.name} has {declaration.pivot} on one side")
    return first, second
