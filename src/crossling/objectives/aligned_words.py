"""Aligned words: translations are pulled together while the source language stays where it was (equation 1 of the
adjustment paper).

A batch holds B sentence pairs as 2B rows, the sources first, so that one pass reads both sides. B pairs, S subwords,
W words (as many as subwords at most), K links of a pair (padded to what a batch of this shape can have), D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from crossling.data.batching import Array, Batch, Examples
from crossling.encoders.encoder import pool_words

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import Arrays

Anchor = Literal["words", "cls", "sep"]
NONE = -1
"""Where there is no word, or no link."""


class PairedExamples(Examples):
    """Sentence pairs on disk: ``ids`` and ``words`` of the source, ``target_ids`` and ``target_words``, and links.

    A pair is as long as its longer side.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.lengths = np.maximum(self.lengths, self.count_values("target_ids"))

    def distinct_ids(self) -> Array:
        """The subwords of both sides, sorted."""
        return np.union1d(super().distinct_ids(), self.distinct_values("target_ids"))


@dataclass(frozen=True)
class Pull:
    """What the loss is made of."""

    pull: float = 1.0
    """The weight of the distance between words that are linked."""
    stay: float = 1.0
    """The weight of the distance between source words and what the reference makes of them."""
    anchors: tuple[Anchor, ...] = ("words", "cls", "sep")
    """What is pulled together: linked words, first and last special tokens."""
    moving: Literal["both", "target"] = "both"
    """Which side the pull moves."""
    pooling: Literal["mean", "first", "last"] = "mean"
    layer: int | None = None
    """None: the last."""
    reduction: Literal["mean", "sum"] = "mean"
    """Means over pairs and dimensions, or sums as the equation is written."""
    dropout: bool = True
    """Of the encoder, in the pass that learns; the reference never has any."""


