"""A bilingual lexicon from linked parallel text: which words of the other language a word is translated by, how often.

It is made of links that stand alone on both sides: a word that shares its link is part of a phrase, and no translation
by itself. p(target | source) is the share of a word's links that lead to the target.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regex
from pydantic import Field

from crossling.aligners.links import Link, keep_one_to_one
from crossling.aligners.score import AlignmentScore, Gold
from crossling.data.languages import find_language
from crossling.data.readers.text_files import read_lines
from crossling.data.words import has_runs
from crossling.errors import DataError
from crossling.files import write_atomic
from crossling.limits import MOST_COUNTED
from crossling.recipe.identity import content_hash
from crossling.recipe.recipe import FrozenSettings
from crossling.registry import load_kind

if TYPE_CHECKING:
    from crossling.data.rows import Rows
    from crossling.progress import Progress

HEADER = "# crossling lexicon "
LONGEST = 100
"""Sentences with more words are left out: where text was not cut into sentences, links are no better than chance."""
PUNCTUATED = 0.05
"""A share of words with a punctuation mark at their end that means running text."""
SHAPE = "source, target, probability, count, with tabs between"
_LETTERS = r"[\p{L}\p{M}]+"
_WORD = regex.compile(rf"{_LETTERS}(?:['’ʼ\-‐‑· \u200c\u200d]{_LETTERS})*['’]?")
"""What can be an entry: letters, with an apostrophe, a hyphen or a space within; no digits, no other punctuation."""
_PUNCTUATED = regex.compile(rf"{_LETTERS}[.,;:!?]+")

Pair = tuple[Sequence[str], Sequence[str]]
"""The words of a sentence and of its translation."""


class LexiconSettings(FrozenSettings):
    """Which links make an entry."""

    least: int = Field(default=2, ge=1, le=MOST_COUNTED)
    """The fewest links that an entry has."""
    most: int = Field(default=3, ge=1, le=MOST_COUNTED)
    """The most translations of a word."""
    probability: float = Field(default=0.1, ge=0, le=1)
    """The least p(target | source) of an entry."""
    identical: bool = False
    """Keep words that are the same in both languages."""


@dataclass(frozen=True)
class Lexicon:
    """Translations of words, in lower case."""

    language_pair: tuple[str, str]
    """Source and target."""
    translations: dict[str, list[tuple[str, float]]]
    """Of a source word: target words and p(target | source), the most probable first."""
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Links that an entry (source, target) was counted from."""

    def __len__(self) -> int:
        return sum(map(len, self.translations.values()))

    @cached_property
    def content(self) -> str:
        """The hash of its translations: of thousands of stages, each asks for it."""
        return content_hash([self.language_pair, self.translations])

    def entries(self) -> list[tuple[str, str, float, int]]:
        """Source, target, probability and count, the most probable first, then the most frequent."""
        found = [
            (source, target, probability, self.counts.get((source, target), 0))
            for source, targets in self.translations.items()
            for target, probability in targets
        ]
        return sorted(found, key=lambda entry: (-entry[2], -entry[3], *entry[:2]))


@dataclass(frozen=True)
class LinkedWords:
    """Sentence pairs as words, with links between them."""

    language_pair: tuple[str, str]
    pairs: Sequence[Pair]
    links: Sequence[Sequence[Link]]


def build_lexicon(linked: LinkedWords, settings: LexiconSettings) -> Lexicon:
    """Count one-to-one links between words.

    Words that are the same in both languages are counted, too, whether or not they may be entries.
    """
    normalise = _make_normaliser()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for (source, target), found in zip(linked.pairs, linked.links, strict=True):
        for i, j in keep_one_to_one(found):
            one, other = normalise(source[i]), normalise(target[j])
            if one and other:
                counts[one][other] += 1
    translations, kept = {}, {}
    for word, targets in counts.items():
        total = targets.total()
        chosen = [
            (target, count)
            for target, count in sorted(targets.items(), key=lambda item: (-item[1], item[0]))
            if count >= settings.least
            and count / total >= settings.probability
            and (settings.identical or target != word)
        ][: settings.most]
        if chosen:
            translations[word] = [(target, count / total) for target, count in chosen]
            kept.update({(word, target): count for target, count in chosen})
    return Lexicon(linked.language_pair, dict(sorted(translations.items())), kept)


