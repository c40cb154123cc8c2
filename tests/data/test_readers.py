"""Each format's own rules, on small files made here."""

from __future__ import annotations

import gzip
import json
import logging
import zipfile
from pathlib import Path
from typing import Any

import pytest
from reader_examples import CONLLU, SQUAD, TMX

from crossling import registry
from crossling.data.cache import open_file_rows
from crossling.data.readers.text_files import BadRows
from crossling.data.records import (
    LabelledPair,
    LabelledText,
    LinkedPair,
    ParallelPair,
    Question,
    Record,
    TaggedSentence,
)
from crossling.errors import DataError


def read(name: str, *, on_error: str = "raise", **values: Any) -> list[Record]:
    reader = registry.load_kind("readers", name)
    return list(reader.read(reader.Settings(**values), BadRows(on_error)))  # type: ignore[arg-type]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# CoNLL-U


def test_conllu_reads_syntactic_words(tmp_path: Path) -> None:
    rows = read("conllu", path=write(tmp_path / "f", CONLLU))
    assert rows == [
        TaggedSentence(("Vamos", "nos", "a", "el", "mar"), ("VERB", "PRON", "ADP", "DET", "NOUN")),
        TaggedSentence(("hai mươi",), ("NUM",)),
    ]
    assert read("conllu", path=tmp_path / "f", column="xpos")[0].tags == ("V", "P", "S", "D", "N")


def test_conllu_xtreme_style_fuses_multiword_tokens(tmp_path: Path) -> None:
    withheld = "1\t_\t_\tNOUN\t_\t_\t0\troot\t_\t_\n2\t_\t_\tVERB\t_\t_\t1\tx\t_\t_\n\n"
    rows = read("conllu", path=write(tmp_path / "f", CONLLU + withheld), style="xtreme")
    assert rows == [
        TaggedSentence(("Vámonos", "al", "mar"), ("VERB", "ADP", "NOUN")),  # a and el are equally deep: by rank
        TaggedSentence(("haimươi",), ("NUM",)),
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\tx\tx\tNOUN\n", "4 tab-separated fields"),
        ("2\tx\t_\tNOUN\t_\t_\t_\t_\t_\t_\n", "word number '2' instead of 1"),
        ("01\tx\t_\tNOUN\t_\t_\t_\t_\t_\t_\n", "word number '01'"),
        ("1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n", "no tag in column 4"),
        ("1\t\t_\tX\t_\t_\t_\t_\t_\t_\n", "without a form"),
        ("1-2\tx\t_\t_\t_\t_\t_\t_\t_\t_\n1\tx\t_\tX\t_\t_\t_\t_\t_\t_\n", "within a multi-word token"),
        ("2-1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n", "range 2-1 does not begin"),
        ("1.1\tx\t_\t_\t_\t_\t_\t_\t_\t_\n", "without words"),
    ],
)
def test_conllu_reports_broken_sentences(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "f", "# a\n\n# b\n" + line)
    with pytest.raises(DataError, match="skip") as error:
        read("conllu", path=path)
    assert message in str(error.value) and f"{path}:" in str(error.value)
    assert read("conllu", path=path, on_error="skip") == []


# Columns


def test_bio_columns_prefix_and_separators(tmp_path: Path) -> None:
    conll = write(tmp_path / "a", "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n")
    assert read("bio", path=conll) == [TaggedSentence(("EU", "rejects"), ("B-ORG", "O"))]
    assert read("bio", path=conll, tag=2)[0].tags == ("NNP", "VBZ")
    panx = write(tmp_path / "b", "sw:New York\tB-LOC\r\nsw:en:x\tO\r\n\r\n\r\n")
    assert read("bio", path=panx, prefix="sw:") == [TaggedSentence(("New York", "en:x"), ("B-LOC", "O"))]
    assert read("bio", path=write(tmp_path / "c", "O\u3000x O\n")) == [TaggedSentence(("O\u3000x",), ("O",))]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("word\n", ":1: 1 column"),
        ("a\tO\n\tO\n", ":2: an empty word"),
        ("a\t\n", ":1: the word 'a' has no tag"),
    ],
)
def test_bio_error_names_the_line(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path / "f", text + "\nb\tO\n")
    with pytest.raises(DataError) as error:
        read("bio", path=path)
    assert f"{path}{message}" in str(error.value)
    assert read("bio", path=path, on_error="skip") == [TaggedSentence(("b",), ("O",))]


def test_lines_end_at_newline_only(tmp_path: Path) -> None:
    words = ["a\u2028b", "c\u0085d", "e\x0bf", "g\x1ch", "i\rj"]
    path = write(tmp_path / "f", b"\xef\xbb\xbf" + "".join(f"{word}\tO\n" for word in words).encode())
    assert read("bio", path=path) == [TaggedSentence(tuple(words), ("O",) * 5)]