class Objective:
    """Squared distances of linked words, and of source words from where they were."""

    terms = ("pull", "stay")

    def __init__(self, name: str, settings: Pull, *, width: int, reference: Encoder | None = None) -> None:
        """``reference``: a frozen encoder of the same vocabulary as the one that learns; needed where ``stay`` is."""
        self.name, self.settings, self.width = name, settings, width
        self.reference = reference if settings.stay else None

    def build_head(self, width: int) -> None:
        """The loss is on the encoder itself."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Both sides as rows below each other, each subword's word, and links between words."""
        shape = (2 * size, plan.length)
        ids, words, types = np.full(shape, -1), np.full(shape, NONE), np.zeros(shape, np.int64)
        most = max((len(examples.get("links", int(row))) // 2 for row in plan.rows), default=1)
        links = np.full((size, _round_up(most, plan.length), 2), NONE)
        for place, row in enumerate(plan.rows):
            for side, prefix in enumerate(("", "target_")):
                values = examples.get(f"{prefix}ids", int(row))
                ids[side * size + place, : len(values)] = values
                words[side * size + place, : len(values)] = examples.get(f"{prefix}words", int(row))
                if "types" in examples.columns:
                    types[side * size + place, : len(values)] = examples.get(f"{prefix}types", int(row))
            found = examples.get("links", int(row)).reshape(-1, 2)
            links[place, : len(found)] = found
        mask = (ids >= 0).astype(np.int64)
        ends = np.maximum(mask.sum(axis=1) - 1, 0)
        real = np.tile(np.arange(size) < len(plan.rows), 2)
        mask[~real, 0] = 1  # attention over nothing is not a number
        batch = {"ids": ids, "mask": mask, "words": words, "links": links, "ends": ends, "real": real}
        return {**batch, "types": types} if "types" in examples.columns else batch

    def count_targets(self, batch: Arrays) -> tuple[int, int]:
        """Numbers that are squared: of the pairs that are pulled, and of the source's vectors that stay."""
        pairs = int(batch["real"].sum()) // 2
        special = pairs * (("cls" in self.settings.anchors) + ("sep" in self.settings.anchors))
        linked = int((batch["links"][..., 0] != NONE).sum()) if "words" in self.settings.anchors else 0
        source = batch["words"][: len(batch["words"]) // 2]
        held = int(sum(len(np.unique(row[row != NONE])) for row in source)) + 2 * pairs
        return (special + linked) * self.width, held * self.width

    def weigh(self, targets: Sequence[float]) -> list[float]:
        """The weights of the two terms, by their numbers where means are asked for."""
        weights = (self.settings.pull, self.settings.stay)
        if self.settings.reduction == "sum":
            return list(weights)
        return [weight / max(count, 1.0) for weight, count in zip(weights, targets, strict=True)]

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        hidden_NSD = self._read(model.encoder, batch)
        vectors = _Vectors.gather(hidden_NSD, batch, self.settings.pooling)
        pulled = self._sum_pull(vectors, batch)
        if self.reference is None:
            return torch.stack([pulled, torch.zeros_like(pulled)])
        size = len(batch["ids"]) // 2
        source = {name: values[:size] for name, values in batch.items() if name != "links"}
        with torch.no_grad():
            held = _Vectors.gather(self._encode(self.reference, source), source, self.settings.pooling)
        return torch.stack([pulled, _sum_stay(vectors.first(size), held, source)])

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The two sums of squares: how far apart things are."""
        pull, stay = self.sum_loss(model, batch)
        return {"pull": pull, "stay": stay}

    def _read(self, encoder: Encoder, batch: dict[str, Tensor]) -> Tensor:
        if self.settings.dropout or not encoder.training:
            return self._encode(encoder, batch)
        encoder.eval()
        hidden_NSD = self._encode(encoder, batch)
        encoder.train()
        return hidden_NSD

    def _encode(self, encoder: Encoder, batch: dict[str, Tensor]) -> Tensor:
        layer = encoder.layers if self.settings.layer is None else self.settings.layer
        hidden: Tensor = encoder(batch["ids"], batch["mask"], batch.get("types"), layers=(layer,))[layer]
        return hidden.float()

    def _sum_pull(self, vectors: _Vectors, batch: dict[str, Tensor]) -> Tensor:
        size = len(batch["links"])
        source, target = vectors.first(size), vectors.last(size)
        if self.settings.moving == "target":
            source = source.detach()
        total = vectors.words.new_zeros(())
        if "words" in self.settings.anchors:
            linked_BK = (batch["links"][..., 0] != NONE).float()
            index_BK2 = batch["links"].clamp(min=0)
            left_BKD = _pick(source.words, index_BK2[..., 0])
            right_BKD = _pick(target.words, index_BK2[..., 1])
            total = total + ((left_BKD - right_BKD) ** 2).sum(-1).mul(linked_BK).sum()
        real_B = batch["real"][:size].float()
        for name, one, other in (
            ("cls", source.cls, target.cls),
            ("sep", source.sep, target.sep),
        ):
            if name in self.settings.anchors:
                total = total + ((one - other) ** 2).sum(-1).mul(real_B).sum()
        return total


@dataclass(frozen=True)
class _Vectors:
    """What is compared of N sentences: words N x W x D, the first and the last special token N x D."""

    words: Tensor
    cls: Tensor
    sep: Tensor

    @classmethod
    def gather(cls, hidden_NSD: Tensor, batch: dict[str, Tensor], pooling: str) -> _Vectors:
        words_NWD = pool_words(hidden_NSD, batch["words"], words=hidden_NSD.shape[1], how=pooling)
        return cls(words_NWD, hidden_NSD[:, 0], _pick(hidden_NSD, batch["ends"][:, None])[:, 0])

    def first(self, count: int) -> _Vectors:
        return _Vectors(self.words[:count], self.cls[:count], self.sep[:count])

    def last(self, count: int) -> _Vectors:
        return _Vectors(self.words[-count:], self.cls[-count:], self.sep[-count:])

    def detach(self) -> _Vectors:
        return _Vectors(self.words.detach(), self.cls.detach(), self.sep.detach())


def _sum_stay(now: _Vectors, then: _Vectors, source: dict[str, Tensor]) -> Tensor:
    """Squared distances of every source word and of both special tokens; words that are not there are zero in both."""
    words = ((now.words - then.words) ** 2).sum()
    special_B = ((now.cls - then.cls) ** 2).sum(-1) + ((now.sep - then.sep) ** 2).sum(-1)
    return words + special_B.mul(source["real"].float()).sum()


def _pick(vectors_NWD: Tensor, index_NK: Tensor) -> Tensor:
    """Rows by number; gathering's backward pass gives the same bits every time, indexing's does not."""
    return vectors_NWD.gather(1, index_NK[:, :, None].expand(-1, -1, vectors_NWD.shape[-1]))


def _round_up(most: int, length: int) -> int:
    """Room for links: one for each subword, which 1-1 links never exceed; twice as often as it takes otherwise."""
    room = length
    while room < most:
        room *= 2
    return room


def describe_pull(table: dict[str, Any]) -> Pull:
    """The part of a stage's settings that the loss is made of."""
    names = Pull.__dataclass_fields__
    chosen = {name: value for name, value in table.items() if name in names}
    return Pull(**{**chosen, "anchors": tuple(chosen.get("anchors", Pull.anchors))})
