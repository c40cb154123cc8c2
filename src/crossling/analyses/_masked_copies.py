"""Each subword of a text guessed by an encoder that reads all the others: masked copies of the text, batched.

A copy hides one subword, or with ``within_word_l2r`` also those that follow it in its word. Scores of the subword table
are computed at the hidden place only. Batches are bounded by subwords read and by scores computed, and a copy's
score does not depend on its batch. B copies, S subwords, D width, V subwords of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from crossling.data.batching import Array, Batch, Examples, plan_prediction
from crossling.encoders.masked_word_head import MaskedWordHead
from crossling.progress import Progress
from crossling.training.distributed import Distributed
from crossling.training.loop import predict_examples

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.objectives import Arrays

TOKENS = 8_192
"""Subwords that a batch of copies has at most, unless one text alone has more."""
SCORES = 2**26
"""Scores of subwords that a batch computes at most: 256 MB of them."""


@dataclass(frozen=True)
class Words:
    """What guesses: a head and the table of subword vectors that it chooses from."""

    head: MaskedWordHead
    table: Tensor


@dataclass(frozen=True)
class Scored:
    """For every subword of some texts: its text, how unlikely it was, whether it was the likeliest."""

    text: Array
    loss: Array
    """Negative log-likelihood, natural."""
    right: Array


class Copies(Examples):
    """A copy for each subword of each text; special ones, which have no word, are always there to be read."""

    def __init__(self, texts: Examples) -> None:
        self.path, self.columns, self.texts = texts.path, texts.columns, texts
        inside = [np.flatnonzero(texts.get("words", row) >= 0) for row in range(len(texts))]
        self.owners = np.repeat(np.arange(len(texts)), [len(places) for places in inside])
        self.places = np.concatenate([np.zeros(0, np.int64), *inside]).astype(np.int64)
        self.lengths = texts.lengths[self.owners]

    def get(self, column: str, row: int) -> Array:
        """A column of the text that a copy is of."""
        return self.texts.get(column, int(self.owners[row]))


@dataclass
class HiddenWord:
    """The likelihood of each copy's hidden subword."""

    words: Words
    mask_id: int
    whole_rest: bool = False
    """Hide the rest of the word as well."""

    def collate(self, examples: Examples, plan: Batch, *, size: int) -> Arrays:
        """Copies of one text stand together in a plan, and are filled in together."""
        assert isinstance(examples, Copies)
        owners, places = examples.owners[plan.rows], examples.places[plan.rows]
        ids = np.full((size, plan.length), -1, np.int64)
        types = np.zeros_like(ids)
        targets = np.zeros(size, np.int64)
        edges = [*np.flatnonzero(np.diff(owners, prepend=-1)), len(owners)]
        for first, last in pairwise(edges):
            text = examples.texts.get("ids", int(owners[first]))
            block, own = ids[first:last, : len(text)], places[first:last]
            block[:] = text
            targets[first:last] = text[own]
            block[np.arange(last - first), own] = self.mask_id
            if self.whole_rest:
                word_S = examples.texts.get("words", int(owners[first]))
                later = np.arange(len(text)) >= own[:, None]
                block[(word_S == word_S[own][:, None]) & later] = self.mask_id
            if "types" in examples.columns:
                types[first:last, : len(text)] = examples.texts.get("types", int(owners[first]))
        batch = {"ids": ids, "mask": (ids >= 0).astype(np.int64), "place": places, "target": targets}
        return {**batch, "types": types} if "types" in examples.columns else batch

    def predict(self, model: Model, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        """The last layer is read, whatever the fusion: it is what the head was made for."""
        encoder = model.encoder
        hidden_BSD = encoder(batch["ids"], batch["mask"], batch.get("types"), layers=[encoder.layers])[encoder.layers]
        place_B1D = batch["place"][:, None, None].expand(-1, 1, hidden_BSD.shape[-1])
        scores_BV = self.words.head(hidden_BSD.gather(1, place_B1D)[:, 0], self.words.table).float()
        loss_B = functional.cross_entropy(scores_BV, batch["target"], reduction="none")
        return {"loss": loss_B, "right": scores_BV.argmax(dim=-1) == batch["target"]}


def score_copies(
    model: Model,
    words: Words,
    texts: Examples,
    *,
    whole_rest: bool,
    distributed: Distributed,
    progress: Progress,
    tokens: int = TOKENS,
    scores: int = SCORES,
) -> Scored:
    """Every subword of every text guessed, in single precision whatever the device."""
    copies = Copies(texts)
    reading = HiddenWord(words, int(model.encoder.tokenizer.mask_token_id), whole_rest)
    plan = plan_prediction(copies.lengths, max(1, scores // len(words.table)), tokens)
    loss, right = np.zeros(len(copies)), np.zeros(len(copies), bool)
    exact = replace(distributed, precision=torch.float32)
    progress.begin("hiding subwords", len(copies))
    for batch, arrays in predict_examples(model, reading, copies, distributed=exact, plan=plan, progress=progress):
        loss[batch.rows], right[batch.rows] = arrays["loss"], arrays["right"]
    progress.end()
    return Scored(copies.owners, loss, right)
