"""Predictions survive a round trip to disk bit by bit, and a damaged file says so instead of lying."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossling.errors import ArtefactError
from crossling.scores.predictions import Predictions, read_predictions, write_predictions


def make_tags(**changes: Any) -> Predictions:
    values: dict[str, Any] = {
        "labels": ["O", "B-PER", "I-PER"],
        "gold": [[0, 1, -1], [], [2]],
        "predicted": [[0, 1, 2], [], [0]],
        "confidence": [[0.5, 0.25, 1.0], [], [0.125]],
        "scheme": "bio",
        "meta": {"task": "ner", "fingerprint": "abc", "seed": 3},
    }
    return Predictions.from_tags("hi", "panx:hi", **{**values, **changes})


def make_classes() -> Predictions:
    return Predictions.from_classes(
        "de",
        "xnli:de",
        labels=["yes", "no"],
        gold=[0, 1, -1],
        predicted=[1, 1, 0],
        confidence=[0.5, 0.5, 0.75],
    )


def make_answers() -> Predictions:
    return Predictions.from_answers(
        "zh",
        "xquad:zh",
        ids=["a", "b"],
        gold=[["北京", "北京市"], []],
        predicted=["北京", ""],
        starts=[4, -1],
        confidence=[0.5, 0.25],
    )


@pytest.mark.parametrize("make", [make_tags, make_classes, make_answers])
def test_round_trip(make: Any, tmp_path: Path) -> None:
    predictions = make()
    path = tmp_path / "new folder" / "hi.parquet"
    write_predictions(path, predictions)
    back = read_predictions(path)
    assert back.table.equals(predictions.table)
    for name in ("kind", "language", "data", "labels", "scheme"):
        assert getattr(back, name) == getattr(predictions, name)
    assert dict(back.meta) == dict(predictions.meta)
    assert [file.name for file in path.parent.iterdir()] == ["hi.parquet"]
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"


def test_rows_are_sentences_and_empty_ones_count() -> None:
    predictions = make_tags()
    assert predictions.column("row").tolist() == [0, 0, 0, 2]
    assert predictions.n_rows == 3
    assert make_tags(gold=[], predicted=[], confidence=[]).n_rows == 0


def test_writing_replaces_the_file_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    write_predictions(path, make_tags())

    def write_half(table: pa.Table, where: Path, **_: Any) -> None:
        Path(where).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", write_half)
    with pytest.raises(KeyboardInterrupt):
        write_predictions(path, make_classes())
    assert read_predictions(path).kind == "tags"
    assert [file.name for file in tmp_path.iterdir()] == ["x.parquet"]


def test_missing_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match=r"gone\.parquet.*run the recipe"):
        read_predictions(tmp_path / "gone.parquet")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "x.parquet"
    write_predictions(path, make_tags())
    return path.read_bytes()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(share=st.floats(0, 1, exclude_max=True))
def test_cut_file_is_an_artefact_error(share: float, written: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(written[: int(share * len(written))])
    with pytest.raises(ArtefactError, match=r"x\.parquet.*again"):
        read_predictions(path)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_damaged_file_is_an_artefact_error_or_keeps_its_rows(
    share: float, flip: int, written: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    damaged = bytearray(written)
    damaged[int(share * len(written))] ^= flip
    path.write_bytes(damaged)
    try:
        back = read_predictions(path)
    except ArtefactError as error:
        assert str(path) in str(error)
    else:
        assert back.table.equals(make_tags().table)
        assert back.labels == make_tags().labels


def test_foreign_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "foreign.parquet"
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(ArtefactError, match=r"foreign\.parquet: not predictions of crossling"):
        read_predictions(path)
    blob = b'{"format": 99, "kind": "tags", "digest": ""}'
    pq.write_table(make_tags().table.replace_schema_metadata({b"crossling": blob}), path)
    with pytest.raises(ArtefactError, match="format 99"):
        read_predictions(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gold": [[0, 1, 3], [], [2]]}, "codes from 0 to 3, but there are 3 labels"),
        ({"predicted": [[0, 1, -2], [], [0]]}, "codes from -2"),
        ({"scheme": "iob"}, "unknown tagging scheme 'iob'"),
    ],
)
def test_impossible_tables_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtefactError, match=message):
        make_tags(**changes)


def test_unordered_or_doubled_rows_are_refused() -> None:
    good = make_classes()
    for order, message in (([1, 0, 2], "not ordered"), ([0, 0, 1], "two classes for one row")):
        rows = pa.array(order, pa.int32())
        with pytest.raises(ArtefactError, match=message):
            Predictions("classes", "de", "x", good.table.set_column(0, "row", rows), good.labels)
    with pytest.raises(ArtefactError, match="need the columns"):
        Predictions("tags", "de", "x", good.table.drop_columns(["gold"]), good.labels)
    with pytest.raises(ArtefactError, match="no tagging scheme"):
        Predictions("classes", "de", "x", good.table, good.labels, "bio")


def test_confidences_that_differ_in_length_are_a_mistake() -> None:
    with pytest.raises(AssertionError):
        make_tags(confidence=[[0.5], [], [0.125]])
