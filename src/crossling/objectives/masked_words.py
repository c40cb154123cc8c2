"""Masked language modelling: the model predicts subwords that a mask or a random subword has replaced.

Masks are drawn anew in every epoch, by seed, epoch and example alone, so that a run that was stopped continues with
the same masks, whatever the batch and the number of processes. B texts, S subwords, D width, K masked places (of all
texts together, padded to what a batch of this shape can have), V subwords of the table.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import Field, model_validator

from crossling.data.batching import Array, Batch, Examples, pad_column
from crossling.data.draws import draw_uniform
from crossling.objectives import Terms
from crossling.objectives.inputs import IGNORED, collate_inputs
from crossling.recipe.recipe import FrozenSettings

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.encoders.encoder import Encoder
    from crossling.encoders.masked_word_head import MaskedWordHead
    from crossling.models.model import Model
    from crossling.objectives import Arrays

SHORT = 4
"""Subwords that a whole word may have in a text so short that its share is fewer."""


class MaskingSettings(FrozenSettings):
    """How texts are masked."""

    share: float = Field(default=0.15, gt=0, lt=1)
    """Of a text's subwords, those to predict; at least one."""
    mask: float = Field(default=0.8, ge=0, le=1)
    """Of those, the share that is replaced by the mask."""
    random: float = Field(default=0.1, ge=0, le=1)
    """Of those, the share that is replaced by a random subword; the rest stay as they are."""
    whole_words: bool = False
    """Mask all subwords of a word, or none."""

    @model_validator(mode="after")
    def _shares_fit(self) -> Self:
        if self.mask + self.random > 1:
            raise ValueError(f"mask + random = {self.mask + self.random:g}: together they are at most 1")
        return self

    def count_at_most(self, length: int) -> int:
        """The highest number of subwords to predict in a text of this length."""
        count = max(1, math.floor(self.share * length + 0.5))
        return max(count, SHORT) if self.whole_words else count


