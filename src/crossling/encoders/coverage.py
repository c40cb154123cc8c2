"""How well an encoder's vocabulary covers a language, measured on plain text before anything is trained.

Transfer fails to a language whose words the encoder splits into many subwords, or whose letters have no subword.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import regex

from crossling.data.ragged import Ragged
from crossling.data.readers.text_files import read_lines
from crossling.data.records import TaggedSentence
from crossling.data.words import cut_by_tokenizer, split_words
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.errors import DataError

_SCRIPTS = tuple(
    (name, regex.compile(rf"\p{{Script={name}}}"))
    for name in [
        "Latin",
        "Cyrillic",
        "Arabic",
        "Devanagari",
        "Han",
        "Hiragana",
        "Katakana",
        "Hangul",
        "Greek",
        "Hebrew",
        "Thai",
        "Bengali",
        "Tamil",
        "Telugu",
        "Gujarati",
        "Gurmukhi",
        "Kannada",
        "Malayalam",
        "Oriya",
        "Sinhala",
        "Georgian",
        "Armenian",
        "Ethiopic",
        "Khmer",
        "Lao",
        "Myanmar",
        "Tibetan",
        "Mongolian",
        "Thaana",
        "Syriac",
        "Cherokee",
        "Canadian_Aboriginal",
        "Tifinagh",
        "Nko",
        "Vai",
        "Adlam",
        "Ol_Chiki",
        "Meetei_Mayek",
        "Javanese",
        "Balinese",
        "Sundanese",
        "Bopomofo",
        "Yi",
    ]
)
_BY_CHARACTER = ("Han", "Hiragana", "Katakana")
_BY_PIECES = ("Thai", "Lao", "Khmer", "Myanmar")
_MANY_UNKNOWN = 0.02
_SHREDS = 2.5
_LETTER = regex.compile(r"[\p{L}\p{M}]")
_SHOWN = 10
_CHUNK = 1000


class Neighbour(NamedTuple):
    """A language of the embedded corpus beside the text."""

    language: str
    similarity: float
    """1 less the Jensen-Shannon divergence of the two distributions of pieces, in bits: 1 is the same, 0 no overlap."""
    fertility: float


@dataclass(frozen=True, slots=True)
class Coverage:
    """What an encoder's tokenizer makes of a text. Shares are between 0 and 1."""

    lines: int
    words: int
    pieces: int
    fertility: float
    """Subwords per word."""
    whole: float
    """The share of words that are one subword."""
    unknown_pieces: float
    unknown_words: float
    """The share of words with an unknown subword in them."""
    scripts: tuple[tuple[str, float], ...]
    """Scripts of the letters, the most frequent first."""
    unwritable: tuple[tuple[str, int], ...]
    """Characters for which the encoder has no piece, and how often they occur in words with an unknown subword."""
    neighbours: tuple[Neighbour, ...]
    """Languages by the likeness of their pieces, the nearest first."""
    density: float
    """Characters per subword of running text, spaces not counted: comparable in scripts without spaces, too."""

    def facts(self) -> dict[str, str]:
        """All but the neighbours, for showing: names and values in words."""
        lost = ", ".join(f"{character} ({count})" for character, count in self.unwritable)
        return {
            "lines": f"{self.lines:,}",
            "words": f"{self.words:,}{self._explain_words()}",
            "characters a subword": f"{self.density:.2f}",
            "subwords a word": f"{self.fertility:.2f}",
            "words kept whole": f"{self.whole:.1%}",
            "unknown subwords": f"{self.unknown_pieces:.2%}",
            "words with an unknown subword": f"{self.unknown_words:.2%}",
            "scripts": ", ".join(f"{name} {share:.1%}" for name, share in self.scripts) or "none",
            "characters it cannot write": lost or "none",
            "in short": self.judge(),
        }

    def _explain_words(self) -> str:
        """What counts as a word where no spaces do: the two lines on words then say little."""
        shares = dict(self.scripts)
        if sum(shares.get(name, 0) for name in _BY_CHARACTER) > 0.5:
            return " single characters, since the script has no spaces"
        if sum(shares.get(name, 0) for name in _BY_PIECES) > 0.5:
            return " of the encoder's own pieces, since the script has no spaces"
        return ""

    def judge(self) -> str:
        """What the numbers mean for transfer. An encoder may be able to write a language that it was not trained on."""
        if self.unknown_words >= _MANY_UNKNOWN:
            return f"it cannot write {self.unknown_words:.0%} of the words: expect low scores in this language"
        if self.fertility >= _SHREDS or self.density < 1:
            return "it splits words into many subwords: expect lower scores than where it keeps words whole"
        return "its vocabulary covers this text; only scores show how well it knows the language"


