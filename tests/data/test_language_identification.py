"""Swapped sides of parallel text: found in languages of one script, and never where the order is right."""

from __future__ import annotations

import os
import random
from itertools import combinations
from pathlib import Path

import pytest

from crossling.aligners.linked_text import check_parallel
from crossling.data.catalogue import open_data
from crossling.data.language_identification import are_swapped
from crossling.errors import DataError
from crossling.phrasebook import LANGUAGES
from parallel_text import make_raw

REAL = os.environ.get("CROSSLING_DATA")
LATIN = ("en", "de", "es", "fr", "vi")
NTREX = ("de", "en", "es", "fi", "fr", "hi", "it", "ja", "ko", "nl", "ru", "tr", "vi", "zh")
TATOEBA = ("de", "es", "fr", "hi", "ja", "ko", "ru", "vi", "zh")
ENGLISH = "Where is the key to the house? My sister said that it was lying on the table, but I cannot see it there."
GERMAN = "Wo ist der Schlüssel zum Haus? Meine Schwester sagte, dass er auf dem Tisch liegt, aber ich sehe ihn nicht."
NAMES = "Maria Garcia, Nguyen Van An, Heinrich Schneider, Jean-Pierre Dubois, Anna Kowalska, John Smith, Ines Ferreira"


def test_sides_in_languages_of_one_script_are_found_swapped() -> None:
    assert are_swapped([GERMAN.split(), ENGLISH.split()], ("en", "de"))
    assert not are_swapped([ENGLISH.split(), GERMAN.split()], ("en", "de"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(ENGLISH, ENGLISH, id="both English"),
        pytest.param(GERMAN, GERMAN, id="both German"),
        pytest.param(NAMES, NAMES, id="names"),
        pytest.param(GERMAN[:60], ENGLISH[:60], id="short"),
        pytest.param("", "", id="empty"),
        pytest.param("1 " * 99, "2 " * 99, id="numbers"),
    ],
)
def test_text_that_shows_no_language_is_not_called_swapped(first: str, second: str) -> None:
    assert not are_swapped([first.split(), second.split()], ("en", "de"))


def test_languages_that_the_embedded_corpus_lacks_are_not_judged() -> None:
    for languages in (("en", "nl"), ("xx", "de"), ("en", "en")):
        assert not are_swapped([GERMAN.split(), ENGLISH.split()], languages)


def test_letters_at_random_are_not_called_swapped() -> None:
    dice = random.Random(1)
    for first, second in combinations(LATIN, 2):
        noise = [["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(200)] for _ in range(2)]
        assert not are_swapped(noise, (first, second))


@pytest.mark.parametrize(("first", "second"), list(combinations(LANGUAGES, 2)))
def test_embedded_corpus_is_the_right_way_round(first: str, second: str, tmp_path: Path) -> None:
    rows = open_data(f"phrasebook-parallel:{first}-{second}", split="test", store=tmp_path)
    check_parallel(rows)


@pytest.mark.skipif(not REAL, reason="CROSSLING_DATA is not set")
@pytest.mark.parametrize(
    ("data", "split", "first", "second"),
    [
        *(("ntrex", "train", *pair) for pair in combinations(NTREX, 2)),
        *(("tatoeba", "test", "en", language) for language in TATOEBA),
    ],
)
def test_swapped_sides_of_real_text_are_found_and_right_ones_are_not(
    data: str, split: str, first: str, second: str, tmp_path: Path
) -> None:
    rows = open_data(f"{data}:{first}-{second}", split=split, store=tmp_path)
    check_parallel(rows)
    if {first, second} <= set(LATIN):
        turned = [(pair.target, pair.source) for pair in rows.head(200)]
        with pytest.raises(DataError, match="by its letters the first side is"):
            check_parallel(make_raw(turned, f"{first}-{second}"))
