"""Encoders: their hidden states, poolings, loading and saving."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from crossling.encoders.encoder import Encoder, pool_words
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.errors import EncoderError
from hub import environment, serve
from tiny import FAMILIES, save_tiny, tiny_encoder

TEXTS = ["the cat sleeps", "the dog eats fish in London не кошка", "我是学生"]


def batch(encoder: Encoder) -> tuple[Tensor, Tensor]:
    inputs = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")
    return inputs["input_ids"], inputs["attention_mask"]


@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_the_model(family: str) -> None:
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
def test_neighbours_and_padding_change_nothing(family: str) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    with torch.no_grad():
        together = encoder(ids, mask, layers=(3,))[3]
        for row, length in enumerate(mask.sum(1).tolist()):
            alone = encoder(ids[row : row + 1, :length], mask[row : row + 1, :length], layers=(3,))[3]
            assert torch.allclose(alone[0], together[row, :length], atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_is_asked_for_comes_back(family: str) -> None:
    encoder = tiny_encoder(family)
    ids, mask = batch(encoder)
    everything = encoder(ids, mask, layers=(0, 1, 2, 3))
    for wanted in ((2,), (3, 1), (0,), (1, 1)):
        got = encoder(ids, mask, layers=wanted)
        assert list(got) == list(dict.fromkeys(wanted))
        assert all(torch.equal(got[layer], everything[layer]) for layer in got)
    assert not any(module._forward_hooks for module in encoder.modules())


def test_layers_above_are_not_run_where_no_gradient_is_wanted() -> None:
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


def test_an_empty_row_is_finite() -> None:
    encoder = tiny_encoder("xlm-r")
    ids, mask = batch(encoder)
    mask[1] = 0
    with torch.no_grad():
        assert torch.isfinite(encoder(ids, mask, layers=(3,))[3]).all()


def test_segments_reach_bert_only() -> None:
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


def test_wrong_layers_are_named() -> None:
    encoder = tiny_encoder("bert")
    ids, mask = batch(encoder)
    for layer in (4, -1):
        with pytest.raises(EncoderError, match=f"no layer {layer}; it has 0"):
            encoder(ids, mask, layers=(layer,))


def test_mixed_precision_keeps_its_states_near() -> None:
    encoder = tiny_encoder("bert")
    ids, mask = batch(encoder)
    with torch.no_grad():
        exact = encoder(ids, mask, layers=(3,))[3]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough = encoder(ids, mask, layers=(3,))[3]
    assert not torch.equal(rough.float(), exact)
    assert torch.allclose(rough.float()[mask.bool()], exact[mask.bool()], atol=0.2)


def test_the_pooler_is_the_checkpoints(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert", pooler=True)
    hidden = torch.randn(2, 5, 16)
    dense = encoder.pooler.dense  # type: ignore[union-attr]
    expected = torch.tanh(hidden[:, 0] @ dense.weight.T + dense.bias)
    assert torch.allclose(encoder.pool_cls(hidden), expected, atol=1e-6)
    again = load_encoder(str(save_encoder(encoder, tmp_path / "saved")))
    assert again.has_pooler and torch.equal(again.pool_cls(hidden), encoder.pool_cls(hidden))
    assert encoder.has_pooler and encoder.model.pooler is None


@pytest.mark.parametrize("family", FAMILIES)
def test_no_pooler_is_made_up(family: str, tmp_path: Path) -> None:
    state = torch.random.get_rng_state()
    encoder = load_encoder(str(save_tiny(tmp_path / "saved", family)))
    assert not encoder.has_pooler
    assert torch.equal(torch.random.get_rng_state(), state)
    with pytest.raises(EncoderError, match='pooling = "mean"'):
        encoder.pool_cls(torch.zeros(1, 1, 16))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_encoder_is_the_same_again(family: str, tmp_path: Path) -> None:
    from transformers import AutoModel, AutoTokenizer

    encoder = tiny_encoder(family)
    folder = save_encoder(encoder, tmp_path / "saved")
    again = load_encoder(str(folder))
    ids, mask = batch(encoder)
    assert torch.equal(batch(again)[0], ids)
    with torch.no_grad():
        expected = encoder(ids, mask, layers=(3,))[3]
        assert torch.equal(again(ids, mask, layers=(3,))[3], expected)
        theirs = AutoModel.from_pretrained(folder)(input_ids=ids, attention_mask=mask).last_hidden_state
    assert torch.allclose(theirs[mask.bool()], expected[mask.bool()], atol=1e-5)
    assert AutoTokenizer.from_pretrained(folder)(TEXTS[1])["input_ids"] == encoder.tokenizer(TEXTS[1])["input_ids"]
    assert (again.name, again.max_length, again.vocabulary) == ("saved", 512, encoder.vocabulary)
    assert all(parameter.dtype == torch.float32 for parameter in again.parameters())


def test_identity_is_of_the_content(tmp_path: Path) -> None:
    assert tiny_encoder("bert").identity == tiny_encoder("bert").identity
    assert tiny_encoder("bert").identity != tiny_encoder("bert", seed=1).identity
    first, same = save_tiny(tmp_path / "a", "bert"), save_tiny(tmp_path / "b", "bert")
    other = save_tiny(tmp_path / "c", "bert", seed=1)
    assert load_encoder(str(first)).identity == load_encoder(str(same)).identity
    assert load_encoder(str(first)).identity != load_encoder(str(other)).identity
    (first / "README.md").write_text("not part of it")
    assert load_encoder(str(first)).identity == load_encoder(str(same)).identity


def test_half_precision_checkpoints_are_read_as_float32(tmp_path: Path) -> None:
    encoder = tiny_encoder("bert")
    encoder.model.to(torch.float16)
    again = load_encoder(str(save_encoder(encoder, tmp_path / "half")))
    assert {parameter.dtype for parameter in again.parameters()} == {torch.float32}


def break_config(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def test_folders_that_are_no_encoders_say_why(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(EncoderError, match=r"holds no config\.json"):
        load_encoder(str(tmp_path / "empty"))
    pickled = save_tiny(tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(EncoderError, match=r"pytorch_model\.bin, which would have to be unpickled.*save_pretrained"):
        load_encoder(str(pickled))
    other = save_tiny(tmp_path / "other")
    break_config(other, model_type="gpt2")
    with pytest.raises(EncoderError, match=r"'gpt2'.*bert, distilbert, modernbert, roberta, xlm-roberta"):
        load_encoder(str(other))
    taller = save_tiny(tmp_path / "taller")
    break_config(taller, num_hidden_layers=4)
    with pytest.raises(EncoderError, match=r"not complete: it lacks encoder\.layer\.3"):
        load_encoder(str(taller))
    cut = save_tiny(tmp_path / "cut")
    (cut / "model.safetensors").write_bytes((cut / "model.safetensors").read_bytes()[:1000])
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_encoder(str(cut))
    broken = save_tiny(tmp_path / "broken")
    (broken / "config.json").write_text("{")
    with pytest.raises(EncoderError, match="cannot be loaded"):
        load_encoder(str(broken))
    with pytest.raises(EncoderError, match="no such folder"):
        load_encoder(str(tmp_path / "nothing" / "here"))


def pool_slowly(hidden: Tensor, words: Tensor, count: int, how: str) -> Tensor:
    result = torch.zeros(len(hidden), count, hidden.shape[2])
    for row in range(len(hidden)):
        for word in range(count):
            own = hidden[row, words[row] == word]
            if len(own):
                result[row, word] = {"mean": own.mean(0), "first": own[0], "last": own[-1]}[how]
    return result


@pytest.mark.parametrize("how", ["mean", "first", "last"])
def test_words_are_pooled_as_one_by_one(how: str) -> None:
    torch.manual_seed(0)
    hidden = torch.randn(3, 7, 4, requires_grad=True)
    words = torch.tensor([[-1, 0, 0, 1, 2, 2, -1], [-1, 0, 1, 2, 3, -1, -1], [-1, 2, 2, 2, 0, -1, -1]])
    got, expected = pool_words(hidden, words, words=4, how=how), pool_slowly(hidden, words, 4, how)
    assert torch.allclose(got, expected, atol=1e-6)
    (ours,) = torch.autograd.grad(got.square().sum(), hidden)
    (theirs,) = torch.autograd.grad(expected.square().sum(), hidden)
    assert torch.allclose(ours, theirs, atol=1e-5)


def test_pooling_by_another_name() -> None:
    with pytest.raises(EncoderError, match="Did you mean 'mean'"):
        pool_words(torch.zeros(1, 1, 1), torch.zeros(1, 1), words=1, how="means")


LOAD = """
import sys
from crossling.encoders.loading import load_encoder
from crossling.errors import EncoderError
for name in sys.argv[1:]:
    name, _, revision = name.partition("@")
    try:
        encoder = load_encoder(name, revision=revision or None)
        print("loaded", encoder.name, encoder.identity)
    except EncoderError as error:
        print("error", error)
