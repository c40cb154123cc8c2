"""Linear probes: logistic regression on frozen features, many at once, to the minimum, reproducible bit by bit.

N examples (words or texts), G groups of features (the heads of an encoder; a whole encoder is one), D features of a
group, E the same and one for the bias, R samples of the examples, C classes, K = R x C. A probe is a group and a
sample; all of them are trained together, by passes over the examples in parts of a fixed size, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from crossling.analyses._probes.lbfgs import Minimum, minimise
from crossling.analyses._probes.losses import ProbeLosses, split_point
from crossling.analyses._probes.standardize import (
    Features,
    InMemory,
    Moments,
    Standardized,
    choose_rows,
    measure_moments,
)

__all__ = ["Features", "InMemory", "Probes", "apply_probes", "measure_moments", "train_probes"]

MAX_HESSIAN = 1_500
"""Weights of a probe up to which its Hessian is inverted."""
EXAMPLES_PER_WEIGHT = 6
"""Examples that its Hessian is computed from, for each weight of a probe;"""
LEAST_EXAMPLES = 1_024
"""and at least this many."""
ROUGH = 1e-3
"""The tolerance of the point at which it is computed,"""
ROUGH_PENALTY = 10
"""and how many times the usual penalty is there: with the usual one, probes of few examples fit them too closely."""


@dataclass(frozen=True)
class Probes:
    """Trained probes, in double precision."""

    point: Tensor
    """Weights of the scaled features, the bias last: G x R x C x E."""
    moments: Moments
    loss: Tensor
    """Mean loss with its penalty."""
    gradient: Tensor
    """The largest absolute partial derivative that is left: G x R, both."""
    passes: int
    """Passes over the examples that training took."""


def train_probes(
    features: Features,
    labels_N: Tensor,
    *,
    classes: int,
    weights_RN: Tensor | None = None,
    l2: float = 1.0,
    tolerance: float = 1e-5,
    passes: int = 2_000,
    memory: int = 1 << 30,
    finished: Callable[[int], None] = lambda groups: None,
) -> Probes:
    """Train a probe on each group of features and each sample of the examples, all at once.

    What is minimised for each is the sum of cross-entropies plus ``l2`` / 2 times the squared weights (of features
    scaled to variance 1, without the bias): scikit-learn's ``LogisticRegression(C=1/l2)`` after a ``StandardScaler``.
    As there, the weights of two classes are one vector w, their difference, and w is what the penalty is on. Here they
    are w / 2 and -w / 2, whose squares add up to half of w's, so that the penalty is doubled.
    ``weights_RN`` counts how often a sample has an example; without it there is one sample that has each once.
    ``tolerance`` bounds the derivatives of the mean loss at the end. Features that need at most ``memory`` bytes are
    held, others are read again in every pass, which gives the same probes. ``finished`` is called with the number of
    groups that converged.
    """
    device = features.device
    weights_RN = torch.ones(1, features.shape[0]) if weights_RN is None else weights_RN
    moments = measure_moments(features)
    scaled = Standardized(features, moments, width=max(features.shape[2], len(weights_RN) * classes))
    penalty = 2 * l2 if classes == 2 else l2
    losses = ProbeLosses(
        scaled, labels_N.to(device), weights_RN.to(device, torch.float32), moments.correlation, classes, penalty
    )
    if scaled.bytes <= memory:
        scaled.hold()
    found = [
        _train(some, tolerance=tolerance, passes=passes, memory=memory, finished=finished) for some in losses.divide()
    ]
    point, loss, gradient = (torch.cat([getattr(one, n) for one in found]) for n in ("point", "loss", "gradient"))
    return Probes(point, moments, loss, gradient, max(one.passes for one in found))


def _train(
    losses: ProbeLosses, *, tolerance: float, passes: int, memory: int, finished: Callable[[int], None]
) -> Minimum:
    """Where there are many examples, the Hessian of few of them, at the probes that those give, is the preconditioner.

    Passes over all examples are then few as well.
    """
    step = choose_step(losses, memory)
    if not step:
        prior = losses.make_prior_preconditioner()
        return minimise(losses, losses.start(), prior, tolerance=tolerance, passes=passes, finished=finished)
    few = losses.subsample(step) if step > 1 else losses
    prior = few.make_prior_preconditioner()
    rough = minimise(
        replace(few, l2=ROUGH_PENALTY * few.l2), few.start(), prior, tolerance=max(tolerance, ROUGH), passes=passes
    )
    hessian = few.make_hessian_preconditioner(rough.point)
    del few
    return minimise(losses, rough.point, hessian, tolerance=tolerance, passes=passes, finished=finished)


def choose_step(losses: ProbeLosses, memory: int) -> int:
    """Every how many-th example the Hessian is computed from (1: all); 0 where that would cost more than it saves."""
    groups, width = losses.correlation.shape[:2]
    count, weights = len(losses.labels), losses.classes * (width + 1)
    few = max(LEAST_EXAMPLES, EXAMPLES_PER_WEIGHT * weights)
    worth = count >= max(3 * LEAST_EXAMPLES, weights * weights // 60)
    fits = weights <= MAX_HESSIAN and 4 * groups * weights * weights <= memory
    return max(1, count // few) if worth and fits else 0


def apply_probes(probes: Probes, features: Features) -> Tensor:
    """The class that each probe gives each example, N x G x R, on the CPU."""
    groups, samples, classes, _ = probes.point.shape
    weight_GKD, bias_GK1 = split_point(probes.point)
    found = []
    for part_NGD in features.parts(choose_rows(features.device, groups, max(features.shape[2], samples * classes))):
        part_GDN = probes.moments.standardize(part_NGD).permute(1, 2, 0)
        scores_GKN = torch.baddbmm(bias_GK1, weight_GKD, part_GDN)
        best_GRN = scores_GKN.view(groups, samples, classes, -1).argmax(2)
        found.append(best_GRN.permute(2, 0, 1).to(torch.int16).cpu())
    return torch.cat(found) if found else torch.zeros(0, groups, samples, dtype=torch.int16)
