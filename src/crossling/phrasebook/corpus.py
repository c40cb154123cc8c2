"""Rows for every task, from abstract items drawn by task, split and row number."""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator

from crossling.data.records import LinkedPair, Record, TaggedSentence
from crossling.errors import DataError, nearest
from crossling.phrasebook import LANGUAGES, ROWS, SPLITS, TASKS
from crossling.phrasebook.dice import Dice
from crossling.phrasebook.grammar import Grammar, Word
from crossling.phrasebook.grammars import load_grammar
from crossling.phrasebook.templates import load_templates
from crossling.phrasebook.tree import Sentence
from crossling.phrasebook.world import World

MODULES = {"nli": "nli", "paraphrase": "paraphrases", "sentiment": "reviews", "qa": "quiz"}


def check_name(kind: str, value: str, valid: tuple[str, ...]) -> None:
    """Refuse a name that the phrasebook does not have."""
    if value not in valid:
        raise DataError(f"the phrasebook has no {kind} {value!r}.{nearest(value, valid)}")


def generate_rows(task: str, language: str, split: str, *, rows: int | None = None) -> Iterator[Record]:
    """The rows of a task in a language."""
    check_name("task", task, TASKS)
    check_name("language", language, LANGUAGES)
    check_name("split", split, SPLITS)
    if task == "parallel":
        return generate_pairs("en", language, split, rows=rows)
    count = ROWS[split] if rows is None else rows
    make = load_maker(task)
    return (make(load_grammar(language), split, row) for row in range(count))


def load_maker(task: str) -> Callable[[Grammar, str, int], Record]:
    """The function that makes one row of a task."""
    if task in ("pos", "ner"):
        return make_pos if task == "pos" else make_ner
    module = importlib.import_module(f"crossling.phrasebook.{MODULES[task]}")
    maker: Callable[[Grammar, str, int], Record] = module.make_row
    return maker


def draw_sentence(split: str, row: int) -> Sentence:
    """The abstract sentence of a row."""
    dice = Dice("sentence", split, row)
    return dice.pick(load_templates(split))(World(split, dice))


def make_pos(grammar: Grammar, split: str, row: int) -> TaggedSentence:
    """A sentence with its parts of speech."""
    words = grammar.realise(draw_sentence(split, row))
    return TaggedSentence(surface(words), tuple(word.upos for word in words))


def make_ner(grammar: Grammar, split: str, row: int) -> TaggedSentence:
    """A sentence with its named entities."""
    words = grammar.realise(draw_sentence(split, row))
    return TaggedSentence(surface(words), tag_entities(words))


def surface(words: list[Word]) -> tuple[str, ...]:
    """Word forms as records hold them."""
    return tuple(word.form.replace("_", " ") for word in words)


def tag_entities(words: list[Word]) -> tuple[str, ...]:
    """BIO tags: a new entity begins wherever the name changes."""
    tags, last = [], None
    for word in words:
        name = word.entity
        tags.append("O" if name is None else f"{'I' if name is last else 'B'}-{name.kind}")
        last = name
    return tuple(tags)


def link_words(source: list[Word], target: list[Word]) -> tuple[tuple[int, int], ...]:
    """Pairs of words that express the same node."""
    places: defaultdict[object, list[int]] = defaultdict(list)
    for position, word in enumerate(target):
        for key in word.keys:
            places[key].append(position)
    return tuple(sorted({(i, j) for i, word in enumerate(source) for key in word.keys for j in places.get(key, ())}))


def generate_pairs(source: str, target: str, split: str, *, rows: int | None = None) -> Iterator[LinkedPair]:
    """Sentences in two languages with gold word links."""
    for language in (source, target):
        check_name("language", language, LANGUAGES)
    check_name("split", split, SPLITS)
    count = ROWS[split] if rows is None else rows
    return (make_pair(load_grammar(source), load_grammar(target), split, row) for row in range(count))


def make_pair(source: Grammar, target: Grammar, split: str, row: int) -> LinkedPair:
    """One sentence said twice; nodes are compared by identity, so both sides realise the same tree."""
    sentence = draw_sentence(split, row)
    left, right = source.realise(sentence), target.realise(sentence)
    return LinkedPair(surface(left), surface(right), link_words(left, right))
