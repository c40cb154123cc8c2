"""Top-K overlap of two models' attention heads, and how large it is by chance where both began as one encoder.

Heads rank by what training added to the score of their probes, and what is subtracted is the same for both models: the
scores of the encoder that both were before training. A head whose score was low by chance there seems to gain in both,
so that models which have nothing else in common share more heads than two random rankings do (the hypergeometric mean,
K * K / H).

The null hypothesis is: given the base's scores b, one model's scores a say nothing about the other model. The model's
scores are split into what the base explains and the rest, a = f(b) + e, by least squares. If the hypothesis holds and
the rests are exchangeable between heads, then every permutation of e is as likely as the observed order, whatever the
other model is; so f(b) + permuted e, less the same b, has the overlap's null distribution (Freedman and Lane's
permutation of residuals). All seeds of a model are permuted alike: they are one model. ``scores`` permutes a itself,
which is the same with f constant: right only where the trained model's scores do not depend on the base's. Permuting
the differences a - b, the hypergeometric null, is the same with f(b) = b + constant.

Shapes: H heads of all layers, S seeds of a model, T seeds of the baseline, P permutations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crossling.analyses.head_maps import Array, RankCorrelation, correlate_ranks
from crossling.errors import DataError

Null = Literal["residuals", "residuals_in_layers", "scores"]
NULLS: Mapping[str, str] = {
    "residuals": "what the base's scores do not explain of one model is permuted over all heads",
    "residuals_in_layers": "what the base's scores and the layer do not explain of one model is permuted within layers",
    "scores": "one model's own scores are permuted over all heads before the base's are subtracted",
}
"""What is permuted, in words."""
DIGITS = 9
"""Decimals to which scores in percent are equal."""


@dataclass(frozen=True)
class Overlap:
    """What the best heads of two maps have in common: the paper's figures."""

    top: int
    shared: float
    """The expected number where equal heads at the edge of the top are drawn at random."""
    ranks: RankCorrelation
    """Of the shared heads alone, by their values in both models."""


@dataclass(frozen=True)
class OverlapTest:
    """The mean overlap over pairs of seeds, beside what is expected without a relation and between two seeds."""

    top: int
    shared: float
    expected: float
    """The mean over permutations."""
    p: float
    """The share of permutations with an overlap at least as large."""
    ceiling: float
    """The mean overlap of two seeds of the baseline; not a number where it has one."""
    pairs: int
    """Pairs of seeds that were compared."""


def weigh_top_k(values: Array, top: int) -> Array:
    """The probability of each head (the last axis) to be among the ``top`` best: 1 or 0, between them for equal heads.

    Equal heads at the edge are drawn at random, so that none is preferred for its place in the encoder.
    """
    heads = values.shape[-1]
    if not 1 <= top <= heads:
        raise DataError(f"top {top}: the encoder has {heads} heads; name a number from 1 to {heads}, or a share")
    rounded = np.round(values, DIGITS)
    edge = np.partition(rounded, heads - top, axis=-1)[..., heads - top, None]
    above, equal = rounded > edge, rounded == edge
    room = top - above.sum(axis=-1, keepdims=True)
    weights: Array = above + equal * (room / equal.sum(axis=-1, keepdims=True))
    return weights


def measure_top_k_overlap(values: Array, baseline: Array, top: int) -> Overlap:
    """Top-K overlap: how many of the ``top`` best heads two models share, and how alike they rank those."""
    ours, theirs = values.ravel(), baseline.ravel()
    both = weigh_top_k(ours, top) * weigh_top_k(theirs, top)
    shared = np.flatnonzero(both)
    return Overlap(top, float(both.sum()), correlate_ranks(ours[shared], theirs[shared]))


def compare_seeds(maps: Mapping[Any, Array], top: int) -> float:
    """The mean overlap of two seeds of one model: how many heads a model shares with itself."""
    weights = [weigh_top_k(one.ravel(), top) for one in maps.values()]
    found = [float(a @ b) for number, a in enumerate(weights) for b in weights[:number]]
    return float(np.mean(found)) if found else math.nan


