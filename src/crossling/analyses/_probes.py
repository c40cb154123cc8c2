"""Linear probes: logistic regression on frozen features, many at once, to the minimum and with the same bits again.

N examples (words or texts), G groups of features (the heads of an encoder; a whole encoder is one), D features of a
group, E the same and one for the bias, R samples of the examples, C classes, K = R x C. A probe is a group and a
sample; all of them are trained together, by passes over the examples in parts of a fixed size, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from crossling.analyses._minimise import Minimum, minimise
from crossling.analyses._probe_features import Features, Held, Moments, Scaled, choose_rows, measure_moments
from crossling.analyses._probe_losses import Losses, split_point

__all__ = ["Features", "Held", "Probes", "apply_probes", "measure_moments", "train_probes"]

MOST_WEIGHTS = 1_500
"""Of a probe whose curvature is measured: its square is inverted."""
FEW = 6
"""Examples for each weight of a probe that measure its curvature."""
LEAST_FEW = 1_024
"""And at least so many."""
ROUGH = 3e-4
"""The tolerance at which it is measured."""


@dataclass(frozen=True)
class Probes:
    """Trained probes, in double precision."""

    point: Tensor
    """Weights of the scaled features, the bias last: G x R x C x E."""
    moments: Moments
    loss: Tensor
    """Mean loss with its penalty."""
    slope: Tensor
    """The largest derivative of it that is left: G x R, both."""
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
    ``weights_RN`` counts how often a sample has an example; without it there is one sample that has each once.
    ``tolerance`` bounds the derivatives of the mean loss at the end. Features that need at most ``memory`` bytes are
    held, others are read again in every pass, which gives the same probes. ``finished`` hears of groups that are done.
    """
    device = features.device
    weights_RN = torch.ones(1, features.shape[0]) if weights_RN is None else weights_RN
    moments = measure_moments(features)
    scaled = Scaled(features, moments, width=max(features.shape[2], len(weights_RN) * classes))
    losses = Losses(scaled, labels_N.to(device), weights_RN.to(device, torch.float32), moments.correlation, classes, l2)
    if scaled.bytes <= memory:
        scaled.hold()
    found = [
        _train(some, tolerance=tolerance, passes=passes, memory=memory, finished=finished) for some in losses.divide()
    ]
    point, loss, slope = (torch.cat([getattr(one, n) for one in found]) for n in ("point", "loss", "slope"))
    return Probes(point, moments, loss, slope, max(one.passes for one in found))


def _train(losses: Losses, *, tolerance: float, passes: int, memory: int, finished: Callable[[int], None]) -> Minimum:
    """Where there are many examples, the curvature is measured first, on few of them and at the probes that those give.

    Passes over all examples are then few as well.
    """
    step = choose_step(losses, memory)
    if not step:
        guess = losses.guess_curvature()
        return minimise(losses, losses.begin(), guess, tolerance=tolerance, passes=passes, finished=finished)
    few = losses.thin(step) if step > 1 else losses
    rough = minimise(replace(few), few.begin(), few.guess_curvature(), tolerance=max(tolerance, ROUGH), passes=passes)
    measured = few.measure_curvature(rough.point)
    del few
    return minimise(losses, rough.point, measured, tolerance=tolerance, passes=passes, finished=finished)


def choose_step(losses: Losses, memory: int) -> int:
    """One of so many examples measures the curvature (1: all do); 0 where that would cost more than it saves."""
    groups, width = losses.correlation.shape[:2]
    count, weights = len(losses.labels), losses.classes * (width + 1)
    few = max(LEAST_FEW, FEW * weights)
    worth = count >= max(3 * LEAST_FEW, weights * weights // 60)
    fits = weights <= MOST_WEIGHTS and 4 * groups * weights * weights <= memory
    return max(1, count // few) if worth and fits else 0


def apply_probes(probes: Probes, features: Features) -> Tensor:
    """The class that each probe gives each example, N x G x R, on the CPU."""
    groups, samples, classes, _ = probes.point.shape
    weight_GKD, bias_GK1 = split_point(probes.point)
    found = []
    for part_NGD in features.parts(choose_rows(features.device, groups, max(features.shape[2], samples * classes))):
        part_GDN = probes.moments.scale(part_NGD).permute(1, 2, 0)
        scores_GKN = torch.baddbmm(bias_GK1, weight_GKD, part_GDN)
        best_GRN = scores_GKN.view(groups, samples, classes, -1).argmax(2)
        found.append(best_GRN.permute(2, 0, 1).to(torch.int16).cpu())
    return torch.cat(found) if found else torch.zeros(0, groups, samples, dtype=torch.int16)
