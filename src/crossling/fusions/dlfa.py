"""Double layers feature aggregation (DLFA) of the layer-fusion paper, equations 1 to 4.

Attentional information fusion (AIF) of the mean of two layers, by a global and a local branch, gives the weights by
which a lower layer and the last are mixed, or any two layers. Shapes: B sentences, S subwords, D width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, model_validator

from crossling.errors import RecipeError
from crossling.fusions import Layer, LearningRate, Module, find_layer
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.fusions.masked_norm import RealPositions


ADDED = ("second", "statistics", "frozen")
Statistics = Literal["running", "debiased"]


class Settings(FrozenSettings):
    """Which layers, and which variant of the module."""

    kind: Literal["dlfa"] = "dlfa"
    layer: Layer
    """The layer that is fused with the last: 1 to the one before the last, 0 for the embeddings' output, or counted
    from the last, which is -1."""
    second: Layer = -1
    """The layer that it is fused with; default: the last. A layer with itself stays as it is."""
    branches: Literal["both", "global", "local"] = "both"
    """A global (sentence) and a local (token) branch; or, as ablations, two of the one or two of the other."""
    r: int = Field(default=4, ge=1, le=65_536)
    """How much narrower a branch is in its middle; divides the encoder's width."""
    reading: Literal["gate", "weighted"] = "gate"
    """gate: weights between 0 and 1, a mix that keeps its scale; weighted: equation 4 with equation 3 as printed,
    where the weights are multiplied with the mean of the two layers."""
    start: Literal["random", "identity"] = "random"
    """random: from the first step about half of each layer; identity: the last layer exactly, and what training makes
    of it. identity needs a much higher learning rate than an encoder does."""
    lr: LearningRate = None
    """The module's own learning rate; default: the stage's."""
    statistics: Statistics = "running"
    """What predictions are normalised with. running: means of batches that start at 0 and 1 and follow slowly, so that
    they are wrong after fewer than about 60 steps; debiased: without that start, right from the first step."""
    frozen: bool = False
    """Keep the module's random weights: a control, which shows what a gate does that learnt nothing."""

    @model_validator(mode="after")
    def _something_mixed(self) -> Self:
        if self.frozen and self.start == "identity":
            raise ValueError('frozen with start = "identity" would always be the last layer; set start = "random"')
        return self


def build(settings: Settings, *, layers: int, width: int) -> DLFA:
    """The module for an encoder of this many layers and this width."""
    first = find_layer(settings.layer, layers=layers)
    second = find_layer(settings.second, layers=layers, key="second")
    if width % settings.r:
        divisors = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise RecipeError(f"fusion.r = {settings.r}: does not divide the encoder's width, {width}. Valid: {divisors}.")
    return DLFA(settings, layers=(first, second), width=width)


