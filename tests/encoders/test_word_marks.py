"""Words in a tokenizer that carries a tagger's marks: the same subwords, or their twins."""

from __future__ import annotations

from typing import Any

import pytest

from crossling.data.words import split_words
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.encoders.word_marks import carry_words
from tiny import tiny_encoder, tiny_tokenizer


def carry(family: str) -> tuple[Any, list[int]]:
    """The tokenizer that carries marks, and for each of its ids the one whose embedding it has."""
    encoder = tiny_encoder(family)
    carried = carry_words(encoder)
    assert carried is not None
    tokenizer, shared = carried
    return tokenizer, [*range(encoder.vocabulary), *shared.tolist()]


def encode(tokenizer: Any, text: str | list[str]) -> list[int]:
    given = tokenizer(text, is_split_into_words=isinstance(text, list), add_special_tokens=False)
    return list(given.input_ids)


@pytest.mark.parametrize(
    "text",
    [
        "the cat, (sleeps) in London.",
        "don't 'walk'ing; it's red",
        "zebra! in Berlinx",
        "我们看书。the 猫",
        "fish ðogs ٣",
    ],
)
def test_subwords_of_words_are_ours(text: str) -> None:
    tokenizer, same = carry("xlm-r")
    words = [word.text for word in split_words(text, "en")]
    expected = SubwordTokenizer(tiny_tokenizer("xlm-r")).encode_words([words]).pieces[0].tolist()
    assert [same[index] for index in encode(tokenizer, words)] == expected
    assert [same[index] for index in encode(tokenizer, " ".join(words))] == expected
    assert encode(tiny_tokenizer("xlm-r"), words) != expected


def test_special_tokens_and_offsets_stay() -> None:
    tokenizer, _ = carry("xlm-r")
    text = "the cat, in 我 London."
    encoding = tokenizer(text, return_offsets_mapping=True)
    assert encoding.input_ids[0] == tokenizer.cls_token_id and encoding.input_ids[-1] == tokenizer.sep_token_id
    for index, (start, end) in zip(encoding.input_ids[1:-1], encoding.offset_mapping[1:-1], strict=True):
        assert text[start:end].strip() == tokenizer.convert_ids_to_tokens(index).lstrip("▁")


def test_byte_level_words_begin_with_a_space() -> None:
    tokenizer, same = carry("modernbert")
    words = ["the", "cat", "sleeps", "in", "the", "fish"]
    expected = SubwordTokenizer(tiny_tokenizer("modernbert")).encode_words([words]).pieces[0].tolist()
    assert encode(tokenizer, words) == encode(tokenizer, " ".join(words)) == expected
    assert len(same) == tiny_encoder("modernbert").vocabulary
    assert encode(tiny_tokenizer("modernbert"), words) != expected


@pytest.mark.parametrize("family", ["bert", "distilbert"])
def test_tokenizers_without_marks_are_left_alone(family: str) -> None:
    assert carry_words(tiny_encoder(family)) is None
