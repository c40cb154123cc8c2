"""Tables of spreadsheets, Parquet and saved data sets: delimiters, quotes, encodings, class names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets as hub_datasets
import pytest

from crossling.data.catalogue import open_data
from crossling.data.readers.csv import find_delimiter
from crossling.data.records import LabelledText, PlainText, Record, TaggedSentence
from crossling.errors import DataError

ROWS = [LabelledText('good, "really"; yes', "pos"), LabelledText("a\tb | c", "neg"), LabelledText("Grüße 你好", "pos")]


def read(tmp_path: Path, path: Path, **settings: Any) -> list[Record]:
    table = {"format": "csv", "path": str(path), "language": "en", **settings}
    return list(open_data(table, store=tmp_path / "store"))


def quote(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_delimiter_and_encoding_of_a_spreadsheet_are_found(
    tmp_path: Path, delimiter: str, encoding: str, end: str
) -> None:
    rows = [("Text", "Label"), *((quote(row.text), row.label) for row in ROWS)]
    path = tmp_path / "table.csv"
    path.write_bytes(end.join(delimiter.join(row) for row in rows).encode(encoding))
    assert read(tmp_path, path) == ROWS


def test_line_that_names_the_delimiter_is_no_row(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes("\ufeffsep=|\r\ntext|label\r\na,b|x\r\nc;d|y\r\n".encode())
    assert read(tmp_path, path) == [LabelledText("a,b", "x"), LabelledText("c;d", "y")]


def test_delimiter_is_not_confused_by_punctuation_in_texts() -> None:
    text = "text;label\n" + "".join(f"one, two, three and {n}, four;{n % 2}\n" for n in range(50))
    assert find_delimiter(text) == ";"
    assert find_delimiter("text\nno delimiter, once\n") == ","


def test_other_encodings_are_named_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes("text;label\nGrüße;pos\nplain;neg\n".encode("cp1252"))
    with pytest.raises(DataError, match=r'table.csv:2: bytes that are not UTF-8 .*encoding = "cp1252"'):
        read(tmp_path, path)
    assert read(tmp_path, path, encoding="cp1252") == [LabelledText("Grüße", "pos"), LabelledText("plain", "neg")]
    assert read(tmp_path, path, on_error="skip") == [LabelledText("plain", "neg")]


def test_columns_by_name_by_number_and_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('id,words,tags\n1,Anna sings,B-PER O\n2,"[""a b""]",["O"]\n'.replace('["O"]', '"[""O""]"'))
    assert read(tmp_path, path) == [
        TaggedSentence(("Anna", "sings"), ("B-PER", "O")),
        TaggedSentence(("a b",), ("O",)),
    ]
    path.write_text("good,5\nbad,1\n")
    numbered = {"text": 1, "label": 2}
    assert read(tmp_path, path, header=False, fields=numbered) == [LabelledText("good", "5"), LabelledText("bad", "1")]
    assert read(tmp_path, path, header=False, fields={"text": 1}) == [PlainText("good"), PlainText("bad")]
    with pytest.raises(DataError, match="by its number"):
        read(tmp_path, path, header=False)
    with pytest.raises(DataError, match=r"names 'good', '5' are no kind of record.*fields ="):
        read(tmp_path, path)
    with pytest.raises(DataError, match=r"no column 'god'. Did you mean 'good'"):
        read(tmp_path, path, fields={"text": "god", "label": "5"})


def test_broken_rows_of_a_table_are_named_by_their_first_line(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text('text,label\n"two\nlines",x\na,b,c\n,y\nfine,z\n')
    with pytest.raises(DataError, match=r"table.csv:4: 3 fields instead of 2"):
        read(tmp_path, path)
    rows = open_data({"format": "csv", "path": str(path), "language": "en", "on_error": "skip"}, store=tmp_path / "s")
    assert len(rows) == 2 and rows.skipped == 2
    path.write_text('text,label\nfine,x\n"never closed,y\n')
    with pytest.raises(DataError, match=r"table.csv:3: cannot be split"):
        read(tmp_path, path)


@pytest.fixture
def reviews() -> hub_datasets.Dataset:
    names = hub_datasets.ClassLabel(names=["O", "B-PER"])
    features = {"tokens": hub_datasets.Sequence(hub_datasets.Value("string")), "ner": hub_datasets.Sequence(names)}
    rows = {"tokens": [["Anna", "sings"], ["rain"]], "ner": [[1, 0], [0]]}
    return hub_datasets.Dataset.from_dict(rows, features=hub_datasets.Features(features))


TAGGED = [TaggedSentence(("Anna", "sings"), ("B-PER", "O")), TaggedSentence(("rain",), ("O",))]
FIELDS = {"words": "tokens", "tags": "ner"}


def test_parquet_and_saved_data_sets_have_the_names_of_class_numbers(
    tmp_path: Path, reviews: hub_datasets.Dataset
) -> None:
    (tmp_path / "parts").mkdir()
    reviews.to_parquet(str(tmp_path / "parts" / "0.parquet"))
    reviews.to_parquet(str(tmp_path / "parts" / "1.parquet"))
    for path, expected in (("parts/0.parquet", TAGGED), ("parts", TAGGED * 2)):
        table = {"format": "parquet", "path": str(tmp_path / path), "language": "en", "fields": FIELDS}
        assert list(open_data(table, store=tmp_path / "store")) == expected
    reviews.select([0, 1]).save_to_disk(str(tmp_path / "saved"), num_shards=2)
    table = {"format": "datasets", "path": str(tmp_path / "saved"), "language": "en", "fields": FIELDS}
    assert list(open_data(table, store=tmp_path / "store")) == TAGGED


def test_split_of_a_saved_data_set_is_named(tmp_path: Path, reviews: hub_datasets.Dataset) -> None:
    hub_datasets.DatasetDict({"train": reviews, "test": reviews}).save_to_disk(str(tmp_path / "saved"))
    table = {"format": "datasets", "path": str(tmp_path / "saved"), "language": "en", "fields": FIELDS}
    assert list(open_data({**table, "split": "train"}, store=tmp_path / "store")) == TAGGED
    with pytest.raises(DataError, match="name one of its splits.*test, train"):
        open_data(table, store=tmp_path / "store")
    with pytest.raises(DataError, match="no split 'trian'.*Did you mean 'train'"):
        open_data({**table, "split": "trian"}, store=tmp_path / "store")


def test_unknown_column_of_a_table_is_an_error_that_lists_those_there(
    tmp_path: Path, reviews: hub_datasets.Dataset
) -> None:
    reviews.to_parquet(str(tmp_path / "a.parquet"))
    table = {"format": "parquet", "path": str(tmp_path / "a.parquet"), "language": "en"}
    with pytest.raises(DataError, match="no column 'tags', only tokens, ner"):
        open_data({**table, "fields": {"words": "tokens", "tags": "tags"}}, store=tmp_path / "store")
    with pytest.raises(DataError, match="names 'tokens', 'ner' are no kind of record"):
        open_data(table, store=tmp_path / "store")


def test_damaged_name_of_a_column_is_a_data_error(tmp_path: Path, reviews: hub_datasets.Dataset) -> None:
    reviews.save_to_disk(str(tmp_path / "saved"))
    (part,) = (tmp_path / "saved").glob("*.arrow")
    content = part.read_bytes()
    assert b"\x06\x00\x00\x00tokens" in content
    part.write_bytes(content.replace(b"\x06\x00\x00\x00tokens", b"\x06\x00\x00\x00\xff\xfekens"))
    table = {"format": "datasets", "path": str(tmp_path / "saved"), "language": "en", "fields": FIELDS}
    with pytest.raises(DataError, match="name of a column is no UTF-8"):
        open_data(table, store=tmp_path / "store")


def test_document_that_is_no_array_and_array_that_is_no_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"rows": [{"text": "a", "label": "b"}]}')
    table = {"format": "json", "path": str(tmp_path / "a.json"), "language": "en"}
    with pytest.raises(DataError, match="no array; name the key.*its arrays: rows"):
        open_data(table, store=tmp_path / "store")
    assert list(open_data({**table, "rows": "rows"}, store=tmp_path / "store")) == [LabelledText("a", "b")]
    (tmp_path / "a.json").write_text('[{"text": "a", "label": "b"}]')
    with pytest.raises(DataError, match='use format = "json"'):
        open_data({**table, "format": "jsonl"}, store=tmp_path / "store")
