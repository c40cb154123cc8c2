"""Rows on disk: what goes in comes out, in slices too, and a file is whole or not there."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data import cache
from crossling.data import rows as module
from crossling.data.cache import fingerprint_rows, load_settings, open_file_rows
from crossling.data.readers import bio
from crossling.data.records import (
    LabelledPair,
    LabelledText,
    LinkedPair,
    ParallelPair,
    Question,
    Record,
    TaggedSentence,
)
from crossling.data.rows import Rows, join_rows, read_rows, write_rows
from crossling.errors import DataError, StorageError
from crossling.files import release_pages

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
TEXTS = st.lists(TEXT, max_size=4).map(tuple)
NUMBERS = st.integers(0, 2**31 - 1)
RECORDS: dict[type[Record], st.SearchStrategy[Any]] = {
    TaggedSentence: st.builds(TaggedSentence, TEXTS, TEXTS),
    LabelledText: st.builds(LabelledText, TEXT, TEXT),
    LabelledPair: st.builds(LabelledPair, TEXT, TEXT, TEXT),
    Question: st.builds(Question, TEXT, TEXT, TEXT, TEXTS, st.lists(NUMBERS, max_size=3).map(tuple)),
    ParallelPair: st.builds(ParallelPair, TEXT, TEXT),
    LinkedPair: st.builds(LinkedPair, TEXTS, TEXTS, st.lists(st.tuples(NUMBERS, NUMBERS), max_size=3).map(tuple)),
}


def store(records: list[Record], path: Path, kind: type[Record], *, skipped: int = 0) -> Rows:
    assert write_rows(iter(records), path, kind, count_skipped=lambda: skipped) == len(records)
    return read_rows(path, language="xx", name="n", fingerprint="f")


@pytest.mark.parametrize("kind", RECORDS, ids=lambda kind: kind.__name__)
def test_records_round_trip(
    kind: type[Record], tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 3)
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = tmp_path_factory.mktemp("rows") / "a.arrow"

    @settings(max_examples=25, deadline=None, database=None, derandomize=True)
    @given(st.lists(RECORDS[kind], max_size=11), st.integers(1, 12), st.integers(-13, 13), st.integers(-13, 13))
    def run(records: list[Record], size: int, start: int, stop: int) -> None:
        rows = store(records, path, kind, skipped=4)
        assert (len(rows), rows.skipped, rows.kind) == (len(records), 4, kind)
        assert list(rows) == records
        assert [rows[i] for i in range(len(records))] == records
        assert [rows[-i] for i in range(1, len(records) + 1)] == records[::-1]
        in_file = [*[None] * 4, *records]
        assert list(rows.select(start, stop)) == [one for one in in_file[start:stop] if one is not None]
        assert list(rows.select(start, None)) == [one for one in in_file[start:] if one is not None]
        assert list(rows.head(size)) == records[:size]
        order = [i * 7 % len(records) for i in range(len(records))] if records else []
        assert list(rows.take(order)) == [records[i] for i in order]
        assert list(join_rows([rows, rows.head(2)], name="both")) == records + records[:2]
        chunks = list(rows.chunks(size))
        assert [len(next(iter(chunk.values()))) for chunk in chunks[:-1]] == [size] * (len(chunks) - 1)
        for name in rows.column_names:
            merged = [value for chunk in chunks for value in chunk[name]]
            batched = [value for batch in rows.batches(size) for value in batch.column(name).to_pylist()]
            assert merged == batched == rows.column(name).to_pylist()

    run()


def test_chunks_are_plain_lists(tmp_path: Path) -> None:
    rows = store([TaggedSentence(("a", "b"), ("X", "Y"))] * 5, tmp_path / "a", TaggedSentence)
    assert next(rows.chunks(2)) == {"words": [["a", "b"]] * 2, "tags": [["X", "Y"]] * 2}


def test_labels_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 2)
    tagged = [
        TaggedSentence(("a", "b"), ("O", "B")),
        TaggedSentence(("c",), ("O",)),
        TaggedSentence(("d",), ("I",)),
    ]
    rows = store(tagged, tmp_path / "a", TaggedSentence)
    assert rows.labels() == ("B", "I", "O") and rows.count_labels() == {"O": 2, "B": 1, "I": 1}
    assert rows.select(1, 2).labels() == ("O",), "of the rows selected, not of those around them"
    assert rows.select(2).count_labels() == {"I": 1}
    texts = store([LabelledText("x", "b"), LabelledText("y", "a")], tmp_path / "b", LabelledText)
    assert texts.labels() == ("a", "b")
    with pytest.raises(DataError, match="no labels"):
        store([ParallelPair("a", "b")], tmp_path / "c", ParallelPair).labels()


def test_positions_outside_are_index_errors(tmp_path: Path) -> None:
    rows = store([LabelledText("x", "y")], tmp_path / "a", LabelledText)
    for index in (1, -2):
        with pytest.raises(IndexError):
            rows[index]
        with pytest.raises(IndexError):
            rows.take([index])


def test_fingerprints_differ_between_selections(tmp_path: Path) -> None:
    rows = store([LabelledText(str(i), "y") for i in range(6)], tmp_path / "a", LabelledText)
    same = [rows.select(), rows.select(0, 6), rows.head(9), rows.select(-6)]
    assert {part.fingerprint for part in same} == {"f"}
    parts = [rows.head(2), rows.head(3), rows.select(1, 3), rows.take([0, 1]), rows.take([1, 0])]
    assert len({part.fingerprint for part in parts} | {"f"}) == 6
    assert rows.select(-2).fingerprint == rows.select(4, 6).fingerprint


def test_fingerprint_of_taken_rows_is_the_hash_of_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 2)
    rows = store([LabelledText(str(i), "y") for i in range(6)], tmp_path / "a", LabelledText)
    for numbers in ([], [3], [5, 0], [5, 0, 3, 1, 1]):
        assert rows.take(numbers).fingerprint == module.hash_text(f"f take {numbers}")
    order = list(range(6))
    random.Random(7).shuffle(order)
    assert [row.text for row in rows.sample(None, seed=7)] == list(map(str, order))
    assert rows.sample(4, seed=7).fingerprint == rows.take(order[:4]).fingerprint


def test_rows_are_the_same_after_their_pages_were_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released: list[int] = []

    def release(address: int, size: int) -> None:
        released.append(size)
        release_pages(address, size)

    monkeypatch.setattr(module, "RELEASE_ROWS", 3)
    monkeypatch.setattr(module, "release_pages", release)
    texts = [LabelledText(f"{i} " * 500, "y") for i in range(10)]
    rows = store(list(texts), tmp_path / "a", LabelledText)
    assert [text for chunk in rows.chunks(2) for text in chunk["text"]] == [row.text for row in texts]
    assert released == [(tmp_path / "a").stat().st_size] * 2, "after the fourth row and the eighth"
    assert list(join_rows([rows, rows.select(2, 4)], name="n")) == [*texts, *texts[2:4]]
    assert list(rows.take([9, 0])) == [texts[9], texts[0]]


def test_memory_that_is_no_mapped_file_is_not_given_back() -> None:
    held = np.arange(1 << 20)
    release_pages(held.ctypes.data, held.nbytes)
    assert (held == np.arange(1 << 20)).all()


def test_failed_writer_leaves_no_file(tmp_path: Path) -> None:
    def records() -> Iterator[Record]:
        yield LabelledText("a", "b")
        raise DataError("broken")

    with pytest.raises(DataError, match="broken"):
        write_rows(records(), tmp_path / "a.arrow", LabelledText)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("where", ["write", "fsync", "replace"])
def test_full_disk_is_an_error_and_leaves_no_file(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "write":
        monkeypatch.setattr(module, "_write_stream", fail)
    elif where == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(StorageError, match=r"a\.arrow.*: the disk is full.*--store"):
        write_rows([LabelledText("a", "b")], tmp_path / "a.arrow", LabelledText)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, 7, 300, -9])
def test_truncated_cache_is_rebuilt(size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "f").write_text("a\tO\n\nb\tO\n")

    def open_again() -> Rows:
        return open_file_rows("bio", {"path": tmp_path / "f"}, language="sw", name="n", store=tmp_path)

    rows = open_again()
    path = tmp_path / "data" / f"{rows.fingerprint}.arrow"
    content = path.read_bytes()
    expected = list(rows)
    del rows
    path.unlink()
    path.write_bytes(content[:size])
    assert list(open_again()) == expected
    assert ("made again" in caplog.text) == (size != 0), "an empty file is left by a power cut, and counts as absent"
    assert path.read_bytes() == content


def test_fingerprint_depends_on_content_and_settings_not_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a\tO\n")
    (tmp_path / "b").write_text("a\tO\n")
    (tmp_path / "c").write_text("a\tX\n")

    def fingerprint(name: str, **more: Any) -> str:
        return fingerprint_rows("bio", load_settings(bio, {"path": tmp_path / name, **more}, name="n"))

    assert fingerprint("a") == fingerprint("b")
    assert len({fingerprint("a"), fingerprint("c"), fingerprint("a", tag=2)}) == 3


def test_rows_are_read_once_then_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_text("a\tO\n\nb\n")
    values = {"path": tmp_path / "f"}
    more: dict[str, Any] = {"language": "sw", "name": "n", "store": tmp_path}
    lenient = open_file_rows("bio", values, on_error="skip", **more)
    monkeypatch.setattr(bio, "_choose_columns", lambda *_: pytest.fail("read again"))
    stored = open_file_rows("bio", values, on_error="skip", **more)
    assert (list(stored), stored.skipped) == (list(lenient), 1)
    monkeypatch.undo()
    with pytest.raises(DataError, match="f:3"):
        open_file_rows("bio", values, **more)
    assert len(open_file_rows("bio", values, on_error="skip", **more)) == 1, "the strict reading broke nothing"


def test_skipped_rows_are_warned_of_once_per_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_text("a\tO\n\nb\n")

    def open_again() -> Rows:
        return open_file_rows(
            "bio", {"path": tmp_path / "f"}, language="sw", name=str(tmp_path), store=tmp_path, on_error="skip"
        )

    open_again()
    open_again()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{tmp_path}: 1 broken row skipped: {tmp_path / 'f'}:3: "), (
        "the run that reads a file first names the rows, once"
    )
    caplog.clear()
    monkeypatch.setattr(cache, "_reported", set())  # as in a later run
    assert [open_again().skipped for _ in range(3)] == [1, 1, 1]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path}: 1 broken row skipped, when it was first read"
    ]


def test_unwritable_store_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\tO\n")
    (tmp_path / "store").write_text("a file, where a folder is due")
    with pytest.raises(StorageError, match=r"store.*: a part of the path is a file.*--store"):
        open_file_rows("bio", {"path": tmp_path / "f"}, language="sw", name="n", store=tmp_path / "store")


def test_no_rows_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("\n\n")
    with pytest.raises(DataError, match="no rows"):
        open_file_rows("bio", {"path": tmp_path / "f"}, language="sw", name="n", store=tmp_path)
