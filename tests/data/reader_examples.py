"""A valid example of every reader's files, with counts of rows that are made without the reader.

The contract test reads this table: a reader that is not in it fails the test the day it is born.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq

Count = Callable[[Mapping[str, bytes]], int | None]
"""Rows, broken ones and those left out included, that files hold; None where files are too broken to say."""


@dataclass(frozen=True)
class Example:
    """Files that a reader reads, and how many rows they hold."""

    rows: int
    """Those read and those left out."""
    count: Count
    files: Mapping[str, bytes]
    paths: Mapping[str, str] = field(default_factory=lambda: {"path": "file"})
    """Setting -> file (or beginning of files) below the folder."""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, files: Mapping[str, bytes] | None = None) -> dict[str, Any]:
        """Put the files into a folder; the reader's settings for them."""
        for name, content in (files or self.files).items():
            (folder / name).write_bytes(content)
        return {**self.settings, **{key: folder / name for key, name in self.paths.items()}}


def split(content: bytes) -> list[str]:
    """Lines by the letter of the rule: they end at \\n, and a last one may lack it."""
    if content.startswith(b"\xef\xbb\xbf"):
        content = content[3:]
    lines = content.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    return [line.removesuffix(b"\r").decode("utf-8", "surrogateescape") for line in lines]


def split_blocks(content: bytes) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    for line in split(content):
        if line.strip():
            blocks[-1].append(line)
        else:
            blocks.append([])
    return [block for block in blocks if block]


def is_text(line: str) -> bool:
    return "\0" not in line and not re.search("[\ud800-\udfff]", line)


def count_conllu(files: Mapping[str, bytes]) -> int:
    blocks = split_blocks(files["file"])
    return sum(any(not is_text(line) or not line.startswith("#") for line in block) for block in blocks)


def count_bio(files: Mapping[str, bytes]) -> int:
    blocks = split_blocks(files["file"])
    alone = [b for b in blocks if len(b) == 1 and b[0].startswith("-DOCSTART-") and is_text(b[0])]
    return len(blocks) - len(alone)


def count_lines(name: str, *, header: int = 0) -> Count:
    return lambda files: sum(bool(line.strip()) for line in split(files[name])[header:])


def count_all_lines(name: str) -> Count:
    return lambda files: len(split(files[name]))


def count_gzipped(files: Mapping[str, bytes]) -> int | None:
    try:
        return count_bio({"file": gzip.decompress(files["file.gz"])})
    except (OSError, EOFError, ValueError):
        return None


def count_questions(files: Mapping[str, bytes]) -> int | None:
    """Questions, and whatever stands where an article, a paragraph or a list of questions is due."""

    def find(value: Any, key: str) -> list[Any] | None:
        inner = value.get(key) if isinstance(value, dict) else None
        return inner if isinstance(inner, list) else None

    try:
        articles = find(json.loads(files["file"].decode("utf-8-sig")), "data")
    except (ValueError, RecursionError):
        return None
    if articles is None:
        return None
    lists = [find(article, "paragraphs") for article in articles]
    questions = [find(paragraph, "qas") for paragraphs in lists if paragraphs for paragraph in paragraphs]
    return lists.count(None) + sum(1 if found is None else len(found) for found in questions)


def count_units(files: Mapping[str, bytes]) -> int | None:
    try:
        return len(list(ElementTree.fromstring(files["file"]).iter("tu")))
    except (ElementTree.ParseError, ValueError, LookupError):
        return None


def count_archive(files: Mapping[str, bytes]) -> int | None:
    try:
        with zipfile.ZipFile(io.BytesIO(files["file.zip"])) as archive:
            return len(split(archive.read("c.en")))
    except Exception:  # whatever a damaged archive does, it has no count
        return None


def count_fused(files: Mapping[str, bytes]) -> int | None:
    """As ``count_conllu``; which sentences are left out for withheld words is not judged here."""
    return None if b"\t_\t_\tNOUN" in files["file"] else count_conllu(files)


