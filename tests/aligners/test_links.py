"""Pharaoh format in and out, and what is wrong with a file that is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossling.aligners.corpus import build_corpus, read_corpus
from crossling.aligners.links import build_links, link_best, read_links, write_links
from crossling.errors import DataError


def test_links_round_trip_sorted_and_unique(tmp_path: Path) -> None:
    write_links(build_links([[(2, 0), (0, 1), (2, 0)], [], [(10, 3)]]), tmp_path / "links")
    assert (tmp_path / "links").read_text() == "0-1 2-0\n\n10-3\n"
    assert list(read_links(tmp_path / "links")) == [[(0, 1), (2, 0)], [], [(10, 3)]]
    assert [path.name for path in tmp_path.iterdir()] == ["links"]


def test_links_counted_from_one_are_read_as_from_zero(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("1-1 2-3\n")
    assert read_links(tmp_path / "links", base=1)[0] == [(0, 0), (1, 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0-0\n0-x\n", "links:2: '0-x' is no link"),
        ("0-0\n3p4\n", "links:2: '3p4' is no link"),
        ("0-0\n0-2\n", "links:2: the link 0-2 leads outside 3 and 2 words, counted from 0"),
        ("0-0\n", "has 1 lines, but there are 2 sentence pairs"),
        ("0-0\n0-0\n0-0\n", "has 3 lines, but there are 2 sentence pairs"),
    ],
)
def test_wrong_links_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "links").write_text(text)
    with pytest.raises(DataError, match=message):
        read_links(tmp_path / "links", sizes=[(1, 1), (3, 2)])


def test_word_below_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("1-1\n0-1\n")
    with pytest.raises(DataError, match="links:2: the link 0-1 names a word 0, but words are counted from 1"):
        read_links(tmp_path / "links", base=1)


def test_undecodable_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "links").write_bytes(b"0-0\n\xff\n")
    with pytest.raises(DataError, match="links:2: the line has bytes that are not UTF-8"):
        read_links(tmp_path / "links")


def test_best_words_become_links() -> None:
    best, offsets = np.array([1, -1, 0, 0]), np.array([0, 2, 2, 4])
    assert list(link_best(best, offsets)) == [[(1, 0)], [], [(0, 0), (0, 1)]]
    assert list(link_best(best, offsets, turned=True)) == [[(0, 1)], [], [(0, 0), (1, 0)]]


def test_corpus_is_read_from_two_files_or_one(tmp_path: Path) -> None:
    (tmp_path / "en").write_text("the cat\nthe dog sleeps\n")
    (tmp_path / "de").write_text("die Katze\nder Hund schläft\n")
    (tmp_path / "both").write_text("the cat ||| die Katze\nthe dog sleeps ||| der Hund schläft\n")
    for corpus in (read_corpus(tmp_path / "en", tmp_path / "de"), read_corpus(tmp_path / "both")):
        assert corpus.sizes() == [(2, 2), (3, 3)]
        assert corpus.source.vocabulary == ("the", "cat", "dog", "sleeps")
        assert corpus.target.words(1) == ("der", "Hund", "schläft")


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("a\nb\n", "c\n", "en has 2 lines but .*de has 1"),
        ("a\n \n", "c\nd\n", "en:2: an empty side"),
        ("a\nb\n", "c\n\n", "de:2: an empty side"),
        ("", "", "has no sentences"),
    ],
)
def test_unparallel_text_is_refused(tmp_path: Path, left: str, right: str, message: str) -> None:
    (tmp_path / "en").write_text(left)
    (tmp_path / "de").write_text(right)
    with pytest.raises(DataError, match=message):
        read_corpus(tmp_path / "en", tmp_path / "de")


def test_joint_file_needs_two_sides(tmp_path: Path) -> None:
    (tmp_path / "both").write_text("a ||| b\na b\n")
    with pytest.raises(DataError, match="both:2: not two sides"):
        read_corpus(tmp_path / "both")


def test_empty_side_in_memory_is_refused() -> None:
    with pytest.raises(DataError, match="sentence pair 2 has an empty side"):
        build_corpus([(["a"], ["b"]), ([], ["b"])])
