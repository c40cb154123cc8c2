"""Heads: dropout and a linear layer on what the fusion gives.

B sentences, S subwords, D width, C classes.
"""

from __future__ import annotations

from typing import Literal, Protocol

from torch import Tensor, nn

Pooling = Literal["auto", "cls", "mean", "last"]


class Pooled(Protocol):
    """What may have a pretrained pooler: an encoder."""

    @property
    def has_pooler(self) -> bool:
        """Whether its checkpoint has one."""

    @property
    def is_causal(self) -> bool:
        """Whether attention is causal: a token sees only those before it."""

    def check_cls(self) -> None:
        """Refuse to read a first token that stands for nothing."""

    def pool_cls(self, hidden_BSD: Tensor) -> Tensor:
        """The first token's vector through the pooler."""


class Head(nn.Module):
    """``C`` scores from each vector: dropout, then a linear layer that starts small, as BERT's own layers do."""

    def __init__(self, width: int, classes: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width, classes)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, vectors: Tensor) -> Tensor:
        scores: Tensor = self.linear(self.dropout(vectors))
        return scores


def pool_sentence(encoder: Pooled, hidden_BSD: Tensor, mask_BS: Tensor, *, how: Pooling) -> Tensor:
    """One vector for each sentence.

    ``auto`` reads [CLS] through the checkpoint's pooler where it has one, else the mean of the tokens: a random
    pooler would have to be learnt from the task alone. Where tokens see those before them only, it reads the last one,
    which alone has seen the whole text.
    """
    if how == "auto":
        how = "last" if encoder.is_causal else "cls" if encoder.has_pooler else "mean"
    if how == "cls":
        encoder.check_cls()
        return encoder.pool_cls(hidden_BSD) if encoder.has_pooler else hidden_BSD[:, 0]
    if how == "last":
        last_B11 = (mask_BS.sum(1) - 1).clamp(min=0)[:, None, None]
        return hidden_BSD.gather(1, last_B11.expand(-1, -1, hidden_BSD.shape[2])).squeeze(1)
    weights_BS1 = mask_BS.unsqueeze(-1).to(hidden_BSD.dtype)
    return (hidden_BSD * weights_BS1).sum(1) / weights_BS1.sum(1).clamp(min=1)
