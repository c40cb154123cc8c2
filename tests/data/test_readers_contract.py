"""What every reader owes its users, whatever the file: a DataError or a correct read, and no row just gone."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_examples import EXAMPLES, Example

from crossling import registry
from crossling.data.catalogue import open_data
from crossling.data.readers.text_files import BadRows
from crossling.data.records import Record
from crossling.data.rows import SCHEMAS
from crossling.errors import DataError
from hostile_files import edit, pick_bytes

CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
IDS = [f"{name}-{i}" for name, examples in EXAMPLES.items() for i in range(len(examples))]
CODE = st.binary(min_size=5, max_size=20)
"""Edits as bytes, five for each: one draw a file is several times faster than drawing every part of them."""
NOISE = st.binary(max_size=30)
FILES, MORE_FILES = 600, 10_000
"""Malformed files thrown at every reader, shared between its examples: always, and in the slow test."""


def read_all(reader: ModuleType, values: Mapping[str, Any], on_error: str) -> tuple[list[Record], int, int]:
    """All rows, made Arrow as the store makes them, and the numbers of those skipped and of those left out."""
    loaded = reader.Settings(**values)
    bad = BadRows(on_error)  # type: ignore[arg-type]
    rows = list(reader.read(loaded, bad))
    kind = reader.record_kind(loaded)
    assert all(type(row) is kind for row in rows)
    schema = SCHEMAS[kind]
    batch = pa.RecordBatch.from_pydict({n: [getattr(row, n) for row in rows] for n in schema.names}, schema=schema)
    with pa.ipc.new_file(io.BytesIO(), schema) as writer:
        writer.write_batch(batch)
    return rows, bad.count, bad.dropped.total()


def check_contract(name: str, example: Example, files: Mapping[str, bytes], folder: Path) -> None:
    reader = registry.load_kind("readers", name)
    values = example.write(folder, files)
    try:
        rows, skipped, dropped = read_all(reader, values, "skip")
    except DataError as error:
        assert str(folder) in str(error), "an error says which file"
        with pytest.raises(DataError):
            read_all(reader, values, "raise")
        return
    count = example.count(files)
    if count is not None:
        assert len(rows) + skipped + dropped == count
    if skipped:
        with pytest.raises(DataError, match="skip"):
            read_all(reader, values, "raise")
    else:
        assert read_all(reader, values, "raise") == (rows, 0, dropped)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def test_every_reader_has_an_example() -> None:
    assert set(EXAMPLES) == set(registry.list_kinds("readers"))


@pytest.mark.parametrize("name", registry.list_kinds("readers"))
def test_every_reader_fulfils_the_protocol(name: str) -> None:
    reader = registry.load_kind("readers", name)
    assert isinstance(reader.VERSION, int)
    assert reader.Settings.model_config["frozen"] and reader.Settings.model_config["extra"] == "forbid"
    assert all(callable(getattr(reader, part)) for part in ("read", "record_kind", "files"))


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_valid_files_are_read_whole(name: str, example: Example, tmp_path: Path) -> None:
    reader = registry.load_kind("readers", name)
    values = example.write(tmp_path)
    rows, skipped, dropped = read_all(reader, values, "raise")
    assert (len(rows) + dropped, skipped) == (example.rows, 0)
    assert example.count(example.files) in (None, example.rows), "the count that judges the reader"
    assert set(reader.files(reader.Settings(**values))) == {tmp_path / file for file in example.files}


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_missing_files_are_data_errors(name: str, example: Example, tmp_path: Path) -> None:
    reader = registry.load_kind("readers", name)
    for file in example.files:
        values = example.write(tmp_path)
        (tmp_path / file).unlink()
        with pytest.raises(DataError, match="no such file"):
            read_all(reader, values, "skip")


def throw(name: str, example: Example, folder: Path, *, count: int) -> None:
    """Malformed files at one example's reader: three of four with a few faults, the fourth nothing but noise."""
    dice, names = random.Random(name), sorted(example.files)
    for number in range(count // len(EXAMPLES[name])):
        file = dice.choice(names)
        if number % 4:
            content = edit(example.files[file], dice.randbytes(dice.randint(5, 20)))
        else:
            content = b"".join(map(pick_bytes, dice.randbytes(dice.randint(0, 30))))
        try:
            check_contract(name, example, {**example.files, file: content}, folder)
        except BaseException as error:
            error.add_note(f"the file {file} was {content!r}")
            raise


def search(name: str, example: Example, folder: Path, *, count: int) -> None:
    """The same, with files that Hypothesis chooses and makes smaller."""
    per_example = count // len(EXAMPLES[name])

    def check(file: str, content: bytes) -> None:
        check_contract(name, example, {**example.files, file: content}, folder)

    names = st.sampled_from(sorted(example.files))
    common: dict[str, Any] = {"deadline": None, "database": None, "derandomize": True}
    common["suppress_health_check"] = [HealthCheck.too_slow]
    faulty = given(names, CODE)(lambda file, code: check(file, edit(example.files[file], code)))
    noisy = given(names, NOISE)(lambda file, code: check(file, b"".join(map(pick_bytes, code))))
    settings(max_examples=per_example * 3 // 4, **common)(faulty)()
    settings(max_examples=per_example // 4, **common)(noisy)()


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_malformed_files_raise_data_errors_or_are_counted(name: str, example: Example, folder: Path) -> None:
    throw(name, example, folder, count=FILES)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_random_malformed_files_raise_data_errors_or_are_counted(name: str, example: Example, folder: Path) -> None:
    search(name, example, folder, count=MORE_FILES)


JUNK = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-3, 40), st.floats(), st.sampled_from(["", ".", "/", "~x", "a\0b"])
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=4,
)


@pytest.mark.parametrize("name", registry.list_kinds("readers"))
def test_junk_settings_are_refused(name: str, folder: Path) -> None:
    reader = registry.load_kind("readers", name)
    keys = st.sampled_from([*reader.Settings.model_fields, "unknown"])

    @settings(max_examples=60, deadline=None, database=None, derandomize=True)
    @given(st.dictionaries(keys, JUNK, max_size=4))
    def run(values: dict[str, Any]) -> None:
        values.pop("language", None)
        with pytest.raises(DataError):
            open_data({"format": name, "language": "en-hi", **values}, store=folder)

    run()


@pytest.mark.parametrize("language", ["", "xx", "en-hi", "en-", "-", "en\0", "../en", "ENGLISH"])
@pytest.mark.parametrize("task", ["ner", "parallel"])
def test_phrasebook_refuses_unknown_names(task: str, language: str) -> None:
    reader = registry.load_kind("readers", "phrasebook")
    if (task, language) == ("parallel", "en-hi"):
        return
    with pytest.raises(DataError):
        next(reader.read(reader.Settings(task=task, language=language, split="dev"), BadRows()))
