"""Sampled segmentations: they join to the same string, and follow the distribution that they are defined by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from crossling.encoders.subword_sampling import SubwordSampler
from crossling.encoders.tokenization import encode_words
from crossling.errors import EncoderError
from tiny import tiny_tokenizer

DRAWS = 40_000
WORDS = ["the", "sleeps", "walking", "кошка", "London", "猫", "2017", "(", "dogs"]


def _wrap(model: Any, unknown: str) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token=unknown, pad_token=unknown)


def _split(string: str, known: Any) -> Iterator[tuple[str, ...]]:
    """All segmentations into pieces that are known: the slow reference."""
    if not string:
        yield ()
    for end in range(1, len(string) + 1):
        if string[:end] in known:
            yield from ((string[:end], *rest) for rest in _split(string[end:], known))


def _count(sampler: SubwordSampler, string: str, draws: int = DRAWS) -> dict[tuple[int, ...], float]:
    found = sampler.sample([string], draws, np.random.default_rng(0))
    counts = Counter(tuple(found[row].tolist()) for row in range(draws))
    return {pieces: count / draws for pieces, count in counts.items()}


def _assert_close(found: dict[Any, float], expected: dict[Any, float], draws: int = DRAWS) -> None:
    assert set(found) <= set(expected)
    for pieces, chance in expected.items():
        assert found.get(pieces, 0.0) == pytest.approx(chance, abs=5 * math.sqrt(chance / draws) + 1e-4), pieces


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_unigram_samples_follow_the_powers_of_their_probabilities(alpha: float) -> None:
    scores = {
        "<unk>": 0.0,
        "▁": -1.0,
        "▁a": -2.0,
        "▁ab": -3.0,
        "a": -1.5,
        "b": -2.5,
        "bc": -3.5,
        "c": -2.0,
        "abc": -4.0,
    }
    tokenizer = _wrap(models.Unigram(list(scores.items()), 0, False), "<unk>")
    ids = {piece: index for index, piece in enumerate(scores)}
    known = set(scores) - {"▁", "<unk>"}
    weights = {s: math.exp(alpha * sum(scores[p] for p in s)) for s in _split("▁abc", known)}
    assert len(weights) == 3, "▁ab c, ▁a bc, ▁a b c: no word begins with a mark alone"
    expected = {tuple(ids[p] for p in s): weight / sum(weights.values()) for s, weight in weights.items()}
    _assert_close(_count(SubwordSampler(tokenizer, alpha=alpha), "▁abc"), expected)


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_wordpiece_samples_pass_over_longer_matches(dropout: float) -> None:
    """A piece that leads nowhere (here ##cd, after which no ##e follows) is never taken."""
    pieces = ["[UNK]", "a", "ab", "abc", "##b", "##c", "##cd", "##de", "##cde", "##bc"]
    ids = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = _wrap(models.WordPiece(ids, unk_token="[UNK]"), "[UNK]")

    def follow(start: int) -> Iterator[tuple[tuple[int, ...], float]]:
        if start == 5:
            yield (), 1.0
        prefix = "##" if start else ""
        ends = [end for end in range(5, start, -1) if prefix + "abcde"[start:end] in ids and any(follow(end))]
        for rank, end in enumerate(ends):
            chance = dropout**rank * (1.0 if end == ends[-1] else 1.0 - dropout)
            for rest, other in follow(end):
                yield (ids[prefix + "abcde"[start:end]], *rest), chance * other

    expected = {path: chance for path, chance in follow(0) if chance}
    assert sum(expected.values()) == pytest.approx(1.0)
    _assert_close(_count(SubwordSampler(tokenizer, dropout=dropout), "abcde"), expected)


def test_bpe_merges_as_the_tokenizer_does_without_dropout_and_less_with_it() -> None:
    tokenizer = tiny_tokenizer("modernbert")
    whole = tokenizer.backend_tokenizer.encode(" sleeps", add_special_tokens=False)
    sampler = SubwordSampler(tokenizer, dropout=0.0)
    assert set(_count(sampler, "Ġsleeps", 20)) == {tuple(whole.ids)}
    sampler.dropout = 0.5
    found = _count(sampler, "Ġsleeps", 500)
    assert len(found) > 3
    firsts = tokenizer.convert_ids_to_tokens([ids[0] for ids in found if ids])
    assert "Ġ" not in firsts, "a first subword has a character"


@pytest.mark.parametrize("family", ["bert", "xlm-r-initials", "modernbert"])
def test_samples_join_to_the_same_string(family: str) -> None:
    tokenizer = tiny_tokenizer(family)
    sampler = SubwordSampler(tokenizer, alpha=0.0)
    pieces = encode_words(tokenizer, [[word] for word in WORDS]).pieces
    strings = [sampler.spell(pieces[row].tolist()) for row in range(len(WORDS))]
    assert [sampler.read(string) for string in strings] == WORDS
    found = sampler.sample(strings, 8, np.random.default_rng(1))
    assert len(found) == 8 * len(WORDS)
    changed = set()
    for row in range(len(found)):
        word = row // 8
        if len(found[row]):
            assert sampler.spell(found[row].tolist()) == strings[word]
            if found[row].tolist() != pieces[word].tolist():
                changed.add(WORDS[word])
    assert {"the", "sleeps"} <= changed
    again = sampler.sample(strings, 8, np.random.default_rng(1))
    assert np.array_equal(found.values, again.values), "the same seed gives the same samples"


@pytest.mark.parametrize("family", ["bert", "xlm-r-initials", "modernbert"])
def test_special_tokens_and_punctuation_stay_and_words_begin_at_their_marks(family: str) -> None:
    tokenizer = tiny_tokenizer(family)
    sampler = SubwordSampler(tokenizer)
    assert sampler.stays[tokenizer.all_special_ids].all()
    text = tokenizer.backend_tokenizer.encode(" the walking cat , 2017", add_special_tokens=False)
    words = [sampler.read(piece) for piece in text.tokens]
    begins = [word for word, index in zip(words, text.ids, strict=True) if sampler.begins[index] and word]
    assert begins[0] == "the" and "cat" in begins
    for word, index in zip(words, text.ids, strict=True):
        assert sampler.stays[index] == (word in (",", "")), word


def test_strings_that_cannot_be_written_have_no_samples() -> None:
    sampler = SubwordSampler(tiny_tokenizer("bert"))
    found = sampler.sample(["a" * 60, "ωω", "the"], 2, np.random.default_rng(0))
    assert [len(found[row]) > 0 for row in range(6)] == [False] * 4 + [True] * 2


def test_tokenizers_of_whole_words_are_refused() -> None:
    tokenizer = _wrap(models.WordLevel({"a": 0}, "a"), "a")
    with pytest.raises(EncoderError, match="WordLevel.*Leave consistency out"):
        SubwordSampler(tokenizer)
