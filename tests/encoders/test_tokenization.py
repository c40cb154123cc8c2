"""Words and texts to subword ids."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from crossling.encoders import tokenization
from crossling.encoders.special_tokens import assemble, shorten_pair, special_layout
from crossling.encoders.tokenization import SubwordTokenizer, build_ragged, encode_texts, encode_words, first_pieces
from tiny import CHARACTERS, WORDS, tiny_encoder, tiny_tokenizer

FAMILIES = ("bert", "xlm-r", "modernbert")


def pieces_of(family: str, sentence: list[str]) -> list[tuple[str, int]]:
    tokenizer = tiny_tokenizer(family)
    encoded = encode_words(tokenizer, [sentence])
    return list(zip(tokenizer.convert_ids_to_tokens(encoded.pieces[0]), encoded.words[0].tolist(), strict=True))


@pytest.mark.parametrize("family", FAMILIES)
def test_words_are_tokenized_as_one_by_one(family: str) -> None:
    random = np.random.default_rng(0)
    letters = [c for c in CHARACTERS if c.isalpha() and c.isascii()]
    made = ["".join(random.choice(letters, 4)) for _ in range(30)]
    sentences = [[str(w) for w in random.choice(WORDS + made, size)] for size in (3, 0, 7, 1, 12)]
    tokenizer = tiny_tokenizer(family)
    blank = {tokenizer.backend_tokenizer.token_to_id(marker) for marker in "▁Ġ"}
    encoded = encode_words(tokenizer, sentences)
    assert len(encoded) == len(sentences)
    for row, sentence in enumerate(sentences):
        expected = [
            (piece, number)
            for number, word in enumerate(sentence)
            for piece in tokenizer(" " + word, add_special_tokens=False)["input_ids"]
            if piece not in blank
        ]
        assert list(zip(encoded.pieces[row].tolist(), encoded.words[row].tolist(), strict=True)) == expected


def test_words_of_scripts_without_spaces_get_no_stray_mark() -> None:
    assert pieces_of("xlm-r", ["我", "是", "学生", "。"]) == [
        ("我", 0),
        ("是", 1),
        ("学", 2),
        ("生", 2),
        ("。", 3),
    ]


def test_unspaced_word_is_tokenized_as_inside_text() -> None:
    # "▁猫" is a piece, too: it stands for a cat after a space, which this is not.
    assert pieces_of("xlm-r", ["猫"]) == [("猫", 0)]
    assert tiny_tokenizer("xlm-r").tokenize("猫") == ["▁猫"]


def test_a_lone_mark_is_dropped_in_every_script() -> None:
    assert [piece for piece, _ in pieces_of("xlm-r", ["है"])] == ["ह", "ै"]
    assert [piece for piece, _ in pieces_of("modernbert", ["zx"])] == ["z", "x"]


def test_byte_level_words_begin_with_their_space() -> None:
    assert pieces_of("modernbert", ["the", "cat"]) == [("Ġthe", 0), ("Ġcat", 1)]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_word_gets_a_subword(family: str) -> None:
    sentence = ["the", "\x01", "", " ", "\u200b", "▁", "cat"]
    numbers = [number for _, number in pieces_of(family, sentence)]
    assert sorted(set(numbers)) == list(range(len(sentence)))
    assert numbers == sorted(numbers)


@pytest.mark.parametrize(
    ("family", "text"), [("bert", "[SEP]"), ("xlm-r", "</s>"), ("xlm-r", "<mask>"), ("modernbert", "[CLS]")]
)
def test_text_cannot_produce_special_tokens(family: str, text: str) -> None:
    tokenizer = tiny_tokenizer(family)
    subwords = SubwordTokenizer(tokenizer)
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    assert not special & set(subwords.encode_words([["the", text]]).pieces[0].tolist())
    assert not special & set(subwords.encode_texts([f"the {text} cat"]).pieces[0].tolist())
    assert not special & set(subwords.encode_pieces([f"the {text} cat"])[0].tolist())


def test_tokenizer_is_not_changed() -> None:
    tokenizer = tiny_tokenizer("xlm-r")
    before = tokenizer.backend_tokenizer.to_str()
    encode_words(tokenizer, [["我", "the"]])
    assert tokenizer.backend_tokenizer.to_str() == before


def test_cached_words_give_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization, "_CACHE_LIMIT", 5)
    subwords = SubwordTokenizer(tiny_tokenizer("bert"))
    random = np.random.default_rng(1)
    for _ in range(20):
        sentences = [[str(w) for w in random.choice(WORDS, 4)] for _ in range(2)]
        fresh = encode_words(tiny_tokenizer("bert"), sentences)
        again = subwords.encode_words(sentences)
        assert again.pieces.values.tolist() == fresh.pieces.values.tolist()
        assert again.words.values.tolist() == fresh.words.values.tolist()
        assert again.pieces.offsets.tolist() == fresh.pieces.offsets.tolist()


def test_cache_of_many_words_is_correct() -> None:
    subwords = SubwordTokenizer(tiny_tokenizer("bert"))
    words = [a + b + c for a in "abcdefghijkl" for b in "mnopqrstuvwx" for c in "abcdefghijkl"]
    for start in range(0, len(words), 100):
        subwords.encode_words([words[start : start + 100]])
    assert len(words) > 1024  # more than the arrays begin with
    assert (
        subwords.encode_words([words]).pieces.values.tolist()
        == encode_words(tiny_tokenizer("bert"), [words]).pieces.values.tolist()
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_text_offsets_match_characters(family: str) -> None:
    text = "  the cat sleeps, fish in London"
    tokenizer = tiny_tokenizer(family)
    encoded = encode_texts(tokenizer, [text, "", "the"])
    assert len(encoded) == 3 and len(encoded.pieces[1]) == 0
    covered = [text[a:b] for a, b in zip(encoded.starts[0], encoded.ends[0], strict=True)]
    tokens = tokenizer.convert_ids_to_tokens(encoded.pieces[0])
    for characters, token in zip(covered, tokens, strict=True):
        assert characters == token.replace("##", "").strip("▁Ġ")


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_have_same_subwords_without_offsets(family: str) -> None:
    texts = ["the cat", "", "我是 学生 है", "walking [SEP]"]
    subwords = SubwordTokenizer(tiny_tokenizer(family))
    assert subwords.encode_pieces(texts).values.tolist() == subwords.encode_texts(texts).pieces.values.tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_assembled_inputs_equal_tokenizer_output(family: str) -> None:
    tokenizer = tiny_tokenizer(family)
    firsts, seconds = ["the cat", "dog", "fish in London"], ["sleeps", "the red house", "eats"]
    layout = special_layout(tokenizer)
    first, second = encode_texts(tokenizer, firsts).pieces, encode_texts(tokenizer, seconds).pieces
    ids, types = assemble(layout, first, second)
    alone, alone_types = assemble(layout, first)
    for row in range(3):
        whole = tokenizer(firsts[row], seconds[row], return_token_type_ids=True)
        assert ids[row].tolist() == whole["input_ids"]
        assert types[row].tolist() == whole["token_type_ids"]
        single = tokenizer(firsts[row], return_token_type_ids=True)
        assert alone[row].tolist() == single["input_ids"]
        assert alone_types[row].tolist() == single["token_type_ids"]
        assert len(ids[row]) == len(first[row]) + len(second[row]) + layout.pair_extra
        assert len(alone[row]) == len(first[row]) + layout.single_extra


def test_only_bert_has_a_second_segment() -> None:
    assert special_layout(tiny_tokenizer("bert")).second_type == 1
    assert special_layout(tiny_tokenizer("xlm-r")).second_type == 0
    assert len(special_layout(tiny_tokenizer("xlm-r")).middle) == 2


def test_truncation_of_tokenizer_is_off() -> None:
    encoder = tiny_encoder("bert")
    encoder.tokenizer.backend_tokenizer.enable_truncation(4)
    encoder.tokenizer.backend_tokenizer.enable_padding(length=20)
    assert len(encode_texts(encoder.tokenizer, ["the cat eats fish in London"]).pieces[0]) == 6


def test_first_pieces_are_the_places_where_words_begin() -> None:
    assert first_pieces(np.asarray([0, 0, 1, 2, 2, 2, 3])).tolist() == [0, 2, 3, 6]
    assert first_pieces(np.asarray([], np.int32)).tolist() == []


@pytest.mark.parametrize("room", range(12))
def test_shortened_pairs_fit_and_longer_is_cut_first(room: int) -> None:
    for first in range(9):
        for second in range(9):
            left, right = first, second
            while left + right > room:  # the obvious way: one piece off the longer one at a time
                left, right = (left, right - 1) if right >= left else (left - 1, right)
            assert shorten_pair(first, second, room=room) == (left, right)


def test_trimmed_encoder_warns_once_of_unknown_subwords(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = tiny_tokenizer("xlm-r")
    tokenizer.init_kwargs["trimmed_from"] = "abc"
    subwords = SubwordTokenizer(tokenizer)
    with caplog.at_level(logging.WARNING):
        subwords.encode_words([["the", "cat"]])
        assert not caplog.records
        subwords.encode_words([["ß"]])
        subwords.encode_words([["ø"]])
    assert len(caplog.records) == 1 and "trimmed" in caplog.text


def test_build_ragged_uses_int32() -> None:
    assert build_ragged([[1, 2], []]).values.dtype == np.int32