def count_verses(files: Mapping[str, bytes]) -> int | None:
    """Runs of verses that some side has, and verses that are no text."""
    sides = [split(files[name]) for name in "abv"]
    if len({len(side) for side in sides}) > 1:
        return None
    faults, runs = 0, [[]]  # type: tuple[int, list[list[tuple[str, str]]]]
    for pair in zip(sides[0], sides[1], strict=True):
        cells = (pair[0].strip(), pair[1].strip())
        if not all(map(is_text, pair)):
            faults += 1
            runs.append([])
        elif "<range>" in cells and runs[-1]:
            runs[-1].append(cells)
        else:
            runs.append([cells])
    return faults + sum(any(any(cells) for cells in run) for run in runs)


def count_chapters(files: Mapping[str, bytes]) -> int | None:
    """Verses of either side, and entries that are none or stand twice."""
    verses: set[tuple[int, int]] = set()
    rest = 0
    for name in "ab":
        try:
            entries = [entry for chapter in json.loads(files[name].decode("utf-8-sig")).values() for entry in chapter]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return None
        own = {(e["chapter"], e["verse"]) for e in entries if is_verse(e)}
        rest += len(entries) - len(own)
        verses |= own
    return len(verses) + rest


def is_verse(entry: Any) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        return False
    numbers = all(type(entry.get(key)) is int for key in ("chapter", "verse"))
    return numbers and bool(entry["text"].strip()) and is_text(entry["text"])