def _make_normaliser() -> Callable[[str], str]:
    """A word in lower case, or nothing where it cannot be an entry; each distinct word is looked at once."""
    return cache(lambda word: word.lower() if _WORD.fullmatch(word) else "")


def link_files(
    source: Path,
    target: Path | None,
    *,
    language_pair: tuple[str, str],
    aligner: Mapping[str, Any],
    progress: Progress,
) -> LinkedWords:
    """Links of two line-parallel files of words, or of one with ``|||`` between the sides."""
    from crossling.aligners import align_words, parse_aligner
    from crossling.aligners.corpus import read_corpus

    settings = parse_aligner(prefer_intersection(aligner))
    corpus = read_corpus(source, target)
    words = [*corpus.source.vocabulary, *corpus.target.vocabulary]
    share = sum(1 for word in words if _PUNCTUATED.fullmatch(word)) / len(words)
    if share > PUNCTUATED:
        progress.say(
            f"{share:.0%} of the distinct words end in a punctuation mark, and are no entries. Is this running text? "
            '--on \'{ format = "parallel", source = "…", target = "…", language = "en-de" }\' cuts it into words'
        )
    links = align_words(corpus, settings, progress=progress)
    pairs = [(corpus.source.words(row), corpus.target.words(row)) for row in range(len(corpus))]
    return LinkedWords(language_pair, pairs, list(links))


def open_sets(specs: Sequence[str | Mapping[str, Any]], *, store: Path) -> tuple[Rows, ...]:
    """Parallel data sets of one pair of languages."""
    from crossling.aligners.linked_text import check_parallel
    from crossling.data.catalogue import choose_split, open_data

    opened = tuple(open_data(spec, split=choose_split(spec, ("train", "dev", "test")), store=store) for spec in specs)
    for rows in opened:
        check_parallel(rows)
        if _parse_pair(rows.language) is None:
            raise DataError(f"{rows.name}: its language, {rows.language!r}, is no pair of languages such as en-de")
    if other := next((rows for rows in opened if rows.language != opened[0].language), None):
        raise DataError(
            f"{opened[0].name} is {opened[0].language}, but {other.name} is {other.language}; a lexicon has one pair "
            "of languages"
        )
    return opened


def link_sets(opened: Sequence[Rows], *, aligner: Mapping[str, Any], progress: Progress) -> LinkedWords:
    """Links of parallel data sets of one pair of languages; an aligner that learns does so from all of them."""
    import torch

    from crossling.aligners.linked_text import Sentences, choose_sentences, describe_text, open_linker

    source, _, target = opened[0].language.partition("-")
    aligner = prefer_intersection(aligner)
    texts = [describe_text(rows, target, aligner=aligner) for rows in opened]
    lines = (
        line for text in texts if text.is_raw for rows in text.rows.chunks() for side in rows.values() for line in side
    )
    linker = open_linker(texts, aligner=aligner, encoder="", revision=None, cut_runs=any(map(has_runs, lines)))
    chosen = [
        choose_sentences(text.rows, linker.split_by(text), count=len(text.rows), longest=LONGEST, seed=0)
        for text in texts
    ]
    joined = Sentences(
        rows=tuple(row for part in chosen for row in part.rows),
        source=tuple(words for part in chosen for words in part.source),
        target=tuple(words for part in chosen for words in part.target),
    )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    links = linker.link(texts[0], joined, device=device, progress=progress)
    return LinkedWords((source, target), list(zip(joined.source, joined.target, strict=True)), links)


def prefer_intersection(aligner: Mapping[str, Any]) -> dict[str, Any]:
    """The aligner's table; links that both directions agree on are one-to-one, so more of them are left to count."""
    kind = load_kind("aligners", str(aligner.get("kind")))
    return ({"symmetrize": "intersection"} if "symmetrize" in kind.Settings.model_fields else {}) | dict(aligner)