"""


def load_elsewhere(endpoint: str, home: Path, *names: str, **more: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        env=environment(endpoint, home, **more),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_names_on_the_hub(tmp_path: Path) -> None:
    good = save_tiny(tmp_path / "hub" / "models" / "group" / "tiny", "xlm-r")
    (good / "pytorch_model.bin").write_bytes(b"never fetched")
    (good / "onnx").mkdir()
    (good / "onnx" / "model.safetensors").write_bytes(b"never fetched")
    pickled = save_tiny(tmp_path / "hub" / "models" / "group" / "pickled", "bert")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    home = tmp_path / "home"
    with serve(tmp_path / "hub") as endpoint:
        found, lost, unsafe = load_elsewhere(
            endpoint, home, "group/tiny", "xlm-roberta-bas", "group/pickled", HF_HUB_DISABLE_XET="1"
        )
    assert found == f"loaded group/tiny {load_encoder(str(good)).identity}"
    assert "neither a folder here nor a name on the hub" in lost and "Did you mean 'xlm-roberta-base'" in lost
    assert unsafe.startswith("error") and "no model.safetensors" in unsafe and "refs/pr" in unsafe
    assert not [path for path in home.rglob("*") if path.is_file() and path.read_bytes() == b"never fetched"]
    # The server is gone: what was fetched is still there, what was not says how to go on without a network.
    cached, away = load_elsewhere(endpoint, home, "group/tiny", "intfloat/multilingual-e5-small", HF_HUB_OFFLINE="1")
    assert cached == found
    assert "cannot be reached" in away and "`multilingual-e5-small` needs no network" in away
