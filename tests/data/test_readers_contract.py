"""What every reader owes its users, whatever the file: a DataError or a correct read, and no row just gone."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling import registry
from crossling.data.readers._lines import BadRows
from crossling.data.rows import SCHEMAS
from crossling.errors import DataError
from crossling.records import Record
from examples import EXAMPLES, Example

CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
IDS = [f"{name}-{i}" for name, examples in EXAMPLES.items() for i in range(len(examples))]
TOKENS = (
    b"\0 \xff \xed\xa0\x80 \xef\xbb\xbf \r \n \n\n \t \t\t _ 1-2\t 1.1\t 0\t < > & &a; &#0; &lt; <!-- ]]> <tu> "
    b'</tu> <seg> { } [ ] " , : null true 1e999 -1 \\ud800 \\u0000 {"a":{"a": PK\x05\x06 \x1f\x8b <range> '
    b"-DOCSTART- # en: \xe2\x80\xa8 \xc2\x85 \x0b \x1c"
).split(b" ")
"""What upsets parsers: bytes that are not UTF-8, other line ends, markup, escapes, the formats' own marks."""
EDITS = st.lists(
    st.tuples(
        st.sampled_from(["cut", "delete", "insert", "repeat", "token", "replace"]),
        st.integers(0, 10_000),
        st.integers(0, 40),
        st.one_of(st.sampled_from(TOKENS), st.binary(max_size=12)),
    ),
    min_size=1,
    max_size=4,
)
QUICK = settings(
    max_examples=180,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)


def edit(content: bytes, edits: list[tuple[str, int, int, bytes]]) -> bytes:
    """A file with a few faults: cut short, with parts lost, doubled or replaced, with bytes that do not belong."""
    for kind, where, length, extra in edits:
        at = where % (len(content) + 1)
        if kind == "cut":
            content = content[:at]
        elif kind == "delete":
            content = content[:at] + content[at + length :]
        elif kind == "repeat":
            content = content[: at + length] + content[at:]
        elif kind == "replace":
            content = content[:at] + extra + content[at + len(extra) :]
        else:
            content = content[:at] + extra + content[at:]
    return content


def read_all(reader: ModuleType, values: Mapping[str, Any], on_error: str) -> tuple[list[Record], int]:
    """All rows, made Arrow as the store makes them, and the number of those skipped."""
    loaded = reader.Settings(**values)
    bad = BadRows(on_error)  # type: ignore[arg-type]
    rows = list(reader.read(loaded, bad))
    kind = reader.record_kind(loaded)
    assert all(type(row) is kind for row in rows)
    schema = SCHEMAS[kind]
    batch = pa.RecordBatch.from_pydict({n: [getattr(row, n) for row in rows] for n in schema.names}, schema=schema)
    with pa.ipc.new_file(io.BytesIO(), schema) as writer:
        writer.write_batch(batch)
    return rows, bad.count


def check_contract(name: str, example: Example, files: Mapping[str, bytes], folder: Path) -> None:
    reader = registry.load_kind("readers", name)
    values = example.write(folder, files)
    try:
        rows, skipped = read_all(reader, values, "skip")
    except DataError as error:
        assert str(folder) in str(error), "an error says which file"
        with pytest.raises(DataError):
            read_all(reader, values, "raise")
        return
    count = example.count(files)
    if count is not None:
        assert len(rows) + skipped == count
    if skipped:
        with pytest.raises(DataError, match="skip"):
            read_all(reader, values, "raise")
    else:
        assert read_all(reader, values, "raise") == (rows, 0)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_every_reader_has_an_example() -> None:
    assert set(EXAMPLES) == set(registry.list_kinds("readers"))


@pytest.mark.parametrize("name", registry.list_kinds("readers"))
def test_every_reader_has_the_same_shape(name: str) -> None:
    reader = registry.load_kind("readers", name)
    assert isinstance(reader.VERSION, int)
    assert reader.Settings.model_config["frozen"] and reader.Settings.model_config["extra"] == "forbid"
    assert all(callable(getattr(reader, part)) for part in ("read", "record_kind", "files"))


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_valid_files_are_read_whole(name: str, example: Example, tmp_path: Path) -> None:
    reader = registry.load_kind("readers", name)
    values = example.write(tmp_path)
    rows, skipped = read_all(reader, values, "raise")
    assert (len(rows), skipped) == (example.rows, 0)
    assert example.count(example.files) in (None, example.rows), "the count that judges the reader"
    assert set(reader.files(reader.Settings(**values))) == {tmp_path / file for file in example.files}


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_missing_files_are_told(name: str, example: Example, tmp_path: Path) -> None:
    reader = registry.load_kind("readers", name)
    for file in example.files:
        values = example.write(tmp_path)
        (tmp_path / file).unlink()
        with pytest.raises(DataError, match="no such file"):
            read_all(reader, values, "skip")


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_faulty_files(name: str, example: Example, folder: Path) -> None:
    @QUICK
    @given(st.sampled_from(sorted(example.files)), EDITS)
    def run(file: str, edits: list[tuple[str, int, int, bytes]]) -> None:
        check_contract(name, example, {**example.files, file: edit(example.files[file], edits)}, folder)

    run()


@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_random_bytes(name: str, example: Example, folder: Path) -> None:
    @settings(QUICK, max_examples=60)
    @given(
        st.sampled_from(sorted(example.files)),
        st.lists(st.one_of(st.sampled_from(TOKENS), st.binary()), max_size=30),
    )
    def run(file: str, parts: list[bytes]) -> None:
        check_contract(name, example, {**example.files, file: b"".join(parts)}, folder)

    run()


@pytest.mark.parametrize("language", ["", "xx", "en-hi", "en-", "-", "en\0", "../en", "ENGLISH"])
@pytest.mark.parametrize("task", ["ner", "parallel"])
def test_phrasebook_refuses_what_it_has_not(task: str, language: str) -> None:
    reader = registry.load_kind("readers", "phrasebook")
    if (task, language) == ("parallel", "en-hi"):
        return
    with pytest.raises(DataError):
        next(reader.read(reader.Settings(task=task, language=language, split="dev"), BadRows()))
