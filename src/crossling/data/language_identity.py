"""Is a sentence in the language that it should be in? Two checks that need no model of any language.

``measure_script`` knows which script a language is written in: it finds English among Hindi, and can never tell
English from Spanish. ``SideModel`` learns from the corpus itself how its two sides differ, and finds a sentence that
reads like the other side's language: one left untranslated, or a pair that stands the wrong way round. Neither finds a
third language in the same script.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import regex

from crossling.data.languages import find_scripts

BUCKETS = 1 << 16
FEWEST_GRAMS = 10
"""A sentence with fewer triples of letters is too short to be told by them."""
_LETTER = regex.compile(r"\p{L}")
_LETTERS = regex.compile(r"[\p{L}\p{M}]+")
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)


def measure_script(words: Sequence[str], language: str) -> float | None:
    """The share of words in their language's scripts; none where words or language give nothing to count.

    Words are judged by their first letter, not letters by themselves: one name in Latin has more of those than the
    whole Chinese sentence around it.
    """
    pattern = _script_pattern(language)
    first = "".join(word[:1] for word in words)
    letters = len(_LETTER.findall(first))
    if pattern is None or not letters:
        return None
    return len(pattern.findall(first)) / letters


@cache
def _script_pattern(language: str) -> regex.Pattern[str] | None:
    scripts = find_scripts(language)
    if not scripts:
        return None
    # Letters that several scripts share, such as the prolonged sound mark of kana, count for any of them.
    inside = "".join(rf"\p{{Script_Extensions={script}}}" for script in scripts)
    return regex.compile(rf"(?V1)[[{inside}]&&\p{{L}}]")


class SideModel:
    """How likely triples of letters are on one side rather than on the other, by pairs most of which are right.

    ``lean`` is the mean, over a text's triples, of log p(triple | second side) - log p(triple | first side).
    """

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        counts = [np.bincount(_hash_grams(texts)[0], minlength=BUCKETS) + 0.5 for texts in (first, second)]
        logs = [np.log(count / count.sum()) for count in counts]
        self._ratios: npt.NDArray[np.float64] = logs[1] - logs[0]

    def lean(self, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        """Towards which side each text leans: above 0 the second, below 0 the first; 0 where it is too short to say."""
        grams, owners = _hash_grams(texts)
        sizes = np.bincount(owners, minlength=len(texts))
        sums = np.bincount(owners, self._ratios[grams], minlength=len(texts))
        leans: npt.NDArray[np.float64] = np.where(sizes < FEWEST_GRAMS, 0.0, sums / np.maximum(sizes, 1))
        return leans


def _hash_grams(texts: Sequence[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bucket of every triple of letters, words set apart by spaces, and the number of the text that it is from."""
    padded = [f" {' '.join(_LETTERS.findall(text.lower()))} " for text in texts]
    codes = np.frombuffer("".join(padded).encode("utf-32-le"), np.uint32).astype(np.uint64)
    owners = np.repeat(np.arange(len(padded)), [len(text) for text in padded])
    if len(codes) < 3:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    mixed = codes[:-2] * _FACTORS[0] ^ codes[1:-1] * _FACTORS[1] ^ codes[2:] * _FACTORS[2]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    whole = owners[:-2] == owners[2:]
    return (mixed >> np.uint64(48)).astype(np.int64)[whole], owners[:-2][whole]
