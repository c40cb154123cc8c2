"""The neural aligner: links words whose vectors in a middle layer of a multilingual encoder are near.

It learns nothing from the text. Shapes: B sentence pairs, S subwords, W source words, V target words, D width.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from crossling.aligners import AlignerSettings
from crossling.aligners.links import Links, link_best
from crossling.aligners.symmetrize import Symmetrization, symmetrize
from crossling.data.batching import Batch, plan_prediction
from crossling.data.ragged import IntArray, to_offsets
from crossling.encoders.special_tokens import Layout, assemble, shorten_words, special_layout
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.limits import LARGEST_BATCH, LARGEST_NUMBER, MOST_LAYERS

if TYPE_CHECKING:
    from torch import Tensor

    from crossling.aligners.corpus import Corpus, Side
    from crossling.encoders.encoder import Encoder
    from crossling.progress import Progress

logger = logging.getLogger(__name__)

VERSION = 1

BLOCK = 8192
"""Pairs that are tokenized at a time; batches of similar length are made within."""
TOKENS = 8192
"""At most this number of subwords on one side of a batch."""
MASKED_SCORE = -1e9
"""The logarithm of zero, finite so that the difference of two is defined."""
SINKHORN_ROUNDS = 50


class Settings(AlignerSettings):
    """The neural aligner."""

    kind: Literal["neural"] = "neural"
    encoder: str = "multilingual-e5-small"
    """A hub name, a folder, or multilingual-e5-small, which needs no network."""
    revision: str | None = None
    """The hub's branch, tag or commit."""
    layer: int = Field(default=7, ge=0, le=MOST_LAYERS)
    """Whose vectors are compared: 0 the embeddings. Middle layers say most of what a word means where it stands."""
    method: Literal["argmax", "itermax", "transport"] = "argmax"
    """argmax: each word's nearest of the other side. itermax: words that choose each other, then again among what is
    left. transport: each word's best share of the cheapest way to carry one sentence's words to the other's."""
    symmetrize: Symmetrization = "intersection"
    """How each side's choices become one; the intersection links words that choose each other. Not for itermax."""
    pooling: Literal["mean", "first", "last"] = "mean"
    """A word's vector from its subwords."""
    rounds: int = Field(default=2, ge=1, le=1_000)
    """Of itermax."""
    discount: float = Field(default=0.9, gt=0, le=1)
    """Of itermax: what the cosine of a word that has a link already is multiplied by."""
    temperature: float = Field(default=0.1, gt=0, le=LARGEST_NUMBER)
    """Of transport: less makes the plan sharper."""
    batch: int = Field(default=64, ge=1, le=LARGEST_BATCH)
    """Sentence pairs at a time, fewer where they are long."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: a GPU where torch sees one."""

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        if self.method == "itermax" and self.symmetrize != "intersection":
            raise ValueError(f"itermax links both sides at once, so symmetrize = {self.symmetrize!r} means nothing")
        return self


