"""What is written in a format is read back letter by letter, whatever the script, the signs and the spaces."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling import registry
from crossling.data.readers.text_files import BadRows
from crossling.data.records import (
    LabelledPair,
    LabelledText,
    LinkedPair,
    ParallelPair,
    PlainText,
    Question,
    Record,
    TaggedSentence,
)

LETTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0\t\n\r")
TEXT = st.text(LETTERS, min_size=1, max_size=12).filter(lambda text: text.strip())
TRIMMED = TEXT.map(str.strip).filter(lambda text: not text.startswith(("#", "-DOCSTART-")))
"""Words and labels: formats do not distinguish spaces around them from their columns' edges."""
WORD = TRIMMED.filter(lambda text: len(text.split()) == 1 and "|||" not in text)
TAGGED = st.lists(st.tuples(TRIMMED, TRIMMED.filter(lambda tag: tag != "_")), min_size=1, max_size=5).map(
    lambda pairs: TaggedSentence(*map(tuple, zip(*pairs, strict=True)))
)
PARALLEL = st.builds(ParallelPair, TEXT, TEXT)
XML_TEXT = st.text(st.characters(min_codepoint=0x20, exclude_categories=("Cs",), exclude_characters="\ufffe\uffff"))


@st.composite
def linked(draw: st.DrawFn) -> LinkedPair:
    source, target = (draw(st.lists(WORD, min_size=1, max_size=4).map(tuple)) for _ in range(2))
    links = st.tuples(st.integers(0, len(source) - 1), st.integers(0, len(target) - 1))
    return LinkedPair(source, target, tuple(sorted(draw(st.sets(links, max_size=4)))))


@st.composite
def questions(draw: st.DrawFn) -> Question:
    before, answer, after = draw(TEXT), draw(TEXT), draw(TEXT)
    return Question(draw(TEXT), draw(TEXT), before + answer + after, (answer,), (len(before),))


def join(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def write_conllu(rows: Sequence[TaggedSentence]) -> dict[str, bytes]:
    lines = []
    for row in rows:
        for number, (word, tag) in enumerate(zip(row.words, row.tags, strict=True), start=1):
            lines.append("\t".join([str(number), word, "_", tag, "_", "_", "0", "root", "_", "_"]))
        lines.append("")
    return {"path": join(lines)}


def write_bio(rows: Sequence[TaggedSentence]) -> dict[str, bytes]:
    blocks = ([f"{word}\t{tag}" for word, tag in zip(row.words, row.tags, strict=True)] for row in rows)
    return {"path": join([line for block in blocks for line in [*block, ""]])}


def write_squad(rows: Sequence[Question]) -> dict[str, bytes]:
    def one(row: Question) -> dict[str, Any]:
        answer = {"text": row.answers[0], "answer_start": row.starts[0]}
        return {"context": row.context, "qas": [{"id": row.id, "question": row.question, "answers": [answer]}]}

    return {"path": json.dumps({"data": [{"paragraphs": [one(row)]} for row in rows]}).encode()}


def write_tmx(rows: Sequence[ParallelPair]) -> dict[str, bytes]:
    def side(code: str, text: str) -> str:
        return f'<tuv xml:lang="{code}"><seg>{escape(text)}</seg></tuv>'

    units = "".join(f"<tu>{side('en', row.source)}{side('hi', row.target)}</tu>" for row in rows)
    return {"path": f"<tmx><body>{units}</body></tmx>".encode()}


def write_aligned(rows: Sequence[LinkedPair]) -> dict[str, bytes]:
    return {
        "path": join([f"{' '.join(row.source)} ||| {' '.join(row.target)}" for row in rows]),
        "links_path": join([" ".join(f"{a + 1}-{b + 1}" for a, b in row.links) for row in rows]),
    }


class Case(NamedTuple):
    """Records, and how a file has them."""

    reader: str
    records: st.SearchStrategy[Any]
    write: Callable[[Any], dict[str, bytes]]
    settings: dict[str, Any]


CASES = {
    "conllu": Case("conllu", TAGGED, write_conllu, {}),
    "bio": Case("bio", TAGGED, write_bio, {"separator": "tab"}),
    "tsv": Case(
        "tsv",
        st.builds(LabelledPair, TEXT, TEXT, TRIMMED),
        lambda rows: {"path": join([f"{row.label}\t{row.first}\t{row.second}" for row in rows])},
        {"first": 2, "second": 3, "label": 1},
    ),
    "tsv with a header": Case(
        "tsv",
        st.builds(LabelledText, TEXT, TRIMMED),
        lambda rows: {"path": join(["text\tlabel", *(f"{row.text}\t{row.label}" for row in rows)])},
        {"text": "text", "label": "label", "header": True},
    ),
    "lines": Case(
        "lines",
        st.builds(LabelledText, TEXT, TRIMMED),
        lambda rows: {"path": join([row.text for row in rows]), "labels_path": join([row.label for row in rows])},
        {},
    ),
    "text": Case("text", st.builds(PlainText, TEXT), lambda rows: {"path": join([row.text for row in rows])}, {}),
    "jsonl of texts": Case(
        "jsonl",
        st.builds(PlainText, TEXT),
        lambda rows: {"path": join([json.dumps({"body": row.text, "id": 1}) for row in rows])},
        {"fields": {"text": "body"}},
    ),
    "parallel": Case(
        "parallel",
        PARALLEL,
        lambda rows: {"source": join([row.source for row in rows]), "target": join([row.target for row in rows])},
        {},
    ),
    "wikimatrix": Case(
        "wikimatrix",
        PARALLEL,
        lambda rows: {"path": join([f"1.0400\t{row.target}\t{row.source}" for row in rows])},
        {"language": "en-hi", "left": "hi"},
    ),
    "squad": Case("squad", questions(), write_squad, {}),
    "tmx": Case(
        "tmx",
        st.builds(ParallelPair, *[XML_TEXT.map(str.strip).filter(bool)] * 2),
        write_tmx,
        {"language": "en-hi"},
    ),
    "aligned": Case("aligned", linked(), write_aligned, {"language": "en-hi"}),
    **{
        f"jsonl of {kind.__name__}": Case(
            "jsonl",
            records,
            lambda rows: {"path": join([json.dumps(asdict(row), ensure_ascii=False) for row in rows])},
            {},
        )
        for kind, records in {TaggedSentence: TAGGED, Question: questions(), LinkedPair: linked()}.items()
    },
}


@pytest.mark.parametrize("name", CASES)
def test_written_records_are_read_back(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    reader = registry.load_kind("readers", case.reader)

    @settings(max_examples=80, deadline=None, database=None, derandomize=True)
    @given(st.lists(case.records, min_size=1, max_size=4))
    def run(records: list[Record]) -> None:
        paths = {}
        for key, content in case.write(records).items():
            paths[key] = tmp_path / key
            paths[key].write_bytes(content)
        assert list(reader.read(reader.Settings(**paths, **case.settings), BadRows())) == records

    run()
