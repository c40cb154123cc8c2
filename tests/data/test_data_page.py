"""The page on data names every set and every format, and its examples are read as it says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from crossling.data.catalogue import list_sets, open_data
from crossling.data.cleaning import Cleaning
from crossling.data.declarations import load_declaration
from crossling.data.mixed_languages import MixSettings
from crossling.registry import list_kinds

PAGE = Path(__file__).parents[2] / "docs" / "data.md"
SECTION = re.compile(r"^### `(?P<name>\w+)`\n(?P<body>.*?)(?=^##)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"^`(?P<name>[\w.]+)`:\n\n```text\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TABLE = re.compile(r"^```toml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```python\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
ROWS = {
    "bio": 2,
    "conllu": 1,
    "tsv": 4,
    "lines": 3,
    "text": 2,
    "jsonl": 2,
    "squad": 1,
    "label_studio": 1,
    "parallel": 2,
    "moses": 2,
    "tmx": 1,
}
ROWS |= {"csv": 2, "json": 2, "parquet": 2, "datasets": 2}
ROWS |= {"aligned": 2, "ebible": 2, "quran": 2, "wikimatrix": 2, "phrasebook": 50}


def test_page_lists_every_set_and_version() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = list(list_sets())
    names += [f"{name}@{version}" for name in list_sets() for version in load_declaration(name).versions]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_page_lists_every_key_of_cleaning_and_mixing() -> None:
    text = PAGE.read_text(encoding="utf-8")
    keys = [*Cleaning.model_fields, *MixSettings.model_fields]
    assert [key for key in keys if f"`{key}`" not in text] == []


@pytest.mark.parametrize("name", list_kinds("readers"))
def test_page_examples_are_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sections = {match["name"]: match["body"] for match in SECTION.finditer(PAGE.read_text(encoding="utf-8"))}
    assert name in sections, f"docs/data.md has no section on the format {name}"
    monkeypatch.chdir(tmp_path)
    for match in FILE.finditer(sections[name]):
        Path(match["name"]).write_text(match["text"], encoding="utf-8")
    for match in CODE.finditer(sections[name]):
        exec(match["text"], {})
    table = TABLE.search(sections[name])
    assert table is not None
    assert len(open_data(tomllib.loads(table["text"])["data"], store=tmp_path / "store")) == ROWS[name]
