"""Parallel text as words with links between them: its own, those of a file, or an aligner's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.aligners.links import Link, read_links
from crossling.data.language_identification import are_swapped, measure_script
from crossling.data.languages import name_of
from crossling.data.records import LinkedPair, ParallelPair
from crossling.data.rows import Rows
from crossling.data.words import cut_by_tokenizer, split_words
from crossling.errors import DataError
from crossling.files import hash_file
from crossling.limits import check_regular
from crossling.recipe.identity import content_hash

if TYPE_CHECKING:
    import torch

    from crossling.aligners import AlignerSettings
    from crossling.encoders.encoder import Encoder
    from crossling.progress import Progress

Array = np.ndarray[Any, np.dtype[Any]]
Words = tuple[str, ...]
Split = Callable[[Any, str], Words]
"""Makes words of a side; which one, source or target, is its second argument."""
CHUNK = 2_000
"""Rows that are read at a time."""
CHECKED = 100_000
"""Sentence pairs whose links are checked before training; of the others, when they are read."""
LOOKED_AT = 200
"""Sentence pairs whose letters are compared with their languages."""
SIDES = ("source", "target")
DEFAULT_ENCODER = "multilingual-e5-small"
MIDDLE = 7 / 12
"""The relative depth of the layer whose vectors link words: 7 of 12, as in the neural aligner."""


@dataclass(frozen=True)
class Sentences:
    """Sentence pairs as words, with the rows that they come from."""

    rows: tuple[int, ...]
    source: tuple[Words, ...]
    target: tuple[Words, ...]


@dataclass(frozen=True)
class Text:
    """Sentences and translations, and where the links between their words come from."""

    language: str
    rows: Rows
    links: Path | None
    """A file; else the rows' own links, or an aligner's."""
    aligned: bool
    """Whether an aligner makes them."""

    @property
    def is_raw(self) -> bool:
        """Whether its words are still to be found."""
        return self.rows.kind is ParallelPair and self.links is None

    def fingerprint(self) -> str:
        """A hash of everything that affects the result."""
        digest = hash_file(self.links) if self.links else ""
        return f"{self.rows.fingerprint} {digest}"


def check_parallel(rows: Rows) -> None:
    """Refuse rows that are no sentences with translations, or whose sides are swapped, as far as their letters show.

    Where both languages have one script, the letter trigrams of languages that the embedded corpus has.
    """
    if rows.kind not in (ParallelPair, LinkedPair):
        raise DataError(f"{rows.name} holds {rows.kind.__name__} rows; links are between sentences and translations")
    languages = rows.language.split("-")
    if len(languages) != 2:
        return
    head = rows.head(LOOKED_AT)
    sides = [[word for line in head.column(side).to_pylist() for word in _list_words(line)] for side in SIDES]
    own, other = (
        [measure_script(words, code) for words, code in zip(sides, codes, strict=True)]
        for codes in (languages, languages[::-1])
    )
    if not all(share and share > 0.5 for share in other):
        return  # each other's script is the least that swapped sides have
    if all(share is not None and share < 0.5 for share in own) or are_swapped(sides, languages):
        raise DataError(
            f"{rows.name}: by its letters the first side is {name_of(languages[1])} and the second "
            f"{name_of(languages[0])}, but its language is {rows.language}; exchange the sides"
        )


def describe_text(rows: Rows, language: str, *, links: str = "", aligner: Mapping[str, Any] | None = None) -> Text:
    """A text with its links: of a file if one is named, of an aligner if one is named or the text has none itself."""
    check_parallel(rows)
    if not links:
        return Text(language, rows, None, rows.kind is ParallelPair or aligner is not None)
    path = Path(links.replace("{language}", language)).expanduser()
    try:
        check_regular(path)
    except (OSError, ValueError):  # not there, not a file, or no name that a file could have
        raise DataError(f"links: no file {path}; make one with crossling align, or leave the setting out") from None
    _check_links(path, rows)
    return Text(language, rows, path, aligned=False)


def _check_links(path: Path, rows: Rows) -> None:
    """Refuse a file of links that has another number of lines than the text, or leads outside its first sentences."""
    head = rows.head(CHECKED)
    sides = [(len(_list_words(s)), len(_list_words(t))) for _, s, t in _read(head, np.arange(len(head)))]
    read_links(path, sizes=sides, total=len(rows))


def _list_words(side: str | Sequence[str]) -> Sequence[str]:
    return side.split() if isinstance(side, str) else side


@dataclass
class Linker:
    """Splits raw text into words and links the words."""

    aligner: AlignerSettings | None = None
    """Settings of the aligner, where one is needed."""
    encoder: Encoder | None = None
    """Links words, if the aligner is neural, and cuts scripts without spaces, where text is raw."""

    def __post_init__(self) -> None:
        identity = self.encoder.identity if self.encoder else ""
        table = self.aligner.model_dump(mode="json", exclude={"device", "batch"}) if self.aligner else None
        self.fingerprint = content_hash([identity, table])

    @property
    def learns(self) -> bool:
        """Whether links depend on what other sentences there are."""
        return self.aligner is not None and self.aligner.kind != "neural"

    def split_by(self, text: Text) -> Split:
        """How a side of a text becomes words."""
        if text.rows.kind is LinkedPair:
            return lambda words, _side: tuple(words)
        if text.links is not None:
            return lambda line, _side: tuple(line.split())
        pieces = cut_by_tokenizer(self.encoder.tokenizer) if self.encoder else None
        codes = dict(zip(SIDES, (*text.rows.language.split("-"), "", "")[:2], strict=True))

        def split(line: str, side: str) -> Words:
            return tuple(word.text for word in split_words(line, codes[side], pieces=pieces))

        return split

    def link(
        self, text: Text, sentences: Sentences, *, device: torch.device, progress: Progress
    ) -> Sequence[Sequence[Link]]:
        """The links of the sentences that were chosen."""
        if text.links is not None:
            return _pick_links(text.links, text.rows, sentences)
        if not text.aligned:
            column = text.rows.take(sentences.rows).column("links").to_pylist()
            return [[(int(i), int(j)) for i, j in links] for links in column]
        from crossling.aligners import align_words, neural
        from crossling.aligners.corpus import build_corpus

        corpus = build_corpus(zip(sentences.source, sentences.target, strict=True))
        assert self.aligner is not None
        if not isinstance(self.aligner, neural.Settings):
            return list(align_words(corpus, self.aligner, progress=progress))
        assert self.encoder is not None
        return list(neural.align_with(self.encoder.to(device), corpus, self.aligner, progress=progress))


def open_linker(
    texts: Sequence[Text],
    *,
    aligner: Mapping[str, Any] | None,
    encoder: str,
    revision: str | None,
    cut_runs: bool = True,
) -> Linker:
    """The aligner, and the encoder if it links words or splits raw text; ``cut_runs``: the text may have scripts that
    only an encoder's tokenizer cuts into words."""
    if not any(text.is_raw or text.aligned for text in texts):
        return Linker()
    from crossling.aligners import neural, parse_aligner
    from crossling.encoders.loading import load_encoder

    table = {"kind": "neural", **(aligner or {})}
    if table["kind"] != "neural":
        cut = cut_runs and any(text.is_raw for text in texts)
        return Linker(
            parse_aligner(table), load_encoder(encoder or DEFAULT_ENCODER, revision=revision) if cut else None
        )
    if "encoder" not in table:
        table |= {"encoder": encoder or DEFAULT_ENCODER, "revision": revision}
    parsed = parse_aligner(table)
    assert isinstance(parsed, neural.Settings)
    loaded = load_encoder(parsed.encoder, revision=parsed.revision)
    if "layer" not in table:
        parsed = parsed.model_copy(update={"layer": round(loaded.layers * MIDDLE)})
    return Linker(parsed, loaded)