class Branch(Module):
    """``B(C2(ReLU(B(C1(x)))))`` of equations 1 and 2: 1 x 1 convolutions C1 and C2, batch normalisation B.

    A 1 x 1 convolution is a linear layer on the last dimension. It has no bias, because the normalisation after it
    removes any constant and adds its own. That normalisation also makes the result independent of the scale of the
    initial weights, so it does not matter which of Kaiming's variants is meant.
    """

    def __init__(self, width: int, r: int, statistics: Statistics) -> None:
        from torch import nn

        from crossling.fusions.masked_norm import MaskedBatchNorm

        super().__init__()
        debias = statistics == "debiased"
        self.narrow = nn.Linear(width, width // r, bias=False)
        self.narrow_norm = MaskedBatchNorm(width // r, debias=debias)
        self.widen = nn.Linear(width // r, width, bias=False)
        self.widen_norm = MaskedBatchNorm(width, debias=debias)
        for linear in (self.narrow, self.widen):
            nn.init.kaiming_normal_(linear.weight, nonlinearity="relu")

    def forward(self, x: Tensor, real: RealPositions) -> Tensor:
        narrow: Tensor = self.narrow_norm(self.narrow(x), real).relu()
        wide: Tensor = self.widen_norm(self.widen(narrow), real)
        return wide


class AIF(Module):
    """``Sigmoid(W_global + W_local)``, the attention map of equation 3: weights between 0 and 1.

    ``W_global`` is a branch of the sentence's mean (equation 1), ``W_local`` one of each token (equation 2). The
    ablations of figure 4 have two global or two local branches, each with its own weights, so that all variants have
    the same number of parameters.
    """

    def __init__(
        self,
        width: int,
        *,
        r: int,
        branches: Literal["both", "global", "local"],
        statistics: Statistics = "running",
    ) -> None:
        from torch import nn

        super().__init__()
        count = {"both": 1, "global": 2, "local": 0}[branches]
        self.global_branches = nn.ModuleList(Branch(width, r, statistics) for _ in range(count))
        self.local_branches = nn.ModuleList(Branch(width, r, statistics) for _ in range(2 - count))

    def forward(self, x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
        """B x S x D, or B x 1 x D where there are only global branches."""
        from crossling.fusions.masked_norm import RealPositions

        sentence_B = find_sentences(mask_BS)
        w: list[Tensor] = []
        if self.global_branches:
            pooled_BD, sentences = pool_tokens(x_BSD, mask_BS), RealPositions(sentence_B)
            w += [branch(pooled_BD, sentences).unsqueeze(1) for branch in self.global_branches]
        if self.local_branches:
            tokens = RealPositions(mask_BS.bool() & sentence_B.unsqueeze(1))
            w += [branch(x_BSD, tokens) for branch in self.local_branches]
        return (w[0] + w[1]).sigmoid()


def find_sentences(mask_BS: Tensor) -> Tensor:
    """Which rows are sentences, B.

    A batch of a fixed size is filled up with empty rows of one visible position, since attention over nothing is not a
    number. A sentence, even an empty one, has at least two special tokens.
    """
    return mask_BS.sum(1) > 1


def pool_tokens(x_BSD: Tensor, mask_BS: Tensor) -> Tensor:
    """``Pool`` of equation 1: the mean of each sentence's tokens, special ones included, B x D."""
    visible_BS1 = mask_BS.unsqueeze(-1).float()
    return (x_BSD * visible_BS1).sum(1) / visible_BS1.sum(1).clamp(min=1)


class DLFA(Module):
    """Equation 4: ``L1 * A + L2 * (1 - A)`` of a layer L1 and a second layer L2, the last, element by element.

    With the mean ``W = (L1 + L2) / 2`` and its attention map ``M = AIF(W)``, ``A`` is by ``reading``:

    - ``gate``: ``A = M``. Every element lies between those of the two layers, which is what the paper's text says of
      the equation (it keeps "the scale of the final output consistent") and what attentional feature fusion does.
    - ``weighted``: ``A = W * M``, equation 4 with equation 3 put in as printed. ``A`` has no bounds, and the mix is
      quadratic in the hidden states.

    With ``start = "identity"``, ``A`` is multiplied by a learnt share of each channel that starts at 0: the mix starts
    as the last layer exactly, and gradients reach the share at once. A bias that closes the gate would be neither
    exact, for a sigmoid never reaches 0, nor able to open again, for there its gradient vanishes.

    For a layer with itself L1 - L2 is 0, so the mix is that layer and no gradient reaches the map. ``layers`` are the
    numbers of L1 and L2.
    """

    def __init__(self, settings: Settings, *, layers: tuple[int, int], width: int) -> None:
        import torch
        from torch import nn

        super().__init__()
        self.layer, self.second = layers
        self.reads = tuple(sorted(set(layers)))
        self.reading, self.lr = settings.reading, settings.lr
        self.attention_map = AIF(width, r=settings.r, branches=settings.branches, statistics=settings.statistics)
        self.attention_map.requires_grad_(not settings.frozen)
        self.share_D = nn.Parameter(torch.zeros(width)) if settings.start == "identity" else None

    def weigh(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        """``A``: how much of the first layer is in each element of the mix, B x S x D or B x 1 x D."""
        W_BSD = (hidden[self.layer] + hidden[self.second]) / 2
        A_BSD: Tensor = self.attention_map(W_BSD, mask_BS)
        if self.reading == "weighted":
            A_BSD = W_BSD * A_BSD
        if self.share_D is not None:
            A_BSD = self.share_D * A_BSD
        return A_BSD

    def forward(self, hidden: dict[int, Tensor], mask_BS: Tensor) -> Tensor:
        L1_BSD, L2_BSD = hidden[self.layer], hidden[self.second]
        A_BSD = self.weigh(hidden, mask_BS)
        # L1 * A + L2 * (1 - A), in the form that is exactly L2 where A or L1 - L2 is 0
        return L2_BSD + (A_BSD * (L1_BSD - L2_BSD)).to(L2_BSD.dtype)