def pair_seeds(ours: Sequence[Any], theirs: Sequence[Any]) -> list[tuple[int, int]]:
    """Pairs of seeds by their places: different seeds, as in :func:`compare_seeds`, or all where there are none.

    Models of one seed may share more than the base: the order of examples, or the first weights of a head.
    """
    pairs = [(i, j) for i in range(len(ours)) for j in range(len(theirs))]
    return [(i, j) for i, j in pairs if ours[i] != theirs[j]] or pairs


def permute_scores(
    scores_SLH: Array, base_LH: Array | None, *, null: Null, permutations: int, generator: np.random.Generator
) -> Array:
    """A model's scores as they might be if it had only the base in common with others: P x S x (all heads)."""
    seeds, layers, _ = scores_SLH.shape
    scores_SH = scores_SLH.reshape(seeds, -1)
    heads = scores_SH.shape[1]
    within = null == "residuals_in_layers"
    explained_SH = np.repeat(scores_SH.mean(axis=1, keepdims=True), heads, axis=1)
    if null != "scores":
        layer_H = np.repeat(np.arange(layers), heads // layers)
        means_HL = (layer_H[:, None] == np.arange(layers)).astype(float) if within else np.ones((heads, 1))
        base_H1 = np.zeros((heads, 0)) if base_LH is None else base_LH.reshape(-1, 1) - base_LH.mean()
        design = np.hstack([means_HL, base_H1])
        explained_SH = (design @ np.linalg.lstsq(design, scores_SH.T, rcond=None)[0]).T
    rest_SH = scores_SH - explained_SH
    places = np.arange(heads).reshape(layers if within else 1, -1)
    drawn = generator.permuted(np.tile(places, (permutations, 1, 1)), axis=2).reshape(permutations, heads)
    found: Array = explained_SH + np.moveaxis(rest_SH[:, drawn], 0, 1)
    return found


def compare_models(
    model: Mapping[Any, Array],
    baseline: Mapping[Any, Array],
    *,
    base: Array | None,
    baseline_base: Array | None,
    subtract: bool,
    tops: Sequence[int],
    null: Null,
    permutations: int,
    seed: int,
) -> list[OverlapTest]:
    """The overlap of each size of two models (a map of scores for each seed), with its test.

    ``base`` is the map of the encoder that the model began as and ``baseline_base`` that of the baseline; with
    ``subtract`` heads rank by what training added to them.
    """
    pairs = pair_seeds(list(model), list(baseline))
    scores_SLH, others_TLH = np.stack(list(model.values())), np.stack(list(baseline.values()))
    ours, theirs = (0.0 if one is None or not subtract else one for one in (base, baseline_base))
    gains_SH = (scores_SLH - ours).reshape(len(scores_SLH), -1)
    gains_TLH = others_TLH - theirs
    gains_TH = gains_TLH.reshape(len(others_TLH), -1)
    generator = np.random.default_rng([seed, 7])
    chance_PSH = permute_scores(scores_SLH, base, null=null, permutations=permutations, generator=generator)
    chance_PSH = chance_PSH - np.ravel(ours)
    found = []
    for top in tops:
        weights_TH, partner_SH = weigh_top_k(gains_TH, top), np.zeros_like(gains_SH)
        for i, j in pairs:
            partner_SH[i] += weights_TH[j] / len(pairs)
        shared = float((weigh_top_k(gains_SH, top) * partner_SH).sum())
        chance_P = np.einsum("psh,sh->p", weigh_top_k(chance_PSH, top), partner_SH)
        p = (1 + int((chance_P >= shared - 1e-9).sum())) / (1 + permutations)
        ceiling = compare_seeds(dict(zip(baseline, gains_TLH, strict=True)), top)
        found.append(OverlapTest(top, shared, float(chance_P.mean()), p, ceiling, len(pairs)))
    return found
