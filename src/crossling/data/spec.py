"""How a recipe names data: ``name[@version]:language[:split]``, or a table."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from crossling.errors import DataError

SHAPE = "name[@version]:language[:split], such as panx:de, ud@2.5-xtreme:en:test or xnli:de:dev[:100]"
_NAME = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(@(?P<version>[^:@\s]+))?")
_SPLIT = re.compile(
    r"(?P<split>[A-Za-z][\w.-]*)(\[(?P<start>-?\d{1,12})?(?P<colon>:)(?P<stop>-?\d{1,12})?\])?", re.ASCII
)
LONGEST_CODE = 40
_LANGUAGE = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
SPLIT_NAMES = {"validation": "dev", "valid": "dev", "val": "dev", "development": "dev"}


@dataclass(frozen=True, slots=True)
class Spec:
    """A data set of the catalogue, in a language, and perhaps a split and rows of it."""

    name: str
    language: str = ""
    """A code, a treebank (``es_ancora``), a pair (``en-hi``), or the main one of ``parts``."""
    version: str = ""
    split: str = ""
    start: int | None = None
    stop: int | None = None
    parts: Mapping[str, str] = field(default_factory=dict)
    """Languages by role, where a set has several: ``context=es,question=en``."""

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version else ""
        language = ",".join(f"{key}={value}" for key, value in self.parts.items()) or self.language
        return ":".join(part for part in (f"{self.name}{version}", language, self.split_text) if part)

    @property
    def split_text(self) -> str:
        """The split as it is written, with its rows: ``dev[:1600]``."""
        if self.start is None and self.stop is None:
            return self.split
        start, stop = ("" if bound is None else str(bound) for bound in (self.start, self.stop))
        return f"{self.split}[{start}:{stop}]"


def parse_spec(text: str) -> Spec:
    """Take apart ``name[@version]:language[:split[rows]]``; anything else is an error that shows the shape."""
    head, _, rest = text.strip().partition(":")
    match = _NAME.fullmatch(head)
    if match is None:
        raise DataError(f"{text!r} does not name a data set; write {SHAPE}")
    language, _, split_text = rest.partition(":")  # the split may hold another colon inside its brackets
    parts = _parse_parts(language, text) if "=" in language else {}
    rows = _SPLIT.fullmatch(rest)
    if rows and rows["colon"] and rows["split"] not in {"train", "dev", "test", *SPLIT_NAMES}:
        right = f"{head}:{rows['split']}:train{rest.removeprefix(rows['split'])}"
        raise DataError(f"{text!r}: a slice needs a split: {right}")
    if language and not parts and not _LANGUAGE.fullmatch(language):
        raise DataError(f"{text!r}: {language!r} is not a language code; write {SHAPE}")
    split, start, stop = parse_split(split_text) if split_text else ("", None, None)
    main = parts.get("context") or next(iter(parts.values()), "") if parts else language
    return Spec(
        name=match["name"],
        language=main,
        version=match["version"] or "",
        split=split,
        start=start,
        stop=stop,
        parts=parts,
    )


def parse_split(text: str) -> tuple[str, int | None, int | None]:
    """A split's name and the rows of it: ``dev``, ``dev[:1600]``, ``train[-2000:]``, ``dev[1400:1600]``."""
    match = _SPLIT.fullmatch(text)
    if match is None:
        raise DataError(f"{text!r} is not a split; write train, dev, test, or rows of one, as in dev[100:200]")
    split = SPLIT_NAMES.get(match["split"], match["split"])
    start, stop = (int(match[key]) if match[key] else None for key in ("start", "stop"))
    return split, start, stop


def parse_data(text: str) -> str | dict[str, Any]:
    """A data set on the command line: a name, or a table as in a recipe, ``{ data = "ntrex:en-hi", … }``."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        table = tomllib.loads(f"data = {text.strip()}")["data"]
    except tomllib.TOMLDecodeError as error:
        raise DataError(f'{text!r} is no table such as {{ data = "ntrex:en-hi", limit = 100 }}: {error}') from None
    assert isinstance(table, dict)
    return table


def check_code(language: str) -> None:
    """Refuse what cannot be a language's code, or a pair of them; a code that is not known may be the user's own."""
    if not _LANGUAGE.fullmatch(language) or len(language) > LONGEST_CODE:
        raise DataError(f"language = {language[:LONGEST_CODE]!r} is no code; write letters, digits, - and _, as in sw")


def check_table(table: Mapping[str, Any]) -> None:
    """Refuse a table that names neither a set (``data``) nor a file's ``format``, or both."""
    if "data" in table and "format" in table:
        raise DataError('a data table has either data = "name:language" or format = …, not both')
    if "data" not in table and "format" not in table:
        raise DataError(
            'a data table needs data = "name:language", or format, path and language, as in '
            '{ format = "bio", path = "sw.tsv", language = "sw" }'
        )


def _parse_parts(language: str, text: str) -> dict[str, str]:
    parts: dict[str, str] = {}
    for item in language.split(","):
        key, _, value = item.partition("=")
        key, value = key.strip(), value.strip()
        if not key or not _LANGUAGE.fullmatch(value) or key in parts:
            raise DataError(f"{text!r}: {item!r} is not role=language, as in context=es,question=en")
        parts[key] = value
    return parts


def list_data(value: Any) -> tuple[str | dict[str, Any], ...]:
    """What a setting names, one data set or several, as a tuple; a ValueError says what cannot be a data set."""
    many = tuple(value) if isinstance(value, list | tuple) else (value,)
    for spec in many:
        if not isinstance(spec, str | dict):
            raise ValueError('a data set is "name:language" or a table with format, path and language')
        try:
            parse_spec(spec) if isinstance(spec, str) else check_table(spec)
        except DataError as error:
            raise ValueError(str(error)) from None
    return many
