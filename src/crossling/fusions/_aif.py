"""Attentional information fusion (AIF) and double layers feature aggregation (DLFA) of the layer-fusion paper.

Shapes: B sentences, S subwords, D width.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from crossling.fusions._masked_norm import MaskedBatchNorm, RealPositions

Branches = Literal["both", "global", "local"]
Reading = Literal["gate", "weighted"]
Start = Literal["random", "identity"]


class Branch(nn.Module):
    """``B(C2(ReLU(B(C1(.)))))`` of equations 1 and 2.

    A 1 x 1 convolution is a linear layer on the last dimension; it has no bias, since the normalisation after it
    takes any constant away and adds its own. That normalisation also makes the result independent of the scale of the
    initial weights, so it does not matter which of Kaiming's variants is meant.
    """

    def __init__(self, width: int, r: int) -> None:
        super().__init__()
        self.narrow = nn.Linear(width, width // r, bias=False)
        self.narrow_norm = MaskedBatchNorm(width // r)
        self.widen = nn.Linear(width // r, width, bias=False)
        self.widen_norm = MaskedBatchNorm(width)
        for linear in (self.narrow, self.widen):
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")

    def forward(self, values: Tensor, real: RealPositions) -> Tensor:
        narrow = functional.relu(self.narrow_norm(self.narrow(values), real))
        weights: Tensor = self.widen_norm(self.widen(narrow), real)
        return weights


class AttentionMap(nn.Module):
    """``Sigmoid(W_Global + W_Local)``, the weights of equation 3, each between 0 and 1.

    The ablations of figure 4 have two global or two local branches, with weights of their own each, so that all three
    have equally many. Pooling is over the sentence's visible tokens, special ones included.
    """

    def __init__(self, width: int, *, r: int, branches: Branches) -> None:
        super().__init__()
        global_branches = {"both": 1, "global": 2, "local": 0}[branches]
        self.global_branches = nn.ModuleList(Branch(width, r) for _ in range(global_branches))
        self.local_branches = nn.ModuleList(Branch(width, r) for _ in range(2 - global_branches))

    def forward(self, hidden_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """B x S x D, or B x 1 x D where there are only global branches."""
        real_B = find_real_rows(mask_BS)
        parts: list[Tensor] = []
        if self.global_branches:
            pooled_BD = mean_of_tokens(hidden_BSD, mask_BS)
            rows = RealPositions(real_B)
            parts += [branch(pooled_BD, rows).unsqueeze(1) for branch in self.global_branches]
        if self.local_branches:
            tokens = RealPositions(mask_BS.bool() & real_B.unsqueeze(1))
            parts += [branch(hidden_BSD, tokens) for branch in self.local_branches]
        return torch.sigmoid(parts[0] + parts[1])


def find_real_rows(mask_BS: Tensor) -> Tensor:
    """Which rows are sentences, B.

    A batch that must have a fixed size is filled up with empty rows of one visible position, since attention over
    nothing is not a number. A sentence, even an empty one, has two special tokens at least.
    """
    return mask_BS.sum(1) > 1


def mean_of_tokens(hidden_BSD: Tensor, mask_BS: Tensor) -> Tensor:
    """The mean of each sentence's visible tokens, B x D: ``Pool`` of equation 1."""
    visible_BS1 = mask_BS.unsqueeze(-1).to(torch.float32)
    return (hidden_BSD * visible_BS1).sum(1) / visible_BS1.sum(1).clamp(min=1)


class DoubleLayerFusion(nn.Module):
    """Equation 4: a lower layer L1 and the last layer L2, mixed element by element.

    With ``W = (L1 + L2) / 2`` and the attention map ``M`` of ``W``, the mix is ``L2 + A * (L1 - L2)``, which is
    ``L1 * A + L2 * (1 - A)``, and ``A`` is by ``reading``:

    - ``gate``: ``A = M``. Every element lies between those of the two layers, which is what the paper's text says of
      the equation (it keeps "the scale of the final output consistent") and what attentional feature fusion does.
    - ``weighted``: ``A = W * M``, equation 4 with equation 3 put in as printed. ``A`` has no bounds, and the mix is
      quadratic in the hidden states.

    With ``start = "identity"`` the mix is ``L2 + s * A * (L1 - L2)`` with a learnt share ``s`` for each channel that
    starts at 0: the last layer exactly, and gradients reach ``s`` at once. A bias that closes the gate would be
    neither exact, for a sigmoid never reaches 0, nor able to open again, for there its gradient vanishes.

    Of the last layer with itself ``L1 - L2`` is 0, so the mix is the last layer and no gradient reaches the map.
    """

    lr: float | None = None
    """The learning rate of these weights, where it is not the stage's."""

    def __init__(
        self, layer: int, *, layers: int, width: int, r: int, branches: Branches, reading: Reading, start: Start
    ) -> None:
        super().__init__()
        self.layer, self.last = layer, layers
        self.reads = tuple(sorted({layer, layers}))
        self.reading = reading
        self.attention_map = AttentionMap(width, r=r, branches=branches)
        self.share_D = nn.Parameter(torch.zeros(width)) if start == "identity" else None

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        lower_BSD, last_BSD = hidden[self.layer], hidden[self.last]
        middle_BSD = (lower_BSD + last_BSD) / 2
        amount_BSD: Tensor = self.attention_map(middle_BSD, mask_BS)
        if self.reading == "weighted":
            amount_BSD = middle_BSD * amount_BSD
        if self.share_D is not None:
            amount_BSD = self.share_D * amount_BSD
        return last_BSD + (amount_BSD * (lower_BSD - last_BSD)).to(last_BSD.dtype)
