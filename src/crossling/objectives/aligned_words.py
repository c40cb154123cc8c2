"""Cross-lingual adjustment: translations of words are pulled together, words of the source language to where they were.

Equation 1 of the adjustment paper, all of its settings, and those of replay (equation 2), which adds it to a task's
loss in every step: ``task + pull * L_pull + stay * L_stay`` (see ``training/loss.py``).

A batch holds B sentence pairs as 2B rows, the sources first, so that one pass reads both sides. B pairs, S subwords,
W words (at most as many as subwords), K links of a pair (padded to what a batch of this shape can have), D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, field_validator

from crossling.data.batching import Array, Batch, Examples
from crossling.data.spec import list_data
from crossling.errors import DataError
from crossling.limits import LARGEST_BATCH, LARGEST_NUMBER, MOST_COUNTED, MOST_LAYERS
from crossling.objectives import Terms
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model
    from crossling.objectives import Arrays

NONE = -1
"""Where there is no word, or no link."""


class AdjustmentSettings(FrozenSettings):
    """Which translations, how their words are linked, what of them is compared, and the weights of equation 1."""

    parallel: tuple[str | dict[str, Any], ...] = ()
    """Sentences with translations, the source language first: ntrex:en-hi, wikimatrix:en-es, opus:en-ru, or a table
    with format, path and languages. Several of them are adjusted to at once."""
    sentences: int | None = Field(default=30_000, ge=1, le=MOST_COUNTED)
    """At most this number of pairs of each set, drawn at random by the run's seed; none: all."""
    words: int = Field(default=64, ge=1, le=MOST_COUNTED)
    """Longer sentences are left out."""
    length: int = Field(default=128, ge=8, le=8192)
    """Subwords of a sentence; what is beyond gets no vectors."""
    aligner: dict[str, Any] = Field(
        default_factory=lambda: {"kind": "neural"}, json_schema_extra={"family": "aligners"}
    )
    """What links words, where the text has no links itself: neural (the recipe's encoder, a middle layer), statistical,
    eflomal, with their settings."""
    align_on: Literal["drawn", "all"] = "drawn"
    """What an aligner that learns from text sees: the pairs that were drawn, or all of the set, as in the paper,
    however few are drawn."""
    links: str = ""
    """A file in Pharaoh format, a line for each pair of the set, words apart by white space; {language} in its name
    becomes the target language."""
    one_to_one: bool = True
    """Only links whose two words have no other link."""
    drop_identical: bool = True
    """Leave out links between equal strings: names and numbers."""
    pooling: Literal["mean", "first", "last", "subword"] = "mean"
    """A word's vector from its subwords; subword: no words at all, links are between subwords."""
    anchors: tuple[Literal["words", "cls", "sep"], ...] = ("words", "cls", "sep")
    """What is pulled together: linked words, the first and the last special token, where the encoder has such ones."""
    moving: Literal["both", "target"] = "both"
    """Which side the pull moves: both, or the target alone while the source is held fixed."""
    layer: int | None = Field(default=None, ge=0, le=MOST_LAYERS)
    """Whose vectors are compared; default: the last layer's."""
    reduction: Literal["mean", "sum"] = "mean"
    """Means over pairs and dimensions, as the published figures had it, or sums, as the equation is written."""
    distance: Literal["absolute", "relative"] = "absolute"
    """absolute: squared distances as in the paper, which get smaller when all vectors shrink; relative: divided by the
    variance of the batch's words, so that shrinking does not lower the loss."""
    dropout: bool = True
    """The encoder's own, while it is adjusted; the reference encoder never has any."""
    pull: float = Field(default=1.0, ge=0, le=LARGEST_NUMBER)
    """The weight of the distance between linked words."""
    stay: float = Field(default=1.0, ge=0, le=LARGEST_NUMBER)
    """The weight of the distance of every source word from its vector in the reference encoder."""

    @field_validator("parallel", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        return list_data(value)

    @field_validator("aligner", mode="before")
    @classmethod
    def _valid_aligner(cls, value: Any) -> Any:
        from crossling.aligners import check_aligner

        return check_aligner(value)

    @field_validator("anchors")
    @classmethod
    def _some_anchor(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not value or len(set(value)) < len(value):
            raise ValueError("one or more of words, cls and sep, each once")
        return value


class ReplaySettings(AdjustmentSettings):
    """Aligned words in every step. What is not named here is as in the adjust stage before."""

    pull: float = Field(default=0.01, ge=0, le=LARGEST_NUMBER)
    """The weight of the distance between linked words; with stay = 0 too, nothing is replayed."""
    batch: int = Field(default=16, ge=1, le=LARGEST_BATCH)
    """Sentence pairs in every step, drawn with replacement."""
    reference: Literal["base", "start"] = "base"
    """Which encoder source words are compared with: the recipe's as it came, or as this stage found it."""

    def is_on(self) -> bool:
        """With both weights 0 there is nothing to replay."""
        return bool(self.pull or self.stay)


ADDED = ("distance", "keep", "align_on")
"""Settings that came after results had been stored."""


ALIGNED_ON_ALL = "sentences of any length"
"""What results of ``align_on = "all"`` are known by; once they were of sentences that were not too long to be drawn."""


def identify_pairs(settings: AdjustmentSettings) -> dict[str, Any]:
    """The part of the settings that results are known by; data count by content, not by name.

    What was added later counts only where it is not the default, so that stored results stay known.
    """
    table = settings.model_dump(mode="json", exclude={"parallel", "links"})
    if settings.align_on == "all":
        table["align_on"] = ALIGNED_ON_ALL
    fields = type(settings).model_fields
    return {name: value for name, value in table.items() if name not in ADDED or value != fields[name].default}


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


class Objective:
    """Equation 1: ``pull * L_pull + stay * L_stay``."""

    def __init__(
        self, name: str, settings: AdjustmentSettings, encoder: Encoder, *, reference: Encoder | None = None
    ) -> None:
        """``reference``: a frozen encoder with the vocabulary of the one that learns; needed for ``stay``."""
        from crossling.encoders.special_tokens import special_layout

        self.layer = encoder.layers if settings.layer is None else settings.layer
        if self.layer > encoder.layers:
            raise DataError(f"layer = {settings.layer}: {encoder.name} has 0 (embeddings) to {encoder.layers}")
        self.name, self.settings, self.width = name, settings, encoder.width
        self.weights = Terms(pull=settings.pull, stay=settings.stay)
        self.reference = reference if settings.stay else None
        layout = special_layout(encoder.tokenizer)
        self.special = (bool(layout.prefix), bool(layout.single_suffix))
        """Whether sentences begin and end with a special token; T5's only end with one."""

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

    def count_targets(self, batch: Arrays) -> Terms[int]:
        """Squared differences in each term: vectors that are compared, times the width."""
        if self.settings.reduction == "sum":
            return Terms(pull=0, stay=0)
        pairs = int(batch["real"].sum()) // 2
        anchors, (first, last) = self.settings.anchors, self.special
        special = pairs * (("cls" in anchors and first) + ("sep" in anchors and last))
        linked = int((batch["links"][..., 0] != NONE).sum()) if "words" in self.settings.anchors else 0
        source = batch["words"][: len(batch["words"]) // 2]
        held = int(sum(len(np.unique(row[row != NONE])) for row in source)) + sum(self.special) * pairs
        return Terms(pull=(special + linked) * self.width, stay=held * self.width)

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        """``L_pull``: from source words to their translations. ``L_stay``: from source words to the reference's."""
        import torch

        size = len(batch["links"])
        vectors = self._read(model.encoder, batch)
        source, target = vectors[:size], vectors[size:]
        moving = source.detach() if self.settings.moving == "target" else source
        L_pull = self._sum_pull(moving, target, batch)
        is_relative = self.settings.distance == "relative"
        if is_relative:
            L_pull = L_pull / average_variance(torch.cat([moving.words, target.words]), batch["words"])
        if self.reference is None:
            return Terms(pull=L_pull, stay=torch.zeros_like(L_pull))
        of_source = {name: values[:size] for name, values in batch.items() if name != "links"}
        with torch.no_grad():
            before = self.encode(self.reference, of_source)
        L_stay = _sum_stay(source, before, of_source["real"].float())
        if is_relative:
            L_stay = L_stay / average_variance(before.words, of_source["words"])
        return Terms(pull=L_pull, stay=L_stay)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The two sums of squared distances."""
        sums = self.sum_loss(model, batch)
        assert sums.pull is not None and sums.stay is not None
        return {"pull": sums.pull, "stay": sums.stay}

    def _read(self, encoder: Encoder, batch: dict[str, Tensor]) -> _Vectors:
        if self.settings.dropout or not encoder.training:
            return self.encode(encoder, batch)
        encoder.eval()
        vectors = self.encode(encoder, batch)
        encoder.train()
        return vectors

    def encode(self, encoder: Encoder, batch: dict[str, Tensor]) -> _Vectors:
        """What is compared of the sentences of a batch, by any encoder with the vocabulary of the one that learns."""
        from crossling.encoders.encoder import pool_words

        layers = encoder(batch["ids"], batch["mask"], batch.get("types"), layers=(self.layer,))
        hidden_NSD: Tensor = layers[self.layer].float()
        how = "mean" if self.settings.pooling == "subword" else self.settings.pooling  # the mean of one subword
        words_NWD = pool_words(hidden_NSD, batch["words"], words=hidden_NSD.shape[1], how=how)
        cls_ND, sep_ND = hidden_NSD[:, 0], _pick(hidden_NSD, batch["ends"][:, None])[:, 0]
        first, last = self.special
        return _Vectors(words_NWD, cls_ND if first else 0 * cls_ND, sep_ND if last else 0 * sep_ND)

    def _sum_pull(self, source: _Vectors, target: _Vectors, batch: dict[str, Tensor]) -> Tensor:
        total = source.words.new_zeros(())
        if "words" in self.settings.anchors:
            linked_BK = (batch["links"][..., 0] != NONE).float()
            index_BK2 = batch["links"].clamp(min=0)
            left_BKD = _pick(source.words, index_BK2[..., 0])
            right_BKD = _pick(target.words, index_BK2[..., 1])
            total = total + ((left_BKD - right_BKD) ** 2).sum(-1).mul(linked_BK).sum()
        real_B = batch["real"][: len(source.cls)].float()
        for name, one, other in (("cls", source.cls, target.cls), ("sep", source.sep, target.sep)):
            if name in self.settings.anchors:
                total = total + ((one - other) ** 2).sum(-1).mul(real_B).sum()
        return total


@dataclass(frozen=True)
class _Vectors:
    """What is compared of N sentences: words N x W x D, the first and the last special token N x D."""

    words: Tensor
    cls: Tensor
    sep: Tensor

    def __getitem__(self, rows: slice) -> _Vectors:
        return _Vectors(self.words[rows], self.cls[rows], self.sep[rows])

    def detach(self) -> _Vectors:
        return _Vectors(self.words.detach(), self.cls.detach(), self.sep.detach())


def _sum_stay(now: _Vectors, before: _Vectors, real_B: Tensor) -> Tensor:
    """Squared distances of every source word and of both special tokens; padding is zero in both."""
    words = ((now.words - before.words) ** 2).sum()
    special_B = ((now.cls - before.cls) ** 2).sum(-1) + ((now.sep - before.sep) ** 2).sum(-1)
    return words + special_B.mul(real_B).sum()


def average_variance(vectors_NWD: Tensor, words_NS: Tensor) -> Tensor:
    """The variance of all words of the batch about their mean, averaged over dimensions.

    It grows with the square of the vectors' scale, as squared distances do: their ratio has no scale. Gradients pass
    through it, and all processes that train together have the same one.
    """
    import torch

    real_NW1 = find_words(words_NS, vectors_NWD.shape[1])[..., None].float()
    width = vectors_NWD.shape[-1]
    sums = torch.cat([(vectors_NWD * real_NW1).sum((0, 1)), real_NW1.sum()[None]])
    sums = sum_over_processes(sums)
    count = sums[width]
    squares = ((vectors_NWD - sums[:width] / count.clamp(min=1)) * real_NW1).square().sum()
    total = sum_over_processes(squares)
    # One word alone has no variance: distances then stay as they are
    return torch.where(total > 0, total / (count * width).clamp(min=1), torch.ones_like(total))


def sum_over_processes(values: Tensor) -> Tensor:
    """The sum over all processes that train together, with gradients of all of their losses."""
    from torch import distributed

    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return values
    from torch.distributed.nn.functional import all_reduce

    summed: Tensor = all_reduce(values)  # type: ignore[no-untyped-call]
    return summed


def find_words(words_NS: Tensor, words: int) -> Tensor:
    """Which of W words a sentence has, N x W: those that have a subword."""
    import torch

    slot_NS = torch.where(words_NS < 0, words, words_NS).long()
    return torch.zeros_like(slot_NS[:, :1], dtype=torch.bool).expand(-1, words + 1).scatter(1, slot_NS, True)[:, :words]


def _pick(vectors_NWD: Tensor, index_NK: Tensor) -> Tensor:
    """Rows by number; gathering's backward pass gives the same bits every time, indexing's does not."""
    return vectors_NWD.gather(1, index_NK[:, :, None].expand(-1, -1, vectors_NWD.shape[-1]))


def _round_up(most: int, length: int) -> int:
    """Room for links: one for each subword, which 1-1 links never exceed; doubled until it suffices otherwise."""
    room = length
    while room < most:
        room *= 2
    return room
