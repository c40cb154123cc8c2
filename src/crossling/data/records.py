"""The kinds of example that every reader produces and every task consumes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words and one tag for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A text and its class."""

    text: str
    label: str


@dataclass(frozen=True, slots=True)
class PlainText:
    """A text without any label: what masked words are learnt from."""

    text: str


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two texts and the class of the pair (premise and hypothesis, or two paraphrases)."""

    first: str
    second: str
    label: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a context; ``starts[i]`` is the character of the context where ``answers[i]`` begins."""

    id: str
    question: str
    context: str
    answers: tuple[str, ...]
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ParallelPair:
    """A sentence and its translation, as running text."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class LinkedPair:
    """A sentence and its translation, as words, with links ``(source word, target word)`` counted from 0."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[tuple[int, int], ...]


Record = TaggedSentence | LabelledText | PlainText | LabelledPair | Question | ParallelPair | LinkedPair

TEXT_COLUMNS: dict[type[Record], tuple[str, ...]] = {
    TaggedSentence: ("words",),
    LabelledText: ("text",),
    PlainText: ("text",),
    LabelledPair: ("first", "second"),
    Question: ("question", "context"),
    ParallelPair: ("source", "target"),
    LinkedPair: ("source", "target"),
}
"""The columns of each kind of row that hold text."""


def count_broken(rows: int) -> str:
    """A number of broken rows in words."""
    return "1 broken row" if rows == 1 else f"{rows:,} broken rows"
