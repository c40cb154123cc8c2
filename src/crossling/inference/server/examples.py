"""Inputs to try a model with, in eight languages, from the phrasebook."""

from __future__ import annotations

from functools import cache
from typing import Any

from pydantic import BaseModel

from crossling.data.languages import name_of
from crossling.data.records import LabelledPair, LabelledText, Question
from crossling.inference.server.schema import InputKind, Pair, QuestionInput
from crossling.phrasebook import LANGUAGES, generate
from crossling.phrasebook.corpus import draw_sentence
from crossling.phrasebook.grammars import load_grammar

COUNT = 3
"""Examples in a language."""


class Example(BaseModel):
    """Inputs of one kind in a language."""

    language: str
    name: str
    texts: list[str] | None = None
    pairs: list[Pair] | None = None
    questions: list[QuestionInput] | None = None


class ExamplesResponse(BaseModel):
    """The same inputs in all languages of the phrasebook."""

    examples: list[Example]


@cache
def make_examples(reads: tuple[InputKind, ...], *, labels: int) -> ExamplesResponse:
    """Examples for what a model reads; of pairs, those of inference where there are three labels, else paraphrases."""
    return ExamplesResponse(examples=[_make_example(language, reads, labels) for language in LANGUAGES])


def _make_example(language: str, reads: tuple[InputKind, ...], labels: int) -> Example:
    example = Example(language=language, name=name_of(language))
    if "words" in reads:
        grammar = load_grammar(language)
        texts = [grammar.text(grammar.realise(draw_sentence("test", row))) for row in range(COUNT)]
        return example.model_copy(update={"texts": texts})
    task = "qa" if "questions" in reads else "sentiment" if "texts" in reads else "nli" if labels == 3 else "paraphrase"
    found: dict[str, list[Any]] = {"texts": [], "pairs": [], "questions": []}
    for record in generate(task, language, "test", rows=COUNT):
        if isinstance(record, LabelledText):
            found["texts"].append(record.text)
        elif isinstance(record, LabelledPair):
            found["pairs"].append(Pair(first=record.first, second=record.second))
        elif isinstance(record, Question):
            found["questions"].append(QuestionInput(question=record.question, context=record.context))
    return example.model_copy(update={name: inputs for name, inputs in found.items() if inputs})
