"""Links from an encoder's word vectors.

Shapes: B sentence pairs, S subwords, W source words, V target words, D width.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from crossling.aligners.links import Links, link_best
from crossling.aligners.symmetrize import symmetrize
from crossling.data.batching import Batch, plan_prediction
from crossling.data.ragged import IntArray, add_up
from crossling.encoders.encoder import Encoder, pool_words
from crossling.encoders.tokenization import Layout, Subwords, assemble, shorten_words, special_layout

if TYPE_CHECKING:
    from crossling.aligners.corpus import Corpus, Side
    from crossling.aligners.neural import Settings
    from crossling.progress import Progress

logger = logging.getLogger(__name__)

BLOCK = 8192
"""Pairs whose subwords are held at a time; batches of like length are sought within."""
TOKENS = 8192
"""Subwords of one side of a batch, at most."""
FAR = -1e9
"""The logarithm of nothing, finite so that no difference of two is undefined."""
SINKHORN_ROUNDS = 50


def align_with(encoder: Encoder, corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links by an encoder that is in memory; pairs of like length go through it together."""
    was_training = encoder.training
    encoder.eval()
    subwords, layout = Subwords(encoder.tokenizer), special_layout(encoder.tokenizer)
    collector = _Collector(corpus, settings)
    if progress is not None:
        progress.begin("aligning words", len(corpus))
    for start in range(0, len(corpus), BLOCK):
        rows = range(start, min(start + BLOCK, len(corpus)))
        sides = [_Inputs(side, rows, encoder, subwords, layout) for side in (corpus.source, corpus.target)]
        for plan in plan_prediction(np.maximum(sides[0].lengths, sides[1].lengths), settings.batch, TOKENS):
            with torch.inference_mode():
                source_BWD, target_BVD = (inputs.embed(encoder, plan, settings) for inputs in sides)
                seen = [inputs.seen[plan.rows] for inputs in sides]
                collector.add(plan.rows + start, _compare(source_BWD, target_BVD), seen)
            if progress is not None:
                progress.advance(len(plan.rows))
    if progress is not None:
        progress.end()
    encoder.train(was_training)
    return collector.finish()


class _Inputs:
    """Sentences of one side as the encoder reads them."""

    def __init__(self, side: Side, rows: range, encoder: Encoder, subwords: Subwords, layout: Layout) -> None:
        encoded = subwords.encode_words([side.words(row) for row in rows])
        words = side.tokens.lengths[rows.start : rows.stop]
        encoded = shorten_words(encoded, room=encoder.max_length - layout.single_extra)
        self.seen = np.asarray([part[-1] + 1 for part in map(encoded.words.__getitem__, range(len(encoded)))])
        lost = int((self.seen < words).sum())
        if lost:
            logger.warning("%d sentences are longer than the encoder reads: their last words get no links", lost)
        self._ids, self._types = assemble(layout, encoded.pieces)
        self._words = encoded.words
        self._before = len(layout.prefix)
        self._pad = layout.pad
        self.lengths = self._ids.lengths

    def embed(self, encoder: Encoder, plan: Batch, settings: Settings) -> Tensor:
        """Unit vectors of the words of a batch; words that are not there get zeros."""
        device = next(encoder.parameters()).device
        longest = int(self.lengths[plan.rows].max())
        shape = (len(plan.rows), longest)
        ids, types, words = np.full(shape, self._pad), np.zeros(shape, np.int64), np.full(shape, -1)
        for place, row in enumerate(plan.rows):
            length = self.lengths[row]
            ids[place, :length] = self._ids[row]
            types[place, :length] = self._types[row]
            owners = self._words[row]
            words[place, self._before : self._before + len(owners)] = owners
        mask = np.arange(longest) < self.lengths[plan.rows][:, None]
        ids_BS, types_BS, words_BS, mask_BS = (torch.from_numpy(part).to(device) for part in (ids, types, words, mask))
        hidden_BSD = encoder(ids_BS, mask_BS.long(), types_BS, layers=[settings.layer])[settings.layer].float()
        count = int(self.seen[plan.rows].max())
        vectors_BWD = pool_words(hidden_BSD, words_BS, words=count, how=settings.pooling)
        return torch.nn.functional.normalize(vectors_BWD, dim=-1)


def _compare(source_BWD: Tensor, target_BVD: Tensor) -> Tensor:
    return source_BWD @ target_BVD.transpose(1, 2)


