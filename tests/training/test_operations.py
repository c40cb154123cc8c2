"""Operations done in other ways than torch's own, against slow and obvious ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from crossling.evaluation import encode_rows
from crossling.model import build_model
from crossling.registry import load_kind
from crossling.tasks import build_task
from crossling.training import operations
from crossling.training.loop import Execution, Stream, fit
from crossling.training.operations import ON_PROCESSOR, Replacing, attend, draw_kept, drop
from crossling.training.settings import TrainingSettings
from crossling.training.world import World
from examples import make_rows
from tiny import tiny_encoder

CPU = torch.device("cpu")


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5])
def test_dropout_drops_as_often_as_asked_and_keeps_the_mean(rate: float) -> None:
    torch.manual_seed(1)
    kept = draw_kept(torch.empty(1000, 1001), rate)
    values = kept.unique()
    assert len(values) == 2 and values[0] == 0
    assert float(values[1]) == pytest.approx(1 / (1 - rate), rel=1e-4)
    dropped = float((kept == 0).double().mean())
    assert dropped == pytest.approx(rate, abs=4 * (rate * (1 - rate) / kept.numel()) ** 0.5)
    assert float(kept.double().mean()) == pytest.approx(1.0, abs=4 * (rate / (1 - rate) / kept.numel()) ** 0.5)


def test_elements_are_dropped_independently_of_each_other() -> None:
    """Four neighbours share one draw of 64 bits: nothing of that may show."""
    torch.manual_seed(2)
    zero = (draw_kept(torch.empty(400_000), 0.3) == 0).double()
    for apart in (1, 2, 3, 4, 5):
        together = float((zero[apart:] * zero[:-apart]).mean())
        assert together == pytest.approx(0.09, abs=5 * (0.09 * 0.91 / len(zero)) ** 0.5), apart


def test_dropout_is_a_function_of_the_seed() -> None:
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        drawn.append(drop(torch.ones(7, 9), 0.5))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])


def test_nothing_is_dropped_outside_training_and_all_at_a_rate_of_1() -> None:
    ones = torch.ones(50)
    assert torch.equal(drop(ones, 0.9, training=False), ones)
    assert torch.equal(drop(ones, 0.0), ones)
    assert torch.equal(drop(ones, 1.0), torch.zeros(50))


@pytest.mark.parametrize("mask", ["none", "padding", "full"])
def test_attention_is_what_its_formula_says(mask: str) -> None:
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
    fast = attend(*parts, bias, 0.4)
    found = torch.autograd.grad(fast, parts, upstream)

    torch.manual_seed(4)
    kept = draw_kept(torch.empty(6, 5, 5, dtype=torch.float64), 0.4).view(2, 3, 5, 5)
    query, key, value = parts
    scores = query @ key.transpose(2, 3) / 4**0.5 + (0 if bias is None else bias)
    slow = (torch.softmax(scores, -1) * kept) @ value
    torch.testing.assert_close(fast, slow)
    for ours, theirs in zip(found, torch.autograd.grad(slow, parts, upstream), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    "settings", [{"dropout_p": 0.0}, {"is_causal": True, "dropout_p": 0.0}, {"scale": 0.3}, {"enable_gqa": True}]
)
def test_attention_that_is_not_ours_is_torchs(settings: dict[str, Any]) -> None:
    query, key, value = torch.randn(3, 1, 2, 4, 8)
    expected = functional.scaled_dot_product_attention(query, key, value, **settings)
    torch.testing.assert_close(attend(query, key, value, **settings), expected)


@pytest.mark.parametrize("family", ["bert", "xlm-r", "distilbert", "modernbert"])
def test_an_encoder_without_dropout_gives_the_same(family: str) -> None:
    encoder = tiny_encoder(family).eval()
    ids = torch.randint(5, 40, (3, 7))
    mask = torch.ones(3, 7, dtype=torch.long)
    mask[1, 4:] = 0
    expected = encoder(ids, mask, layers=(1, 2))
    with Replacing(ON_PROCESSOR):
        found = encoder(ids, mask, layers=(1, 2))
    for layer in (1, 2):
        torch.testing.assert_close(found[layer], expected[layer])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_on_a_processor_uses_them(
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
        functional.dropout: watch("dropout", drop),
        functional.scaled_dot_product_attention: watch("attention", attend),
    }
    monkeypatch.setattr(operations, "ON_PROCESSOR", ways)
    rows = make_rows(load_kind("tasks", "tag").Task.record, 8)
    task = build_task(load_kind("tasks", "tag").Settings(), load_kind("tasks", "tag").Task.collect_labels([rows]))
    model = build_model(tiny_encoder("bert"), {"kind": "last"})
    objective = task.build_objective("main")
    model.heads["main"] = objective.build_head(model.encoder.width)
    examples = encode_rows(task, [rows], model.encoder, cache=tmp_path / "encoded", labels=task.labels)
    settings = TrainingSettings(epochs=1, batch=len(examples), gradient_checkpointing=checkpointing)
    fit(model, Stream(objective, examples), settings, Execution(World(0, 1, CPU, torch.float32), 1, tmp_path))
    assert used["attention"] == model.encoder.layers * (2 if checkpointing else 1)
    assert used["dropout"]
