"""Encoders: their hidden states, poolings, loading and saving."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.encoders.encoder import Encoder, pool_words
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.errors import EncoderError
from tiny import FAMILIES, tiny_encoder

TEXTS = ["the cat sleeps", "the dog eats fish in London не кошка", "我是学生"]


def batch(encoder: Encoder) -> tuple[Tensor, Tensor]:
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    return inputs["input_ids"], inputs["attention_mask"]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_equal_those_of_transformers(family: str) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    with torch.no_grad():
        expected = encoder.model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        got = encoder(ids, mask, layers=range(encoder.layers + 1))
    assert list(got) == [0, 1, 2, 3]
    for layer, states in got.items():
        assert torch.allclose(states[mask.bool()], expected.hidden_states[layer][mask.bool()], atol=1e-5)
    assert torch.allclose(got[3][mask.bool()], expected.last_hidden_state[mask.bool()], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_states_do_not_depend_on_batch_and_padding(family: str) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    with torch.no_grad():
        together = encoder(ids, mask, layers=(3,))[3]
        for row, length in enumerate(mask.sum(1).tolist()):
            alone = encoder(ids[row : row + 1, :length], mask[row : row + 1, :length], layers=(3,))[3]
            assert torch.allclose(alone[0], together[row, :length], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_requested_layers_are_returned(family: str) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    everything = encoder(ids, mask, layers=(0, 1, 2, 3))
    for wanted in ((2,), (3, 1), (0,), (1, 1)):
        got = encoder(ids, mask, layers=wanted)
        assert list(got) == list(dict.fromkeys(wanted))
        assert all(torch.equal(got[layer], everything[layer]) for layer in got)
    assert not any(module._forward_hooks for module in encoder.modules())


def test_higher_layers_are_skipped_without_gradients() -> None:
    encoder = tiny_encoder("bert")
    ids, mask = batch(encoder)
    ran: list[int] = []
    for number, layer in enumerate(encoder.model.encoder.layer, 1):
        layer.register_forward_hook(lambda *_, number=number: ran.append(number))
    with torch.no_grad():
        low = encoder(ids, mask, layers=(1,))[1]
    assert ran == [1]
    assert torch.equal(low, encoder(ids, mask, layers=(1,))[1])
    assert ran == [1, 1, 2, 3]


def test_fully_masked_row_is_finite() -> None:
    encoder = tiny_encoder("xlm-r")
    ids, mask = batch(encoder)
    mask[1] = 0
    with torch.no_grad():
        assert torch.isfinite(encoder(ids, mask, layers=(3,))[3]).all()


def test_token_types_affect_bert_only() -> None:
    for family, uses in (("bert", True), ("xlm-r", False), ("distilbert", False), ("modernbert", False)):
        encoder = tiny_encoder(family)
        assert encoder.uses_token_types is uses
        ids, mask = batch(encoder)
        with torch.no_grad():
            plain, other = (
                encoder(ids, mask, layers=(0,))[0],
                encoder(ids, mask, torch.ones_like(ids), layers=(0,))[0],
            )
        assert torch.equal(plain, other) is not uses


@pytest.mark.parametrize("family", FAMILIES)
def test_checkpointed_gradients_are_the_same(family: str) -> None:
    gradients = []
    for checkpointed in (False, True):
        encoder = tiny_encoder(family).train()
        for module in encoder.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        for layer in encoder.model.get_submodule("encoder").layer if family in ("bert", "xlm-r") else ():
            layer.attention.self.dropout.p = 0.0
        if checkpointed:
            encoder.checkpoint_gradients()
        ids, mask = batch(encoder)
        states = encoder(ids, mask, layers=(1, 3))
        (states[1].square().sum() + states[3].sum(0).square().sum()).backward()
        gradients.append({name: p.grad for name, p in encoder.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) > 10
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-4, atol=1e-4), name


def test_wrong_layer_error_names_it() -> None:
    encoder = tiny_encoder("bert")
    ids, mask = batch(encoder)
    for layer in (4, -1):
        with pytest.raises(EncoderError, match=f"no layer {layer}; it has 0"):
            encoder(ids, mask, layers=(layer,))


def test_mixed_precision_states_are_close() -> None:
    encoder = tiny_encoder("bert")
    ids, mask = batch(encoder)
    with torch.no_grad():
        exact = encoder(ids, mask, layers=(3,))[3]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = encoder(ids, mask, layers=(3,))[3]
    assert not torch.equal(rough.float(), exact)
    assert torch.allclose(rough.float()[mask.bool()], exact[mask.bool()], atol=0.2)


def test_pooler_is_the_checkpoints(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert", pooler=True)
    hidden = torch.randn(2, 5, 16)
    dense = encoder.pooler.dense  # type: ignore[union-attr]
    expected = torch.tanh(hidden[:, 0] @ dense.weight.T + dense.bias)
    assert torch.allclose(encoder.pool_cls(hidden), expected, atol=1e-6)
    again = load_encoder(str(save_encoder(encoder, tmp_path / "saved")))
    assert again.has_pooler and torch.equal(again.pool_cls(hidden), encoder.pool_cls(hidden))
    assert encoder.has_pooler and encoder.model.pooler is None


def pool_slowly(hidden: Tensor, words: Tensor, count: int, how: str) -> Tensor:
    result = torch.zeros(len(hidden), count, hidden.shape[2])
    for row in range(len(hidden)):
        for word in range(count):
            own = hidden[row, words[row] == word]
            if len(own):
                result[row, word] = {"mean": own.mean(0), "first": own[0], "last": own[-1]}[how]
    return result


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_pooling_matches_word_by_word(how: str) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(3, 7, 4, requires_grad=True)
    words = torch.tensor([[-1, 0, 0, 1, 2, 2, -1], [-1, 0, 1, 2, 3, -1, -1], [-1, 2, 2, 2, 0, -1, -1]])
    got, expected = pool_words(hidden, words, words=4, how=how), pool_slowly(hidden, words, 4, how)
    assert torch.allclose(got, expected, atol=1e-6)
    (ours,) = torch.autograd.grad(got.square().sum(), hidden)
    (theirs,) = torch.autograd.grad(expected.square().sum(), hidden)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_unknown_pooling_is_refused() -> None:
    with pytest.raises(EncoderError, match="Did you mean 'mean'"):
        pool_words(torch.zeros(1, 1, 1), torch.zeros(1, 1), words=1, how="means")