def count_tasks(files: Mapping[str, bytes]) -> int | None:
    try:
        tasks = json.loads(files["file"].decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return len(tasks) if isinstance(tasks, list) else None


def annotate(data: dict[str, Any], *values: dict[str, Any], kind: str = "labels") -> dict[str, Any]:
    """A task of Label Studio with one annotation."""
    result = [{"from_name": "label", "to_name": "text", "type": kind, "value": value} for value in values]
    return {"id": 1, "data": data, "annotations": [{"was_cancelled": False, "result": result}]}


LABEL_STUDIO = [
    annotate(
        {"text": "Asha lives in New York."},
        {"start": 0, "end": 4, "text": "Asha", "labels": ["PER"]},
        {"start": 14, "end": 22, "text": "New York", "labels": ["LOC"]},
    ),
    annotate({"text": "नमस्ते"}),
    {"id": 3, "data": {"text": "nobody saw this"}, "annotations": []},
]
CHOICE = annotate({"text": "good"}, {"choices": ["positive"]}, kind="choices")
PAIR = annotate({"premise": "It rains.", "hypothesis": "It is wet."}, {"choices": ["entailment"]}, kind="choices")
ANSWER = annotate(
    {"question": "Where?", "context": "Asha lives in Arusha."}, {"start": 14, "end": 20, "labels": ["answer"]}
)
CONLLU = """# newdoc
# text = Vámonos al mar
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tS\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tD\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_
5.1\tazul\tazul\tADJ\tA\t_\t_\t_\t_\t_

# words with a space
1\thai mươi\thai mươi\tNUM\tM\t_\t0\troot\t_\t_

"""
BIO = "-DOCSTART- O\n\nAsha\tB-PER\nlives\tO\nin\tO\nNew York\tB-LOC\n\nRiver\u2028Nile\tB-LOC\r\n\r\nYes O\n"
SQUAD = {
    "version": "2.0",
    "data": [
        {
            "title": "A",
            "paragraphs": [
                {
                    "context": "Asha lives in Arusha, 90 km from Moshi.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "Where?",
                            "answers": [
                                {"text": "Arusha", "answer_start": 14},
                                {"text": "in", "answer_start": 11},
                            ],
                        },
                        {"id": 2, "question": "Why?", "answers": [], "is_impossible": True},
                    ],
                },
                {
                    "context": "वह घर में है।",
                    "qas": [{"id": "३", "question": "कहाँ?", "answers": [{"text": "घर", "answer_start": 3}]}],
                },
            ],
        }
    ],
}
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en-US"><seg>Cats &amp; dogs</seg></tuv><tuv xml:lang="HI"><seg>बिल्लियाँ और कुत्ते</seg></tuv></tu>
<tu><tuv lang="hi"><seg>घर</seg></tuv><tuv lang="en"><seg>the <hi>big</hi><ph>&lt;b/></ph> house</seg></tuv></tu>
</body></tmx>
"""
OBJECTS = [
    {"text": "Good — very good", "label": 5, "more": [1]},
    {"text": "बुरा", "label": "1 "},
]
QURAN = {"1": [{"chapter": 1, "verse": 1, "text": "a b"}, {"chapter": 1, "verse": 2, "text": "c"}]}
ENGLISH, HINDI = "one\ntwo\u2028half\nthree\n", "एक\nदो\r\nतीन"


def _archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "a corpus")
        archive.writestr("c.en", ENGLISH)
        archive.writestr("c.hi", HINDI)
    return stream.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


QUOTED = 'Id;Text;Label\r\n1;"good; really";pos\r\n2;"a ""bad""\r\nday";neg\r\n\r\n;;\r\n3;fine;pos\r\n'
REVIEWS = pa.table({"text": ["good", "bad", "fine"], "label": [1, 0, 1]})
STATE = json.dumps({"_data_files": [{"filename": "data.arrow"}], "_split": None}).encode()


def write_parquet(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


def write_arrow(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return stream.getvalue()


def count_items(files: Mapping[str, bytes]) -> int | None:
    try:
        found = json.loads(files["file"].decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return len(found) if isinstance(found, list) else None


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "conllu": (
        Example(2, count_conllu, {"file": CONLLU.encode()}),
        Example(2, count_fused, {"file": CONLLU.encode()}, settings={"style": "xtreme"}),
        Example(2, count_conllu, {"file": CONLLU.encode()}, settings={"column": "xpos"}),
    ),
    "bio": (
        Example(3, count_bio, {"file": BIO.encode()}),
        Example(2, count_bio, {"file": b"en:a\tO\n\nen:b\tO\n"}, settings={"prefix": "en:", "separator": "tab"}),
        Example(3, count_gzipped, {"file.gz": gzip.compress(BIO.encode(), mtime=0)}, {"path": "file.gz"}),
    ),
    "tsv": (
        Example(
            2,
            count_lines("file"),
            {"file": 'He said "no.\tShe did\u0085not.\tcontradictory\n"A"\tB\tneutral\r\n'.encode()},
            settings={"first": 1, "second": 2, "label": 3, "labels": {"contradictory": "contradiction"}},
        ),
        Example(
            2,
            count_lines("file", header=1),
            {"file": b"label\tid\ttext\ngood\t1\tYes, fine\nbad\t2\tNo\n\n"},
            settings={"text": "text", "label": "label", "header": True, "allowed": ("good", "bad")},
        ),
        Example(
            2,
            count_all_lines("file"),
            {"file": b"a\tb\nc\td\n", "labels": b" x\ny \n"},
            {"path": "file", "labels_path": "labels"},
            {"first": 1, "second": 2},
        ),
        Example(2, count_lines("file"), {"file": b"1.1\ta\tb\n1.0\tc\td\n"}, settings={"source": 2, "target": 3}),
    ),
    "lines": (
        Example(
            3,
            count_all_lines("text"),
            {"text": "gut\n\u2028schlecht\nso, so".encode(), "labels": b"2\n0\n1"},
            {"path": "text", "labels_path": "labels"},
            {
                "labels": {"0": "negative", "1": "neutral", "2": "positive"},
                "allowed": ("negative", "neutral", "positive"),
            },
        ),
    ),
    "text": (Example(3, count_lines("file"), {"file": "Guten Tag.\n\n\u2028 so \nनमस्ते".encode()}),),
    "parallel": (
        Example(
            3,
            count_all_lines("en"),
            {"en": ENGLISH.encode(), "hi": HINDI.encode()},
            {"source": "en", "target": "hi"},
        ),
    ),
    "aligned": (
        Example(
            3,
            count_all_lines("pairs"),
            {
                "pairs": "the house ||| la casa\nit rains  ||| llueve \nyes ||| s\u00ed".encode(),
                "links": b"1-1 2p2\n2-1\n\n",
            },
            {"path": "pairs", "links_path": "links"},
            {"language": "es-en", "left": "en", "links": "all"},
        ),
        Example(
            1,
            count_all_lines("pairs"),
            {"pairs": b"a b|||c\n", "links": b"0-0 1-0\n"},
            {"path": "pairs", "links_path": "links"},
            {"language": "en-de", "base": 0},
        ),
    ),
    "moses": (
        Example(
            3,
            count_all_lines("c.en"),
            {"c.en": ENGLISH.encode(), "c.hi": HINDI.encode()},
            {"path": "c"},
            {"language": "en-hi"},
        ),
        Example(3, count_archive, {"file.zip": _archive()}, {"path": "file.zip"}, {"language": "hi-en"}),
    ),
    "squad": (
        Example(3, count_questions, {"file": _json(SQUAD)}),
        Example(3, count_questions, {"file": _json(SQUAD)}, settings={"hidden_answers": True}),
    ),
    "tmx": (
        Example(2, count_units, {"file": TMX.encode()}, settings={"language": "en-hi"}),
        Example(
            2,
            count_units,
            {"file": TMX.replace("UTF-8", "UTF-16").encode("utf-16")},
            settings={"language": "hi-en"},
        ),
    ),
    "jsonl": (
        Example(2, count_lines("file"), {"file": "\n".join(map(json.dumps, OBJECTS)).encode()}),
        Example(
            1,
            count_lines("file"),
            {"file": b'{"t": {"w": ["a", "b"]}, "n": ["O", "B-X"]}\n'},
            settings={"fields": {"words": "t.w", "tags": "n"}, "labels": {"B-X": "B-Y"}},
        ),
        Example(
            1,
            count_lines("file"),
            {"file": b'{"source": ["a", "b"], "target": ["c"], "links": [[0, 0], [1, 0]]}\n'},
        ),
        Example(
            1,
            count_lines("file"),
            {"file": b'{"id": 7, "question": "q?", "context": "an a", "answers": ["a"], "starts": [3]}'},
        ),
    ),
    "label_studio": (
        Example(3, count_tasks, {"file": _json(LABEL_STUDIO)}),
        Example(1, count_tasks, {"file": _json([CHOICE])}),
        Example(1, count_tasks, {"file": _json([PAIR])}),
        Example(1, count_tasks, {"file": _json([ANSWER])}, settings={"reads": "answers"}),
    ),
    "ebible": (
        Example(
            4,
            count_verses,
            {
                "a": b"In the\nAnd it\n\nLight\nDay\n",
                "b": b"Am\n<range>\nx\nLicht\nTag",
                "v": b"G 1:1\nG 1:2\nG 1:3\nG 1:4\nG 1:5\n",
            },
            {"source": "a", "target": "b", "references": "v"},
        ),
    ),
    "quran": (Example(2, count_chapters, {"a": _json(QURAN), "b": _json(QURAN)}, {"source": "a", "target": "b"}),),
    "wikimatrix": (
        Example(
            3,
            count_lines("WikiMatrix.en-hi.tsv"),
            {"WikiMatrix.en-hi.tsv": '1.2\tone "1\tएक\n\n1.03\ttwo\tदो\r\n1.04\tth\u2028ree\tतीन'.encode()},
            {"path": "WikiMatrix.en-hi.tsv"},
            {"language": "hi-en"},
        ),
        Example(
            3,
            count_lines("file"),
            {"file": b"1.1\ta\tb\ten\tzh-Hans\n1.1\tc\td\ten\tja\n0.1\te\tf\ten\tzh\n"},
            settings={"language": "zh-en", "left": "en", "threshold": 0.0},
        ),
    ),
    "csv": (
        Example(3, lambda files: None, {"file": QUOTED.encode("utf-8-sig")}),
        Example(
            2,
            lambda files: None,
            {"file": "premise\thypothesis\tgold\nयह\tवह\t1\n\t\t\nझ\tत\t0\n".encode("utf-16")},
            settings={"fields": {"first": "premise", "second": 2, "label": "Gold"}},
        ),
    ),
    "json": (
        Example(
            2, count_items, {"file": _json([{"text": "a", "label": 1}, {"text": "b", "label": "x", "more": None}])}
        ),
        Example(
            1,
            lambda files: None,
            {"file": _json({"data": {"rows": [{"w": ["a", "b"], "t": ["O", "X"]}]}})},
            settings={"rows": "data.rows", "fields": {"words": "w", "tags": "t"}},
        ),
    ),
    "parquet": (Example(3, lambda files: None, {"file": write_parquet(REVIEWS)}),),
    "datasets": (
        Example(3, lambda files: None, {"state.json": STATE, "data.arrow": write_arrow(REVIEWS)}, {"path": ""}),
    ),
    "phrasebook": (),
}
"""The examples of each reader; the phrasebook has no files to break."""
