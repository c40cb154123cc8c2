"""The fixed mean of two layers."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from crossling.errors import RecipeError
from crossling.fusions.mean import Settings, build


@pytest.mark.parametrize("weight", [0.0, 0.25, 0.5, 1.0])
def test_mean_is_weighted_mean_of_two_layers(weight: float) -> None:
    module = build(Settings(layer=2, weight=weight), layers=3, width=4)
    assert module.reads == (2, 3)
    assert not list(module.parameters())
    hidden = {layer: torch.randn(2, 3, 4) for layer in module.reads}
    expected = weight * hidden[2] + (1 - weight) * hidden[3]
    assert torch.allclose(module(hidden, torch.ones(2, 3)), expected, atol=1e-6)


def test_default_is_plain_mean_and_last_with_itself_is_unchanged() -> None:
    assert Settings(layer=1).weight == 0.5
    module = build(Settings(layer=3), layers=3, width=4)
    last = torch.randn(2, 3, 4)
    assert module.reads == (3,)
    assert torch.equal(module({3: last}, torch.ones(2, 3)), last)


@pytest.mark.parametrize(
    ("layers", "reads"),
    [((-1,), (3,)), ((0, -1), (0, 3)), ((3, 1, 2), (1, 2, 3)), ((-4, 2), (0, 2)), ((), (0, 1, 2, 3))],
)
def test_any_layers_are_averaged_with_equal_shares(layers: tuple[int, ...], reads: tuple[int, ...]) -> None:
    module = build(Settings(layers=layers), layers=3, width=4)
    assert module.reads == reads
    hidden = {layer: torch.randn(2, 3, 4) for layer in range(4)}
    expected = torch.stack([hidden[layer] for layer in reads]).mean(0)
    assert torch.allclose(module(hidden, torch.ones(2, 3)), expected, atol=1e-6)


def test_layers_are_counted_from_the_last_too() -> None:
    assert build(Settings(layer=-2, weight=0.25), layers=3, width=4).shares == {2: 0.25, 3: 0.75}
    assert build(Settings(layer=0), layers=3, width=4).reads == (0, 3)


def test_invalid_settings_error_names_valid_range() -> None:
    with pytest.raises(RecipeError, match=r"layer = 4: .* Valid: 0 .* to 3"):
        build(Settings(layer=4), layers=3, width=4)
    with pytest.raises(RecipeError, match=r"layers = 4: .* Valid: 0 .* to 3"):
        build(Settings(layers=(1, 4)), layers=3, width=4)
    with pytest.raises(RecipeError, match="-1 is layer 3; name each once"):
        build(Settings(layers=(3, -1)), layers=3, width=4)
    for table, said in (
        ({"weight": 0.3}, "share of layer, which is missing"),
        ({"layer": 1, "layers": (1, 2)}, "name either layer"),
        ({"layers": (1, 1)}, "every layer once"),
        ({"layers": 3}, "no list of layers"),
        ({"layers": (1, 2), "weight": 0.3}, "share of layer"),
        ({"layer": 1, "weight": 1.5}, "less than or equal to 1"),
    ):
        with pytest.raises(ValidationError, match=said):
            Settings(**table)
