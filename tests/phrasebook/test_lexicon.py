"""The word lists are complete, in the right script, and free of leftovers."""

from __future__ import annotations

import unicodedata

import pytest

from crossling.phrasebook import LANGUAGES, SPLITS
from crossling.phrasebook.lexicon import load_concepts, load_lexicon, read_rows, select

SCRIPTS = {"ru": "CYRILLIC", "hi": "DEVANAGARI", "zh": "CJK"}
COGNATES = {
    "de": {
        "student", "journalist", "tourist", "minister", "pianist", "pilot", "museum", "hotel", "restaurant", "park",
        "film", "orange", "computer", "ticket", "plan", "problem", "service", "modern",
    },
    "es": {"actor", "director", "hospital", "hotel", "animal", "piano", "plan", "terrible"},
    "fr": {
        "restaurant", "village", "article", "film", "orange", "fruit", "animal", "table", "piano", "match", "plan",
        "concert", "service", "long", "important", "excellent", "acceptable", "terrible", "6",
    },
    "vi": set(),
}  # fmt: skip
CATEGORIES = {"noun", "verb", "adj", "adverb", "time", "modal", "pronoun", "number", "conj"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_says_every_concept_once(language: str) -> None:
    ids = [row[0] for row in read_rows(f"{language}.tsv")]
    assert ids == list(load_concepts())
    empty = {id for id, form, _ in read_rows(f"{language}.tsv") if not form}
    assert empty <= ({"that", "and"} if language == "zh" else set())


@pytest.mark.parametrize("language", LANGUAGES)
def test_forms_are_composed_unicode_without_stray_spaces(language: str) -> None:
    for row in read_rows(f"{language}.tsv"):
        for cell in row:
            assert cell == unicodedata.normalize("NFC", cell).strip(), row
            assert "  " not in cell and "\u200b" not in cell


@pytest.mark.parametrize("language", SCRIPTS)
def test_forms_are_in_the_script_of_the_language(language: str) -> None:
    for id, form, _ in read_rows(f"{language}.tsv"):
        letters = "".join(token.rpartition("/")[0] or token for token in form.split())
        letters = letters.replace("{gen}", "").replace("{y}", "").replace("{m}", "").replace("{d}", "")
        for letter in letters:
            assert not letter.isalpha() or unicodedata.name(letter).startswith(SCRIPTS[language]), (id, form)


@pytest.mark.parametrize("language", COGNATES)
def test_no_english_word_was_left_untranslated(language: str) -> None:
    english, lexicon = load_lexicon("en"), load_lexicon(language)
    same = {
        concept.id
        for concept in load_concepts().values()
        if concept.category in CATEGORIES
        and lexicon[concept.id].form.lower() == english[concept.id].form.split()[0].lower()
    }
    assert same == COGNATES[language]


@pytest.mark.parametrize("language", ["de", "es", "fr", "ru", "hi"])
def test_every_noun_has_a_gender(language: str) -> None:
    lexicon = load_lexicon(language)
    assert [noun for noun in select("noun") if not lexicon[noun].gender] == []


def test_german_nouns_have_capitals_and_plurals() -> None:
    for noun in select("noun"):
        entry = load_lexicon("de")[noun]
        assert entry.form[0].isupper() and entry.get("pl")[0].isupper(), noun


@pytest.mark.parametrize("category", ["first", "last", "city", "country", "company"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_splits_share_no_name_in_any_language(category: str, language: str) -> None:
    lexicon = load_lexicon(language)
    names = {split: {lexicon[id].form for id in select(category, split)} for split in SPLITS}
    assert all(names.values())
    assert sum(map(len, names.values())) == len(set.union(*names.values())) == len(select(category))


def test_there_are_a_few_hundred_concepts_besides_names() -> None:
    names = ("first", "last", "city", "country", "company", "org", "formula")
    assert sum(concept.category not in names for concept in load_concepts().values()) >= 280
