"""DLFA against the paper's equations written out sentence by sentence, and what must not change a prediction."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from crossling.errors import RecipeError
from crossling.fusions.dlfa import Settings, build

LAYERS, WIDTH = 4, 8
VARIANTS = [
    {"branches": branches, "reading": reading, "start": start}
    for branches in ("both", "global", "local")
    for reading in ("gate", "weighted")
    for start in ("random", "identity")
]
EPS = 1e-5


def _build(layer: int = 2, **settings: Any) -> Any:
    """A module with weights that are nowhere at a special value."""
    torch.manual_seed(1)
    module = build(Settings(layer=layer, **settings), layers=LAYERS, width=WIDTH)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
        for name, buffer in module.named_buffers():
            buffer.copy_(torch.rand(buffer.shape) + 0.5 if name.endswith("var") else torch.randn(buffer.shape))
    return module


def _hidden(lengths: list[int], size: int, *, seed: int = 0) -> tuple[dict[int, Tensor], Tensor]:
    """Sentences, each the same whatever the size of its batch; what pads them is large and shows where it leaks."""
    hidden = {layer: torch.full((len(lengths), size, WIDTH), 50.0) for layer in (2, LAYERS)}
    for row, length in enumerate(lengths):
        for layer, values in hidden.items():
            generator = torch.Generator().manual_seed(1000 * seed + 10 * row + layer)
            values[row, :length] = torch.randn(length, WIDTH, generator=generator)
    return hidden, (torch.arange(size) < torch.tensor(lengths)[:, None]).long()


Vector = list[float]


def _linear(weight: Tensor, x: Vector) -> Vector:
    return [sum(float(w) * v for w, v in zip(row, x, strict=True)) for row in weight]


def _normalise(norm: Any, columns: list[Vector], *, training: bool) -> list[Vector]:
    """Batch normalisation of a list of vectors, channel by channel; one vector alone has no statistics."""
    out = [[0.0] * len(columns[0]) for _ in columns]
    for c in range(len(columns[0])):
        values = [vector[c] for vector in columns]
        mean, var = float(norm.running_mean[c]), float(norm.running_var[c])
        if training and len(values) > 1:
            mean = sum(values) / len(values)
            var = sum((v - mean) ** 2 for v in values) / len(values)
        for place, value in enumerate(values):
            normal = (value - mean) / math.sqrt(var + EPS)
            out[place][c] = normal * float(norm.weight[c]) + float(norm.bias[c])
    return out


def _branch(branch: Any, inputs: list[Vector], *, training: bool) -> list[Vector]:
    """Equations 1 and 2, after the pooling."""
    narrow = [_linear(branch.narrow.weight, x) for x in inputs]
    narrow = [[max(0.0, v) for v in x] for x in _normalise(branch.narrow_norm, narrow, training=training)]
    return _normalise(branch.widen_norm, [_linear(branch.widen.weight, x) for x in narrow], training=training)


def _reference(module: Any, hidden: dict[int, Tensor], lengths: list[int], *, training: bool) -> list[list[Vector]]:
    """Equations 1 to 4 over real tokens only, with loops: the fused vectors of each sentence."""
    lower, last = ([h[row, :n].tolist() for row, n in enumerate(lengths)] for h in (hidden[2], hidden[LAYERS]))
    middle = [
        [[(a + b) / 2 for a, b in zip(x, y, strict=True)] for x, y in zip(p, q, strict=True)]
        for p, q in zip(lower, last, strict=True)
    ]
    pooled = [[sum(x[d] for x in s) / len(s) for d in range(WIDTH)] for s in middle]
    logits = [[[0.0] * WIDTH for _ in range(n)] for n in lengths]
    for branch in module.attention_map.global_branches:
        for sentence, weights in zip(logits, _branch(branch, pooled, training=training), strict=True):
            for token in sentence:
                token[:] = [a + b for a, b in zip(token, weights, strict=True)]
    for branch in module.attention_map.local_branches:
        weights = iter(_branch(branch, [x for s in middle for x in s], training=training))
        for sentence in logits:
            for token in sentence:
                token[:] = [a + b for a, b in zip(token, next(weights), strict=True)]
    fused = []
    for s, n in enumerate(lengths):
        fused.append([[0.0] * WIDTH for _ in range(n)])
        for t in range(n):
            for d in range(WIDTH):
                amount = 1 / (1 + math.exp(-logits[s][t][d]))
                if module.reading == "weighted":
                    amount *= middle[s][t][d]
                if module.share_D is not None:
                    amount *= float(module.share_D[d])
                fused[s][t][d] = lower[s][t][d] * amount + last[s][t][d] * (1 - amount)
    return fused


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda s: "-".join(s.values()))
@pytest.mark.parametrize("lengths", [[5, 2, 3], [4]], ids=["several", "one"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@torch.no_grad()
def test_dlfa_equals_equations_1_to_4(settings: dict[str, Any], lengths: list[int], training: bool) -> None:
    module = _build(r=2, **settings).train(training)
    hidden, mask = _hidden([*lengths, 1, 1], 7)  # two rows that only fill the batch up
    expected = _reference(module, hidden, lengths, training=training)
    fused = module(hidden, mask)
    assert fused.shape == (len(lengths) + 2, 7, WIDTH)
    assert torch.isfinite(fused).all()
    for row, length in enumerate(lengths):
        assert torch.allclose(fused[row, :length], torch.tensor(expected[row]), atol=1e-5)


@pytest.mark.parametrize("settings", VARIANTS, ids=lambda s: "-".join(s.values()))
def test_last_layer_fused_with_itself_is_unchanged(settings: dict[str, Any]) -> None:
    module = _build(LAYERS, **settings)
    assert module.reads == (LAYERS,)
    hidden, mask = _hidden([5, 3, 2], 5)
    last = hidden[LAYERS].requires_grad_()
    fused = module({LAYERS: last}, mask)
    assert torch.equal(fused, last)
    direction = torch.randn(fused.shape)
    fused.backward(direction)
    assert torch.allclose(last.grad, direction, atol=1e-5)
    assert len(list(module.parameters())) > 10
    assert all(not parameter.grad.any() for parameter in module.parameters())


@pytest.mark.parametrize("reading", ["gate", "weighted"])
def test_identity_start_equals_last_layer_until_first_update(reading: str) -> None:
    module = build(Settings(layer=2, reading=reading, start="identity"), layers=LAYERS, width=WIDTH)
    hidden, mask = _hidden([5, 3, 2], 5)
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.0)
    for step in range(3):
        fused = module(hidden, mask)
        assert torch.equal(fused, hidden[LAYERS]) == (step == 0)
        optimiser.zero_grad()
        ((fused - hidden[2]).square() * mask[:, :, None]).sum().backward()
        reached = all(bool(branch.widen.weight.grad.any()) for branch in module.attention_map.local_branches)
        assert module.share_D.grad.any()
        assert reached == (step > 0)
        optimiser.step()


def test_gate_stays_between_the_layers_and_weighted_does_not() -> None:
    hidden, mask = _hidden([5, 5, 5], 5)
    low, high = torch.minimum(hidden[2], hidden[LAYERS]), torch.maximum(hidden[2], hidden[LAYERS])
    gated, literal = (_build(reading=reading)(hidden, mask) for reading in ("gate", "weighted"))
    assert ((gated >= low - 1e-6) & (gated <= high + 1e-6)).all()
    assert ((literal < low - 1e-3) | (literal > high + 1e-3)).any()


@pytest.mark.parametrize("branches", ["both", "global", "local"])
def test_prediction_does_not_depend_on_its_batch(branches: str) -> None:
    """After training steps that moved all statistics: alone, with neighbours, with more padding."""
    lengths = [7, 2, 4, 5]
    module = _build(branches=branches)
    for seed in range(1, 5):
        module(*_hidden(lengths, 8, seed=seed))
    module.eval()
    with torch.no_grad():
        together = module(*_hidden(lengths, 8))
        wider = module(*_hidden([*lengths, 1], 16))
        hidden, mask = _hidden(lengths, 8)
        for row, length in enumerate(lengths):
            alone = module(
                {layer: h[row : row + 1, :length] for layer, h in hidden.items()}, mask[row : row + 1, :length]
            )
            assert torch.allclose(alone[0], together[row, :length], atol=1e-5)
            assert torch.allclose(wider[row, :length], together[row, :length], atol=1e-5)


@pytest.mark.parametrize("branches", ["both", "global", "local"])
def test_padding_and_empty_rows_do_not_change_a_training_step(branches: str) -> None:
    lengths = [5, 2, 4]
    results = []
    for rows, size in (([], 5), ([], 12), ([1, 1, 1], 8)):
        module = _build(branches=branches)
        hidden, mask = _hidden([*lengths, *rows], size)
        fused = module(hidden, mask)
        real = torch.cat([fused[row, :length] for row, length in enumerate(lengths)])
        real.pow(3).sum().backward()
        results.append([real, *(p.grad for p in module.parameters()), *module.buffers()])
    for plain, padded, filled in zip(*results, strict=True):
        assert torch.allclose(plain, padded, rtol=1e-4, atol=1e-5)
        assert torch.allclose(plain, filled, rtol=1e-4, atol=1e-5)


def test_single_sentence_trains() -> None:
    module = build(Settings(layer=2), layers=LAYERS, width=WIDTH)
    hidden, mask = _hidden([5], 5)
    target = torch.randn(1, 5, WIDTH)
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = (module(hidden, mask) - target).square().mean()
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in module.parameters())
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


def test_ablations_have_equal_parameter_counts() -> None:
    counts = {b: sum(p.numel() for p in _build(branches=b).parameters()) for b in ("both", "global", "local")}
    assert len(set(counts.values())) == 1
    narrow = WIDTH // 4
    assert counts["both"] == 2 * (2 * WIDTH * narrow + 2 * narrow + 2 * WIDTH)
    first, second = _build(branches="global").attention_map.global_branches
    assert not torch.equal(first.narrow.weight, second.narrow.weight)


def test_initial_weights_have_kaiming_deviation() -> None:
    torch.manual_seed(0)
    module = build(Settings(layer=1, r=4), layers=12, width=384)
    for branch in (*module.attention_map.global_branches, *module.attention_map.local_branches):
        assert float(branch.narrow.weight.detach().std()) == pytest.approx(math.sqrt(2 / 384), rel=0.05)
        assert float(branch.widen.weight.detach().std()) == pytest.approx(math.sqrt(2 / 96), rel=0.05)


@pytest.mark.parametrize("value", ["eight", 2.5, True, None])
def test_invalid_layer_error_says_how_layers_are_named(value: Any) -> None:
    for name in ("layer", "second"):
        with pytest.raises(ValidationError, match=r"is no layer: name it by number, from 0 .* or from the last down"):
            Settings(**{"layer": 1, name: value})


def test_layer_or_reduction_beyond_encoder_names_valid_values() -> None:
    for layer in (13, -14):
        with pytest.raises(
            RecipeError, match=rf"layer = {layer}: the encoder has 12 layers\. Valid: 0 .* to 12, or -1"
        ):
            build(Settings(layer=layer), layers=12, width=384)
    with pytest.raises(RecipeError, match=r"second = 13: the encoder has 12 layers"):
        build(Settings(layer=1, second=13), layers=12, width=384)
    with pytest.raises(RecipeError, match=r"r = 5: does not divide .* 12\. Valid: 1, 2, 3, 4, 6, 12\."):
        build(Settings(layer=1, r=5), layers=12, width=12)
    with pytest.raises(ValidationError, match=r"r\n.*greater than or equal to 1"):
        Settings(layer=1, r=0)
    for layer in (0, 1, 11, 12):
        assert layer in build(Settings(layer=layer), layers=12, width=12).reads


@pytest.mark.parametrize(
    ("layer", "second", "reads"), [(-1, -1, (4,)), (0, -1, (0, 4)), (-5, 2, (0, 2)), (3, 1, (1, 3))]
)
def test_any_two_layers_are_fused_as_a_lower_one_and_the_last_are(
    layer: int, second: int, reads: tuple[int, ...]
) -> None:
    module = _build(layer, second=second)
    assert module.reads == reads
    hidden = {number: torch.randn(2, 3, WIDTH) for number in range(LAYERS + 1)}
    mask = torch.ones(2, 3, dtype=torch.long)
    first, other = (number % (LAYERS + 1) for number in (layer, second))
    plain = _build(2).eval()  # the same weights, for the same seed drew them
    expected = plain({2: hidden[first], LAYERS: hidden[other]}, mask)
    assert torch.equal(module.eval()(hidden, mask), expected)


def test_frozen_gate_keeps_its_weights_but_layers_learn() -> None:
    torch.manual_seed(1)
    module = build(Settings(layer=2, frozen=True), layers=LAYERS, width=WIDTH)
    torch.manual_seed(1)
    learning = build(Settings(layer=2), layers=LAYERS, width=WIDTH)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), learning.parameters(), strict=True))
    hidden, mask = _hidden([5, 3, 2], 5)
    for values in hidden.values():
        values.requires_grad_()
    module(hidden, mask).square().sum().backward()
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in module.parameters())
    assert all(bool(values.grad.any()) for values in hidden.values())
    with pytest.raises(ValidationError, match="would always be the last layer"):
        Settings(layer=2, frozen=True, start="identity")


def test_module_holds_its_learning_rate() -> None:
    assert build(Settings(layer=1, lr=1e-3), layers=2, width=8).lr == 1e-3
    assert build(Settings(layer=1), layers=2, width=8).lr is None
    with pytest.raises(ValidationError, match="lr"):
        Settings(layer=1, lr=0.0)


@pytest.mark.gpu
def test_cuda_graph_replays_a_training_step() -> None:
    eager, captured = (_build().cuda() for _ in range(2))
    batches = [_hidden([5, 2, 4, 1], 6, seed=seed) for seed in range(5)]
    place = {layer: h.cuda() for layer, h in batches[0][0].items()}
    mask = batches[0][1].cuda()
    state = {name: value.clone() for name, value in captured.state_dict().items()}
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        captured(place, mask).square().sum().backward()
    torch.cuda.synchronize()
    captured.zero_grad()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fused = captured(place, mask)
        captured.zero_grad()
        fused.square().sum().backward()
    captured.load_state_dict(state)
    for hidden, _ in batches:
        for layer, h in hidden.items():
            place[layer].copy_(h)
        graph.replay()
        eager.zero_grad()
        expected = eager({layer: h.cuda() for layer, h in hidden.items()}, mask)
        expected.square().sum().backward()
        assert torch.allclose(fused, expected, atol=1e-5)
        for a, b in zip(eager.parameters(), captured.parameters(), strict=True):
            assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-3)
        for a, b in zip(eager.buffers(), captured.buffers(), strict=True):
            assert torch.allclose(a, b, atol=1e-4)
