"""Raw text to words in many scripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossling.data.words import Word, cut_by_tokenizer, split_words
from tiny import tiny_tokenizer


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat, asleep!", "The cat , asleep !"),
        ("हिन्दी में लिखा है।", "हिन्दी में लिखा है ।"),
        ("क्\u200dषत्रिय किया", "क्\u200dषत्रिय किया"),
        ("Сегодня 5-го июля.", "Сегодня 5-го июля ."),
        ("我在北京。", "我 在 北 京 。"),
        ("私はカメラを見た。", "私 は カ メ ラ を 見 た 。"),
        ("ｶﾞｷﾞ", "ｶﾞ ｷﾞ"),
        ("한국어 문장입니다.", "한국어 문장입니다 ."),
        ("اللغة العربية، نعم؟", "اللغة العربية ، نعم ؟"),
        ("می\u200cخواهم کتاب\u200cها", "می\u200cخواهم کتاب\u200cها"),
        ('צה"ל הודיע', 'צה"ל הודיע'),
        ("Η γάτα; Ναι·", "Η γάτα ; Ναι ·"),
        ("বাংলা ভাষা", "বাংলা ভাষা"),
        ("தமிழ் மொழி", "தமிழ் மொழி"),
        ("తెలుగు భాష", "తెలుగు భాష"),
        ("ქართული ენა", "ქართული ენა"),
        ("Հայերեն լեզու։", "Հայերեն լեզու ։"),
        ("አማርኛ፡ቋንቋ", "አማርኛ ፡ ቋንቋ"),
        ("བོད་སྐད་", "བོད་ སྐད་"),
        ("xin chào Việt Nam", "xin chào Việt Nam"),
        ("cafe\u0301 noir", "cafe\u0301 noir"),
        ("iPhone手机3.5小时", "iPhone 手 机 3.5 小 时"),
        ("1,000.50 at 12:30 on 3/4.", "1,000.50 at 12:30 on 3/4 ."),
        ("COVID-19 is well-known; 19-year-old", "COVID-19 is well-known ; 19-year-old"),
        ("(U.S.) e.g. this", "( U.S. ) e.g. this"),
        ("see https://a.org/b?c=d, or www.e.org.", "see https://a.org/b?c=d , or www.e.org ."),
        ("mail me@x.co.uk!", "mail me@x.co.uk !"),
        ("@user_1 #हिन्दी #東京", "@user_1 #हिन्दी #東京"),
        ("don't rock'n'roll", "don't rock'n'roll"),
        ("wait... what?!", "wait ... what ? !"),
        ("👩\u200d👩\u200d👧 🇩🇪 👍🏽", "👩\u200d👩\u200d👧 🇩🇪 👍🏽"),
        ("col·laboració", "col·laboració"),
        ("$5 100%", "$ 5 100 %"),
    ],
)
def test_text_is_split_into_words(text: str, words: str) -> None:
    assert [word.text for word in split_words(text)] == words.split(" ")


@pytest.mark.parametrize(
    ("language", "text", "words"),
    [
        ("en", "Don't say it's John’s, we'll see", "Do n't say it 's John ’s , we 'll see"),
        ("en_ewt", "can't", "ca n't"),
        ("fr", "L'homme d'aujourd'hui n’a vu quelqu'un", "L' homme d' aujourd'hui n’ a vu quelqu'un"),
        ("it", "dell'arte c'è", "dell' arte c' è"),
        ("uk", "п'ять", "п'ять"),
    ],
)
def test_apostrophes_split_by_language(language: str, text: str, words: str) -> None:
    assert [word.text for word in split_words(text, language)] == words.split(" ")


def test_scripts_without_spaces_are_split_at_subwords() -> None:
    text = "go สวัสดีชาวโลก now"

    def pieces(run: str) -> list[tuple[int, int]]:
        assert run == "สวัสดีชาวโลก"
        return [(0, 2), (2, 6), (6, 9), (9, 12)]  # the cut at 2 would part a letter from its vowel sign

    words = split_words(text, pieces=pieces)
    assert [word.text for word in words] == ["go", "สวัสดี", "ชาว", "โลก", "now"]
    assert [word.text for word in split_words(text)] == ["go", "สวัสดีชาวโลก", "now"]


@pytest.mark.parametrize("text", ["ພາສາລາວ", "ភាសាខ្មែរ", "မြန်မာဘာသာ"])
def test_lao_khmer_and_burmese_are_split_at_subwords(text: str) -> None:
    assert [word.text for word in split_words(text)] == [text]
    cut = [word.text for word in split_words(text, pieces=lambda run: [(i, i + 1) for i in range(len(run))])]
    assert len(cut) > 1 and "".join(cut) == text


def test_zero_width_space_separates_words() -> None:
    assert [word.text for word in split_words("ភាសា\u200bខ្មែរ")] == ["ភាសា", "ខ្មែរ"]


@pytest.mark.parametrize("family", ["bert", "xlm-r", "modernbert"])
def test_tokenizer_subwords_are_split_points(family: str) -> None:
    words = split_words("the สวัสดี cat", pieces=cut_by_tokenizer(tiny_tokenizer(family)))
    assert words[0] == Word("the", 0, 3) and words[-1].text == "cat"
    assert "".join(word.text for word in words[1:-1]) == "สวัสดี"


SOME = st.text(st.sampled_from("aZ0é我かｶﾞ ้สွကहि्ा'-.,:/@#\"\u200b\u200c\u200d\n\t\x01👍🇩🇪צ_%(་བ"), max_size=30) | st.text(
    max_size=30
)


@given(SOME, st.sampled_from([None, "en", "fr", "th"]), st.booleans())
def test_words_are_in_order_and_cover_all_but_spaces(text: str, language: str | None, cut: bool) -> None:
    pieces = (lambda run: [(i, i + 1) for i in range(0, len(run), 2)]) if cut else None
    words = split_words(text, language, pieces=pieces)
    end = 0
    for word in words:
        assert word.text and text[word.start : word.end] == word.text
        assert word.start >= end
        assert not any(c.isalnum() for c in text[end : word.start])
        end = word.end
    assert not any(c.isalnum() for c in text[end:])


@pytest.mark.parametrize("unit", ["🇮🇳", "a.", "_.", "1,", "a+", "x@", "क्‍", "ก", "#", "👩‍"])
def test_long_runs_lose_no_character(unit: str) -> None:
    """Texts that a pattern which tries every length at every place would need minutes for."""
    text = unit * 5_000 + "1a"
    found = split_words(text)
    assert "".join(word.text for word in found) == text


def test_flags_are_one_word_each() -> None:
    assert [word.text for word in split_words("🇮🇳🇩🇪\ufe0f🇫 🇻🇳")] == ["🇮🇳", "🇩🇪\ufe0f", "🇫", "🇻🇳"]
