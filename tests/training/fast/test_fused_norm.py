"""Which modules are replaced by kernels, found by what they compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from crossling.training.fast.fused_norm import choose_kernels, find_norm_blocks
from tiny import tiny_encoder


@pytest.mark.parametrize(("family", "fits"), [("bert", True), ("xlm-r", True), ("distilbert", False)])
def test_blocks_are_found_by_their_structure(family: str, fits: bool) -> None:
    encoder = tiny_encoder(family)
    blocks = find_norm_blocks(encoder)
    assert len(blocks) == (2 * encoder.layers if fits else 0)
    assert all(block.dropout.p < 1 and block.module.training == encoder.training for block in blocks)


class _Output(nn.Module):
    """As BERT's, or with something at another place."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order, self.dense, self.norm, self.dropout = order, nn.Linear(6, 8), nn.LayerNorm(8), nn.Dropout(0.1)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        z = self.dense(x)
        if self.order == "dropout last":
            return self.dropout(self.norm(z + residual))
        if self.order == "dropout of the sum":
            return self.norm(self.dropout(z + residual))
        return self.norm(self.dropout(z) + (0 if self.order == "no residual" else residual))


@pytest.mark.parametrize("order", ["as BERT's", "dropout last", "dropout of the sum", "no residual"])
def test_block_that_computes_something_else_is_left_alone(order: str) -> None:
    module = _Output(order).train()
    assert bool(find_norm_blocks(module)) == (order == "as BERT's")
    assert module.dropout.p == 0.1 and module.dropout.training


def test_trying_out_draws_no_random_numbers() -> None:
    encoder = tiny_encoder("bert")
    torch.manual_seed(1)
    assert find_norm_blocks(encoder)
    after = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), after)


def test_a_cpu_has_torch_kernels_whatever_is_asked_for() -> None:
    assert choose_kernels("fused", torch.device("cpu")) == "torch"
