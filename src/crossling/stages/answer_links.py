"""Answers over links: from a context to its translation, word by word."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crossling.aligners.linked_text import describe_text
from crossling.data.label_free import build_rows
from crossling.data.records import ParallelPair
from crossling.data.rows import Rows
from crossling.stages.word_pairs import filter_links, link_sentences

if TYPE_CHECKING:
    from crossling.aligners.links import Link
    from crossling.objectives.aligned_words import AdjustmentSettings
    from crossling.stages.context import StageContext

Answer = tuple[int, str]
"""Where an answer begins in its context, and its text."""


@dataclass(frozen=True)
class LinkedContexts:
    """A context and its translation as words, with the links between them."""

    source: Sequence[tuple[int, int]]
    """The characters of each word, from first to before last."""
    target: Sequence[tuple[int, int]]
    links: Sequence[Link]
    translation: str

    def carry(self, answer: Answer) -> Answer | None:
        """The answer in the translation, where it is covered by links."""
        start, text = answer
        first = bisect_right([end for _, end in self.source], start)
        last = bisect_left([begin for begin, _ in self.source], start + len(text)) - 1
        span = project_span(first, last, self.links) if first <= last else None
        if span is None:
            return None
        begin, end = self.target[span[0]][0], self.target[span[1]][1]
        return begin, self.translation[begin:end]


def project_span(first: int, last: int, links: Sequence[Link]) -> tuple[int, int] | None:
    """The span of the translation from the first to the last word that is linked to words ``first`` to ``last``.

    None where fewer than half of these have a link, or where a word inside the new span is linked to a word outside
    the old one: then the translation says something else there.
    """
    inside = [(source, target) for source, target in links if first <= source <= last]
    if 2 * len({source for source, _ in inside}) < last - first + 1 or not inside:
        return None
    begin, end = min(target for _, target in inside), max(target for _, target in inside)
    intrudes = any(begin <= target <= end and not first <= source <= last for source, target in links)
    return None if intrudes else (begin, end)


def link_contexts(
    first: Rows, second: Rows, linking: AdjustmentSettings, context: StageContext
) -> list[LinkedContexts | None]:
    """For each row its two contexts with links between their words; None where both have the same context.

    Each pair of contexts is linked once. Of one that is longer than the encoder's input, the last words have no links.
    """
    texts = list(zip(first.column("context").to_pylist(), second.column("context").to_pylist(), strict=True))
    pairs = list(dict.fromkeys(pair for pair in texts if pair[0] != pair[1]))
    if not pairs:
        return [None] * len(texts)
    columns = {"source": [pair[0] for pair in pairs], "target": [pair[1] for pair in pairs]}
    language = f"{first.language}-{second.language}"
    rows = build_rows(ParallelPair, columns, language=language, name=second.name)
    sentences, links = link_sentences(linking, describe_text(rows, second.language), context)
    found: dict[tuple[str, str], LinkedContexts] = {}
    for number, *sides, some in zip(sentences.rows, sentences.source, sentences.target, links, strict=True):
        kept = filter_links(some, (sides[0], sides[1]), linking, seen=(len(sides[0]), len(sides[1])))
        places = [locate_words(text, words) for text, words in zip(pairs[number], sides, strict=True)]
        linked = [(i, j) for i, j in kept.reshape(-1, 2).tolist()]
        found[pairs[number]] = LinkedContexts(places[0], places[1], linked, pairs[number][1])
    nothing = LinkedContexts((), (), (), "")
    return [None if pair[0] == pair[1] else found.get(pair, nothing) for pair in texts]


def locate_words(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The characters of words that were cut from a text in this order."""
    places, end = [], 0
    for word in words:
        begin = text.index(word, end)
        end = begin + len(word)
        places.append((begin, end))
    return places
