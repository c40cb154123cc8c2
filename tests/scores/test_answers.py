"""Answers are compared as MLQA compares them, language by language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.scores.answers import answer_f1, answer_matches, normalise_answer, normalise_squad


@pytest.mark.parametrize(
    ("language", "text", "tokens"),
    [
        ("en", "The  Cat, an «owl»; anthem!", ["cat", "owl", "anthem"]),
        ("en", "$5 + a", ["5"]),
        ("es", "El río de las Amazonas", ["río", "de", "amazonas"]),
        ("de", "Der Hund des Nachbarn", ["hund", "nachbarn"]),
        ("vi", "những con mèo của tôi", ["con", "mèo", "tôi"]),
        ("ar", "المدينة الكبيرة", ["مدينة", "كبيرة"]),
        ("hi", "भारत की राजधानी।", ["भारत", "की", "राजधानी"]),
        ("fr", "le chat", ["le", "chat"]),
        ("zh", "在2008年，北京 Olympics", ["在", "2008", "年", "北", "京", "olympics"]),
        ("zho_Hans", "北京", ["北", "京"]),
        ("ja", "東京タワー 3", ["東", "京", "タ", "ワ", "ー", "3"]),
        ("th", "ไทย", ["ไ", "ท", "ย"]),
        ("qaa", "Der Hund", ["der", "hund"]),
    ],
)
def test_answers_are_normalised_by_language(language: str, text: str, tokens: list[str]) -> None:
    assert list(normalise_answer(text, language)) == tokens


def test_best_gold_answer_counts() -> None:
    assert answer_f1("in the year 1990", ["1990", "in 1990"], language="en") == pytest.approx(4 / 5)
    assert answer_matches("The 1990.", ["1991", "1990"], language="en")
    assert not answer_matches("1990 AD", ["1991", "1990"], language="en")


def test_words_count_as_often_as_they_occur() -> None:
    assert answer_f1("ha ha", ["ha"], language="en") == pytest.approx(2 / 3)


def test_unanswerable_question_is_right_only_without_an_answer() -> None:
    assert answer_f1("", [], language="en") == 1.0
    assert answer_matches("", [], language="en")
    assert answer_f1("cat", [], language="en") == 0.0
    assert answer_f1("", ["cat"], language="en") == 0.0


@given(
    st.text(max_size=20),
    st.lists(st.text(max_size=20), max_size=3),
    st.sampled_from(["en", "zh", "ar", "vi"]),
)
def test_answer_f1_is_between_0_and_1_and_1_for_a_match(predicted: str, gold: list[str], language: str) -> None:
    f1 = answer_f1(predicted, gold, language=language)
    assert 0 <= f1 <= 1
    if answer_matches(predicted, gold, language=language):
        assert f1 == 1
    assert answer_f1(predicted, [*gold, predicted], language=language) == 1


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The  Cat, an owl; anthem!", ["cat", "owl", "anthem"]),
        ("El río de las Amazonas", ["el", "río", "de", "las", "amazonas"]),
        ("«北京。»", ["«北京。»"]),  # no ASCII punctuation, no spaces
        ("a-b", ["ab"]),
    ],
)
def test_squad_rules_are_english_ones_in_every_language(text: str, tokens: list[str]) -> None:
    assert list(normalise_squad(text, "zh")) == tokens


def test_squad_rules_score_chinese_by_whole_answers() -> None:
    assert answer_f1("北京市", ["北京"], language="zh") == pytest.approx(4 / 5)
    assert answer_f1("北京市", ["北京"], language="zh", rules=normalise_squad) == 0
    assert answer_matches("el río", ["río"], language="es")
    assert not answer_matches("el río", ["río"], language="es", rules=normalise_squad)
