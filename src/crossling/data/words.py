"""Raw text to words, in any script, with their places in the text.

Patterns are the ``regex`` package's: the standard library's ``\\w+`` takes Hindi's vowel signs for the end of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

import regex


class Word(NamedTuple):
    """A word and the characters ``start`` to ``end`` of the text that it is."""

    text: str
    start: int
    end: int


Pieces = Callable[[str], list[tuple[int, int]]]
"""Cuts a text into pieces ``(start, end)``: what an encoder's tokenizer does with it."""

_BY_CHARACTER = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\uff70"
_BY_PIECES = r"\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_LETTER = rf"[[\p{{L}}\p{{M}}\p{{N}}_]--[{_BY_CHARACTER}{_BY_PIECES}]]"
_BETWEEN = r"(?:['’ʼ‘\-‐‑·]|[\u200c\u200d]+|(?<=\p{Hebrew})[\"״׳](?=\p{Hebrew}))"
# What may fail after a long match has a bound (RFC 5321: 64 characters before an @), and flags do not reach \X, which
# counts all flags before one: otherwise a text made for it takes time quadratic in its length.
_WORD = regex.compile(
    rf"""(?V1)
      (?P<address> (?:(?:https?|ftp)://|www\.)[^\s<>"]+
        | [\p{{L}}\p{{N}}._+\-]{{1,64}}+@[\p{{L}}\p{{N}}\-]+(?:\.[\p{{L}}\p{{N}}\-]+)+ )
    | (?P<handle> [@#](?:[\p{{L}}\p{{M}}\p{{N}}_]|\u200c|\u200d)+ )
    | (?P<initials> (?<![\p{{L}}\p{{N}}])(?:[\p{{Lu}}\p{{Ll}}]\.){{2,}} )
    | (?P<number> \p{{Nd}}++(?:[.,:/٫٬'’]\p{{Nd}}++){{0,99}}+ (?![\-‐]?{_LETTER}) )
    | (?P<tibetan> (?:[\p{{Tibetan}}&&[\p{{L}}\p{{M}}\p{{N}}]])+\u0f0b? )
    | (?P<character> [{_BY_CHARACTER}][\p{{M}}\ufe00-\ufe0f\uff9e\uff9f]* )
    | (?P<pieces> [[{_BY_PIECES}]--\p{{P}}](?:[[{_BY_PIECES}]--\p{{P}}]|[\p{{M}}\u200c\u200d])* )
    | (?P<word> {_LETTER}+(?:{_BETWEEN}{_LETTER}+)*[\u200d]? )
    | (?P<dots> \.{{2,}} )
    | (?P<flag> \p{{RI}}{{2}}[\p{{GCB=Extend}}\p{{GCB=ZWJ}}\p{{GCB=SpacingMark}}]* )
    | (?P<other> (?![\s\p{{Cc}}\p{{Cf}}])\X )
    """,
    regex.VERBOSE,
)
_RUN = regex.compile(rf"(?V1)[[{_BY_PIECES}]--\p{{P}}]")
_TRAILING = regex.compile(r"(?V1)[\p{P}--[/\-_&=#]]+$")
_CLUSTER = regex.compile(r"\X")
_ENGLISH_CLITIC = regex.compile(r"(?i)(?<=\p{L})(?:n['’]t|['’](?:s|re|ve|ll|d|m))$")
_ELISION = regex.compile(r"(?<=\p{L})['’](?=\p{L})")
_ELIDING = frozenset(("fr", "it", "ca", "oc", "lij", "nap", "pms", "scn", "vec", "wa", "co", "fur"))
_WHOLE = frozenset(("aujourd'hui", "prud'homme", "prud'hommes", "quelqu'un", "quelqu'une"))


def split_words(text: str, language: str | None = None, *, pieces: Pieces | None = None) -> list[Word]:
    """Words of a text: Han and kana by character, numbers, addresses and @names whole, punctuation apart.

    Thai, Lao, Khmer and Burmese put no spaces between words; their runs are cut by ``pieces`` where it is given and
    stay whole otherwise. By ``language``, English clitics and Romance elisions come apart as treebanks have them.
    """
    words: list[Word] = []
    for match in _WORD.finditer(text):
        start, end = match.span()
        if match.lastgroup == "address":
            words.extend(_cut_address(match.group(), start))
        elif match.lastgroup == "pieces" and pieces is not None:
            words.extend(Word(text[a:b], a, b) for a, b in _cut_run(match.group(), start, pieces))
        elif match.lastgroup == "word" and language is not None and ("'" in text or "’" in text):
            words.extend(Word(text[a:b], a, b) for a, b in _cut_clitics(match.group(), start, language))
        else:
            words.append(Word(match.group(), start, end))
    return words


def has_runs(text: str) -> bool:
    """Whether a text has a run that ``pieces`` would cut: Thai, Lao, Khmer or Burmese."""
    return _RUN.search(text) is not None


def _cut_address(address: str, start: int) -> Iterator[Word]:
    """An address without the punctuation of the sentence around it."""
    trailing = _TRAILING.search(address)
    end = trailing.start() if trailing else len(address)
    yield Word(address[:end], start, start + end)
    for index in range(end, len(address)):
        yield Word(address[index], start + index, start + index + 1)


def _cut_run(run: str, start: int, pieces: Pieces) -> Iterator[tuple[int, int]]:
    """A run without spaces, cut where pieces begin, but never between a letter and its vowel or tone sign."""
    whole = {match.start() for match in _CLUSTER.finditer(run)}
    cuts = sorted({0, len(run), *(at for at, _ in pieces(run) if at in whole)})
    for left, right in pairwise(cuts):
        yield start + left, start + right


def _cut_clitics(word: str, start: int, language: str) -> Iterator[tuple[int, int]]:
    """Where a treebank of the language would cut a word at its apostrophes."""
    cuts: list[int] = []
    code = language.split("_")[0].split("-")[0]
    if code == "en":
        cuts = [match.start() for match in _ENGLISH_CLITIC.finditer(word)]
    elif code in _ELIDING:
        plain = word.lower().replace("’", "'")
        kept = next((len(whole) for whole in _WHOLE if plain.endswith(whole)), 0)
        cuts = [match.end() for match in _ELISION.finditer(word) if match.end() <= len(word) - kept]
    edges = [0, *cuts, len(word)]
    for left, right in pairwise(edges):
        yield start + left, start + right


def cut_by_tokenizer(tokenizer: object) -> Pieces:
    """The ``pieces`` of an encoder's fast tokenizer, for ``split_words``."""
    backend = tokenizer.backend_tokenizer  # type: ignore[attr-defined]

    def pieces(text: str) -> list[tuple[int, int]]:
        spans: list[tuple[int, int]] = backend.encode(text, add_special_tokens=False).offsets
        return [(start, end) for start, end in spans if end > start]

    return pieces