def _pick_links(path: Path, rows: Rows, sentences: Sentences) -> list[list[Link]]:
    """Links from a file that has a line for each sentence pair of the set."""
    links = read_links(path)
    if len(links) != len(rows):
        raise DataError(
            f"{path} has {len(links)} lines, but {rows.name} has {len(rows)} sentence pairs; a line belongs to each"
        )
    found = []
    for row, source, target in zip(sentences.rows, sentences.source, sentences.target, strict=True):
        wrong = next((link for link in links[row] if link[0] >= len(source) or link[1] >= len(target)), None)
        if wrong is not None:
            raise DataError(
                f"{path}:{row + 1}: the link {wrong[0]}-{wrong[1]} leads outside {len(source)} and {len(target)} "
                "words; do the links belong to this text, its words cut at white space?"
            )
        found.append(links[row])
    return found


def choose_sentences(
    rows: Rows,
    split: Split,
    *,
    count: int,
    longest: int,
    seed: int,
    least: int = 1,
) -> Sentences:
    """At most ``count`` random sentence pairs, in their order, whose sides have 1 to ``longest`` words each.

    Only as many rows are read as are needed, and each distinct word is held once.
    """
    order = np.random.default_rng([seed, 0]).permutation(len(rows))
    found: dict[int, tuple[Words, Words]] = {}
    known: dict[str, str] = {}
    for start in range(0, len(order), CHUNK):
        for row, source, target in _read(rows, order[start : start + CHUNK]):
            sides = split(source, "source"), split(target, "target")
            if len(found) < count and all(1 <= len(side) <= longest for side in sides):
                one, other = (tuple(known.setdefault(word, word) for word in side) for side in sides)
                found[row] = one, other
        if len(found) == count:
            break
    if len(found) < least:
        raise DataError(
            f"{rows.name}: {len(found)} sentence pairs with 1 to {longest} words on either side; {least} or more are "
            "needed"
        )
    kept = tuple(sorted(found))
    return Sentences(kept, tuple(found[row][0] for row in kept), tuple(found[row][1] for row in kept))


def link_by_all(
    linker: Linker,
    text: Text,
    drawn: Sentences,
    link: Callable[[Sentences], Sequence[Sequence[Link]]],
    *,
    progress: Progress,
) -> Sequence[Sequence[Link]]:
    """Links of the drawn sentences by an aligner that learns from the whole text, as far as it learns at all.

    It learns from sentences of any length, also of those that are too long to be drawn.
    """
    if not (text.aligned and linker.learns and len(drawn.rows) < len(text.rows)):
        return link(drawn)
    every = choose_sentences(text.rows, linker.split_by(text), count=len(text.rows), longest=sys.maxsize, seed=0)
    progress.say(f"{text.rows.name}: the aligner learns from {len(every.rows):,} sentence pairs")
    links, places = link(every), {row: place for place, row in enumerate(every.rows)}
    return [links[places[row]] for row in drawn.rows]


def _read(rows: Rows, numbers: Array) -> Iterator[tuple[int, Any, Any]]:
    """Rows by number, in the given order."""
    part = rows.take(numbers)
    sides = [part.column(side).to_pylist() for side in SIDES]
    return zip(numbers.tolist(), *sides, strict=True)