def measure_coverage(
    encoder: Any,
    path: Path,
    *,
    language: str | None = None,
    limit: int | None = None,
    references: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Coverage:
    """Coverage of a text file, one sentence or paragraph a line; ``limit`` lines of it where given.

    ``encoder`` may also be its tokenizer, for no weight is looked at. ``references`` are sentences of words by
    language; the embedded corpus where none are given.
    """
    lines = islice(read_text_lines(path), limit)
    return measure_lines(encoder, lines, name=str(path), language=language, references=references)


def measure_lines(
    encoder: Any,
    texts: Iterable[str],
    *,
    name: str,
    language: str | None = None,
    references: Mapping[str, Sequence[Sequence[str]]] | None = None,
) -> Coverage:
    """Coverage of texts that lie elsewhere than in a plain file."""
    tokenizer = getattr(encoder, "tokenizer", encoder)
    subwords = SubwordTokenizer(tokenizer)
    pieces_of = cut_by_tokenizer(tokenizer)
    characters: Counter[str] = Counter()
    counts = _Counts(subwords.unknown)
    lines = running = 0
    source = iter(texts)
    while chunk := list(islice(source, _CHUNK)):
        lines += len(chunk)
        for line in chunk:
            characters.update(unicodedata.normalize("NFC", line))
        running += len(subwords.encode_pieces(chunk).values)
        split = [[word.text for word in split_words(line, language, pieces=pieces_of)] for line in chunk]
        counts.add(subwords, split)
    if not counts.words:
        raise DataError(f"{name}: holds no words. Give a file of plain text in the language.")
    known = references if references is not None else _read_phrasebook()
    return Coverage(
        lines=lines,
        words=counts.words,
        pieces=counts.pieces,
        fertility=counts.pieces / counts.words,
        whole=counts.whole / counts.words,
        unknown_pieces=counts.unknown_pieces / counts.pieces,
        unknown_words=counts.unknown_words / counts.words,
        scripts=find_scripts(characters),
        unwritable=_find_unwritable(subwords, counts.lost),
        # A trimmed encoder lacks letters of other languages on purpose: no warning.
        neighbours=_compare(SubwordTokenizer(tokenizer, warns=False), tokenizer, counts.frequencies, known),
        density=sum(n for character, n in characters.items() if not character.isspace()) / max(running, 1),
    )


def count_subwords(tokenizer: Any, sentences: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Subwords per word, and the share of words with an unknown subword."""
    subwords = SubwordTokenizer(tokenizer, warns=False)
    counts = _Counts(subwords.unknown)
    counts.add(subwords, sentences)
    return counts.pieces / max(counts.words, 1), counts.unknown_words / max(counts.words, 1)


class _Counts:
    """Running totals over the words of a text."""

    def __init__(self, unknown: int) -> None:
        self.unknown = unknown
        self.words = self.pieces = self.whole = self.unknown_pieces = self.unknown_words = 0
        self.frequencies: Counter[int] = Counter()
        self.lost: Counter[str] = Counter()
        """Characters of the words with an unknown subword."""

    def add(self, subwords: SubwordTokenizer, sentences: Sequence[Sequence[str]]) -> None:
        """Count one chunk; every word stands as a row of its own."""
        words = [[word] for sentence in sentences for word in sentence]
        encoded: Ragged = subwords.encode_words(words).pieces
        unknown = encoded.values == self.unknown
        self.words += len(words)
        self.pieces += len(encoded.values)
        self.whole += int(((encoded.lengths == 1) & ~_any_in_rows(unknown, encoded)).sum())
        self.unknown_pieces += int(unknown.sum())
        lost = np.flatnonzero(_any_in_rows(unknown, encoded))
        self.unknown_words += len(lost)
        for place in lost:
            # Composed, as tokenizers do it: a separate accent may have no subword.
            self.lost.update(unicodedata.normalize("NFC", words[place][0]))
        ids, numbers = np.unique(encoded.values, return_counts=True)
        self.frequencies.update(dict(zip(ids.tolist(), numbers.tolist(), strict=True)))


def _any_in_rows(flags: np.ndarray[Any, Any], rows: Ragged) -> np.ndarray[Any, Any]:
    totals = np.concatenate([[0], np.cumsum(flags)])
    found: np.ndarray[Any, Any] = totals[rows.offsets[1:]] > totals[rows.offsets[:-1]]
    return found


def read_text_lines(path: Path) -> Iterator[str]:
    """Lines that are not empty; a line that is not UTF-8 text is an error."""
    for line in read_lines(path):
        if line.fault:
            raise DataError(f"{path}:{line.number}: not UTF-8 text ({line.fault}). Convert it with iconv.")
        if text := line.text.strip():
            yield text


def find_scripts(characters: Mapping[str, int]) -> tuple[tuple[str, float], ...]:
    """The scripts of letters and signs, each with its share, the most frequent first."""
    totals: Counter[str] = Counter()
    for character, count in characters.items():
        if not _LETTER.match(character):
            continue
        name = next((name for name, pattern in _SCRIPTS if pattern.match(character)), None)
        if name is not None:
            totals[name] += count
        elif not regex.match(r"\p{Script=Common}|\p{Script=Inherited}", character):
            totals["other"] += count
    everything = totals.total()
    return tuple((name, count / everything) for name, count in totals.most_common())


def _find_unwritable(subwords: SubwordTokenizer, characters: Counter[str]) -> tuple[tuple[str, int], ...]:
    """The characters of words with unknown subwords that have no subword themselves."""
    candidates = [c for c, _ in characters.most_common() if not c.isspace() and c.isprintable()]
    encoded = subwords.encode_words([[character] for character in candidates]).pieces
    lost = _any_in_rows(encoded.values == subwords.unknown, encoded)
    return tuple((c, characters[c]) for c, gone in zip(candidates, lost, strict=True) if gone)[:_SHOWN]


@cache
def _read_phrasebook() -> Mapping[str, Sequence[Sequence[str]]]:
    """Sentences of the embedded corpus by language, made once: several languages are compared with them."""
    from crossling.phrasebook import LANGUAGES, generate

    return {
        language: [
            row.words for row in generate("pos", language, "train", rows=_CHUNK) if isinstance(row, TaggedSentence)
        ]
        for language in LANGUAGES
    }


def _compare(
    subwords: SubwordTokenizer,
    tokenizer: Any,
    frequencies: Mapping[int, int],
    references: Mapping[str, Sequence[Sequence[str]]],
) -> tuple[Neighbour, ...]:
    """Languages by how alike their pieces are; punctuation and figures are alike everywhere and left out."""
    tokens = tokenizer.convert_ids_to_tokens
    size = len(tokenizer)
    lettered = np.zeros(size, bool)
    total = Counter(frequencies)
    found = []
    for language, sentences in references.items():
        counts = _Counts(subwords.unknown)
        counts.add(subwords, sentences)
        found.append((language, counts))
        total.update(counts.frequencies)
    ids = np.asarray(sorted(total), np.int64)
    lettered[ids] = [
        bool(_LETTER.search(token)) and index != subwords.unknown
        for index, token in zip(ids, tokens(ids.tolist()), strict=True)
    ]
    own = _to_shares(frequencies, lettered)
    rows = [
        Neighbour(
            language,
            1 - divergence(own, _to_shares(counts.frequencies, lettered)),
            counts.pieces / counts.words,
        )
        for language, counts in found
        if counts.words
    ]
    return tuple(sorted(rows, key=lambda row: -row.similarity))


def _to_shares(frequencies: Mapping[int, int], lettered: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    shares = np.zeros(len(lettered))
    ids = np.fromiter(frequencies.keys(), np.int64, len(frequencies))
    shares[ids] = np.fromiter(frequencies.values(), float, len(frequencies))
    shares[~lettered] = 0
    total = shares.sum()
    return shares / total if total else shares


def divergence(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    """The Jensen-Shannon divergence of two distributions, in bits; 1 where one of them is empty."""
    if not first.any() or not second.any():
        return 1.0
    middle = (first + second) / 2

    def relative(shares: np.ndarray[Any, Any]) -> float:
        some = shares > 0
        return float((shares[some] * np.log2(shares[some] / middle[some])).sum())

    return (relative(first) + relative(second)) / 2
