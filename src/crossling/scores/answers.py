"""How alike two answers are, by the rules of MLQA or of SQuAD.

By MLQA's, case, punctuation and the language's articles do not count.

MLQA defines them for its seven languages. Any other language keeps all its words; those written without
spaces are compared by character, as MLQA does for Chinese, for otherwise F1 would be exact match renamed.

SQuAD's rules are for English, and XTREME and others apply them to every language: ASCII punctuation and English
articles alone are removed, and words are what spaces separate.
"""

from __future__ import annotations

import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import regex

from crossling.data.languages import find_language

_ARTICLES: Mapping[str, regex.Pattern[str]] = {
    "en": regex.compile(r"\b(?:a|an|the)\b"),
    "es": regex.compile(r"\b(?:un|una|unos|unas|el|la|los|las)\b"),
    "de": regex.compile(r"\b(?:ein|eine|einen|einem|eines|einer|der|die|das|den|dem|des)\b"),
    "vi": regex.compile(r"\b(?:của|là|cái|chiếc|những)\b"),
    # MLQA's script removes these letters wherever they stand, not just before a noun, and so published Arabic
    # scores have it; as both sides lose the same letters, it hardly matters.
    "ar": regex.compile("ال"),
}
_BY_CHARACTER: Mapping[str, regex.Pattern[str]] = {
    code: regex.compile(rf"[{scripts}]|[^\s{scripts}]+")
    for code, scripts in {
        "zh": r"\p{Han}",
        "yue": r"\p{Han}",
        "ja": r"\p{Han}\p{Hiragana}\p{Katakana}ー",
        "th": r"\p{Thai}",
        "lo": r"\p{Lao}",
        "km": r"\p{Khmer}",
        "my": r"\p{Myanmar}",
    }.items()
}


class _Punctuation(dict[int, int | None]):
    """For str.translate: none for punctuation of any script, every other character itself."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        removed = character in string.punctuation or unicodedata.category(character).startswith("P")
        self[code] = kept = None if removed else code
        return kept


_PUNCTUATION = _Punctuation()
_ASCII_PUNCTUATION = str.maketrans("", "", string.punctuation)
_REMEMBERED = 1 << 16
"""Answers whose words are remembered: the gold ones are compared with those of every system and seed."""


@lru_cache(_REMEMBERED)
def normalise_answer(text: str, language: str) -> tuple[str, ...]:
    """The words (or characters) of an answer that count, in order."""
    known = find_language(language)
    code = known.code if known else language
    bare = text.lower().translate(_PUNCTUATION)
    if code in _ARTICLES:
        bare = _ARTICLES[code].sub(" ", bare)
    return tuple(_BY_CHARACTER[code].findall(bare) if code in _BY_CHARACTER else bare.split())


@lru_cache(_REMEMBERED)
def normalise_squad(text: str, language: str = "en") -> tuple[str, ...]:
    """The words of an answer that count by SQuAD's rules, whatever the language."""
    return tuple(_ARTICLES["en"].sub(" ", text.lower().translate(_ASCII_PUNCTUATION)).split())


Normalise = Callable[[str, str], tuple[str, ...]]
"""From an answer and its language to the words that count."""


def answer_f1(predicted: str, gold: Iterable[str], *, language: str, rules: Normalise = normalise_answer) -> float:
    """F1 of the words shared with the gold answer that shares most; no gold answer means none is right."""
    tokens = rules(predicted, language)
    return max(_overlap(tokens, rules(answer, language)) for answer in (tuple(gold) or ("",)))


def answer_matches(predicted: str, gold: Iterable[str], *, language: str, rules: Normalise = normalise_answer) -> bool:
    """Whether the answer equals a gold one once normalised."""
    tokens = rules(predicted, language)
    return any(tokens == rules(answer, language) for answer in (tuple(gold) or ("",)))


def _overlap(tokens: tuple[str, ...], answer: tuple[str, ...]) -> float:
    if tokens == answer or not tokens or not answer:  # none: an answer of articles or punctuation alone, or empty
        return float(tokens == answer)
    if set(tokens).isdisjoint(answer):
        return 0.0
    shared = sum((Counter(tokens) & Counter(answer)).values())
    return 2 * shared / (len(tokens) + len(answer))
