"""Operations done in other ways than torch's own, against slow and obvious ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from crossling.training.distributed import Distributed
from crossling.training.fast import cpu_operations as operations
from crossling.training.fast.cpu_operations import (
    CPU_OPERATIONS,
    ReplacedFunctions,
    attention,
    draw_dropout_mask,
    dropout,
)
from crossling.training.loop import Execution, fit
from crossling.training.settings import TrainingSettings
from learner import make_learner
from tiny import tiny_encoder

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_dropout_mask_has_requested_rate_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(1)
    mask = draw_dropout_mask(torch.empty(1000, 1001), rate)
    values = mask.unique()
    assert len(values) == 2 and values[0] == 0
    assert float(values[1]) == pytest.approx(1 / (1 - rate), rel=1e-4)
    dropped = float((mask == 0).double().mean())
    assert dropped == pytest.approx(rate, abs=4 * (rate * (1 - rate) / mask.numel()) ** 0.5)
    assert float(mask.double().mean()) == pytest.approx(1.0, abs=4 * (rate / (1 - rate) / mask.numel()) ** 0.5)


def test_dropout_mask_elements_are_independent() -> None:
    """Four neighbours share one draw of 64 bits: nothing of that may show."""
    torch.manual_seed(2)
    zero = (draw_dropout_mask(torch.empty(400_000), 0.3) == 0).double()
    for apart in (1, 2, 3, 4, 5):
        together = float((zero[apart:] * zero[:-apart]).mean())
        assert together == pytest.approx(0.09, abs=5 * (0.09 * 0.91 / len(zero)) ** 0.5), apart


def test_dropout_depends_on_torch_seed_alone() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(dropout(torch.ones(7, 9), 0.5))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_dropout_is_off_in_evaluation_and_total_at_rate_1() -> None:
    ones = torch.ones(50)
    assert torch.equal(dropout(ones, 0.9, training=False), ones)
    assert torch.equal(dropout(ones, 0.0), ones)
    assert torch.equal(dropout(ones, 1.0), torch.zeros(50))


@pytest.mark.parametrize("mask", ["none", "padding", "full"])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_attention_and_its_gradients_equal_the_formula(mask: str, scale: float | None) -> None:
    torch.manual_seed(3)
    shape = (2, 3, 5, 4)
    parts = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    bias = {
        "none": None,
        "padding": torch.zeros(2, 1, 1, 5, dtype=torch.float64).masked_fill(torch.rand(2, 1, 1, 5) < 0.3, -1e4),
        "full": torch.randn(2, 1, 5, 5, dtype=torch.float64),
    }[mask]
    upstream = torch.randn(shape, dtype=torch.float64)

    torch.manual_seed(4)
    fast = attention(*parts, bias, 0.4, scale=scale)
    found = torch.autograd.grad(fast, parts, upstream)

    torch.manual_seed(4)
    mask = draw_dropout_mask(torch.empty(6, 5, 5, dtype=torch.float64), 0.4).view(2, 3, 5, 5)
    query, key, value = parts
    scores = query @ key.transpose(2, 3) * (scale or 0.5) + (0 if bias is None else bias)
    slow = (torch.softmax(scores, -1) * mask) @ value
    torch.testing.assert_close(fast, slow)
    for ours, theirs in zip(found, torch.autograd.grad(slow, parts, upstream), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("case", ["no dropout", "causal", "grouped", "other length", "yes or no", "mask that learns"])
def test_unsupported_attention_falls_back_to_torch(case: str) -> None:
    torch.manual_seed(5)
    query, key, value = torch.randn(3, 1, 2, 4, 8)
    settings: dict[str, Any] = {
        "no dropout": {"dropout_p": 0.0},
        "causal": {"is_causal": True},
        "grouped": {"enable_gqa": True},
        "yes or no": {"attn_mask": torch.ones(4, 4).tril().bool()},
        "mask that learns": {"attn_mask": torch.randn(4, 4, requires_grad=True)},
    }.get(case, {})
    if case == "other length":
        key, value = key[:, :, :3], value[:, :, :3]
    found = []
    for way in (attention, functional.scaled_dot_product_attention):
        torch.manual_seed(6)
        found.append(way(query, key, value, **{"dropout_p": 0.5, **settings}))
    assert torch.equal(*found)
    assert found[0].requires_grad == (case == "mask that learns")


@pytest.mark.parametrize("family", ["bert", "xlm-r", "distilbert"])  # ModernBERT masks with booleans: torch's own
def test_encoder_with_replaced_operations_equals_formulas(family: str) -> None:
    """With the same draws; and those draws differ from torch's."""

    def slow(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, **more: Any) -> Any:
        scores = query @ key.transpose(2, 3) * (more.get("scale") or query.shape[-1] ** -0.5)
        weights = torch.softmax(scores if attn_mask is None else scores + attn_mask, -1)
        return (weights * draw_dropout_mask(weights.flatten(0, 1), dropout_p).view(weights.shape)) @ value

    encoder = tiny_encoder(family).train()
    for part in encoder.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.2
    ids, mask = torch.randint(5, 40, (3, 7)), torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    found = []
    for ways in (CPU_OPERATIONS, {**CPU_OPERATIONS, functional.scaled_dot_product_attention: slow}, {}):
        torch.manual_seed(7)
        with ReplacedFunctions(ways):
            found.append(encoder(ids, mask, layers=(1, 2))[2][mask.bool()])
    torch.testing.assert_close(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_on_cpu_uses_replaced_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpointing: bool
) -> None:
    """Where activations are recomputed, in that too: else the same pass would be two different ones."""
    used: Counter[str] = Counter()

    def watch(name: str, way: Any) -> Any:
        def act(*args: Any, **more: Any) -> Any:
            used[name] += 1
            return way(*args, **more)

        return act

    ways = {
        functional.dropout: watch("dropout", dropout),
        functional.scaled_dot_product_attention: watch("attention", attention),
    }
    monkeypatch.setattr(operations, "CPU_OPERATIONS", ways)
    model, stream = make_learner(tmp_path, count=8)
    settings = TrainingSettings(epochs=1, batch=len(stream.examples), gradient_checkpointing=checkpointing)
    fit(model, stream, settings, Execution(Distributed(0, 1, CPU, torch.float32), 1, tmp_path))
    assert used["attention"] == model.encoder.layers * (2 if checkpointing else 1)
    assert used["dropout"]
