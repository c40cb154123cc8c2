"""Files of every format: byte order marks, line ends, encodings, sizes; and what is no regular file."""

from __future__ import annotations

import gzip
import io
import os
import socket
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reader_examples import EXAMPLES, Example

from crossling import limits, registry
from crossling.aligners.lexicon import read_lexicon
from crossling.aligners.links import read_links
from crossling.data.cache import open_file_rows
from crossling.data.readers import text_files
from crossling.data.readers.text_files import BadRows, read_lines, read_text
from crossling.errors import DataError, RecipeError, UserError
from crossling.inference.predictor import read_text as read_input
from crossling.recipe.overrides import read_toml
from crossling.registry import add_plugin

CASES = [(name, example) for name, examples in EXAMPLES.items() for example in examples if example.files]
IDS = [f"{name}-{number}" for number, (name, _) in enumerate(CASES)]


def is_text(example: Example) -> bool:
    """Whether all of its files are UTF-8."""
    try:
        return all(content.decode("utf-8-sig") is not None for content in example.files.values())
    except UnicodeDecodeError:
        return False


TEXTS = [(name, example) for name, example in CASES if is_text(example)]
TEXT = pytest.mark.parametrize(("name", "example"), TEXTS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(TEXTS)])


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            listening.bind(path.name)
        finally:
            os.chdir(here)


def link_to_zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


OTHERS = pytest.mark.parametrize("make", [make_pipe, make_socket, link_to_zero, Path.mkdir])


def read(name: str, values: dict[str, Any], store: Path) -> int:
    language = str(values.pop("language", "en"))
    given = {key: str(value) if isinstance(value, Path) else value for key, value in values.items()}
    return len(open_file_rows(name, given, language=language, name=name, store=store))


@OTHERS
@pytest.mark.parametrize(("name", "example"), CASES, ids=IDS)
def test_only_regular_files_are_read(name: str, example: Example, make: Callable[[Path], None], tmp_path: Path) -> None:
    for file in example.files:
        values = example.write(tmp_path)
        (tmp_path / file).unlink()
        make(tmp_path / file)
        with pytest.raises(DataError, match=r"regular|directory|folder|no such file|Parquet"):
            read(name, values, tmp_path / "store")
        (tmp_path / file).rmdir() if (tmp_path / file).is_dir() else (tmp_path / file).unlink()


@OTHERS
@pytest.mark.parametrize(
    "open_it",
    [
        read_toml,
        read_links,
        read_lexicon,
        lambda path: read_input(path, name=str(path)),
        lambda path: add_plugin("fusions", path),
    ],
)
def test_recipes_links_lexicons_inputs_and_plugins_are_regular_files(
    open_it: Callable[[Path], object], make: Callable[[Path], None], tmp_path: Path
) -> None:
    make(tmp_path / "given.py")
    with pytest.raises(UserError, match=r"regular|[Dd]irectory|folder"):
        open_it(tmp_path / "given.py")


@TEXT
def test_a_byte_order_mark_of_utf8_changes_nothing(name: str, example: Example, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "marked").mkdir()
    plain = example.write(tmp_path / "plain")
    marked = example.write(tmp_path / "marked", {n: b"\xef\xbb\xbf" + f for n, f in example.files.items()})
    assert read(name, plain, tmp_path / "one") == read(name, marked, tmp_path / "two")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@TEXT
def test_utf16_is_read_right_or_refused(name: str, example: Example, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "other").mkdir()
    mark = {"utf-16-le": b"\xff\xfe", "utf-16-be": b"\xfe\xff"}[encoding]
    files = {n: mark + f.decode().replace('encoding="UTF-8"', "").encode(encoding) for n, f in example.files.items()}
    expected = read(name, example.write(tmp_path / "plain"), tmp_path / "one")
    try:
        assert read(name, example.write(tmp_path / "other", files), tmp_path / "two") == expected
        assert name in ("csv", "tmx")
    except DataError as error:
        assert "UTF-16" in str(error)


