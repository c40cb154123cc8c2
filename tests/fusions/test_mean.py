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


def test_invalid_settings_error_names_valid_range() -> None:
    with pytest.raises(RecipeError, match="Valid: 1 to 2"):
        build(Settings(layer=4), layers=3, width=4)
    with pytest.raises(ValidationError, match="from 1"):
        Settings(layer=0)
    with pytest.raises(ValidationError, match="less than or equal to 1"):
        Settings(layer=1, weight=1.5)
