"""Cleaning of parallel text: pairs that are too long, too unequal, untranslated, duplicate or in another language.

Pairs are streamed in chunks. Of each, only a hash of eight bytes is kept, to find duplicates.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import regex
from pydantic import Field

from crossling.data.cache import open_cached, validate_settings
from crossling.data.language_identification import SideClassifier, measure_script
from crossling.data.languages import find_scripts, name_of
from crossling.data.readers.text_files import BadRows, ReaderSettings
from crossling.data.records import LinkedPair, ParallelPair, Record
from crossling.data.rows import Rows, hash_text
from crossling.errors import DataError
from crossling.limits import LARGEST_NUMBER, MOST_COUNTED

VERSION = 1
CHUNK_PAIRS = 20_000
"""Pairs that are held at a time; the first chunk is also what the two sides' languages are learnt from."""
LEAST_RATIO = 0.1
"""How far a sentence must lean towards the other side's language; see docs/data.md for what that finds."""
Pair = ParallelPair | LinkedPair

_WORD = regex.compile(
    r"""(?V1)
      [\p{Han}\p{Hiragana}\p{Katakana}]
    | (?:[[\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]--\p{P}]\p{M}*){1,4}
    | [[\p{L}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]
      [\S--[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]*
    """,
    regex.VERBOSE,
)
_ASCII_WORD = re.compile(r"[A-Za-z0-9][^\t-\r ]*")
"""The same for ASCII, in a fifth of the time."""


class Cleaning(ReaderSettings):
    """What makes a pair unfit. 0 or false switches a check off."""

    min_words: int = Field(default=1, ge=0, le=MOST_COUNTED)
    """Words that either side has at least."""
    max_words: int = Field(default=100, ge=0, le=MOST_COUNTED)
    """Words that either side has at most."""
    ratio: float = Field(default=4.0, ge=0, le=LARGEST_NUMBER)
    """How many times as many words the longer side may have."""
    identical: bool = True
    """Leave out pairs whose sides are the same."""
    script: float = Field(default=0.5, ge=0, le=1)
    """The least share of a side's words that are in its language's script. It cannot distinguish languages of
    one script."""
    sides: bool = True
    """Leave out pairs with a side in the other side's language, as learnt from the corpus itself."""
    duplicates: bool = True
    """Leave out duplicate pairs."""


def clean_rows(rows: Rows, values: Mapping[str, Any], *, store: Path) -> Rows:
    """Rows without unfit pairs, kept in the store; what was left out, and why, is in ``Rows.dropped``."""
    if rows.kind not in (ParallelPair, LinkedPair):
        raise DataError(f"{rows.name} holds {rows.kind.__name__} rows; clean is for sentences and their translations")
    if not isinstance(values, Mapping):
        raise DataError(
            f"clean = {values!r}: write clean = {{}} for all checks, or name some, as in {{ max_words = 64 }}"
        )
    settings = validate_settings(Cleaning, values, name=f"{rows.name}: clean")
    languages = split_languages(rows.language)
    parts = ["clean", VERSION, settings.model_dump(mode="json"), languages, rows.fingerprint]

    def read(bad: BadRows) -> Iterator[Record]:
        return clean_pairs(rows, settings, languages=languages, bad=bad)

    cleaned = open_cached(
        hash_text(json.dumps(parts)), read, kind=rows.kind, language=rows.language, name=rows.name, store=store
    )
    return cleaned.add_left_out(rows)


def split_languages(language: str) -> tuple[str, str]:
    """The languages of both sides."""
    source, _, target = language.partition("-")
    if not source or not target:
        raise DataError(f"language = {language!r} is not a pair such as en-hi, by which the sides could be checked")
    return source, target


def clean_pairs(
    pairs: Iterable[Any], settings: Cleaning, *, languages: tuple[str, str], bad: BadRows
) -> Iterator[ParallelPair | LinkedPair]:
    """Fit pairs in their order; ``bad`` counts the others, each for the first reason that applies."""
    model: SideClassifier | None = None
    seen = HashSet()
    stream = iter(pairs)
    while chunk := list(islice(stream, CHUNK_PAIRS)):
        kept: list[Pair] = []
        for pair in chunk:
            reason = find_reason(pair, settings, languages)
            if reason:
                bad.drop(reason)
            else:
                kept.append(pair)
        if settings.sides and kept:
            model = model or SideClassifier(*_read_sides(kept))
            kept = _drop_wrong_side(kept, model, languages, bad)
        if settings.duplicates and kept:
            new = seen.add(np.array([_hash_pair(pair) for pair in kept], np.uint64))
            if not new.all():
                bad.drop("met before", int((~new).sum()))
            kept = [pair for pair, is_new in zip(kept, new, strict=True) if is_new]
        yield from kept


