"""WikiMatrix's files and Yandex's, as they are shipped and as they are broken."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path
from typing import Any

import pytest

from crossling import registry
from crossling.data.cache import open_file_rows
from crossling.data.readers.text_files import BadRows
from crossling.data.records import ParallelPair, Record
from crossling.errors import DataError


def read(name: str, *, on_error: str = "raise", **values: Any) -> list[Record]:
    reader = registry.load_kind("readers", name)
    return list(reader.read(reader.Settings(**values), BadRows(on_error)))  # type: ignore[arg-type]


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


WIKIMATRIX = "1.25\tone\teins\n1.0399\ttwo\tzwei\n\n1.04\tthree\tdrei\n"


def test_wikimatrix_swaps_sides_and_counts_pairs_below_threshold(tmp_path: Path) -> None:
    name = "WikiMatrix.de-en.tsv.gz"
    path = write(tmp_path / name, gzip.compress(b"1.2\teins\tone\n1.01\tzwei\ttwo\n"))
    values = {"path": path}
    more: dict[str, Any] = {"name": "n", "store": tmp_path}
    rows = open_file_rows("wikimatrix", values, language="en-de", **more)
    assert list(rows) == [ParallelPair("one", "eins")] and rows.dropped == {"with a margin below 1.04": 1}
    assert "1 left out (1 with a margin below 1.04)" in repr(rows)
    again = open_file_rows("wikimatrix", values, language="en-de", **more)
    assert again.dropped == rows.dropped, "as the store remembers it"
    other = open_file_rows("wikimatrix", {**values, "threshold": 1.0}, language="de-en", **more)
    assert list(other) == [ParallelPair("eins", "one"), ParallelPair("zwei", "two")] and not other.dropped
    plain = write(tmp_path / "mined.tsv", WIKIMATRIX)
    assert read("wikimatrix", path=plain, language="en-de") == [
        ParallelPair("one", "eins"),
        ParallelPair("three", "drei"),
    ]
    turned = {"path": plain, "left": "de"}
    fingerprints = {
        open_file_rows("wikimatrix", given, language="en-de", **more).fingerprint
        for given in ({"path": plain}, turned, {"path": write(tmp_path / "WikiMatrix.de-en.tsv", WIKIMATRIX)})
    }
    assert len(fingerprints) == 3, "the order that a file's name gives counts, as the setting does"
    with pytest.raises(DataError, match=r"named for de and en, not for en-hi.*left = 'en'"):
        open_file_rows("wikimatrix", values, language="en-hi", **more)
    with pytest.raises(DataError, match="left = 'fr' is neither"):
        open_file_rows("wikimatrix", {"path": plain, "left": "fr"}, language="en-de", **more)
    with pytest.raises(DataError, match="no rows .*3 with a margin below 9"):
        open_file_rows("wikimatrix", {"path": plain, "threshold": 9}, language="en-de", **more)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1.1\ta", "f:2: 2 tab-separated fields instead of 3"),
        ("a\tb\tc", "f:2: 'a' is no margin score"),
        ("nan\tb\tc", "f:2: 'nan' is no margin score"),
        ("1.1\t \tc", "f:2: the sentence in en is empty"),
        ("1.1\tb\t", "f:2: the sentence in de is empty"),
        ("1.1\ta\tb\ten\tde", "f:2: 5 tab-separated fields instead of 3"),
    ],
)
def test_wikimatrix_reports_broken_lines(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path / "f", f"1.1\tone\teins\n{line}\n")
    with pytest.raises(DataError) as error:
        read("wikimatrix", path=path, language="en-de")
    assert message in str(error.value)
    assert read("wikimatrix", path=path, language="en-de", on_error="skip") == [ParallelPair("one", "eins")]


def test_wikimatrix_drops_pairs_identified_as_other_languages(tmp_path: Path) -> None:
    path = write(tmp_path / "WikiMatrix.v1.en-zh.langid.tsv", "1.1\ta\tb\ten\tzh-Hant\n1.1\tc\td\ten\tja\n")
    rows = open_file_rows("wikimatrix", {"path": path}, language="zh-en", name="n", store=tmp_path)
    assert list(rows) == [ParallelPair("b", "a")] and rows.dropped == {"identified as another language": 1}


def test_yandex_corpus_is_read_from_files_and_archive(tmp_path: Path) -> None:
    write(tmp_path / "corpus.en_ru.1m.en", "It rains.\n")
    write(tmp_path / "corpus.en_ru.1m.ru", "Идёт дождь.\n")
    expected = [ParallelPair("Идёт дождь.", "It rains.")]
    assert read("moses", path=tmp_path / "corpus.en_ru.1m", language="ru-en") == expected
    with zipfile.ZipFile(tmp_path / "1mcorpus.zip", "w") as archive:
        for code in ("en", "ru"):
            archive.write(tmp_path / f"corpus.en_ru.1m.{code}", f"1mcorpus/corpus.en_ru.1m.{code}")
    assert read("moses", path=tmp_path / "1mcorpus.zip", language="ru-en") == expected
