"""Words, offsets and pieces of every kind of tokenizer, compared with the text itself."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crossling.encoders.special_tokens import assemble, special_layout
from crossling.encoders.tokenization import (
    SubwordTokenizer,
    build_ragged,
    find_mark,
    is_byte,
    is_unspaced,
    name_padding,
)
from crossling.errors import EncoderError
from crossling.tasks.answer import find_subwords
from tiny_tokenizers import KINDS, SCRIPTS, UNKNOWN, WORDS, build_tokenizer

USABLE = [kind for kind in KINDS if kind != "plain"]
"""A tokenizer without any special token has nothing to fill batches with."""
ODD = [
    "ﬁn",
    "½",
    "cafe\u0301",
    "й",
    "Ġanni",
    "Äł",
    "##x",
    "İn",
    "Ａ１",
    "٣",
    "ｶﾞ",
    "각",
    "क़",
    "𝔸",
    "l'été",
    "don't",
    "3,14",
]
"""Composed and decomposed letters, ligatures, letters that other tokenizers mark spaces with."""
EMOJI = ["🙂", "👩\u200d👧", "🇩🇪", "❤\ufe0f", "👍🏽", "1\ufe0f\u20e3"]
SPECIAL = ["</s>", "<s>", "[SEP]", "[CLS]", "<mask>", "<bos>", "<pad>", "<|endoftext|>", "<|mask|>", "<start_of_turn>"]
SPACES = [" ", " ", "  ", "\n", "\t", "\u00a0", "\u3000", " \n "]

alphabet = sorted({*"".join(SCRIPTS.values())} - {" "}) + list(UNKNOWN)
letters = st.text(alphabet, min_size=1, max_size=6).filter(lambda word: unicodedata.category(word[0])[0] != "M")
words = st.sampled_from(WORDS) | letters | st.sampled_from(ODD + EMOJI) | letters.map(lambda word: word + "." + word)
sentences = st.lists(words, min_size=1, max_size=6)
texts = st.lists(st.tuples(words, st.sampled_from([*SPACES, ""])), max_size=6).map(
    lambda parts: "".join(word + space for word, space in parts)
)
few = settings(derandomize=True, deadline=None, database=None, max_examples=40)


@cache
def tokenizer_of(kind: str) -> tuple[Any, SubwordTokenizer]:
    tokenizer = build_tokenizer(kind)
    return tokenizer, SubwordTokenizer(tokenizer)


def normalise(tokenizer: Any, text: str) -> str:
    """What a tokenizer's model is to write of a text, without spaces and their marks."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    return unmark(tokenizer, normalizer.normalize_str(text) if normalizer else text)


def unmark(tokenizer: Any, text: str) -> str:
    return re.sub(r"[\s▁]" if find_mark(tokenizer.backend_tokenizer) == "▁" else r"\s", "", text)


def matches(tokenizer: Any, pieces: list[int], text: str) -> bool:
    """Whether pieces spell a text; an unknown one stands for one character or more."""
    tokens = [str(token) for token in tokenizer.convert_ids_to_tokens(pieces)]
    backend = tokenizer.backend_tokenizer
    if find_mark(backend) == "Ġ" or any(map(is_byte, tokens)):
        return unmark(tokenizer, str(backend.decoder.decode(tokens))) == text
    spelled = [".+" if t == tokenizer.unk_token else re.escape(re.sub("^##|▁", "", t)) for t in tokens]
    return re.fullmatch("".join(spelled), text, re.DOTALL) is not None


@few
@given(sentences)
@example(["Ġ", "Ġanni", "▁", "", "\x01", "\u200b", "##s"])
def test_pieces_of_a_word_spell_the_word(sentence: list[str]) -> None:
    for kind in USABLE:
        tokenizer, subwords = tokenizer_of(kind)
        encoded = subwords.encode_words([sentence])
        numbers, pieces = encoded.words[0], encoded.pieces[0]
        assert numbers.tolist() == sorted(numbers) and set(numbers.tolist()) == set(range(len(sentence))), kind
        for number, word in enumerate(sentence):
            own, wanted = pieces[numbers == number].tolist(), normalise(tokenizer, word)
            if wanted:
                assert matches(tokenizer, own, wanted), (kind, word, tokenizer.convert_ids_to_tokens(own))
                first = str(tokenizer.convert_ids_to_tokens(own[:1])[0])
                assert first != find_mark(tokenizer.backend_tokenizer), (kind, word, "begins with a mark alone")
            else:
                assert len(own) == 1, (kind, word)


