"""Gradients that products add where they belong, against those that autograd gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from crossling.data.batching import Batch
from crossling.encoders.masked_word_head import build_head
from crossling.encoders.unlabelled import Chunking, encode_unlabelled
from crossling.models.model import Model, build_model
from crossling.objectives.masked_words import MaskingSettings, Objective
from crossling.registry import load_kind
from crossling.training.fast import fused_linear
from crossling.training.fast.bf16_weights import Bf16Weights
from crossling.training.fast.fused_linear import group_names
from examples import make_rows
from learner import make_learner
from tiny import tiny_encoder

CPU = torch.device("cpu")
FAMILIES = ["bert", "xlm-r", "distilbert", "modernbert"]


def _tagger(folder: Path, family: str = "bert", **fusion: Any) -> tuple[Model, Any, dict[str, torch.Tensor]]:
    """A model, what it learns, and a batch with padding."""
    model, stream = make_learner(folder, family=family, fusion=fusion or None, count=12)
    examples, objective = stream.examples, stream.objective
    plan = Batch(torch.arange(len(examples)).numpy(), int(examples.lengths.max()) + 2)
    return model.eval(), objective, model.prepare(objective.collate(examples, plan, size=len(examples) + 1), CPU)


def _expected(model: Model, objective: Any, batch: dict[str, torch.Tensor], times: int = 1) -> dict[str, torch.Tensor]:
    """Autograd's own gradients."""
    model.zero_grad()
    for _ in range(times):
        objective.sum_loss(model, batch).task.backward()
    found = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    return found


def _compare(model: Model, expected: dict[str, torch.Tensor]) -> None:
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_gradients_equal_autograd(tmp_path: Path, family: str) -> None:
    model, objective, batch = _tagger(tmp_path, family)
    expected = _expected(model, objective, batch)
    weights = Bf16Weights(model, torch.float32)
    terms = weights.backward(objective, batch, torch.ones(4))
    torch.testing.assert_close(terms.sum(), objective.sum_loss(model, batch).task.detach())
    _compare(model, expected)


def test_layers_read_by_a_fusion_get_both_gradients(tmp_path: Path) -> None:
    model, objective, batch = _tagger(tmp_path, kind="dlfa", layer=1)
    expected = _expected(model, objective, batch)
    Bf16Weights(model, torch.float32).backward(objective, batch, torch.ones(4))
    _compare(model, expected)


@pytest.mark.parametrize("forget", [True, False])
def test_gradients_add_up_and_restart_after_zero_grad(tmp_path: Path, forget: bool) -> None:
    model, objective, batch = _tagger(tmp_path)
    once, twice = _expected(model, objective, batch), _expected(model, objective, batch, times=2)
    weights = Bf16Weights(model, torch.float32)
    for expected in (once, twice):
        weights.backward(objective, batch, torch.ones(4))
        _compare(model, expected)
    model.zero_grad(set_to_none=forget)
    weights.backward(objective, batch, torch.ones(4))
    _compare(model, once)


def test_existing_gradients_are_added_to(tmp_path: Path) -> None:
    model, objective, batch = _tagger(tmp_path)
    twice = _expected(model, objective, batch, times=2)
    objective.sum_loss(model, batch).task.backward()
    Bf16Weights(model, torch.float32).backward(objective, batch, torch.ones(4))
    _compare(model, twice)


def test_frozen_weights_get_no_gradient(tmp_path: Path) -> None:
    model, objective, batch = _tagger(tmp_path)
    still = [
        name for name, _ in model.named_parameters() if "layer.0" in name or "key.bias" in name or "word_emb" in name
    ]
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name not in still)
    expected = _expected(model, objective, batch)
    assert still and not set(still) & set(expected)
    Bf16Weights(model, torch.float32).backward(objective, batch, torch.ones(4))
    _compare(model, expected)


def test_tied_embedding_gets_both_gradients(tmp_path: Path) -> None:
    """Masked words: the subword table is read at the bottom and compared with at the top."""
    encoder = tiny_encoder("bert")
    model = build_model(encoder, {"kind": "last"})
    torch.manual_seed(0)
    model.heads["words"] = build_head(encoder)
    rows = make_rows(load_kind("tasks", "classify").Task.record, 12)
    examples = encode_unlabelled([rows], encoder, Chunking(), cache=tmp_path).examples
    objective = Objective("words", MaskingSettings(), encoder, seed=1)
    plan = Batch(torch.arange(len(examples)).numpy(), int(examples.lengths.max()))
    batch = model.eval().prepare(objective.collate(examples, plan, size=len(examples)), CPU)
    expected = _expected(model, objective, batch)
    Bf16Weights(model, torch.float32).backward(objective, batch, torch.ones(4))
    _compare(model, expected)