def find_reason(pair: Pair, settings: Cleaning, languages: tuple[str, str]) -> str:
    """Why a pair is unfit by itself, or nothing."""
    words = split_side(pair.source), split_side(pair.target)
    fewest, most = sorted(map(len, words))
    if fewest < settings.min_words:
        return f"under {settings.min_words} words" if settings.min_words > 1 else "without a word on one side"
    if settings.max_words and most > settings.max_words:
        return f"over {settings.max_words} words"
    if settings.ratio and most > settings.ratio * fewest:
        return f"over {settings.ratio:g} times as long on one side"
    if settings.identical and normalise(pair.source) == normalise(pair.target):
        return "the same on both sides"
    if settings.script:
        for side, found, code in zip(("source", "target"), words, languages, strict=True):
            share = measure_script(found, code)
            if share is not None and share < settings.script:
                return f"whose {side} is not in the script of {name_of(code)}"
    return ""


def explain_checks(values: Mapping[str, Any], language: str) -> str:
    """Which wrong languages the checks find for a language pair, and which they cannot, in words."""
    settings, languages = validate_settings(Cleaning, values, name="clean"), split_languages(language)
    scripts = [find_scripts(code) for code in languages]
    names = [name_of(code) for code in languages]
    lines = []
    for code, found in zip(languages, scripts, strict=True):
        if settings.script and not found:
            lines.append(f"the script of {code!r} is not known, so that side's is not checked")
    if settings.script and all(scripts):
        shared = set(scripts[0]) & set(scripts[1])
        lines.append(f"script {'cannot distinguish' if shared else 'distinguishes'} {names[0]} from {names[1]}")
    if settings.sides:
        lines.append(f"sides finds {names[0]} in place of {names[1]}, and the reverse")
    some = settings.sides or settings.script
    lines.append("nothing finds a third language in the right script" if some else "no language is checked")
    return "; ".join(lines)


def split_side(side: str | tuple[str, ...]) -> Sequence[str]:
    """Words to be counted, without punctuation: between spaces, of Han and kana by character.

    Thai, Lao, Khmer and Burmese have no spaces: every four letters count as a word, a rough estimate.
    """
    if isinstance(side, tuple):
        return side
    return _ASCII_WORD.findall(side) if side.isascii() else _WORD.findall(side)


def normalise(side: str | tuple[str, ...]) -> str:
    """A text for comparison: compatible characters, case and spaces made alike."""
    text = _to_text(side)
    if not text.isascii():  # which is compatible with itself
        text = unicodedata.normalize("NFKC", text)
    return " ".join(text.casefold().split())


class HashSet:
    """A set of 64-bit hashes at eight bytes each: sorted runs, merged when two are of similar size."""

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def add(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Add hashes; returns for each whether it is new."""
        values, places = np.unique(hashes, return_index=True)
        known = np.zeros(len(values), bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, values), len(run) - 1)
            known |= run[at] == values
        new = np.zeros(len(hashes), bool)
        new[places[~known]] = True
        if not known.all():
            self._runs.append(values[~known])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._runs[-2:] = [np.sort(np.concatenate(self._runs[-2:]))]
        return new


def _hash_pair(pair: Pair) -> int:
    text = f"{normalise(pair.source)}\t{normalise(pair.target)}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _drop_wrong_side(pairs: list[Pair], model: SideClassifier, languages: tuple[str, str], bad: BadRows) -> list[Pair]:
    """Pairs of which neither side reads like the other side's language."""
    sources, targets = (model.log_ratios(texts) for texts in _read_sides(pairs))
    kept = []
    for pair, source, target in zip(pairs, sources, targets, strict=True):
        if source > LEAST_RATIO:
            bad.drop(f"whose source reads like {name_of(languages[1])}")
        elif target < -LEAST_RATIO:
            bad.drop(f"whose target reads like {name_of(languages[0])}")
        else:
            kept.append(pair)
    return kept


def _read_sides(pairs: Iterable[Pair]) -> tuple[list[str], list[str]]:
    return [_to_text(pair.source) for pair in pairs], [_to_text(pair.target) for pair in pairs]


def _to_text(side: str | tuple[str, ...]) -> str:
    return side if isinstance(side, str) else " ".join(side)