@pytest.mark.parametrize(("line", "message"), [(b"\xff\tO\n", "not UTF-8"), (b"a\0b\tO\n", "NUL")])
def test_undecodable_bytes_are_broken_rows(tmp_path: Path, line: bytes, message: str) -> None:
    path = write(tmp_path / "f", b"a\tO\n\nb\tO\n" + line + b"\nc\tO\n")
    with pytest.raises(DataError, match=message) as error:
        read("bio", path=path)
    assert f"{path}:4" in str(error.value)
    assert [row.words for row in read("bio", path=path, on_error="skip")] == [("a",), ("c",)]


def test_gzip_is_read_and_damage_reported(tmp_path: Path) -> None:
    packed = gzip.compress(b"a\tO\n")
    assert len(read("bio", path=write(tmp_path / "f.gz", packed))) == 1
    for damaged in (packed[:-5], b"a\tO\n", packed[:12] + b"\xff\xff" + packed[14:]):
        with pytest.raises(DataError, match="gzip"):
            read("bio", path=write(tmp_path / "g.gz", damaged), on_error="skip")
    with pytest.raises(DataError, match="cannot be read"):
        read("bio", path=tmp_path)


# Tab-separated


def test_tsv_has_no_quoting(tmp_path: Path) -> None:
    path = write(tmp_path / "f", 'He said "no.\tB\tcontradictory\n"x\ty"\t neutral \n')
    rows = read("tsv", path=path, first=1, second=2, label=3, labels={"contradictory": "contradiction"})
    assert rows == [LabelledPair('He said "no.', "B", "contradiction"), LabelledPair('"x', 'y"', "neutral")]


def test_tsv_columns_by_name_and_separate_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "id\ttext\tlabel\n1\tyes\tgood\n")
    assert read("tsv", path=path, text="text", label="label", header=True) == [LabelledText("yes", "good")]
    pairs = write(tmp_path / "p", "a\tb\nc\td\n")
    labels = write(tmp_path / "l", "x\ny\n")
    assert read("tsv", path=pairs, first=1, second=2, labels_path=labels)[1] == LabelledPair("c", "d", "y")
    assert read("tsv", path=pairs, source=2, target=1)[0] == ParallelPair("b", "a")
    with pytest.raises(DataError, match=r"has 2 lines but .* has 1"):
        read("tsv", path=pairs, first=1, second=2, labels_path=write(tmp_path / "m", "x\n"))
    with pytest.raises(DataError, match=r"no column 'txt'\. Did you mean 'text'"):
        read("tsv", path=path, text="txt", label="label", header=True)


def test_tsv_reports_rows_of_wrong_width(tmp_path: Path) -> None:
    path = write(tmp_path / "f", "a\tb\tx\nc\td with\ta tab\ty\ne\t\tz\n")
    with pytest.raises(DataError, match=r"f:2: 4 tab-separated fields instead of 3"):
        read("tsv", path=path, first=1, second=2, label=3)
    assert len(read("tsv", path=path, first=1, second=2, label=3, on_error="skip")) == 1
    with pytest.raises(DataError, match="the label 'x' is none of y"):
        read("tsv", path=path, first=1, second=2, label=3, allowed=("y",))


