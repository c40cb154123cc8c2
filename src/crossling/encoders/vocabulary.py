"""An encoder's embedding table with fewer rows, for the time of a run: the rows that its data uses.

Most of a small multilingual encoder is its embedding table, and one run's data uses a fraction of it. Without the
other rows a run needs little memory, and the optimiser does not visit rows that never change.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crossling.data.ragged import IntArray
from crossling.encoders.encoder import Encoder
from crossling.errors import EncoderError


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Which subwords a trimmed table holds."""

    rows: IntArray
    """Original ids in ascending order: row i of the trimmed table is subword ``rows[i]``."""
    to_rows: IntArray
    """The row of every original id; -1 for those that were removed."""
    padding: int | None
    """The original id whose row gets no gradient."""
    tokenizer: Any

    def map_ids(self, ids: IntArray) -> IntArray:
        """Original ids as rows of the trimmed table."""
        rows = self.to_rows[ids]
        if rows.size and rows.min() < 0:
            lost = int(np.asarray(ids)[rows < 0].reshape(-1)[0])
            piece = self.tokenizer.convert_ids_to_tokens(lost)
            raise EncoderError(
                f"the subword {piece!r} ({lost}) is not among those that the vocabulary was trimmed to. "
                "Trim on all data of the run, or set encoder.trim = false."
            )
        return rows


def choose_rows(encoder: Encoder, used_ids: IntArray) -> IntArray:
    """The ids to keep, ascending: those in use and all special ones."""
    padding = encoder.model.get_input_embeddings().padding_idx
    special = [*encoder.tokenizer.all_special_ids, *([] if padding is None else [padding])]
    rows = np.unique(np.concatenate([np.asarray(used_ids, np.int64).reshape(-1), np.asarray(special, np.int64)]))
    if len(rows) and (rows[0] < 0 or rows[-1] >= encoder.vocabulary):
        raise EncoderError(f"{encoder.name}: has subwords 0 to {encoder.vocabulary - 1}; got {rows[0]} to {rows[-1]}.")
    return rows


def trim_encoder(encoder: Encoder, used_ids: IntArray) -> Trimmed:
    """Keep only the rows of ``used_ids`` and of special subwords, in place; predictions stay the same.

    The old table is left as it was, for ``untrim_encoder`` to write the trained rows into a copy of it.
    """
    if encoder.trimmed_rows is not None:
        raise EncoderError(f"{encoder.name}: is trimmed already.")
    rows = choose_rows(encoder, used_ids)
    to_rows = np.full(encoder.vocabulary, -1, np.int64)
    to_rows[rows] = np.arange(len(rows))
    table = encoder.model.get_input_embeddings()
    padding = table.padding_idx
    kept = table.weight.detach().index_select(0, torch.from_numpy(rows).to(table.weight.device))
    set_table(encoder, kept, padding=None if padding is None else int(to_rows[padding]))
    encoder.trimmed_rows = rows
    return Trimmed(rows=rows, to_rows=to_rows, padding=padding, tokenizer=encoder.tokenizer)


def untrim_encoder(encoder: Encoder, trimmed: Trimmed, base_table: Tensor) -> None:
    """Write the trained rows into a copy of the whole table and give that to the encoder again."""
    trained = encoder.model.get_input_embeddings().weight.detach()
    whole = base_table.detach().to(device=trained.device, dtype=trained.dtype, copy=True)
    if whole.shape != (len(trimmed.to_rows), trained.shape[1]):
        raise EncoderError(f"{encoder.name}: a table of {tuple(whole.shape)} is not the one that was trimmed.")
    whole.index_copy_(0, torch.from_numpy(trimmed.rows).to(trained.device), trained)
    set_table(encoder, whole, padding=trimmed.padding)
    encoder.trimmed_rows = None


def set_table(encoder: Encoder, weight: Tensor, *, padding: int | None) -> None:
    """Give the encoder another table of subwords; one that does more than looking up rows stays of its kind."""
    before = encoder.model.get_input_embeddings()
    frozen = not before.weight.requires_grad
    if type(before) is nn.Embedding:
        table = nn.Embedding(weight.shape[0], weight.shape[1], padding_idx=padding, _weight=weight, _freeze=frozen)
    else:  # Gemma's multiplies them
        table = copy.copy(before)
        table._parameters = {**before._parameters, "weight": nn.Parameter(weight, requires_grad=not frozen)}
        table.num_embeddings, table.padding_idx = weight.shape[0], padding
    encoder.model.set_input_embeddings(table)
