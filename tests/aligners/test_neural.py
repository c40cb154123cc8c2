"""Links from word vectors: the three ways on cosines made by hand, and whole sentences through tiny encoders."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from crossling.aligners.corpus import Corpus, build_corpus
from crossling.aligners.neural import Settings, align_with, iterate_argmax, transport_words
from crossling.encoders.encoder import Encoder, pool_words
from crossling.encoders.special_tokens import special_layout
from crossling.encoders.tokenization import encode_words
from tiny import FAMILIES, tiny_encoder

WORDS = ["the", "cat", "dog", "sleeps", "eats", "fish", "in", "London", "кошка", "red"]


def make_corpus() -> Corpus:
    """Sentences of many lengths; each translation is another order of other words."""
    dice = np.random.default_rng(0)
    sides = [[list(dice.choice(WORDS, size)) for size in dice.integers(1, 12, 10)] for _ in range(2)]
    return build_corpus(zip(*sides, strict=True))


def mutual_best(encoder: Encoder, left: tuple[str, ...], right: tuple[str, ...], layer: int) -> list[tuple[int, int]]:
    """One pair by itself, without padding, word by word."""
    vectors = []
    for words in (left, right):
        encoded, layout = encode_words(encoder.tokenizer, [words]), special_layout(encoder.tokenizer)
        ids = torch.tensor([[*layout.prefix, *encoded.pieces[0].tolist(), *layout.single_suffix]])
        owners = torch.tensor(
            [[*[-1] * len(layout.prefix), *encoded.words[0].tolist(), *[-1] * len(layout.single_suffix)]]
        )
        with torch.no_grad():
            hidden = encoder(ids, torch.ones_like(ids), torch.zeros_like(ids), layers=[layer])[layer]
        vectors.append(pool_words(hidden, owners, words=len(words))[0])
    cosine = torch.nn.functional.cosine_similarity(vectors[0][:, None], vectors[1][None], dim=-1)
    return [
        (i, j)
        for i in range(len(left))
        for j in range(len(right))
        if cosine[i, j] == cosine[i].max() == cosine[:, j].max()
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_batches_give_same_links_as_single_pairs(family: str) -> None:
    encoder = tiny_encoder(family)
    corpus = make_corpus()
    found = align_with(encoder, corpus, Settings(layer=2, batch=4))
    expected = [mutual_best(encoder, corpus.source.words(i), corpus.target.words(i), 2) for i in range(len(corpus))]
    # Words that occur twice are equally near in layer 0 only; here positions distinguish them.
    assert list(found) == expected


def test_identical_sentences_are_linked_word_by_word() -> None:
    words = ["the", "red", "cat", "eats", "fish"]
    links = align_with(tiny_encoder(), build_corpus([(words, words)]), Settings(layer=1))
    assert links[0] == [(k, k) for k in range(5)]
    links = align_with(tiny_encoder(), build_corpus([(words, words)]), Settings(layer=1, method="itermax"))
    assert links[0] == [(k, k) for k in range(5)]


def test_transport_links_stay_inside_sentences() -> None:
    corpus = make_corpus()
    plain = align_with(tiny_encoder(), corpus, Settings(layer=1))
    carried = align_with(tiny_encoder(), corpus, Settings(layer=1, method="transport", temperature=0.01))
    assert list(carried) != list(plain)
    for row, (source, target) in zip(carried, corpus.sizes(), strict=True):
        assert all(i < source and j < target for i, j in row) and row


def test_too_long_sentence_is_linked_up_to_max_length(caplog: pytest.LogCaptureFixture) -> None:
    encoder = tiny_encoder()
    words = ["cat", "dog"] * 300
    with caplog.at_level(logging.WARNING):
        links = align_with(encoder, build_corpus([(words, ["cat"]), (["dog"], ["dog"])]), Settings(layer=1))
    assert "longer than the encoder's input" in caplog.text
    assert len(links[0]) == 1 and links[0][0][0] < 510
    assert links[1] == [(0, 0)]


def everything(cosine: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(cosine.shape[:2], dtype=torch.bool), torch.ones(cosine.shape[::2], dtype=torch.bool)


def test_itermax_matches_hand_example() -> None:
    # Round 1: (0,0) and (1,1) choose each other. Round 2: source word 2 prefers target word 1 (0.9 of it), which has
    # nobody better that is still free; target word 2 prefers source word 0.
    cosine = torch.tensor([[[0.9, 0.1, 0.5], [0.2, 0.8, 0.1], [0.1, 0.7, -0.9]]])
    first = iterate_argmax(cosine, *everything(cosine), rounds=1)[0]
    assert first.nonzero().tolist() == [[0, 0], [1, 1]]
    second = iterate_argmax(cosine, *everything(cosine), rounds=2)[0]
    assert second.nonzero().tolist() == [[0, 0], [0, 2], [1, 1], [2, 1]]


def test_itermax_links_no_padding() -> None:
    cosine = torch.full((1, 2, 3), -0.9)
    source, target = torch.tensor([[True, False]]), torch.tensor([[True, True, False]])
    found = iterate_argmax(cosine, source, target, rounds=4)[0]
    assert {tuple(place) for place in found.nonzero().tolist()} <= {(0, 0), (0, 1)}


def test_transport_plan_has_uniform_marginals() -> None:
    torch.manual_seed(0)
    cosine = torch.rand(2, 4, 5)
    source = torch.tensor([[True] * 4, [True, True, False, False]])
    target = torch.tensor([[True] * 5, [True, True, True, False, False]])
    plan = transport_words(cosine, source, target, temperature=0.1).exp()
    assert torch.allclose(plan[0].sum(1), torch.full((4,), 1 / 4), atol=1e-3)
    assert torch.allclose(plan[0].sum(0), torch.full((5,), 1 / 5), atol=1e-3)
    assert torch.allclose(plan[1].sum(0), torch.tensor([1 / 3, 1 / 3, 1 / 3, 0, 0]), atol=1e-3)
    assert plan[1][2:].abs().max() == 0
    alone = transport_words(cosine[1:, :2, :3], source[1:, :2], target[1:, :3], temperature=0.1).exp()
    assert torch.allclose(plan[1, :2, :3], alone[0], atol=1e-6)


def test_transport_limits_a_word_near_to_all() -> None:
    cosine = torch.tensor([[[0.9, 0.88], [0.8, 0.1]]])  # source word 0 is nearest to both
    assert cosine[0].argmax(0).tolist() == [0, 0]
    assert transport_words(cosine, *everything(cosine), temperature=0.05)[0].argmax(0).tolist() == [1, 0]


def test_itermax_is_not_symmetrised() -> None:
    with pytest.raises(ValidationError, match="itermax links both sides at once"):
        Settings(method="itermax", symmetrize="union")
