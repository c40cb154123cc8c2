"""Facts about languages are right, there for all the usual collections, and found under customary codes."""

from __future__ import annotations

import pytest

from crossling.data.languages import find_language, get_language, group_of, list_languages, name_of
from crossling.errors import DataError

XLM_R = """
af am ar as az be bg bn br bs ca cs cy da de el en eo es et eu fa fi fr fy ga gd gl gu ha he hi hr hu hy
id is it ja jv ka kk km kn ko ku ky la lo lt lv mg mk ml mn mr ms my ne nl no om or pa pl ps pt ro ru sa
sd si sk sl so sq sr su sv sw ta te th tl tr ug uk ur uz vi xh yi zh
"""
XTREME = """
af ar bg bn de el en es et eu fa fi fr he hi hu id it ja jv ka kk ko ml mr ms my nl pt ru sw ta te th tl
tr ur vi yo zh
"""
MASAKHANER = "bam bbj ewe fon hau ibo kin lug luo mos nya pcm sna swa tsn twi wol xho yor zul amh"


@pytest.mark.parametrize("codes", [XLM_R, XTREME, MASAKHANER], ids=["XLM-R", "XTREME", "MasakhaNER"])
def test_languages_of_known_collections_are_listed(codes: str) -> None:
    assert [code for code in codes.split() if find_language(code) is None] == []


@pytest.mark.parametrize(
    ("code", "family", "branch", "script", "order"),
    [
        ("en", "Indo-European", "Germanic", "Latin", "SVO"),
        ("de", "Indo-European", "Germanic", "Latin", "none"),
        ("fr", "Indo-European", "Romance", "Latin", "SVO"),
        ("ru", "Indo-European", "Slavic", "Cyrillic", "SVO"),
        ("hi", "Indo-European", "Indo-Aryan", "Devanagari", "SOV"),
        ("fa", "Indo-European", "Iranian", "Arabic", "SOV"),
        ("ga", "Indo-European", "Celtic", "Latin", "VSO"),
        ("fi", "Uralic", "Finnic", "Latin", "SVO"),
        ("hu", "Uralic", "Ugric", "Latin", "none"),
        ("eu", "Isolate", "Isolate", "Latin", "SOV"),
        ("tr", "Turkic", "Turkic", "Latin", "SOV"),
        ("ja", "Japonic", "Japanese", "Japanese", "SOV"),
        ("ko", "Koreanic", "Korean", "Hangul", "SOV"),
        ("zh", "Sino-Tibetan", "Sinitic", "Han", "SVO"),
        ("vi", "Austroasiatic", "Vietic", "Latin", "SVO"),
        ("ar", "Afro-Asiatic", "Semitic", "Arabic", "VSO"),
        ("mt", "Afro-Asiatic", "Semitic", "Latin", "SVO"),
        ("ta", "Dravidian", "South Dravidian", "Tamil", "SOV"),
        ("sw", "Niger-Congo", "Bantu", "Latin", "SVO"),
        ("tl", "Austronesian", "Philippine", "Latin", "VSO"),
        ("mg", "Austronesian", "Barito", "Latin", "VOS"),
        ("ka", "Kartvelian", "Karto-Zan", "Georgian", "SOV"),
        ("th", "Tai-Kadai", "Tai", "Thai", "SVO"),
    ],
)
def test_languages_have_known_family_branch_script_and_word_order(
    code: str, family: str, branch: str, script: str, order: str
) -> None:
    language = get_language(code)
    assert (language.family, language.branch, language.script, language.word_order) == (
        family,
        branch,
        script,
        order,
    )


@pytest.mark.parametrize(
    ("alias", "code"),
    [
        ("zho", "zh"),
        ("zh-CN", "zh"),
        ("zh_Hant", "zh"),
        ("cmn", "zh"),
        ("eng_Latn", "en"),
        ("deu", "de"),
        ("ger", "de"),
        ("German", "de"),
        ("nb", "no"),
        ("no", "no"),
        ("nn", "nn"),
        ("iw", "he"),
        ("pt-BR", "pt"),
        ("swh_Latn", "sw"),
        ("twi", "ak"),
        ("fil", "tl"),
        (" Hindi ", "hi"),
        ("zh-yue", "yue"),
        ("Northern Sotho", "nso"),
    ],
)
def test_aliases_name_the_same_language(alias: str, code: str) -> None:
    assert get_language(alias).code == code


def test_script_tag_overrides_the_usual_script() -> None:
    assert get_language("srp_Latn").script == "Latin"
    assert get_language("sr").script == "Cyrillic"
    assert (get_language("uzn_Arab").script, get_language("uzn_Arab").direction) == ("Arabic", "rtl")


def test_right_to_left_languages() -> None:
    right_to_left = [language.code for language in list_languages() if language.direction == "rtl"]
    assert right_to_left == ["ar", "arz", "ckb", "dv", "fa", "he", "ps", "sd", "ug", "ur", "yi"]


def test_every_language_is_complete_and_unique() -> None:
    languages = list_languages()
    codes = [language.code for language in languages]
    assert len(languages) >= 130
    assert codes == sorted(set(codes))
    assert len({language.name for language in languages}) == len(languages)
    for language in languages:
        assert 2 <= len(language.code) <= 3 and language.code.islower()
        assert all((language.name, language.family, language.branch, language.script))
        assert get_language(language.code) == get_language(language.name) == language


def test_unknown_language_names_the_nearest() -> None:
    with pytest.raises(DataError, match=r"'germn'.*'de' \(German\)"):
        get_language("germn")
    assert find_language("xx") is None
    assert find_language("") is None


def test_name_of_unknown_code_is_the_code() -> None:
    assert name_of("hi") == "Hindi"
    assert name_of("qaa-test") == "qaa-test"


def test_languages_are_grouped_by_branch_family_script_and_enf() -> None:
    assert {code: group_of(code, "branch") for code in ("fr", "de")} == {
        "fr": "Romance branch",
        "de": "Germanic branch",
    }
    assert group_of("hi", "family") == group_of("de", "family") == "Indo-European family"
    assert group_of("zh-CN", "script") == "Han script"
    assert [group_of(code, "enf") for code in ("en", "de", "nl")] == ["avg_enf", "avg_enf", "avg_noenf"]
    assert group_of("qaa", "family") == "qaa"