@TEXT
def test_lines_that_end_in_cr_alone_are_read_right_or_refused(name: str, example: Example, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "other").mkdir()
    files = {n: f.replace(b"\r\n", b"\n").replace(b"\n", b"\r") for n, f in example.files.items()}
    expected = read(name, example.write(tmp_path / "plain"), tmp_path / "one")
    try:
        assert read(name, example.write(tmp_path / "other", files), tmp_path / "two") == expected
    except DataError as error:
        assert "CR alone" in str(error)


def test_a_byte_that_is_not_utf8_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nab\xe9c\n")
    assert [line.fault for line in read_lines(path)] == [
        "",
        "bytes that are not UTF-8 (byte 3 of the line is 0xe9)",
    ]
    with pytest.raises(DataError, match=r"a\.txt:2: bytes that are not UTF-8 \(byte 3 of the line is 0xe9\)"):
        read_text(path)
    (tmp_path / "a.toml").write_bytes(b'a = 1\nb = "\xe9"\n')
    with pytest.raises(RecipeError, match=r"a\.toml:2: not UTF-8"):
        read_toml(tmp_path / "a.toml")


def test_a_line_beyond_the_limit_is_a_broken_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "LONGEST_LINE", 10)
    path = tmp_path / "a.txt"
    path.write_bytes(b"0123456789\nshort\n" + b"x" * 55 + b"\nlast")
    found = [(line.number, line.text, bool(line.fault)) for line in read_lines(path)]
    assert found == [(1, "0123456789", False), (2, "short", False), (3, "", True), (4, "last", False)]


@pytest.mark.parametrize("name", ["csv", "tmx"])
def test_cells_and_segments_beyond_the_limit_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = registry.load_kind("readers", name)
    monkeypatch.setattr(reader, "LONGEST_LINE", 1 << 16)
    long = "x" * (1 << 18)
    text = f"text,label\n{long},a\n" if name == "csv" else f"<tmx><body><tu><tuv lang='en'><seg>{long}"
    (tmp_path / "file").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="more than 65,536"):
        read(name, {"path": tmp_path / "file", "language": "en-hi"}, tmp_path / "store")


def test_files_that_unpack_without_measure_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECOMPRESSED_FREE", 1 << 20)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress((b"a" * 63 + b"\n") * (1 << 17)))
    with pytest.raises(DataError, match=r"bomb\.gz: .*unpacks to more than 4,[0-9,]+ bytes, 200 times"):
        sum(1 for _ in read_lines(tmp_path / "bomb.gz"))
    with pytest.raises(DataError, match="unpacks to more"):
        read_text(tmp_path / "bomb.gz")
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for code in ("en", "hi"):
            archive.writestr(f"c.{code}", (b"a" * 63 + b"\n") * (1 << 17))
    (tmp_path / "bomb.zip").write_bytes(stream.getvalue())
    moses = registry.load_kind("readers", "moses")
    with pytest.raises(DataError, match="unpacks to more"):
        sum(1 for _ in moses.read(moses.Settings(path=tmp_path / "bomb.zip", language="en-hi"), BadRows()))


def test_repetitive_text_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "labels.gz").write_bytes(gzip.compress(b"entailment\n" * 400_000))
    assert sum(1 for _ in read_lines(tmp_path / "labels.gz")) == 400_000


def test_documents_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    with (tmp_path / "a.toml").open("wb") as file:
        file.truncate(limits.LARGEST_SETTINGS + 1)
    with pytest.raises(RecipeError, match="more than 16,777,216 bytes"):
        read_toml(tmp_path / "a.toml")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000 + "1" + "}" * 100_000, "[" * 5_000 + "]" * 5_000])
@pytest.mark.parametrize("name", ["json", "jsonl", "squad", "label_studio", "quran"])
def test_documents_without_end_are_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    paths = (
        {"source": tmp_path / "file", "target": tmp_path / "file"} if name == "quran" else {"path": tmp_path / "file"}
    )
    with pytest.raises(DataError, match="file"):
        read(name, {**paths, "language": "en"}, tmp_path / "store")
