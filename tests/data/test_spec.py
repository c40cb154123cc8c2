"""How data is named."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data.spec import Spec, check_table, parse_data, parse_spec, parse_split
from crossling.errors import DataError


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("panx:de", Spec("panx", "de")),
        ("xnli:de:test", Spec("xnli", "de", split="test")),
        ("ud@2.5-xtreme:en", Spec("ud", "en", version="2.5-xtreme")),
        ("ud:es_ancora:dev", Spec("ud", "es_ancora", split="dev")),
        ("ntrex:en-hi", Spec("ntrex", "en-hi")),
        ("xnli:de:dev[:1600]", Spec("xnli", "de", split="dev", stop=1600)),
        ("panx:en:train[-2000:]", Spec("panx", "en", split="train", start=-2000)),
        ("pawsx:en:validation[1400:1600]", Spec("pawsx", "en", split="dev", start=1400, stop=1600)),
        ("mlqa:context=es,question=en", Spec("mlqa", "es", parts={"context": "es", "question": "en"})),
        (
            "mlqa:question=en,context=es:dev",
            Spec("mlqa", "es", split="dev", parts={"question": "en", "context": "es"}),
        ),
        (" xnli:de ", Spec("xnli", "de")),
        ("xnli", Spec("xnli")),
    ],
)
def test_valid_specs_are_parsed(text: str, spec: Spec) -> None:
    assert parse_spec(text) == spec
    assert parse_spec(str(spec)) == spec, "what is shown can be typed"


@pytest.mark.parametrize(
    "text",
    ["", ":de", "a b:de", "xnli:d e", "xnli:de:", "xnli:de:dev[", "xnli:de:dev[3]", "xnli:de:dev[1:2:3]",
     "xnli:de:dev[a:]", "xnli@:de", "mlqa:context=", "mlqa:=es", "mlqa:a=es,a=en", "xnli:de:dev:more", "xnli:../de",
     "xnli:{x}", "xnli:de:dev[٣:]"],
)  # fmt: skip
def test_invalid_specs_are_refused(text: str) -> None:
    if text == "xnli:de:":
        assert parse_spec(text) == Spec("xnli", "de")  # a colon too many says nothing else
        return
    with pytest.raises(DataError):
        parse_spec(text)


def test_slice_without_a_split_is_shown_with_one() -> None:
    with pytest.raises(DataError, match=r"a slice needs a split: panx:en:train\[:5\]$"):
        parse_spec("panx:en[:5]")
    with pytest.raises(DataError, match="is not a language code"):
        parse_spec("panx:train[:5]")


@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(st.text(st.sampled_from("ab@:=,[]-0129_./{} \0é"), max_size=24))
def test_any_text_parses_or_raises_data_error(text: str) -> None:
    try:
        spec = parse_spec(text)
    except DataError:
        return
    assert parse_spec(str(spec)) == spec


def test_splits_are_parsed() -> None:
    assert parse_split("train") == ("train", None, None)
    assert parse_split("val[2:]") == ("dev", 2, None)
    with pytest.raises(DataError, match="not a split"):
        parse_split("train[1]")


def test_command_line_data_is_name_or_table() -> None:
    assert parse_data("ntrex:en-hi") == "ntrex:en-hi"
    assert parse_data(' { data = "ntrex:en-hi", clean = { ratio = 2 } }') == {
        "data": "ntrex:en-hi",
        "clean": {"ratio": 2},
    }
    for text in ("{ data = }", '{ data = "x" } y'):
        with pytest.raises(DataError, match="is no table such as"):
            parse_data(text)


def test_tables_need_data_or_format() -> None:
    check_table({"data": "panx:hi", "limit": 3})
    check_table({"format": "bio", "path": "x"})
    for table in ({}, {"path": "x"}, {"data": "panx:hi", "format": "bio"}):
        with pytest.raises(DataError):
            check_table(table)