def score_lexicon(lexicon: Lexicon, pairs: Sequence[Pair], gold: Gold, *, identical: bool = False) -> AlignmentScore:
    """Entries against the distinct word pairs that gold links of the same text connect.

    Precision is the share of entries that a sure or possible link contains, recall the share of the pairs with a sure
    link that are entries.
    """
    normalise = _make_normaliser()
    sure: set[tuple[str, str]] = set()
    possible: set[tuple[str, str]] = set()
    if len(pairs) != len(gold):
        raise DataError(f"{len(gold)} lines of gold links, but {len(pairs)} sentence pairs; a line belongs to each")
    for number, ((source, target), some, more) in enumerate(zip(pairs, gold.sure, gold.possible, strict=True), start=1):
        for link in more:
            if link[0] >= len(source) or link[1] >= len(target):
                raise DataError(
                    f"line {number} of the gold links: {link[0] + gold.base}-{link[1] + gold.base} leads outside "
                    f"{len(source)} and {len(target)} words; do the links belong to this text?"
                )
            entry = normalise(source[link[0]]), normalise(target[link[1]])
            if all(entry) and (identical or entry[0] != entry[1]):
                possible.add(entry)
                if link in some:
                    sure.add(entry)
    made = {(source, target) for source, targets in lexicon.translations.items() for target, _ in targets}
    return AlignmentScore(len(made), len(sure), right=len(made & possible), found=len(made & sure))


def write_lexicon(lexicon: Lexicon, path: Path, *, seal: bool = False) -> None:
    """Write a lexicon as tab-separated lines below a header that names the languages: complete, or not at all.

    With ``seal`` its digest is written beside it.
    """
    lines = [HEADER + "-".join(lexicon.language_pair)]
    lines += [f"{source}\t{target}\t{share:.6g}\t{count}" for source, target, share, count in lexicon.entries()]
    write_atomic(path, "\n".join(lines) + "\n", seal=seal)


def read_lexicon(path: Path) -> Lexicon:
    """Read what :func:`write_lexicon` wrote, or a lexicon of the same shape."""
    pair: tuple[str, str] | None = None
    translations: dict[str, list[tuple[str, float]]] = {}
    counts: dict[tuple[str, str], int] = {}
    for line in read_lines(path):
        where = f"{path}:{line.number}"
        if line.fault:
            raise DataError(f"{where}: the line has {line.fault}; a lexicon is UTF-8 text")
        if pair is None:
            pair = _parse_header(line.text, where)
            continue
        if not line.text.strip():
            continue
        source, target, probability, count = _parse_entry(line.text, where)
        if (source, target) in counts:
            raise DataError(f"{where}: a second entry for {source!r} and {target!r}; leave one out")
        translations.setdefault(source, []).append((target, probability))
        counts[source, target] = count
    if pair is None:
        raise DataError(f"{path}: is empty; make a lexicon with crossling align lexicon")
    for targets in translations.values():
        targets.sort(key=lambda entry: (-entry[1], entry[0]))
    return Lexicon(pair, translations, counts)


def _parse_header(text: str, where: str) -> tuple[str, str]:
    pair = _parse_pair(text.removeprefix(HEADER).strip())
    if not text.startswith(HEADER) or pair is None:
        raise DataError(f"{where}: no header such as '{HEADER}en-de'; make a lexicon with crossling align lexicon")
    return pair


def _parse_entry(text: str, where: str) -> tuple[str, str, float, int]:
    cells = text.split("\t")
    try:
        source, target, probability, count = cells[0], cells[1], float(cells[2]), int(cells[3])
    except (IndexError, ValueError):
        raise DataError(f"{where}: {text[:60]!r} is no entry; write {SHAPE}") from None
    if len(cells) != 4 or not source or not target or not 0 < probability <= 1 or count < 0:
        raise DataError(f"{where}: {text[:60]!r} is no entry; write {SHAPE}; a probability is above 0 and at most 1")
    return source, target, probability, count


def choose_pair(named: str, source: Path, target: Path | None, out: Path) -> tuple[str, str]:
    """The languages of a lexicon: as named, or by the names of files: train.en and train.de, lexicon.en-de.tsv."""
    ends = [path.name.removesuffix(".gz").rpartition(".")[2] for path in (source, target) if path]
    parts = [part for path in (source, out) for part in path.name.split(".")]
    found = [pair for text in ("-".join(ends), *parts) if (pair := _parse_pair(text)) and all(map(find_language, pair))]
    pair = _parse_pair(named) if named else next(iter(found), None)
    if pair is None:
        what = f"--languages {named}" if named else "the names of the files do not say which languages these are"
        raise DataError(f"{what}; write two codes, source first: --languages en-de")
    return pair


def _parse_pair(text: str) -> tuple[str, str] | None:
    source, _, target = text.partition("-")
    return (source, target) if source and target and source != target else None
