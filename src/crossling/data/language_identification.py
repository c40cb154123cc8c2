"""Language identification for parallel text: three checks that need no trained model.

``measure_script`` uses the script of each language: it finds English among Hindi, but cannot distinguish it from
Spanish. ``SideClassifier`` learns the difference of the two sides from the corpus itself. It finds a sentence in the
other side's language: one left untranslated, or a pair in the wrong order. ``are_swapped`` learns it from the embedded
corpus, so that it finds a whole file in the wrong order, but only in the languages of that corpus. None of them finds a
third language in the same script.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import regex

from crossling.data.languages import find_language, find_scripts
from crossling.phrasebook import LANGUAGES, generate_parallel

BUCKETS = 1 << 16
FEWEST_GRAMS = 10
"""A sentence with fewer letter trigrams is too short to be classified."""
REFERENCE_ROWS = 500
"""Sentences of the embedded corpus from which the difference of two languages is learnt."""
LEAST_CHARACTERS = 100
"""A side with fewer is too short to say that it is swapped."""
SWAPPED_RATIO = 0.3
"""How far both sides must lean towards the other's language; the right way round they lean 0.5 or more to their own."""
_LETTER = regex.compile(r"\p{L}")
_LETTERS = regex.compile(r"[\p{L}\p{M}]+")
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def measure_script(words: Sequence[str], language: str) -> float | None:
    """The share of words in their language's scripts; none if the script is unknown or there are no letters.

    Words count by their first letter: one name in Latin has more letters than the Chinese sentence around it.
    """
    if _script_pattern(language) is None:
        return None
    found = [_classify(word[:1], language) for word in words]
    letters = len(found) - found.count(None)
    return found.count(True) / letters if letters else None


@cache
def _classify(character: str, language: str) -> bool | None:
    """Whether a letter is in its language's scripts; none for what is no letter."""
    pattern = _script_pattern(language)
    if pattern is None or not _LETTER.match(character):
        return None
    return pattern.match(character) is not None


@cache
def _script_pattern(language: str) -> regex.Pattern[str] | None:
    scripts = find_scripts(language)
    if not scripts:
        return None
    # Letters that several scripts share, such as the prolonged sound mark of kana, count for any of them.
    inside = "".join(rf"\p{{Script_Extensions={script}}}" for script in scripts)
    return regex.compile(rf"(?V1)[[{inside}]&&\p{{L}}]")


class SideClassifier:
    """A naive Bayes classifier of the two sides by letter trigrams, learnt from pairs most of which are right."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        counts = [np.bincount(_hash_grams(texts)[0], minlength=BUCKETS) + 0.5 for texts in (first, second)]
        logs = [np.log(count / count.sum()) for count in counts]
        self._ratios: npt.NDArray[np.float64] = logs[1] - logs[0]

    def log_ratios(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """For each text the mean over its trigrams of log p(trigram | second side) - log p(trigram | first side).

        Above 0 it reads like the second side, below 0 like the first; 0 if it is too short.
        """
        grams, owners = _hash_grams(texts)
        sizes = np.bincount(owners, minlength=len(texts))
        sums = np.bincount(owners, self._ratios[grams], minlength=len(texts))
        ratios: npt.NDArray[np.float64] = np.where(sizes < FEWEST_GRAMS, 0.0, sums / np.maximum(sizes, 1))
        return ratios


def are_swapped(sides: Sequence[Sequence[str]], languages: Sequence[str]) -> bool:
    """Whether each of two sides, its words taken together, clearly reads like the other's language.

    Both must: names, noise or a third language may make one side lean the wrong way, but hardly both. False where the
    embedded corpus does not have both languages.
    """
    texts = [" ".join(side) for side in sides]
    known = [language.code for language in map(find_language, languages) if language and language.code in LANGUAGES]
    if len(known) < 2 or min(map(len, texts)) < LEAST_CHARACTERS:
        return False
    first, second = _learn_languages(*known).log_ratios(texts)
    return bool(first > SWAPPED_RATIO and second < -SWAPPED_RATIO)


@cache
def _learn_languages(first: str, second: str) -> SideClassifier:
    pairs = list(generate_parallel(first, second, "train", rows=REFERENCE_ROWS))
    return SideClassifier([" ".join(pair.source) for pair in pairs], [" ".join(pair.target) for pair in pairs])


def _hash_grams(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The hash bucket of every letter trigram, words separated by spaces, and the number of its text."""
    padded = [f" {' '.join(_LETTERS.findall(text.lower()))} " for text in texts]
    codes = np.frombuffer("".join(padded).encode("utf-32-le"), np.uint32).astype(np.uint64)
    owners = np.repeat(np.arange(len(padded)), [len(text) for text in padded])
    if len(codes) < 3:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    mixed = codes[:-2] * _FACTORS[0] ^ codes[1:-1] * _FACTORS[1] ^ codes[2:] * _FACTORS[2]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    whole = owners[:-2] == owners[2:]
    return (mixed >> np.uint64(48)).astype(np.int64)[whole], owners[:-2][whole]