def align(corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links for every pair of a corpus, each pair by itself."""
    import torch

    from crossling.encoders.loading import load_encoder

    cuda = settings.device == "cuda" or (settings.device == "auto" and torch.cuda.is_available())
    encoder = load_encoder(settings.encoder, revision=settings.revision).to("cuda" if cuda else "cpu")
    return align_with(encoder, corpus, settings, progress=progress)


def align_with(encoder: Encoder, corpus: Corpus, settings: Settings, *, progress: Progress | None = None) -> Links:
    """Links by a loaded encoder; pairs of similar length share a batch."""
    import torch

    was_training = encoder.training
    encoder.eval()
    subwords, layout = SubwordTokenizer(encoder.tokenizer), special_layout(encoder.tokenizer)
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
    """Sentences of one side as encoder inputs."""

    def __init__(self, side: Side, rows: range, encoder: Encoder, subwords: SubwordTokenizer, layout: Layout) -> None:
        encoded = subwords.encode_words([side.words(row) for row in rows])
        words = side.tokens.lengths[rows.start : rows.stop]
        encoded = shorten_words(encoded, room=encoder.max_length - layout.single_extra)
        self.seen = np.asarray([part[-1] + 1 for part in map(encoded.words.__getitem__, range(len(encoded)))])
        lost = int((self.seen < words).sum())
        if lost:
            logger.warning("%d sentences are longer than the encoder's input: their last words get no links", lost)
        self._ids, self._types = assemble(layout, encoded.pieces)
        self._words = encoded.words
        self._before = len(layout.prefix)
        self._pad = layout.pad
        self.lengths = self._ids.lengths

    def embed(self, encoder: Encoder, plan: Batch, settings: Settings) -> Tensor:
        """Unit vectors of the words of a batch; padding gets zeros."""
        import torch

        from crossling.encoders.encoder import pool_words

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
        import torch

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
            score_BWV = transport_words(cosine_BWV, source_BW, target_BV, temperature=self._settings.temperature)
        else:
            score_BWV = _mask_padding(cosine_BWV, source_BW, target_BV)
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
            return Links(found[:, 1:].astype(np.int32), to_offsets(counts))
        return symmetrize(
            link_best(self._forward, self._corpus.target.tokens.offsets),
            link_best(self._backward, self._corpus.source.tokens.offsets, turned=True),
            self._corpus,
            how=self._settings.symmetrize,
        )


def _write_rows(out: IntArray, starts: IntArray, values: Any, counts: IntArray) -> None:
    for start, row, count in zip(starts, values, counts, strict=True):
        out[start : start + count] = row[:count]


def _mask_padding(score_BWV: Tensor, source_BW: Tensor, target_BV: Tensor) -> Tensor:
    """Exclude padding from every argmax."""
    return score_BWV.masked_fill(~(source_BW[:, :, None] & target_BV[:, None, :]), MASKED_SCORE)


def iterate_argmax(
    cosine_BWV: Tensor, source_BW: Tensor, target_BV: Tensor, *, rounds: int = 2, discount: float = 0.9
) -> Tensor:
    """Itermax: mutual argmax, repeated with the similarity of linked words discounted (Jalili Sabet et al. 2020).

    A cell is excluded once both of its words have links, and discounted once one has.
    """
    import torch

    real_BWV = source_BW[:, :, None] & target_BV[:, None, :]
    closeness_BWV = (1 + cosine_BWV) / 2  # a discount must make negative cosines worse, too
    grid_BWV = torch.zeros_like(real_BWV)
    for _ in range(rounds):
        linked = grid_BWV.any(2)[:, :, None].int() + grid_BWV.any(1)[:, None, :].int()
        factor_BWV = torch.where(linked == 1, discount, 1.0).masked_fill(linked == 2, 0.0)
        score_BWV = (closeness_BWV * factor_BWV).masked_fill(~real_BWV, MASKED_SCORE)
        forward_BWV = torch.zeros_like(grid_BWV).scatter(1, score_BWV.argmax(1, keepdim=True), value=True)
        backward_BWV = torch.zeros_like(grid_BWV).scatter(2, score_BWV.argmax(2, keepdim=True), value=True)
        grid_BWV |= forward_BWV & backward_BWV & (linked < 2) & real_BWV
    return grid_BWV


def transport_words(cosine_BWV: Tensor, source_BW: Tensor, target_BV: Tensor, *, temperature: float) -> Tensor:
    """The logarithm of the entropic optimal transport plan between two sentences of uniform word weights (Sinkhorn).

    A word that is near to everything cannot be linked to everything: it has no more mass than the others.
    """
    import torch

    log_kernel_BWV = _mask_padding(cosine_BWV / temperature, source_BW, target_BV)
    weight_BW = -source_BW.sum(1, keepdim=True).log() + torch.zeros_like(log_kernel_BWV[:, :, 0])
    weight_BV = -target_BV.sum(1, keepdim=True).log() + torch.zeros_like(log_kernel_BWV[:, 0])
    left_BW, right_BV = torch.zeros_like(weight_BW), torch.zeros_like(weight_BV)
    for _ in range(SINKHORN_ROUNDS):
        left_BW = weight_BW - torch.logsumexp(log_kernel_BWV + right_BV[:, None, :], 2)
        left_BW = left_BW.masked_fill(~source_BW, MASKED_SCORE)
        right_BV = weight_BV - torch.logsumexp(log_kernel_BWV + left_BW[:, :, None], 1)
        right_BV = right_BV.masked_fill(~target_BV, MASKED_SCORE)
    return _mask_padding(log_kernel_BWV + left_BW[:, :, None] + right_BV[:, None, :], source_BW, target_BV)