class _Collector:
    """Turns cosines into links and keeps them in the corpus's order."""

    def __init__(self, corpus: Corpus, settings: Settings) -> None:
        self._corpus = corpus
        self._settings = settings
        self._forward = np.full(len(corpus.target.tokens.values), -1, np.int32)
        self._backward = np.full(len(corpus.source.tokens.values), -1, np.int32)
        self._found: list[IntArray] = []

    def add(self, rows: IntArray, cosine_BWV: Tensor, seen: list[IntArray]) -> None:
        """Choose links for the pairs ``rows`` of the corpus; ``seen`` are the words of both sides that have vectors."""
        device = cosine_BWV.device
        source_B, target_B = (torch.from_numpy(count).to(device) for count in seen)
        source_BW = torch.arange(cosine_BWV.shape[1], device=device) < source_B[:, None]
        target_BV = torch.arange(cosine_BWV.shape[2], device=device) < target_B[:, None]
        if self._settings.method == "itermax":
            grid_BWV = iterate_argmax(
                cosine_BWV, source_BW, target_BV, rounds=self._settings.rounds, discount=self._settings.discount
            )
            places = grid_BWV.nonzero().cpu().numpy()
            self._found.append(np.column_stack([rows[places[:, 0]], places[:, 1:]]))
            return
        if self._settings.method == "transport":
            score_BWV = carry_words(cosine_BWV, source_BW, target_BV, temperature=self._settings.temperature)
        else:
            score_BWV = _hide(cosine_BWV, source_BW, target_BV)
        for best, out, side, count in (
            (score_BWV.argmax(1), self._forward, self._corpus.target, seen[1]),
            (score_BWV.argmax(2), self._backward, self._corpus.source, seen[0]),
        ):
            _write_rows(out, side.tokens.offsets[rows], best.cpu().numpy(), count)

    def finish(self) -> Links:
        """The links of all pairs."""
        if self._settings.method == "itermax":
            found = np.concatenate(self._found)
            found = found[np.lexsort((found[:, 2], found[:, 1], found[:, 0]))]
            counts = np.bincount(found[:, 0], minlength=len(self._corpus))
            return Links(found[:, 1:].astype(np.int32), add_up(counts))
        return symmetrize(
            link_best(self._forward, self._corpus.target.tokens.offsets),
            link_best(self._backward, self._corpus.source.tokens.offsets, turned=True),
            self._corpus,
            how=self._settings.symmetrize,
        )


def _write_rows(out: IntArray, starts: IntArray, values: Any, counts: IntArray) -> None:
    for start, row, count in zip(starts, values, counts, strict=True):
        out[start : start + count] = row[:count]


def _hide(score_BWV: Tensor, source_BW: Tensor, target_BV: Tensor) -> Tensor:
    """Padding is nobody's best."""
    return score_BWV.masked_fill(~(source_BW[:, :, None] & target_BV[:, None, :]), FAR)


def iterate_argmax(
    cosine_BWV: Tensor, source_BW: Tensor, target_BV: Tensor, *, rounds: int = 2, discount: float = 0.9
) -> Tensor:
    """Words that choose each other are linked; then again, words with a link counting for less (Jalili Sabet et al.).

    A cell is out of the question once both of its words have links, and discounted once one has.
    """
    real_BWV = source_BW[:, :, None] & target_BV[:, None, :]
    closeness_BWV = (1 + cosine_BWV) / 2  # a discount must make negative cosines worse, too
    grid_BWV = torch.zeros_like(real_BWV)
    for _ in range(rounds):
        linked = grid_BWV.any(2)[:, :, None].int() + grid_BWV.any(1)[:, None, :].int()
        factor_BWV = torch.where(linked == 1, discount, 1.0).masked_fill(linked == 2, 0.0)
        score_BWV = (closeness_BWV * factor_BWV).masked_fill(~real_BWV, FAR)
        forward_BWV = torch.zeros_like(grid_BWV).scatter(1, score_BWV.argmax(1, keepdim=True), value=True)
        backward_BWV = torch.zeros_like(grid_BWV).scatter(2, score_BWV.argmax(2, keepdim=True), value=True)
        grid_BWV |= forward_BWV & backward_BWV & (linked < 2) & real_BWV
    return grid_BWV


def carry_words(cosine_BWV: Tensor, source_BW: Tensor, target_BV: Tensor, *, temperature: float) -> Tensor:
    """The logarithm of the entropic optimal transport plan between two sentences whose words weigh alike (Sinkhorn).

    A word that is near to everything cannot be everyone's counterpart: it has no more to give than the others.
    """
    log_kernel_BWV = _hide(cosine_BWV / temperature, source_BW, target_BV)
    weight_BW = -source_BW.sum(1, keepdim=True).log() + torch.zeros_like(log_kernel_BWV[:, :, 0])
    weight_BV = -target_BV.sum(1, keepdim=True).log() + torch.zeros_like(log_kernel_BWV[:, 0])
    left_BW, right_BV = torch.zeros_like(weight_BW), torch.zeros_like(weight_BV)
    for _ in range(SINKHORN_ROUNDS):
        left_BW = weight_BW - torch.logsumexp(log_kernel_BWV + right_BV[:, None, :], 2)
        left_BW = left_BW.masked_fill(~source_BW, FAR)
        right_BV = weight_BV - torch.logsumexp(log_kernel_BWV + left_BW[:, :, None], 1)
        right_BV = right_BV.masked_fill(~target_BV, FAR)
    return _hide(log_kernel_BWV + left_BW[:, :, None] + right_BV[:, None, :], source_BW, target_BV)
