"""The learnt mix of all layers."""

from __future__ import annotations

import math

import pytest
import torch
from pydantic import ValidationError

from crossling.errors import RecipeError
from crossling.fusions.scalar_mix import Settings, build


@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        (Settings(), (0, 1, 2, 3)),
        (Settings(embeddings=False), (1, 2, 3)),
        (Settings(layers=(-1, 0)), (0, 3)),
        (Settings(layers=(2,)), (2,)),
    ],
    ids=str,
)
def test_scalar_mix_is_gamma_times_weighted_sum(settings: Settings, reads: tuple[int, ...]) -> None:
    module = build(settings, layers=3, width=4)
    assert module.reads == reads
    hidden = {layer: torch.randn(2, 3, 4) for layer in reads}
    mask = torch.ones(2, 3, dtype=torch.long)
    plain = sum(hidden.values()) / len(reads)
    assert torch.allclose(module(hidden, mask), plain, atol=1e-6)
    scores, gamma = [0.3, -1.0, 2.0, 0.1][: len(reads)], 1.7
    with torch.no_grad():
        module.scores.copy_(torch.tensor(scores))
        module.gamma.fill_(gamma)
    total = sum(math.exp(s) for s in scores)
    expected = sum(gamma * math.exp(s) / total * hidden[layer] for s, layer in zip(scores, reads, strict=True))
    assert torch.allclose(module(hidden, mask), expected, atol=1e-5)


def test_scalar_mix_learns_weight_of_the_right_layer() -> None:
    module = build(Settings(lr=0.1), layers=3, width=4)
    assert module.lr == 0.1
    hidden = {layer: torch.randn(2, 3, 4) for layer in range(4)}
    optimiser = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.0)
    for _ in range(300):
        optimiser.zero_grad()
        (module(hidden, torch.ones(2, 3)) - 2 * hidden[1]).square().sum().backward()
        optimiser.step()
    assert torch.softmax(module.scores, 0)[1] > 0.9
    assert float(module.gamma.detach()) == pytest.approx(2.0, abs=0.2)


def test_invalid_layers_are_explained() -> None:
    with pytest.raises(RecipeError, match=r"layers = -5: the encoder has 3 layers"):
        build(Settings(layers=(1, -5)), layers=3, width=4)
    with pytest.raises(ValidationError, match="leave out 0 there"):
        Settings(layers=(1, 2), embeddings=False)