class Objective:
    """Cross-entropy over the subword table at the masked places."""

    weights = Terms(task=1.0)

    def __init__(
        self,
        name: str,
        settings: MaskingSettings,
        encoder: Encoder,
        *,
        seed: int,
        to_rows: Array | None = None,
        frozen: bool = False,
    ) -> None:
        """``to_rows``: the row of each subword in a trimmed table. ``frozen``: only the head learns."""
        self.name, self.settings, self.seed, self.frozen = name, settings, seed, frozen
        self.to_rows = to_rows
        tokenizer = encoder.tokenizer
        self.width, self.vocabulary = encoder.width, encoder.vocabulary
        self.mask_id = int(tokenizer.mask_token_id)
        self.special = np.asarray(sorted(tokenizer.all_special_ids), np.int64)
        known = np.setdiff1d(np.arange(min(len(tokenizer), encoder.vocabulary)), self.special)
        self.ordinary = known if to_rows is None else known[to_rows[known] >= 0]

    def build_head(self, width: int) -> MaskedWordHead:
        from crossling.encoders.masked_word_head import MaskedWordHead

        return MaskedWordHead(width, self.vocabulary)

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Masked inputs, the masked places in them, and what stood there; places that are not needed are ignored."""
        batch = collate_inputs(examples, plan, size=size)
        ids = batch["ids"]
        words = pad_column(examples, "words", plan, size=size, fill=-1) if self.settings.whole_words else None
        rows = np.concatenate([plan.rows, np.zeros(size - len(plan.rows), np.int64)])
        chosen_BS = self._choose(ids, words, rows, plan.epoch)
        room = size * self.settings.count_at_most(plan.length)
        places, labels = np.zeros(room, np.int64), np.full(room, IGNORED, np.int64)
        found = np.flatnonzero(chosen_BS)
        places[: len(found)] = found
        targets = ids.reshape(-1)[found]
        labels[: len(found)] = targets if self.to_rows is None else self.to_rows[targets]
        batch["ids"] = np.where(chosen_BS, self._replace(ids, rows, plan.epoch), ids)
        return {**batch, "places": places, "labels": labels}

    def _choose(self, ids: Array, words: Array | None, rows: Array, epoch: int) -> Array:
        """Which subwords are to be predicted: never special ones, and of every text its share exactly."""
        candidates_BS = (ids >= 0) & ~np.isin(ids, self.special)
        counts_B = candidates_BS.sum(axis=1)
        counts_B = np.where(counts_B > 0, np.maximum(1, np.floor(self.settings.share * counts_B + 0.5)), 0)
        chance_BS = draw_uniform(self.seed, epoch, 0, rows, ids.shape[1])
        if words is not None:
            return np.stack(
                [_choose_words(*row) for row in zip(words, candidates_BS, chance_BS, counts_B, strict=True)]
            )
        order_BS = np.argsort(np.where(candidates_BS, chance_BS, 2.0), axis=1, kind="stable")
        ranks_BS = np.argsort(order_BS, axis=1, kind="stable")
        chosen: Array = (ranks_BS < counts_B[:, None]) & candidates_BS
        return chosen

    def _replace(self, ids: Array, rows: Array, epoch: int) -> Array:
        """What each subword is replaced by if it is chosen."""
        kind_BS = draw_uniform(self.seed, epoch, 1, rows, ids.shape[1])
        pick_BS = draw_uniform(self.seed, epoch, 2, rows, ids.shape[1])
        random_BS = self.ordinary[(pick_BS * len(self.ordinary)).astype(np.int64)]
        kept_BS = np.where(kind_BS < self.settings.mask + self.settings.random, random_BS, ids)
        return np.where(kind_BS < self.settings.mask, self.mask_id, kept_BS)

    def count_targets(self, batch: Arrays) -> Terms[int]:
        return Terms(task=int((batch["labels"] != IGNORED).sum()))

    def sum_loss(self, model: Model, batch: dict[str, Tensor]) -> Terms[Tensor]:
        from torch.nn import functional

        logits_KV = self._logits(model, batch)
        loss = functional.cross_entropy(logits_KV.float(), batch["labels"], ignore_index=IGNORED, reduction="sum")
        return Terms(task=loss)

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """For every masked place: its text, whether the best subword is the right one, and the loss."""
        import torch
        from torch.nn import functional

        logits_KV, labels_K = self._logits(model, batch).float(), batch["labels"]
        loss_K = functional.cross_entropy(logits_KV, labels_K, ignore_index=IGNORED, reduction="none")
        text_K = torch.where(labels_K == IGNORED, -1, batch["places"] // batch["ids"].shape[1])
        return {"text": text_K, "right": logits_KV.argmax(dim=-1) == labels_K, "loss": loss_K}

    def _logits(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """Scores at the masked places only: a table of 250,000 subwords makes them most of the work."""
        hidden_BSD = self._represent(model, batch)
        vectors_KD = hidden_BSD.flatten(0, 1).index_select(0, batch["places"])
        logits_KV: Tensor = model.heads[self.name](vectors_KD, model.encoder.model.get_input_embeddings().weight)
        return logits_KV

    def _represent(self, model: Model, batch: dict[str, Tensor]) -> Tensor:
        """A frozen encoder reads without dropout: as it will when the head is used."""
        import torch

        if not self.frozen:
            return model.represent(batch)
        trains = model.encoder.training
        model.encoder.eval()
        with torch.no_grad():
            hidden_BSD = model.represent(batch)
        model.encoder.train(trains)
        return hidden_BSD


def _choose_words(word_S: Array, candidate_S: Array, chance_S: Array, count: float) -> Array:
    """Whole words in random order while the share allows; a first one may be a little longer than it."""
    numbers, firsts, inverse = np.unique(np.where(candidate_S, word_S, -1), return_index=True, return_inverse=True)
    sizes = np.bincount(inverse, minlength=len(numbers))
    taken, chosen = 0, np.zeros(len(numbers), bool)
    for word in np.argsort(chance_S[firsts], kind="stable"):
        fits = taken + sizes[word] <= (count if taken else max(count, SHORT))
        if numbers[word] >= 0 and count and fits:
            chosen[word] = True
            taken += sizes[word]
        if taken >= count:
            break
    picked: Array = chosen[inverse] & candidate_S
    return picked
