"""Attention as one kernel each way, against torch: on a GPU, or interpreted on a CPU with TRITON_INTERPRET=1."""

from __future__ import annotations

import pytest
import torch
from interpreted import DEVICE
from torch import Tensor

from crossling.training.fast import attention_kernels, fused_attention
from crossling.training.fast.fused_attention import FusedAttention
from crossling.training.fast.fused_linear import Pass, SideStream
from crossling.training.fast.kernels import find_dropout_threshold
from crossling.training.fast.seeds import Seeds

SHAPES = [(3, 3, 20, 16), (2, 2, 70, 32), (1, 2, 128, 64), (3, 1, 7, 64)]
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4e-2}
PRECISIONS = [torch.float32, *([torch.bfloat16] if DEVICE.type == "cuda" else [])]
"""The interpreter multiplies the bits of bfloat16 as whole numbers."""
HIDDEN = torch.finfo(torch.float16).min
"""What masks add to the scores of padding."""


def _draw(*shape: int, seed: int, precision: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, precision)


def _split(joined_BSE: Tensor, heads: int) -> list[Tensor]:
    """Query, key and value, B x H x S x D, where one matrix product leaves them."""
    texts, length, width = joined_BSE.shape
    return [part.view(texts, length, heads, -1).transpose(1, 2) for part in joined_BSE.split(width // 3, -1)]


def _mask(texts: int, length: int, precision: torch.dtype) -> Tensor:
    """Of texts that are whole, half as long, and empty."""
    lengths = torch.tensor([length, max(1, length // 2), 0])[:texts, None]
    return torch.where(torch.arange(length) < lengths, 0.0, HIDDEN)[:, None, None].to(DEVICE, precision)


def _find_dropout_mask(shape: tuple[int, int, int, int], seed: Tensor, rate: float) -> Tensor:
    """The mask that the kernels draw, B x H x S x S: scores of 0, and values that show one key after another."""
    texts, heads, length, width = shape
    zero = torch.zeros(shape, device=DEVICE)
    kept = torch.empty(texts, heads, length, length, device=DEVICE)
    for start in range(0, length, width):
        count = min(width, length - start)
        value = torch.zeros(shape, device=DEVICE)
        value[:, :, torch.arange(start, start + count), torch.arange(count)] = 1
        output, _ = attention_kernels.attend(zero, zero, value, None, seed, rate=rate, scale=1.0)
        kept[..., start : start + count] = (output.transpose(1, 2)[..., :count] != 0).float()
    return kept


def _attention() -> FusedAttention:
    return FusedAttention(Seeds(), Pass(SideStream(DEVICE)))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_attention_equals_torch(shape: tuple[int, int, int, int], precision: torch.dtype, rate: float) -> None:
    """With dropout, torch gets the mask that the kernels drew: the forward and the backward pass draw the same."""
    texts, heads, length, width = shape
    inputs = _split(_draw(texts, length, 3 * heads * width, seed=1, precision=precision), heads)
    mask, seed = _mask(texts, length, precision), torch.tensor([(1 << 40) + 77], device=DEVICE)
    scale = width**-0.5
    assert attention_kernels.suits(*inputs, mask)
    output, normalisers = attention_kernels.attend(*inputs, mask, seed, rate=rate, scale=scale)
    grad_output = _draw(texts, length, heads, width, seed=2, precision=precision)
    grad_output[2:] = 0  # of a text without a subword
    gradients, sums = attention_kernels.attend_backward(
        grad_output, *inputs, mask, seed, normalisers, rate=rate, scale=scale
    )

    drawn = torch.ones(texts, heads, length, length, device=DEVICE)
    if rate:
        drawn = _find_dropout_mask(shape, seed, rate) * find_dropout_threshold(rate)[1]
    query, key, value = (part.detach().float().requires_grad_() for part in inputs)
    expected = (torch.softmax(query @ key.transpose(2, 3) * scale + mask.float(), -1) * drawn) @ value
    expected.backward(grad_output.float().transpose(1, 2))
    close = {"atol": TOLERANCE[precision], "rtol": TOLERANCE[precision]}
    torch.testing.assert_close(output[:2].float(), expected[:2].transpose(1, 2), **close)
    for number, one in enumerate((query, key, value)):
        torch.testing.assert_close(gradients[:, :, number].transpose(1, 2).float(), one.grad, **close)
        torch.testing.assert_close(sums[:, number].view(texts, heads, width), one.grad.sum(2), atol=0.1, rtol=0.1)


def test_dropout_mask_has_the_requested_rate_and_depends_on_the_seed() -> None:
    shape = (2, 3, 40, 32)
    seeds = [torch.tensor([number], device=DEVICE) for number in (1, 2, 1)]
    masks = [_find_dropout_mask(shape, seed, 0.3) for seed in seeds]
    assert torch.equal(masks[0], masks[2])
    assert float((masks[0] == masks[1]).float().mean()) == pytest.approx(0.58, abs=0.03)
    for mask in masks:
        assert float(mask.mean()) == pytest.approx(0.7, abs=0.02)
        for dim in range(4):
            means = mask.mean([other for other in range(4) if other != dim])
            assert float(means.min()) > 0.6 and float(means.max()) < 0.8


def test_replaced_attention_gives_gradients_beside_each_other() -> None:
    """So that the product for query, key and value reads them without a copy."""
    joined = _draw(2, 9, 3 * 2 * 16, seed=3).requires_grad_()
    inputs = _split(joined, 2)
    for part in inputs:
        part.retain_grad()
    output = _attention()(*inputs, _mask(2, 9, torch.float32))
    expected = torch.nn.functional.scaled_dot_product_attention(*inputs, _mask(2, 9, torch.float32))
    torch.testing.assert_close(output, expected, atol=TOLERANCE[torch.float32], rtol=1e-3)
    found: list[Tensor] = []
    inputs[0].register_hook(found.append)
    inputs[2].register_hook(found.append)
    output.sum().backward()
    query, value = sorted(found, key=Tensor.storage_offset)
    assert query.untyped_storage().data_ptr() == value.untyped_storage().data_ptr()
    assert value.storage_offset() - query.storage_offset() == 2 * 2 * 16


@pytest.mark.parametrize("what", ["causal", "long", "mask by query", "other strides", "width", "whole numbers"])
def test_attention_that_the_kernels_cannot_do_is_torchs(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_attention._FusedAttention, "apply", lambda *_: pytest.fail("a kernel was used"))
    length, width = 130 if what == "long" else 6, 24 if what == "width" else 16
    query, key, value = _split(_draw(2, length, 6 * width, seed=4).requires_grad_(), 2)
    mask = _mask(2, length, torch.float32)
    if what == "mask by query":
        mask = mask.repeat(1, 1, length, 1)
    if what == "whole numbers":
        mask = mask == 0
    if what == "other strides":
        value = value.contiguous()
    causal = what == "causal"
    found = _attention()(query, key, value, None if causal else mask, is_causal=causal)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, None if causal else mask, is_causal=causal
    )
    assert torch.equal(found, expected)