@pytest.mark.parametrize(("family", "joined"), [("bert", 3), ("xlm-r", 3), ("distilbert", 3), ("modernbert", 1)])
def test_query_key_and_value_are_one_fused_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, joined: int
) -> None:
    model, objective, batch = _tagger(tmp_path, family)
    sizes: list[int] = []
    forward = fused_linear._FusedLinear.forward

    def watch(ctx: Any, read: torch.Tensor, product: Any, *more: Any) -> Any:
        sizes.append(len(product.sizes))
        return forward(ctx, read, product, *more)

    monkeypatch.setattr(fused_linear._FusedLinear, "forward", watch)
    Bf16Weights(model, torch.float32).backward(objective, batch, torch.ones(4))
    linear = [m for m in model.encoder.model.modules() if isinstance(m, torch.nn.Linear)]
    assert sizes.count(joined) >= model.encoder.layers
    assert sum(sizes) == len(linear), "every layer's product, once"


def test_names_are_grouped_within_one_layer() -> None:
    names = [f"l{n}.attention.self.{part}.weight" for n in (0, 1) for part in ("query", "key", "value")]
    assert group_names([*names, "l0.key.extra.weight", "l1.dense.weight"]) == [
        names[:3],
        names[3:],
        ["l0.key.extra.weight"],
        ["l1.dense.weight"],
    ]


def test_other_input_is_multiplied_anew(tmp_path: Path) -> None:
    """Outputs that were made along with another's are for the same input only."""
    torch.manual_seed(0)
    weights = [torch.randn(4, 6, requires_grad=True) for _ in range(2)]
    product = fused_linear.FusedLinear(weights, [], torch.float32)
    current = fused_linear.Pass(fused_linear.SideStream(CPU))
    first, second = torch.randn(3, 6), torch.randn(3, 6)
    torch.testing.assert_close(product.apply(0, first, current), first @ weights[0].T)
    torch.testing.assert_close(product.apply(1, second, current), second @ weights[1].T)
    torch.testing.assert_close(product.apply(0, second, current), second @ weights[0].T)
    assert product.waiting is None


@pytest.mark.parametrize("padding", [None, 2])
def test_rows_of_a_small_table_are_added_as_a_product(padding: int | None) -> None:
    rows, gradient = torch.tensor([[0, 2, 2], [3, 0, 2]]), torch.arange(12.0).view(2, 3, 2)
    table = torch.zeros(5, 2, requires_grad=True)
    torch.nn.functional.embedding(rows, table, padding_idx=padding).backward(gradient)
    into = torch.ones(5, 2)
    fused_linear.add_rows(into, rows, gradient, padding)
    assert torch.equal(into, 1 + table.grad)


def test_columns_that_lie_beside_each_other_are_joined_without_a_copy() -> None:
    whole = torch.arange(24.0).view(2, 3, 4)
    parts = whole.split((1, 3), -1)
    joined = fused_linear._join_columns(parts)
    assert torch.equal(joined, whole) and joined.data_ptr() == whole.data_ptr()
    for others in ((parts[1], parts[0]), (parts[0], parts[1].clone()), (parts[0], parts[0])):
        copied = fused_linear._join_columns(others)
        assert torch.equal(copied, torch.cat(others, -1)) and copied.data_ptr() != whole.data_ptr()


def test_sums_are_used_for_the_gradients_that_they_are_of() -> None:
    """An output that something else reads, too, has another gradient: its sums are not those that a kernel left."""
    current = fused_linear.Pass(fused_linear.SideStream(CPU), joins=True)
    outputs = torch.randn(3, 4).split(2, -1)
    sums = current.register_outputs(outputs)
    assert current.find_sums(*outputs) is sums
    assert current.find_sums(outputs[0]) is current.find_sums(*reversed(outputs)) is None
    gradients = [torch.randn(3, 2) for _ in range(2)]
    for others, same in ((gradients, True), ([gradients[0], gradients[1] + 0], False), (gradients[:1], False)):
        sums.give(gradients, torch.ones(1, 2, 2))
        assert (sums.take(others) is not None) == same
    assert sums.take(gradients) is None, "they are taken once"
    current.end_forward()
    assert current.find_sums(*outputs) is None


def test_residual_gradient_that_comes_too_late_is_not_left() -> None:
    residual = fused_linear.ResidualGradient()
    assert residual.give(torch.ones(1)) and residual.take() is not None
    assert not residual.give(torch.ones(1)) and residual.take() is None