@few
@given(texts)
@example("  été\u0301 \n")
@example("The!\n\ncat .\r\n")
def test_offsets_cover_the_text_without_its_spaces(text: str) -> None:
    for kind in USABLE:
        tokenizer, subwords = tokenizer_of(kind)
        encoded = subwords.encode_texts([text])
        starts, ends = encoded.starts[0], encoded.ends[0]
        where = (kind, text, list(zip(tokenizer.convert_ids_to_tokens(encoded.pieces[0]), starts, ends, strict=True)))
        assert (np.diff(starts) >= 0).all() and (np.diff(ends) >= 0).all(), where
        assert (starts >= 0).all() and (starts <= ends).all() and (ends <= len(text)).all(), where
        assert not any(text[start].isspace() for start, end in zip(starts, ends, strict=True) if start < end), where
        assert not any(text[end - 1].isspace() for start, end in zip(starts, ends, strict=True) if start < end), where
        covered = {place for start, end in zip(starts, ends, strict=True) for place in range(start, end)}
        for place, character in enumerate(text):
            if not character.isspace() and normalise(tokenizer, character):
                assert place in covered, (*where, place)


@few
@given(texts, st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)))
def test_span_of_characters_is_found_by_its_pieces(text: str, shares: tuple[float, float]) -> None:
    for kind in USABLE:
        encoded = tokenizer_of(kind)[1].encode_texts([text])
        starts, ends = encoded.starts[0], encoded.ends[0]
        solid = np.flatnonzero(ends > starts)
        if not len(solid):
            continue
        one, other = (solid[int(share * len(solid))] for share in sorted(shares))
        begin, end = int(starts[one]), int(ends[other])
        found = find_subwords(starts, ends, [text[begin:end]], [begin])
        assert found is not None
        first, last = found
        assert starts[first] <= begin and ends[last] >= end
        borders = not any(s < place < e for place in (begin, end) for s, e in zip(starts, ends, strict=True))
        if borders:  # no piece lies on both sides of the span's beginning or end
            assert (starts[first], ends[last]) == (begin, end), (kind, text, found)


@few
@given(sentences.filter(lambda sentence: not any(map(is_unspaced, sentence))))
def test_words_are_cut_as_in_running_text(sentence: list[str]) -> None:
    for kind in USABLE:
        tokenizer, subwords = tokenizer_of(kind)
        blank = tokenizer.backend_tokenizer.token_to_id(find_mark(tokenizer.backend_tokenizer) or "")
        # A tokenizer that marks no word by itself takes the first one of a text for the rest of another.
        text = " " * subwords._needs_space + " ".join(sentence)
        running = [piece for piece in subwords.encode_pieces([text])[0].tolist() if piece != blank]
        assert subwords.encode_words([sentence]).pieces[0].tolist() == running, (kind, sentence)


@pytest.mark.parametrize("kind", USABLE)
def test_text_never_acts_as_a_special_token(kind: str) -> None:
    tokenizer, subwords = tokenizer_of(kind)
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    special = {index for index, token in added.items() if token.special} - {tokenizer.unk_token_id}
    for token in [*SPECIAL, *(added[index].content for index in special)]:
        text = f"The {token} cat{token}"
        encoded = subwords.encode_texts([text])
        assert not special & set(subwords.encode_words([["The", token]]).pieces[0].tolist())
        assert not special & set(encoded.pieces[0].tolist())
        assert encoded.pieces[0].tolist() == subwords.encode_pieces([text])[0].tolist()
        assert encoded.ends[0][-1] == len(text)