@pytest.mark.parametrize(
    "values",
    [
        {"first": 1, "label": 2},
        {"text": 1},
        {"text": "t", "label": "l"},
        {"source": 1, "target": 2, "label": 3},
        {"text": -1, "label": 2},
    ],
)
def test_tsv_refuses_contradictory_settings(tmp_path: Path, values: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        open_file_rows("tsv", {"path": tmp_path / "f", **values}, language="en", name="n", store=tmp_path)


# Lines, parallel text


def test_lines_rename_and_check_labels(tmp_path: Path) -> None:
    text, labels = write(tmp_path / "t", "gut\nschlecht"), write(tmp_path / "l", "2\n0")
    values = {"path": text, "labels_path": labels, "labels": {"0": "negative", "2": "positive"}}
    assert read("lines", **values)[1] == LabelledText("schlecht", "negative")
    write(labels, "2\n7")
    with pytest.raises(DataError, match=r"l:2: the label '7' is none of"):
        read("lines", **values, allowed=("negative", "positive"))
    write(labels, "2\n0\n1\n")
    with pytest.raises(DataError, match=r"has 2 lines but .* has 3"):
        read("lines", **values)


def test_parallel_files_of_different_length_name_both_counts(tmp_path: Path) -> None:
    source, target = write(tmp_path / "a", "1\n2\n3\n"), write(tmp_path / "b", "x\n\n")
    with pytest.raises(DataError, match=r"b:2: an empty line"):
        read("parallel", source=source, target=target)
    with pytest.raises(DataError, match=r"has 3 lines but .* has 2; .*a:3 has no partner"):
        read("parallel", source=source, target=target, on_error="skip")


def test_moses_reads_files_and_archives(tmp_path: Path) -> None:
    write(tmp_path / "c.en-hi.en", "a\nb\n")
    write(tmp_path / "c.en-hi.hi.gz", gzip.compress("क\nख\n".encode()))
    expected = [ParallelPair("क", "a"), ParallelPair("ख", "b")]
    assert read("moses", path=tmp_path / "c.en-hi", language="hi-en") == expected
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("X.en-hi.en", "a\nb\n")
        archive.writestr("X.en-hi.hi", "क\nख\n")
        archive.writestr("README", "x")
    assert read("moses", path=tmp_path / "c.zip", language="hi-en") == expected
    with pytest.raises(DataError, match=r"0 files end in \.de"):
        read("moses", path=tmp_path / "c.zip", language="en-de")


def test_tmx_handles_language_codes_markup_and_entities(tmp_path: Path) -> None:
    rows = read("tmx", path=write(tmp_path / "f", TMX), language="en-hi")
    assert rows == [ParallelPair("Cats & dogs", "बिल्लियाँ और कुत्ते"), ParallelPair("the big house", "घर")]
    with pytest.raises(DataError, match="no text in 'de'"):
        read("tmx", path=tmp_path / "f", language="en-de")
    bomb = TMX.replace('SYSTEM "tmx14.dtd"', '[<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]').replace("&amp;", "&b;")
    with pytest.raises(DataError, match=r"f:2: entity"):
        read("tmx", path=write(tmp_path / "f", bomb), language="en-hi", on_error="skip")
    stolen = TMX.replace("&amp;", "&secret;")
    with pytest.raises(DataError, match=r"f:4: entity secret"):
        read("tmx", path=write(tmp_path / "f", stolen), language="en-hi")
    with pytest.raises(DataError, match="not TMX"):
        read("tmx", path=write(tmp_path / "f", "<html/>"), language="en-hi")


@pytest.mark.parametrize("encoding", ["utf-7", "nonsense", "rot13", "shift_jis"])
def test_tmx_in_unknown_encoding_is_refused(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(DataError, match="not valid XML"):
        read("tmx", path=write(tmp_path / "f", TMX.replace("UTF-8", encoding)), language="en-hi")


def test_ebible_joins_verse_ranges(tmp_path: Path) -> None:
    a = write(tmp_path / "a", "v1\nv2\nv3\n\nv5\n<range>\nv7\nv8\n")
    b = write(tmp_path / "b", "w1\n<range>\nw3\nw4\nw5\nw6\n\n<range>\n")
    rows = read("ebible", source=a, target=b)
    # 7 is missing on one side, and the range after it belongs to that missing verse
    assert rows == [ParallelPair("v1 v2", "w1"), ParallelPair("v3", "w3"), ParallelPair("v5", "w5 w6")]
    with pytest.raises(DataError, match=r"a has 8 lines but .*b has 8, .*v has 2"):
        read("ebible", source=a, target=b, references=write(tmp_path / "v", "GEN 1:1\nGEN 1:2\n"))


def test_quran_matches_verses_by_number(tmp_path: Path) -> None:
    verses = [{"chapter": 1, "verse": i, "text": f"t{i}"} for i in (1, 2, 3)]
    a = write(tmp_path / "a", json.dumps({"1": verses}))
    b = write(tmp_path / "b", json.dumps({"1": list(reversed(verses))[:2]}))
    with pytest.raises(DataError, match=r"verse 1:1 of .* is missing"):
        read("quran", source=a, target=b)
    assert read("quran", source=a, target=b, on_error="skip") == [ParallelPair(t, t) for t in ("t2", "t3")]


def test_aligned_reads_sure_and_possible_links(tmp_path: Path) -> None:
    pairs = write(tmp_path / "p", "the house  ||| la casa \nyes ||| sí\n")
    links = write(tmp_path / "l", "2p2 1-1\n\n")
    values = {"path": pairs, "links_path": links, "language": "en-es"}
    house = LinkedPair(("the", "house"), ("la", "casa"), ((0, 0),))
    assert read("aligned", **values) == [house, LinkedPair(("yes",), ("sí",), ())]
    assert read("aligned", **values, links="all")[0].links == ((0, 0), (1, 1))
    turned = read("aligned", **{**values, "language": "es-en"}, left="en")
    assert turned[0] == LinkedPair(house.target, house.source, ((0, 0),))


@pytest.mark.parametrize(
    ("pair", "links", "message"),
    [
        ("a b", "1-1", "p:1: not two sides"),
        ("a ||| b ||| c", "1-1", "p:1: not two sides"),
        ("a ||| ", "1-1", "p:1: not two sides"),
        ("a ||| b", "1-2", "l:1: the link 1-2 leads outside 1 and 1 words"),
        ("a ||| b", "0-1", "l:1: the link 0-1 leads outside"),
        ("a ||| b", "1:1", "l:1: '1:1' is no link"),
    ],
)
def test_aligned_reports_wrong_links(tmp_path: Path, pair: str, links: str, message: str) -> None:
    paths = {"path": write(tmp_path / "p", pair + "\n"), "links_path": write(tmp_path / "l", links + "\n")}
    with pytest.raises(DataError) as error:
        read("aligned", **paths, language="en-es")
    assert message in str(error.value)
    assert read("aligned", **paths, language="en-es", on_error="skip") == []
    with pytest.raises(DataError, match="has 1 lines but"):
        read(
            "aligned", **{**paths, "links_path": write(tmp_path / "m", "1-1\n1-1\n")}, language="en-es", on_error="skip"
        )


# JSON


def test_squad_answers_must_match_their_start(tmp_path: Path) -> None:
    rows = read("squad", path=write(tmp_path / "f", json.dumps(SQUAD)))
    assert rows[0] == Question("1", "Where?", "Asha lives in Arusha, 90 km from Moshi.", ("Arusha", "in"), (14, 11))
    assert rows[1].answers == () and rows[2].starts == (3,)
    shifted = json.loads(json.dumps(SQUAD))
    shifted["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] = 13
    with pytest.raises(DataError, match=r"data\[0\].paragraphs\[0\].qas\[0\]: the answer 'Arusha' is not at"):
        read("squad", path=write(tmp_path / "f", json.dumps(shifted)))
    assert len(read("squad", path=tmp_path / "f", on_error="skip")) == 2


def test_squad_reads_hidden_answers(tmp_path: Path) -> None:
    hidden = json.loads(json.dumps(SQUAD))
    hidden["data"][0]["paragraphs"][0]["qas"][0]["answers"] = [{"text": "", "answer_start": 0}]
    path = write(tmp_path / "f", json.dumps(hidden))
    with pytest.raises(DataError, match="hidden_answers = true"):
        read("squad", path=path)
    assert read("squad", path=path, hidden_answers=True)[0].answers == ()


@pytest.mark.parametrize("text", ["[" * 100_000, '{"data": ' + "1" * 5_000 + "}", '{"data": 3}', "", "[]"])
def test_squad_refuses_other_json(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError):
        read("squad", path=write(tmp_path / "f", text), on_error="skip")


def test_jsonl_infers_record_kind(tmp_path: Path) -> None:
    lines = {
        LabelledText: {"text": "a", "label": 3},
        LabelledPair: {"first": "a", "second": "b", "label": "x"},
        TaggedSentence: {"words": ["a"], "tags": ["O"]},
        ParallelPair: {"source": "a", "target": "b"},
        LinkedPair: {"source": ["a"], "target": ["b"], "links": [[0, 0]]},
        Question: {"id": "1", "question": "q", "context": "c", "answers": [], "starts": []},
    }
    for kind, value in lines.items():
        rows = read("jsonl", path=write(tmp_path / "f", "\n" + json.dumps(value)))
        assert [type(row) for row in rows] == [kind]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ('{"text": "a"}', "no value for the key 'label'; the object's keys: 'text'"),
        ('{"text": "a", "label": true}', "label is not text but True"),
        ('{"text": "a", "label": 1.5}', "label is not text"),
        ('{"text": "\\ud800", "label": "x"}', "text has half of a surrogate pair"),
        ('{"text": "\\u0000", "label": "x"}', "text has a NUL"),
        ('{"text": " ", "label": "x"}', "text is empty"),
        ("[1]", "not a JSON object"),
        ("{", "not valid JSON"),
    ],
)
def test_jsonl_reports_faulty_objects(tmp_path: Path, value: str, message: str) -> None:
    path = write(tmp_path / "f", '{"text": "a", "label": "b"}\n' + value + "\n")
    with pytest.raises(DataError) as error:
        read("jsonl", path=path)
    assert f"{path}:2: " in str(error.value) and message in str(error.value)


def test_jsonl_links_and_answers_must_fit(tmp_path: Path) -> None:
    path = write(tmp_path / "f", '{"source": ["a"], "target": ["b"], "links": [[0, 1]]}')
    with pytest.raises(DataError, match="the link 0-1 leads outside"):
        read("jsonl", path=path)


def test_skipped_rows_are_logged_once_with_places(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path / "f", "a\tO\n\n" + "b\n\n" * 9)
    with caplog.at_level(logging.WARNING):
        rows = open_file_rows("bio", {"path": path}, language="sw", name="mine", store=tmp_path, on_error="skip")
    assert (len(rows), rows.skipped) == (1, 9)
    assert len(caplog.records) == 1
    assert "mine: 9 broken rows skipped" in caplog.text and f"{path}:3" in caplog.text and "…" in caplog.text
