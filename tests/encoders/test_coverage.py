"""Coverage of a language by an encoder's subwords."""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from crossling.encoders.coverage import divergence, find_scripts, measure_coverage
from crossling.encoders.loading import load_encoder
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.encoders.trimming import write_trimmed
from crossling.errors import DataError
from tiny import tiny_encoder, tiny_tokenizer

REFERENCES = {
    "en": [["the", "cat", "sleeps"], ["the", "dog"]],
    "ru": [["не", "кошка"]],
    "zh": [["我", "是", "学", "生"]],
}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_coverage_matches_hand_counts(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "the cat walks\n\nthe ßx ॐ\n")
    found = measure_coverage(tiny_tokenizer("xlm-r"), file, references=REFERENCES)
    # ▁the ▁cat ▁walk s ▁the <unk> x <unk>: six words, eight pieces
    assert (found.lines, found.words, found.pieces) == (2, 6, 8)
    assert found.fertility == pytest.approx(8 / 6)
    assert found.whole == pytest.approx(3 / 6)
    assert found.unknown_pieces == pytest.approx(2 / 8)
    assert found.unknown_words == pytest.approx(2 / 6)
    assert dict(found.unwritable) == {"ß": 1, "ॐ": 1}
    assert found.scripts[0] == ("Latin", pytest.approx(16 / 17))
    assert found.scripts[1] == ("Devanagari", pytest.approx(1 / 17))
    shown = found.facts()
    assert shown["subwords a word"] == "1.33" and shown["words with an unknown subword"] == "33.33%"
    assert shown["characters it cannot write"] == "ß (1), ॐ (1)"


def test_characters_per_subword_are_of_running_text(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "the  cat, walks\n我是\n")
    found = measure_coverage(tiny_tokenizer("xlm-r"), file, references=REFERENCES)
    # ▁the ▁cat , ▁walk s; ▁ 我 是: 12 and 2 characters
    assert found.density == pytest.approx(14 / 8)


def test_composed_accents_are_known(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", unicodedata.normalize("NFD", "сай Й ç\n"))
    found = measure_coverage(tiny_tokenizer("xlm-r"), file, references=REFERENCES)
    assert dict(found.unwritable) == {"Й": 1, "ç": 1}


def test_letters_within_subwords_are_not_reported_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    encoder = tiny_encoder("xlm-r")
    file = write(tmp_path / "text.txt", "the cat sleeps\n")
    kept = SubwordTokenizer(encoder.tokenizer).encode_words([["the", "cat", "sleeps"]]).pieces.values
    smaller = load_encoder(str(write_trimmed(encoder, kept, tmp_path / "smaller")))
    found = measure_coverage(smaller, file, references=REFERENCES)
    assert found.unknown_words == 0 and found.unwritable == () and not caplog.records
    lost = measure_coverage(smaller, write(tmp_path / "more.txt", "the cat x\n"), references={})
    assert lost.unwritable == (("x", 1),) and caplog.records


def test_most_similar_languages_come_first(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "the cat sleeps\nthe dog\n")
    alike = measure_coverage(tiny_tokenizer("xlm-r"), file, references=REFERENCES).neighbours
    assert alike[0].language == "en" and alike[0].similarity == pytest.approx(1.0)
    assert [row.similarity for row in alike[1:]] == pytest.approx([0.0, 0.0])
    assert next(row for row in alike if row.language == "ru").fertility == pytest.approx(1.0)


def test_punctuation_and_digits_do_not_count_as_similarity(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "我 . 1 2 , !\n")
    alike = measure_coverage(
        tiny_tokenizer("xlm-r"), file, references={"en": [["the", ".", "1", "2", ",", "!"]]}
    ).neighbours
    assert alike[0].similarity == pytest.approx(0.0)


def test_byte_level_tokenizer_has_no_unknowns(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "ßॐ the 猫\n")
    found = measure_coverage(tiny_tokenizer("modernbert"), file, references=REFERENCES)
    assert found.unknown_words == 0 and found.unwritable == ()
    assert found.fertility > 2


def test_limit_restricts_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "the cat\n" * 3000)
    assert measure_coverage(tiny_tokenizer("bert"), file, limit=1500, references=REFERENCES).words == 3000
    assert measure_coverage(tiny_tokenizer("bert"), file, references=REFERENCES).lines == 3000


def test_unreadable_and_empty_files_are_errors(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer("bert")
    with pytest.raises(DataError, match="no such file"):
        measure_coverage(tokenizer, tmp_path / "nothing.txt", references={})
    with pytest.raises(DataError, match="no words"):
        measure_coverage(tokenizer, write(tmp_path / "empty.txt", "\n \n"), references={})
    (tmp_path / "latin.txt").write_bytes("the\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt:2: not UTF-8"):
        measure_coverage(tokenizer, tmp_path / "latin.txt", references={})


def test_scripts_are_counted_by_letters() -> None:
    shares = dict(find_scripts(Counter("aaa яя 我 ひ 12 .,")))
    assert shares == pytest.approx({"Latin": 3 / 7, "Cyrillic": 2 / 7, "Han": 1 / 7, "Hiragana": 1 / 7})
    assert find_scripts(Counter("12 .")) == ()


def test_divergence_matches_definition() -> None:
    first, second = np.asarray([0.5, 0.5, 0.0]), np.asarray([0.25, 0.25, 0.5])

    def entropy(shares: np.ndarray) -> float:
        return -sum(p * math.log2(p) for p in shares if p)

    expected = entropy((first + second) / 2) - (entropy(first) + entropy(second)) / 2
    assert divergence(first, second) == pytest.approx(expected)
    assert divergence(first, first) == pytest.approx(0.0)
    assert divergence(first, np.zeros(3)) == 1.0


def test_phrasebook_is_default_reference(tmp_path: Path) -> None:
    file = write(tmp_path / "text.txt", "The cat sleeps in the house.\n")
    alike = measure_coverage(tiny_tokenizer("bert"), file).neighbours
    assert len(alike) == 8 and alike[0].similarity >= alike[-1].similarity