def test_steps_of_a_tokenizer_are_restored() -> None:
    for kind in USABLE:
        tokenizer = build_tokenizer(kind)
        before = tokenizer.backend_tokenizer.to_str()
        SubwordTokenizer(tokenizer).encode_words([["猫", "The", "</s>"]])
        assert tokenizer.backend_tokenizer.to_str() == before
        assert not tokenizer.backend_tokenizer.encode_special_tokens


LAYOUTS = {
    "bert": ("[CLS]", "[SEP]", "[SEP]", "[SEP]", "[PAD]"),
    "mpnet": ("<s>", "</s> </s>", "</s>", "</s>", "<pad>"),
    "xlm-roberta": ("<s>", "</s> </s>", "</s>", "</s>", "<pad>"),
    "t5": ("", "</s>", "</s>", "</s>", "<pad>"),
    "gemma3": ("<bos>", "<bos>", "", "", "<pad>"),
    "mmbert": ("<bos>", "<eos>", "<eos>", "<eos>", "<pad>"),
    "qwen3-embedding": ("", "<|im_end|>", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"),
    "qwen3": ("", "<|im_end|>", "<|im_end|>", "<|im_end|>", "<|endoftext|>"),
    "llama3": ("<|begin_of_text|>", "<|begin_of_text|>", "", "", "<|end_of_text|>"),
}
"""Special tokens before, between and after two texts, after a single one, and for padding."""


@pytest.mark.parametrize("kind", LAYOUTS)
def test_layout_separates_texts_and_leaves_none_empty(kind: str) -> None:
    tokenizer, subwords = tokenizer_of(kind)
    layout = special_layout(tokenizer)
    parts = (layout.prefix, layout.middle, layout.suffix, layout.single_suffix, (layout.pad,))
    assert tuple(" ".join(tokenizer.convert_ids_to_tokens(list(part))) for part in parts) == LAYOUTS[kind]
    assert len(layout.middle_types) == len(layout.middle) and len(layout.suffix_types) == len(layout.suffix)
    first, second = subwords.encode_pieces(["The cat"]), subwords.encode_pieces(["house"])
    ids, types = assemble(layout, first, second)
    whole = tokenizer("The cat", "house")["input_ids"]
    if not kind.startswith("qwen3"):  # whose own template joins the two
        assert ids[0].tolist() == whole
    assert len(ids[0]) == len(types[0]) == len(first[0]) + len(second[0]) + layout.pair_extra
    assert len(assemble(layout, build_ragged([[]]))[0][0]) == layout.single_extra > 0


def test_tokenizer_without_special_tokens_is_refused() -> None:
    with pytest.raises(EncoderError, match="pad_token"):
        special_layout(build_tokenizer("plain"))


def test_end_of_text_fills_batches_where_no_padding_is_named() -> None:
    assert name_padding(build_tokenizer("llama3")).pad_token == "<|end_of_text|>"
    assert name_padding(build_tokenizer("qwen3")).pad_token == "<|endoftext|>"
    assert name_padding(build_tokenizer("plain")).pad_token is None


def test_tokenizer_without_post_processor_gets_ends_of_text() -> None:
    tokenizer = build_tokenizer("llama3")
    tokenizer.backend_tokenizer.post_processor = None
    layout = special_layout(tokenizer)
    end = tokenizer.eos_token_id
    assert (layout.prefix, layout.middle, layout.suffix, layout.single_suffix) == ((), (end,), (end,), (end,))


def test_letter_that_marks_spaces_elsewhere_is_kept() -> None:
    """``Ġ`` is a letter of Maltese, and a piece of vocabularies that mark spaces by another sign, or not at all."""
    for kind in ("bert", "xlm-roberta"):
        tokenizer = build_tokenizer(kind)
        tokenizer.backend_tokenizer.add_tokens(["Ġ"])
        pieces = SubwordTokenizer(tokenizer).encode_words([["Ġ", "cat"]]).pieces[0]
        assert [str(t).strip("▁") for t in tokenizer.convert_ids_to_tokens(pieces)] == ["Ġ", "cat"]
