"""What requests and answers hold, and the limits on requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.errors import nearest
from crossling.inference.server.limits import Limits

InputKind = Literal["texts", "words", "pairs", "questions"]
KINDS: tuple[InputKind, ...] = ("texts", "words", "pairs", "questions")
READS: dict[type, tuple[InputKind, ...]] = {
    TaggedSentence: ("texts", "words"),
    LabelledText: ("texts",),
    LabelledPair: ("pairs",),
    Question: ("questions",),
}
"""The inputs that a task can read, by the kind of example that it learns from."""


class TooLargeError(Exception):
    """A request beyond a limit; the message says which."""


class Refusing(BaseModel):
    """A part of a request; a field that it does not know is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Pair(Refusing):
    """Two texts, such as premise and hypothesis."""

    first: str
    second: str


class QuestionInput(Refusing):
    """A question and the text that it is about."""

    question: str
    context: str


class PredictRequest(Refusing):
    """Inputs of one kind for one model."""

    model: str | None = Field(default=None, description="A served model's name; not needed where one model is served.")
    language: str | None = Field(
        default=None, max_length=35, description="The code of the inputs' language; default: the model's source."
    )
    texts: list[str] | None = Field(default=None, description="Running text, for taggers and classifiers.")
    words: list[list[str]] | None = Field(default=None, description="Sentences that are split into words, for taggers.")
    pairs: list[Pair] | None = Field(default=None, description="For classifiers of pairs.")
    questions: list[QuestionInput] | None = Field(default=None, description="For models that answer questions.")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = f"found {' and '.join(given)}" if given else "found none of them"
            raise ValueError(f"give one of {', '.join(KINDS)}; {found}")
        return self

    @property
    def kind(self) -> InputKind:
        """Which inputs are given."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    def inputs(self) -> list[Any]:
        """Inputs as a predictor reads them."""
        if self.pairs is not None:
            return [(pair.first, pair.second) for pair in self.pairs]
        if self.questions is not None:
            return [(item.question, item.context) for item in self.questions]
        return list(self.texts or self.words or ())


_TYPES = {"list_type": "an array", "string_type": "a string", "model_type": "an object"}
_SHAPES = {
    "texts": '["…", …]',
    "words": '[["…", …], …]',
    "pairs": '[{"first": "…", "second": "…"}, …]',
    "questions": '[{"question": "…", "context": "…"}, …]',
}


def describe_fault(place: tuple[int | str, ...], kind: str, message: str) -> str:
    """What is wrong at a place in a request: valid fields for one that is unknown, the shape for a wrong type."""
    if kind == "extra_forbidden":
        parts: dict[object, type[Refusing]] = {"pairs": Pair, "questions": QuestionInput}
        known = parts.get(place[0], PredictRequest) if len(place) > 1 else PredictRequest
        return f"unknown field.{nearest(str(place[-1])[:60], known.model_fields)}"
    if kind not in _TYPES:
        return message
    top = str(place[0]) if place else "texts"
    return f"must be {_TYPES[kind]}" + (f', as in {{"{top}": {_SHAPES[top]}}}' if top in _SHAPES else "")


def count_characters(item: Any) -> int:
    """Characters of an input, its words as if a space stood after each."""
    return len(item) if isinstance(item, str) else sum(len(part) + 1 for part in item)


def check_size(kind: InputKind, inputs: list[Any], limits: Limits) -> int:
    """The characters of a request, or an error if it is larger than allowed."""
    if len(inputs) > limits.items:
        raise TooLargeError(f"{kind}: {len(inputs)} of them; a request may have {limits.items}. Send several requests.")
    for place, length in _list_lengths(kind, inputs):
        if length > limits.characters:
            raise TooLargeError(f"{place}: {length} characters; a text may have {limits.characters}")
    total = sum(map(count_characters, inputs))
    if total > limits.total:
        raise TooLargeError(f"{kind}: {total} characters together; a request may have {limits.total}")
    return total


def _list_lengths(kind: InputKind, inputs: list[Any]) -> Iterator[tuple[str, int]]:
    """The length of every text, with its place in the request."""
    names = {"pairs": ("first", "second"), "questions": ("question", "context")}.get(kind)
    for number, item in enumerate(inputs):
        if names is None:
            yield f"{kind}[{number}]", count_characters(item)
        else:
            yield from ((f"{kind}[{number}].{name}", len(text)) for name, text in zip(names, item, strict=True))


class TaggedWord(BaseModel):
    """A word, its characters in the text, its tag."""

    word: str
    start: int
    end: int
    tag: str
    confidence: float


class Span(BaseModel):
    """Words that form a span, such as the name of a person."""

    span: str
    label: str
    start: int
    end: int
    confidence: float


class TaggedText(BaseModel):
    """What a tagger says of a text; spans where its tags are B-, I- and O."""

    text: str
    words: list[TaggedWord]
    spans: list[Span] | None = None


class ClassifiedText(BaseModel):
    """What a classifier says of a text."""

    text: str
    label: str
    confidence: float


class ClassifiedPair(BaseModel):
    """What a classifier says of a pair."""

    first: str
    second: str
    label: str
    confidence: float


class Answer(BaseModel):
    """The part of the context that answers the question; start and end are -1 where there is none."""

    question: str
    context: str
    answer: str
    start: int
    end: int
    confidence: float


class PredictResponse(BaseModel):
    """Results in the order of the inputs. Characters are counted from 0 as Unicode code points."""

    model: str
    language: str
    results: list[TaggedText] | list[ClassifiedText] | list[ClassifiedPair] | list[Answer]


class ServedModelInfo(BaseModel):
    """A served model."""

    name: str
    task: str = Field(description="The kind of its task: tag, classify, classify_pair, answer, or a custom one.")
    inputs: list[InputKind]
    labels: list[str]
    spans: bool = Field(description="Whether its tags form spans.")
    source: str = Field(description="The language that it learnt from.")
    encoder: str


class ModelsResponse(BaseModel):
    """All served models, and what a request may hold."""

    models: list[ServedModelInfo]
    limits: dict[str, int]


class Problem(BaseModel):
    """Why a request was refused."""

    code: str
    message: str


class ErrorResponse(BaseModel):
    """The answer to a request that was refused or failed."""

    error: Problem
