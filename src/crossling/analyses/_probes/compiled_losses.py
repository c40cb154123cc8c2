"""Losses of probes and their gradient, compiled for a CPU: a block of examples stays in a cache from start to end.

N examples, n those of a block, D features of a group, E the same and one for the bias, R samples of the examples, C
classes, K = R x C. Examples come last, so that vector instructions work on neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crossling.aligners.compiled import compiled_reordered

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 256
"""Examples in a block."""


def add_cross_entropy(
    features: Sequence[Tensor],
    labels_N: Tensor,
    weights_RN: Tensor,
    probes: Iterable[tuple[Tensor, Tensor, Tensor, Tensor]],
) -> None:
    """Add each group's sums of cross-entropies, R, and their gradients, K x E.

    ``features`` are D x N of each group; ``probes`` its weights, biases, sums and gradients. A group is computed by one
    thread, so that their number changes no result.
    """
    labels, weights = labels_N.numpy(), weights_RN.numpy()

    def add(features_DN: Tensor, probe: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
        weight_KD, bias_K1, loss_R, gradient_KE = (one.numpy() for one in probe)
        _add_cross_entropy(features_DN.numpy(), labels, weights, weight_KD, bias_K1[:, 0], loss_R, gradient_KE)

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for _ in pool.map(add, features, probes):
            pass


@compiled_reordered
def _add_cross_entropy(
    features_DN: Array,
    labels_N: Array,
    weights_RN: Array,
    weight_KD: Array,
    bias_K: Array,
    loss_R: Array,
    gradient_KE: Array,
) -> None:
    samples, count = weights_RN.shape
    classes = len(bias_K) // samples
    scores_Cn = np.empty((classes, BLOCK), np.float32)
    top_n, total_n = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.float32)
    for start in range(0, count, BLOCK):
        size = min(BLOCK, count - start)
        labels_n = labels_N[start : start + size]
        for sample in range(samples):
            first, last = sample * classes, (sample + 1) * classes
            weights_n = weights_RN[sample, start : start + size]
            _compute_scores(features_DN, start, size, weight_KD[first:last], bias_K[first:last], scores_Cn)
            _find_top(scores_Cn, size, top_n)
            loss = 0.0
            for n in range(size):
                loss += weights_n[n] * (top_n[n] - scores_Cn[labels_n[n], n])
            _exponentiate(scores_Cn, size, top_n, total_n)
            for n in range(size):
                loss += weights_n[n] * np.log(total_n[n])
                total_n[n] = weights_n[n] / total_n[n]
            loss_R[sample] += loss
            for c in range(classes):
                scores_n = scores_Cn[c]
                for n in range(size):
                    scores_n[n] *= total_n[n]
            for n in range(size):
                scores_Cn[labels_n[n], n] -= weights_n[n]
            _add_gradient(features_DN, start, size, scores_Cn, gradient_KE[first:last])


@compiled_reordered
def _compute_scores(
    features_DN: Array, start: int, size: int, weight_CD: Array, bias_C: Array, scores_Cn: Array
) -> None:
    """Four features at a time: scores are then read and written a quarter as often."""
    width, stop = len(features_DN), start + size
    fours = width - width % 4
    for c in range(len(scores_Cn)):
        scores_n = scores_Cn[c]
        scores_n[:size] = bias_C[c]
        for d in range(0, fours, 4):
            w0, w1, w2, w3 = weight_CD[c, d], weight_CD[c, d + 1], weight_CD[c, d + 2], weight_CD[c, d + 3]
            x0, x1 = features_DN[d, start:stop], features_DN[d + 1, start:stop]
            x2, x3 = features_DN[d + 2, start:stop], features_DN[d + 3, start:stop]
            for n in range(size):
                scores_n[n] += w0 * x0[n] + w1 * x1[n] + w2 * x2[n] + w3 * x3[n]
        for d in range(fours, width):
            w0, x0 = weight_CD[c, d], features_DN[d, start:stop]
            for n in range(size):
                scores_n[n] += w0 * x0[n]


@compiled_reordered
def _find_top(scores_Cn: Array, size: int, top_n: Array) -> None:
    """Each example's largest score."""
    top_n[:size] = scores_Cn[0, :size]
    for c in range(1, len(scores_Cn)):
        scores_n = scores_Cn[c]
        for n in range(size):
            top_n[n] = max(top_n[n], scores_n[n])


@compiled_reordered
def _exponentiate(scores_Cn: Array, size: int, top_n: Array, total_n: Array) -> None:
    """exp(score - top) in place of each score, and their sum.

    exp(x) = 2^m exp(r) for x = m ln 2 + r with |r| <= ln 2 / 2, where exp(r) is a polynomial: calls of exp would take
    longer than all else.
    """
    total_n[:size] = 0
    for c in range(len(scores_Cn)):
        scores_n = scores_Cn[c]
        for n in range(size):
            x = max(scores_n[n] - top_n[n], np.float32(-87.0))  # below, 2^m would not be a normal number
            m = np.floor(x * np.float32(1.4426950408889634) + np.float32(0.5))
            r = x - m * np.float32(0.6931471805599453)
            p = np.float32(1 / 5040) * r + np.float32(1 / 720)
            p = p * r + np.float32(1 / 120)
            p = p * r + np.float32(1 / 24)
            p = p * r + np.float32(1 / 6)
            p = p * r + np.float32(0.5)
            p = p * r * r + r + np.float32(1.0)
            power = np.int32((np.int32(m) + np.int32(127)) << np.int32(23)).view(np.float32)
            scores_n[n] = p * power
            total_n[n] += scores_n[n]


@compiled_reordered
def _add_gradient(features_DN: Array, start: int, size: int, errors_Cn: Array, gradient_CE: Array) -> None:
    """Products of errors and features, of four features at a time: errors are then read a quarter as often."""
    width, stop = len(features_DN), start + size
    fours = width - width % 4
    for d in range(0, fours, 4):
        x0, x1 = features_DN[d, start:stop], features_DN[d + 1, start:stop]
        x2, x3 = features_DN[d + 2, start:stop], features_DN[d + 3, start:stop]
        for c in range(len(errors_Cn)):
            errors_n = errors_Cn[c]
            sum0 = sum1 = sum2 = sum3 = np.float32(0.0)
            for n in range(size):
                error = errors_n[n]
                sum0 += error * x0[n]
                sum1 += error * x1[n]
                sum2 += error * x2[n]
                sum3 += error * x3[n]
            gradient_CE[c, d] += sum0
            gradient_CE[c, d + 1] += sum1
            gradient_CE[c, d + 2] += sum2
            gradient_CE[c, d + 3] += sum3
    for c in range(len(errors_Cn)):
        errors_n, bias = errors_Cn[c], np.float32(0.0)
        for n in range(size):
            bias += errors_n[n]
        gradient_CE[c, width] += bias
        for d in range(fours, width):
            x0, sum0 = features_DN[d, start:stop], np.float32(0.0)
            for n in range(size):
                sum0 += errors_n[n] * x0[n]
            gradient_CE[c, d] += sum0
