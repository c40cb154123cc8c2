"""Cleaning: what is left out, why, and how many; pairs stream, and what is kept keeps its order."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossling.data import cleaning
from crossling.data.catalogue import open_data
from crossling.data.cleaning import Cleaning, HashSet, clean_pairs, explain_checks, find_reason, split_side
from crossling.data.language_identification import SideClassifier, measure_script
from crossling.data.languages import find_scripts, list_languages
from crossling.data.readers.text_files import BadRows
from crossling.data.records import LinkedPair, ParallelPair
from crossling.errors import DataError

REAL = os.environ.get("CROSSLING_DATA")
OFF: dict[str, Any] = {
    "min_words": 0,
    "max_words": 0,
    "ratio": 0.0,
    "identical": False,
    "script": 0.0,
    "sides": False,
    "duplicates": False,
}
LATIN = ("a", "e", "th", "er", "ing", "on", "st", "re", "wh", "ed")
OTHER = ("ko", "ri", "mu", "ta", "ne", "sa", "yu", "hi", "zu", "wa")


def clean(pairs: list[Any], languages: tuple[str, str] = ("en", "hi"), **more: Any) -> tuple[list[Any], dict[str, int]]:
    bad = BadRows()
    kept = list(clean_pairs(pairs, Cleaning(**{**OFF, **more}), languages=languages, bad=bad))
    return kept, dict(bad.dropped)


def make_text(dice: random.Random, syllables: tuple[str, ...]) -> str:
    return " ".join("".join(dice.choices(syllables, k=dice.randint(1, 3))) for _ in range(8))


@pytest.mark.parametrize(
    ("more", "source", "target", "reason"),
    [
        ({"min_words": 1}, "a b", "…", "without a word on one side"),
        ({"min_words": 3}, "a b", "एक दो तीन", "under 3 words"),
        ({"min_words": 2}, "a b", "एक दो", ""),
        ({"max_words": 2}, "a b", "एक दो तीन", "over 2 words"),
        ({"max_words": 3}, "a, b !", "एक दो तीन।", ""),
        ({"ratio": 2.0}, "a b c", "एक", "over 2 times as long on one side"),
        ({"ratio": 2.0}, "a b", "एक", ""),
        ({"identical": True}, "Ａ  b", "a B ", "the same on both sides"),
        ({"identical": True}, "a b", "a c", ""),
        ({"script": 0.5}, "hello", "hello there", "whose target is not in the script of Hindi"),
        ({"script": 0.5}, "नमस्ते", "नमस्ते", "whose source is not in the script of English"),
        ({"script": 0.5}, "hello Modi", "नमस्ते Modi", ""),
        ({"script": 0.5}, "12", "१२", ""),
        ({}, "नमस्ते", "", ""),
    ],
)
def test_unfit_pairs_are_dropped_with_reason(more: dict[str, Any], source: str, target: str, reason: str) -> None:
    assert find_reason(ParallelPair(source, target), Cleaning(**{**OFF, **more}), ("en", "hi")) == reason
    kept, dropped = clean([ParallelPair(source, target)], **more)
    assert (len(kept), dropped) == ((0, {reason: 1}) if reason else (1, {}))


@pytest.mark.parametrize(
    ("text", "count"),
    [("Well-known, isn't it?", 3), ("我爱北京。", 4), ("ラーメン 2 杯", 6), ("वह घर में है।", 4), ("", 0), ("– … 。", 0),
     ("สวัสดีครับ", 2), ("안녕 하세요", 2), ("«Да», – 3,5 %.", 2)],
)  # fmt: skip
def test_words_are_counted_in_any_script(text: str, count: int) -> None:
    assert len(split_side(text)) == count


@settings(max_examples=200, deadline=None, derandomize=True)
@given(text=st.text(st.characters(max_codepoint=127)))
def test_words_of_ascii_are_those_of_the_general_rule(text: str) -> None:
    assert split_side(text) == cleaning._WORD.findall(text)


def test_duplicates_are_found_despite_case_and_spaces() -> None:
    pairs = [
        ParallelPair("One  day", "x"),
        ParallelPair("two", "y"),
        ParallelPair("one day", "X"),
        ParallelPair("two", "z"),
    ]
    kept, dropped = clean(pairs, duplicates=True)
    assert kept == [pairs[0], pairs[1], pairs[3]] and dropped == {"met before": 1}


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(st.lists(st.lists(st.integers(0, 60), max_size=20), max_size=12))
def test_hash_set_agrees_with_python_set(chunks: list[list[int]]) -> None:
    seen, plain = HashSet(), set[int]()
    for chunk in chunks:
        expected = []
        for value in chunk:
            expected.append(value not in plain)
            plain.add(value)
        assert seen.add(np.array(chunk, np.uint64)).tolist() == expected
    assert sum(map(len, seen._runs)) == len(plain) and len(seen._runs) <= 8


def test_side_classifier_finds_swapped_languages() -> None:
    dice = random.Random(1)
    pairs = [ParallelPair(make_text(dice, LATIN), make_text(dice, OTHER)) for _ in range(300)]
    untranslated = {i: ParallelPair(pairs[i].source, make_text(dice, LATIN)) for i in range(0, 300, 10)}
    turned = {i: ParallelPair(pairs[i].target, pairs[i].source) for i in range(5, 300, 50)}
    short = {7: ParallelPair("the", "the")}
    given_pairs = [{**untranslated, **turned, **short}.get(i, pair) for i, pair in enumerate(pairs)]
    kept, dropped = clean(given_pairs, ("en", "sw"), sides=True)
    assert kept == [pair for i, pair in enumerate(given_pairs) if i not in {**untranslated, **turned}]
    assert dropped == {"whose target reads like English": 30, "whose source reads like Swahili": 6}


def test_log_ratio_is_mean_over_trigrams() -> None:
    model = SideClassifier(["abcdefghijk " * 3], ["lmnopqrstuv " * 3])
    first, second, short, none = model.log_ratios(["abcdefghijklm", "lmnopqrstuvabc", "lmn", "1 2 3"])
    assert first < 0 < second and short == none == 0


def test_cleaning_works_across_chunks_and_on_linked_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleaning, "CHUNK_PAIRS", 3)
    pairs = [LinkedPair((str(i % 5), "a"), ("b",), ()) for i in range(10)]
    kept, dropped = clean(pairs, duplicates=True)
    assert kept == pairs[:5] and dropped == {"met before": 5}
    kept, dropped = clean(pairs, max_words=1)
    assert kept == [] and dropped == {"over 1 words": 10}
    read = iter(pairs)
    next(clean_pairs(read, Cleaning(**OFF), languages=("en", "hi"), bad=BadRows()))
    assert len(list(read)) == 7, "no more than a chunk is taken in at a time"


def test_cleaned_rows_are_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "en").write_text("one\ntwo\ntwo\nthree\n\nfour", encoding="utf-8")
    (tmp_path / "hi").write_text("एक\nदो\nदो\nthree\nx\nचार", encoding="utf-8")
    table: dict[str, Any] = {"format": "parallel", "source": str(tmp_path / "en"), "target": str(tmp_path / "hi")}
    table |= {"language": "en-hi", "on_error": "skip", "clean": {}}
    rows = open_data(table, store=tmp_path)
    assert list(rows) == [ParallelPair("one", "एक"), ParallelPair("two", "दो"), ParallelPair("four", "चार")]
    assert (rows.skipped, rows.dropped) == (1, {"the same on both sides": 1, "met before": 1})
    assert rows.describe_left_out() == (
        "1 broken row skipped; 2 left out (1 the same on both sides, 1 met before)"
    )  # what of the files is not there
    few = open_data({**table, "limit": 1, "clean": {"duplicates": False}}, store=tmp_path)
    assert len(few) == 1 and few.dropped == {"the same on both sides": 1}
    monkeypatch.setattr(cleaning, "find_reason", lambda *_: pytest.fail("cleaned again"))
    again = open_data(table, store=tmp_path)
    assert (again.fingerprint, again.dropped, again.skipped) == (rows.fingerprint, rows.dropped, 1)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"data": "phrasebook-nli:en"}, "clean is for sentences and their translations"),
        ({"data": "phrasebook-parallel:en-hi", "clean": True}, "write clean = {} for all checks"),
        ({"data": "phrasebook-parallel:en-hi", "clean": {"max_wrds": 3}}, "Did you mean 'max_words'"),
        ({"data": "phrasebook-parallel:en-hi", "clean": {"ratio": -1}}, "ratio = -1"),
        ({"data": "phrasebook-parallel:en-hi", "clean": {"min_words": 90}}, r"no rows \(5 left out \(5 under 90 words"),
    ],
)
def test_wrong_cleaning_settings_are_refused(table: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        open_data({"clean": {}, "rows": 5, **table}, split="dev", store=tmp_path)


def test_explanation_names_what_checks_can_find() -> None:
    assert "script cannot distinguish English from Spanish; sides finds English in place of Spanish" in explain_checks(
        {}, "en-es"
    )
    assert "script distinguishes English from Hindi" in explain_checks({"sides": False}, "en-hi")
    assert "a third language" in explain_checks({}, "en-hi")
    assert "the script of 'xx' is not known" in explain_checks({}, "en-xx")
    assert explain_checks({"sides": False, "script": 0}, "en-hi") == "no language is checked"


def test_script_share_by_language() -> None:
    assert find_scripts("sr") == ("Cyrillic", "Latin") and find_scripts("sr_Latn") == ("Latin",)
    assert find_scripts("ja") == ("Hiragana", "Katakana", "Han") and find_scripts("xx") == ()
    for language in list_languages():
        assert measure_script(["1"], language.code) is None and find_scripts(language.code), language
    assert measure_script(["ラ", "ー", "麺"], "ja") == 1 and measure_script(["ඇ"], "hi") == 0
    assert measure_script(["x"], "xx") is None


@pytest.mark.skipif(not REAL, reason="CROSSLING_DATA is not set")
@pytest.mark.parametrize("pair", ["en-ko", "fi-tr", "de-nl", "es-it", "en-zh"])
def test_clean_real_text_is_mostly_kept(pair: str, tmp_path: Path) -> None:
    rows = open_data({"data": f"ntrex:{pair}", "clean": {"max_words": 0}}, split="train", store=tmp_path)
    assert sum(rows.dropped.values()) == 1997 - len(rows) <= 20, rows.dropped
