"""The text of every kind of row as examples: nothing lost, nothing doubled, words known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossling.data.records import (
    TEXT_COLUMNS,
    LabelledPair,
    LabelledText,
    LinkedPair,
    ParallelPair,
    PlainText,
    Question,
    Record,
    TaggedSentence,
)
from crossling.data.rows import SCHEMAS
from crossling.encoders.encoder import Encoder
from crossling.encoders.special_tokens import special_layout
from crossling.encoders.unlabelled import Chunking, TextExamples, encode_unlabelled
from examples import rows_of
from tiny import FAMILIES, tiny_encoder

RECORDS: dict[type[Record], list[Any]] = {
    TaggedSentence: [TaggedSentence(("the", "walking", "cat"), ("A", "B", "C"))],
    LabelledText: [LabelledText("the red house", "x"), LabelledText("fish", "y")],
    PlainText: [PlainText("the dog eats"), PlainText("我是猫")],
    LabelledPair: [LabelledPair("the cat", "in London", "z")],
    Question: [
        Question("1", "the dog", "the dog eats fish", (), ()),
        Question("2", "the fish", "the dog eats fish", (), ()),
        Question("3", "the cat", "the cat sleeps", (), ()),
    ],
    ParallelPair: [ParallelPair("the cat", "не кошка")],
    LinkedPair: [LinkedPair(("the", "cat"), ("не", "кошка"), ((0, 0),))],
}
EXPECTED = {
    TaggedSentence: ["the walking cat"],
    LabelledText: ["the red house", "fish"],
    PlainText: ["the dog eats", "我是猫"],
    LabelledPair: ["the cat", "in London"],
    Question: ["the dog", "the fish", "the cat", "the dog eats fish", "the cat sleeps"],
    ParallelPair: ["the cat", "не кошка"],
    LinkedPair: ["the cat", "не кошка"],
}


def read_back(texts: TextExamples, encoder: Encoder) -> list[str]:
    examples, layout = texts.examples, special_layout(encoder.tokenizer)
    found = []
    for row in range(len(examples)):
        ids = examples.get("ids", row).tolist()
        assert tuple(ids[: len(layout.prefix)]) == layout.prefix
        assert tuple(ids[-len(layout.single_suffix) :]) == layout.single_suffix
        found.append(encoder.tokenizer.decode(ids[len(layout.prefix) : -len(layout.single_suffix)]).strip())
    return found


def test_every_record_kind_has_text_fields() -> None:
    assert set(TEXT_COLUMNS) == set(SCHEMAS) == set(RECORDS)


@pytest.mark.parametrize("kind", RECORDS)
def test_texts_of_every_record_kind_are_encoded(kind: type[Record], tmp_path: Path) -> None:
    encoder = tiny_encoder("xlm-r")
    parallel = kind in (ParallelPair, LinkedPair)
    rows = rows_of(RECORDS[kind], "en-ru" if parallel else "en")
    texts = encode_unlabelled([rows], encoder, Chunking(), cache=tmp_path)
    assert read_back(texts, encoder) == EXPECTED[kind]
    assert texts.languages == (("en", "ru") if parallel else ("en",))
    assert texts.examples.scalars("language").tolist() == ([0, 1] if parallel else [0] * len(EXPECTED[kind]))
    again = encode_unlabelled([rows], encoder, Chunking(), cache=tmp_path)
    assert again.examples.path == texts.examples.path


@pytest.mark.parametrize("family", FAMILIES)
def test_joined_pairs_equal_classifier_inputs(family: str, tmp_path: Path) -> None:
    encoder = tiny_encoder(family)
    rows = rows_of([LabelledPair("the cat sleeps", "the dog", "x"), LabelledPair("fish", "in London", "y")])
    texts = encode_unlabelled([rows], encoder, Chunking(pairs="together", words=True), cache=tmp_path)
    for row, pair in enumerate((("the cat sleeps", "the dog"), ("fish", "in London"))):
        encoded = encoder.tokenizer(*pair)
        assert texts.examples.get("ids", row).tolist() == encoded["input_ids"]
        if encoder.uses_token_types:
            assert texts.examples.get("types", row).tolist() == encoded["token_type_ids"]
        words = texts.examples.get("words", row)
        sequences = np.array([-1 if s is None else s for s in encoded.sequence_ids()])
        assert np.array_equal(words < 0, sequences < 0)
        assert not set(words[sequences == 0]) & set(words[sequences == 1])


def test_long_pairs_are_truncated(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert")
    rows = rows_of([LabelledPair("the cat " * 20, "dog", "x"), LabelledPair("fish", "dog", "y")])
    texts = encode_unlabelled([rows], encoder, Chunking(length=16, pairs="together", words=True), cache=tmp_path)
    assert texts.examples.lengths.tolist() == [16, 5]
    assert [len(texts.examples.get("words", row)) for row in range(2)] == [16, 5]


def test_long_texts_are_split_between_words_without_loss(tmp_path: Path) -> None:
    encoder = tiny_encoder("xlm-r")
    sentence = "walking the dog eats fishing in London " * 9
    rows = rows_of([PlainText(sentence), PlainText("x" * 50), PlainText("fish")])
    texts = encode_unlabelled([rows], encoder, Chunking(length=16, words=True), cache=tmp_path)
    assert texts.examples.lengths.max() <= 16
    pieces = np.concatenate([texts.examples.get("ids", row)[1:-1] for row in range(len(texts.examples))])
    whole = [encoder.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (sentence, "x" * 50, "fish")]
    assert pieces.tolist() == [*whole[0], *whole[1], *whole[2]]
    firsts = [texts.examples.get("ids", row)[1] for row in range(len(texts.examples))]
    begins = [encoder.tokenizer.convert_ids_to_tokens(int(first)).startswith("▁") for first in firsts]
    assert len(begins) > 8
    assert all(begins[:-5]), "parts of running text begin with a word"
    assert begins[-5:] == [True, False, False, False, True], "a word longer than the room is cut anyhow"


@pytest.mark.parametrize("family", FAMILIES)
def test_word_numbers_match_text(family: str, tmp_path: Path) -> None:
    """Pieces with one number are the pieces of one word, whether text came as words or running."""
    encoder = tiny_encoder(family)
    words = ("walking", "cats", ",", "London", "我")
    rows = [rows_of([PlainText("walking cats, London 我")]), rows_of([TaggedSentence(words, ("",) * 5)])]
    for part in rows:
        texts = encode_unlabelled([part], encoder, Chunking(words=True), cache=tmp_path)
        numbers, ids = texts.examples.get("words", 0)[1:-1], texts.examples.get("ids", 0)[1:-1]
        assert sorted(set(numbers.tolist())) == [0, 1, 2, 3, 4]
        assert (np.diff(numbers) >= 0).all()
        found = [encoder.tokenizer.decode(ids[numbers == word]).replace(" ", "") for word in range(5)]
        assert found == list(words)


def test_examples_keep_their_language(tmp_path: Path) -> None:
    rows = [rows_of([PlainText("the cat")], "en"), rows_of([ParallelPair("the dog", "не")], "en-ru")]
    texts = encode_unlabelled(rows, tiny_encoder(), Chunking(), cache=tmp_path)
    assert texts.languages == ("en", "ru")
    assert texts.examples.scalars("language").tolist() == [0, 0, 1]
    together = encode_unlabelled(rows, tiny_encoder(), Chunking(pairs="together"), cache=tmp_path)
    assert together.languages == ("en", "en-ru")
