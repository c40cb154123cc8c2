"""Formats, columns and languages, inferred from names and first lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.data.catalogue import has_files, open_data
from crossling.data.records import LabelledPair, LabelledText, ParallelPair, PlainText, Question, TaggedSentence
from crossling.data.sniffing import EXAMPLES, find_file_language, sniff_file, split_language
from crossling.data.spec import parse_data
from crossling.errors import DataError
from phrasebook_files import write_rows


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("text.sw.txt", "sw"),
        ("sw.txt", "sw"),
        ("train-sw.tsv.gz", "sw"),
        ("corpus.sw", "sw"),
        ("swahili.txt", "sw"),
        ("ner_hi.bio", "hi"),
        ("no.text.txt", ""),
        ("train.tsv", ""),
        ("dev.jsonl", ""),
        ("x", ""),
    ],
)
def test_language_by_the_end_of_a_name(name: str, language: str) -> None:
    assert find_file_language(Path("de") / name) == language


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("sw=text.txt", ("sw", "text.txt")),
        ("en-sw=a,b", ("en-sw", "a,b")),
        ("a=b", ("", "a=b")),
        ("my file=x.txt", ("", "my file=x.txt")),
        ("sw=", ("", "sw=")),
        ("panx:en", ("", "panx:en")),
    ],
)
def test_language_before_a_name(text: str, found: tuple[str, str]) -> None:
    assert split_language(text) == found


@pytest.mark.parametrize(
    ("task", "record", "wanted"),
    [
        ("ner", TaggedSentence, {"format": "bio"}),
        ("sentiment", LabelledText, {"format": "tsv", "text": 2, "label": 1}),
        ("nli", LabelledPair, {"format": "tsv", "first": 1, "second": 2, "label": 3}),
        ("qa", Question, {"format": "squad"}),
    ],
)
def test_format_is_inferred_for_each_task(task: str, record: Any, wanted: dict[str, Any], tmp_path: Path) -> None:
    path = write_rows(tmp_path, task, "de", "train", 60)
    table = sniff_file(path, record, language="de")
    assert table == {"path": str(path), "language": "de", **wanted}
    rows = open_data(table, store=tmp_path)
    assert (len(rows), rows.kind) == (60, record)


def test_header_names_columns(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("id\tgold_label\tPremise\thypothesis\n1\tneutral\tA cat.\tA dog.\n")
    table = sniff_file(path, LabelledPair, language="en")
    assert table["header"] is True
    assert (table["first"], table["second"], table["label"]) == ("Premise", "hypothesis", "gold_label")
    assert open_data(table, store=tmp_path)[0] == LabelledPair("A cat.", "A dog.", "neutral")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('Label;Review\ngood;"fine; really"\nbad;so so\n', {"fields": {"text": "Review", "label": "Label"}}),
        ('good,"fine, really"\ngood,so so la la\n', {"fields": {"text": 2, "label": 1}, "header": False}),
    ],
)
def test_columns_of_spreadsheets_are_found(text: str, wanted: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    table = sniff_file(tmp_path / "x.csv", LabelledText, language="en")
    assert {name: table[name] for name in wanted} == wanted and table["format"] == "csv"
    rows = open_data(table, store=tmp_path)
    first = rows[0]
    assert isinstance(first, LabelledText) and first.text.startswith("fine") and first.label == "good"


def test_two_columns_of_translations_are_read_as_pairs(tmp_path: Path) -> None:
    (tmp_path / "both.tsv").write_text("a cat\tpaka\n")
    table = sniff_file(tmp_path / "both.tsv", ParallelPair, language="en-sw")
    assert open_data(table, store=tmp_path)[0] == ParallelPair("a cat", "paka")


@pytest.mark.parametrize(
    ("name", "text", "record", "message"),
    [
        ("x.tsv", "one column\n", LabelledText, "1 column(s) where 2 are needed (text, label), with tabs between"),
        ("x.tsv", "", LabelledPair, "no lines where 3 are needed"),
        ("x.csv", "a,b\n", LabelledPair, "2 column(s) where 3 are needed"),
        ("x.csv", "a,b\n", Question, "Question rows cannot be recognised in a table"),
        ("x.txt", "a\n", Question, "Question rows cannot be recognised in it"),
    ],
)
def test_unclear_format_is_an_error_that_shows_a_table(
    name: str, text: str, record: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as error:
        sniff_file(tmp_path / name, record, language="en")
    assert message in str(error.value)
    assert "or name it by a table: '{ format" in str(error.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        sniff_file(tmp_path / "x.txt", PlainText, language="en")


def test_example_tables_are_tables() -> None:
    assert all("format" in parse_data(example) for example in EXAMPLES.values())


def test_has_files_finds_what_can_be_read_without_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSLING_DATA", str(tmp_path))
    (tmp_path / "panx").mkdir()
    (tmp_path / "panx" / "train-sw.tsv").write_text("a\tO\n")
    (tmp_path / "ud" / "UD_Turkish-PUD").mkdir(parents=True)
    (tmp_path / "ud" / "UD_Turkish-PUD" / "tr_pud-ud-test.conllu").write_text("")
    there = ("panx:sw:train[:10]", "ud:tr:test", "ud:tr_pud:test", "phrasebook-ner:de:test")
    absent = ("panx:sw:dev", "panx:de:train", "ud:tr:train", "phrasebook-ner:sw:test", "unknown:de:test", "mlqa:es:dev")
    assert all(map(has_files, there))
    assert not any(map(has_files, absent))
