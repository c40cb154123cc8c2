"""Linear probes: logistic regression on frozen features, many at once, to the minimum and with the same bits again.

N examples (words or texts), G groups of features (the heads of an encoder; a whole encoder is one), D features of a
group, E the same and one for the bias, R samples of the examples, C classes, K = R x C. A probe is a group and a
sample; all of them are trained together, by passes over the examples in parts of a fixed size, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from crossling.analyses._minimise import Precondition, minimise

LEAST = 512
"""Examples that are looked at together, at least."""
BLOCK_BYTES = {"cpu": 1 << 19, "cuda": 1 << 28}
"""Features, or scores, that are: what stays in a processor's own cache, or keeps a GPU busy."""
CACHE_BYTES = {"cpu": 1 << 24, "cuda": 1 << 40}
"""Features whose probes are trained together: what stays in the cache that processors share; on a GPU all."""
RAREST = 1e-2
"""A class that is rarer than this is taken to be so frequent where its curvature is guessed."""


class Features(Protocol):
    """Examples' features, wherever they lie, as parts that are small enough to compute with."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """N, G, D."""

    @property
    def device(self) -> torch.device:
        """Where parts are when they are given out."""

    def parts(self, rows: int) -> Iterator[Tensor]:
        """All features in their order, ``rows`` examples at a time, in single precision, n x G x D."""


@dataclass(frozen=True)
class Held:
    """Features in memory."""

    values: Tensor
    """N x G x D."""

    @property
    def shape(self) -> tuple[int, int, int]:
        count, groups, width = self.values.shape
        return count, groups, width

    @property
    def device(self) -> torch.device:
        return self.values.device

    def parts(self, rows: int) -> Iterator[Tensor]:
        yield from torch.split(self.values, rows)


@dataclass(frozen=True)
class Moments:
    """What is known of features from one pass."""

    mean: Tensor
    spread: Tensor
    """G x D, both."""
    correlation: Tensor
    """G x D x D."""

    def scale(self, part_NGD: Tensor) -> Tensor:
        """Mean 0 and variance 1: what is large for reasons of its own weighs no more than the rest."""
        return (part_NGD - self.mean.float()) / self.spread.float()


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
    scaled = _Scaled(features, moments, width=max(features.shape[2], len(weights_RN) * classes))
    losses = _Losses(
        scaled, labels_N.to(device), weights_RN.to(device, torch.float32), moments.correlation, classes, l2
    )
    if scaled.bytes <= memory:
        scaled.hold()
    found = [
        minimise(some, some.begin(), tolerance=tolerance, passes=passes, finished=finished) for some in losses.divide()
    ]
    point, loss, slope = (torch.cat([getattr(one, n) for one in found]) for n in ("point", "loss", "slope"))
    return Probes(point, moments, loss, slope, max(one.passes for one in found))


def apply_probes(probes: Probes, features: Features) -> Tensor:
    """The class that each probe gives each example, N x G x R, on the CPU."""
    groups, samples, classes, _ = probes.point.shape
    weight_GKD, bias_GK1 = _split(probes.point)
    found = []
    for part_NGD in features.parts(choose_rows(features.device, groups, max(features.shape[2], samples * classes))):
        part_GDN = probes.moments.scale(part_NGD).permute(1, 2, 0)
        scores_GKN = torch.baddbmm(bias_GK1, weight_GKD, part_GDN)
        best_GRN = scores_GKN.view(groups, samples, classes, -1).argmax(2)
        found.append(best_GRN.permute(2, 0, 1).to(torch.int16).cpu())
    return torch.cat(found) if found else torch.zeros(0, groups, samples, dtype=torch.int16)


def choose_rows(device: torch.device, groups: int, width: int) -> int:
    """Examples in a part, of which each group has so many numbers."""
    return max(LEAST, BLOCK_BYTES[device.type] // (4 * groups * width))


def measure_moments(features: Features) -> Moments:
    """Mean, spread and correlations of every group's features, in one pass.

    Sums are those of distances from the first part's mean, so that features far from 0 lose no digits.
    """
    count, groups, width = features.shape
    origin_GD: Tensor | None = None
    total_GD = torch.zeros(groups, width, dtype=torch.float64, device=features.device)
    square_GDD = torch.zeros(groups, width, width, dtype=torch.float64, device=features.device)
    for part_NGD in features.parts(choose_rows(features.device, groups, width)):
        if origin_GD is None:
            origin_GD = part_NGD.mean(0)
        near_GND = (part_NGD - origin_GD).transpose(0, 1)
        total_GD += near_GND.sum(1)
        square_GDD += near_GND.transpose(1, 2) @ near_GND
    assert origin_GD is not None, "no example"
    offset_GD = total_GD / count
    covariance_GDD = square_GDD / count - offset_GD[:, :, None] * offset_GD[:, None, :]
    variance_GD = covariance_GDD.diagonal(dim1=1, dim2=2).clamp(min=0)
    # A feature that is the same everywhere says nothing, whatever it is divided by.
    still_GD = variance_GD <= 1e-12 * (origin_GD.double() ** 2 + 1e-12)
    spread_GD = torch.where(still_GD, 1.0, variance_GD.sqrt())
    correlation_GDD = covariance_GDD / (spread_GD[:, :, None] * spread_GD[:, None, :])
    return Moments(origin_GD.double() + offset_GD, spread_GD, correlation_GDD)


class _Scaled:
    """Scaled features of some of the groups; in memory, or read and scaled whenever they are needed."""

    def __init__(self, features: Features, moments: Moments, *, width: int) -> None:
        self.features, self.moments, self.width = features, moments, width
        self.groups = torch.arange(features.shape[1], device=features.device)
        self.held_GND: Tensor | None = None
        self.rows = choose_rows(features.device, len(self.groups), width)

    @property
    def bytes(self) -> int:
        """What they take in memory."""
        return 4 * self.features.shape[0] * len(self.groups) * self.features.shape[2]

    def hold(self) -> None:
        """Keep them in memory from now on, group by group."""
        count, groups, width = self.features.shape
        self.held_GND = torch.empty(groups, count, width, device=self.features.device)
        for number, part_NGD in enumerate(self.features.parts(self.rows)):
            start = number * self.rows
            self.held_GND[:, start : start + len(part_NGD)] = self.moments.scale(part_NGD).transpose(0, 1)

    def select(self, groups: Tensor | slice) -> _Scaled:
        """Those of some groups; a slice of what is held is not copied."""
        chosen = _Scaled(self.features, self.moments, width=self.width)
        chosen.groups = self.groups[groups]
        if self.held_GND is not None:
            chosen.held_GND = self.held_GND[groups]
            chosen.rows = choose_rows(self.features.device, len(chosen.groups), self.width)
        return chosen

    def parts(self) -> Iterator[Tensor]:
        """G x n x D, a part's examples at a time."""
        if self.held_GND is not None:
            yield from torch.split(self.held_GND, self.rows, dim=1)
            return
        for part_NGD in self.features.parts(self.rows):
            yield self.moments.scale(part_NGD)[:, self.groups].transpose(0, 1).contiguous()


@dataclass
class _Losses:
    """Mean cross-entropy and penalty of every probe."""

    features: _Scaled
    labels: Tensor
    """N."""
    weights: Tensor
    """How often a sample has an example: R x N."""
    correlation: Tensor
    classes: int
    l2: float

    def __post_init__(self) -> None:
        self.totals = self.weights.double().sum(1)
        self.is_plain = len(self.weights) == 1 and bool((self.weights == 1).all())
        """One sample that has every example once: nothing to multiply by."""
        # Half an example is added, for a sample may lack a class.
        counts_RC = self.weights.double() @ functional.one_hot(self.labels, self.classes).double() + 0.5
        self.shares = counts_RC / counts_RC.sum(1, keepdim=True)

    def begin(self) -> Tensor:
        """Probes that know how frequent the classes are, and nothing of the features."""
        groups, width = self.correlation.shape[:2]
        point_GRCE = torch.zeros(groups, *self.shares.shape, width + 1, dtype=torch.float64, device=self.shares.device)
        point_GRCE[..., -1] = self.shares.log()
        return point_GRCE

    def divide(self) -> Iterator[_Losses]:
        """Groups to train together: few enough that what is held of them stays in a cache, else all.

        What is not held is read for all of them at once.
        """
        groups = len(self.features.groups)
        size = groups
        if self.features.held_GND is not None:
            size = max(1, CACHE_BYTES[self.labels.device.type] * groups // self.features.bytes)
        for first in range(0, groups, size):
            some = slice(first, first + size)
            yield replace(self, features=self.features.select(some), correlation=self.correlation[some])

    def keep(self, groups: Tensor) -> None:
        self.features = self.features.select(groups)
        self.correlation = self.correlation[groups]

    def evaluate(self, point_GRCE: Tensor) -> tuple[Tensor, Tensor]:
        """Every probe's loss, G x R, and the derivatives; one pass over the examples."""
        weight_GKD, bias_GK1 = _split(point_GRCE)
        loss_GR, slope_GKE = torch.zeros_like(point_GRCE[:, :, 0, 0]), torch.zeros_like(point_GRCE).flatten(1, 2)
        start = 0
        for part_GND in self.features.parts():
            span = slice(start, start + part_GND.shape[1])
            start = span.stop
            for some in self._list_blocks(part_GND):
                # Examples come last: sums over a few classes then run through memory from one end to the other.
                scores_GKN = torch.baddbmm(bias_GK1[some], weight_GKD[some], part_GND[some].transpose(1, 2))
                losses_GRN, errors_GKN = self._compare(scores_GKN, span)
                loss_GR[some] += losses_GRN.sum(2)
                slope_GKE[some, :, :-1] += errors_GKN @ part_GND[some]
                slope_GKE[some, :, -1] += errors_GKN.sum(2)
        slope_GRCE = slope_GKE.view_as(point_GRCE) / self.totals[:, None, None]
        penalty_R = self.l2 / self.totals
        slope_GRCE[..., :-1] += penalty_R[:, None, None] * point_GRCE[..., :-1]
        return loss_GR / self.totals + penalty_R / 2 * point_GRCE[..., :-1].square().sum((2, 3)), slope_GRCE

    def _list_blocks(self, part_GND: Tensor) -> Iterator[slice]:
        """Groups that are computed together."""
        groups, count, _ = part_GND.shape
        size = max(1, BLOCK_BYTES[part_GND.device.type] // (4 * count * self.features.width))
        for first in range(0, groups, size):
            yield slice(first, first + size)

    def _compare(self, scores_GKN: Tensor, span: slice) -> tuple[Tensor, Tensor]:
        """Each example's cross-entropy, and its derivatives by the scores, which are overwritten."""
        labels_N = self.labels[span]
        scores_GRCN = scores_GKN.view(len(scores_GKN), -1, self.classes, len(labels_N))
        place_GR1N = labels_N.expand(*scores_GRCN.shape[:2], 1, -1)
        scores_GRCN.sub_(scores_GRCN.amax(2, keepdim=True))
        gold_GR1N = scores_GRCN.gather(2, place_GR1N)
        total_GR1N = scores_GRCN.exp_().sum(2, keepdim=True)
        scores_GRCN.div_(total_GR1N).scatter_add_(2, place_GR1N, torch.full_like(total_GR1N, -1.0))
        losses_GRN = (total_GR1N.log() - gold_GR1N).squeeze(2)
        if not self.is_plain:
            losses_GRN = losses_GRN * self.weights[:, span]
            scores_GRCN.mul_(self.weights[:, None, span])
        return losses_GRN, scores_GKN

    def build_preconditioner(self) -> Precondition:
        """A guess at the inverse of the curvature: what it is where a probe knows the classes' shares alone.

        There the second derivative by class c's weights is p (1 - p) times the features' correlations.
        """
        values_GD, vectors_GDD = torch.linalg.eigh(self.correlation)
        curve_RC1 = (self.shares * (1 - self.shares)).clamp(min=RAREST)[..., None]
        penalty_R11 = (self.l2 / self.totals)[:, None, None]
        inverse_GRCD = 1 / (values_GD.clamp(min=0)[:, None, None] * curve_RC1 + penalty_R11 + 1e-6)

        def precondition(slope_GRCE: Tensor) -> Tensor:
            turned_GKD = slope_GRCE[..., :-1].flatten(1, 2) @ vectors_GDD
            scaled_GKD = (turned_GKD.view_as(inverse_GRCD) * inverse_GRCD).flatten(1, 2)
            weight_GRCD = (scaled_GKD @ vectors_GDD.transpose(1, 2)).view_as(inverse_GRCD)
            return torch.cat([weight_GRCD, slope_GRCE[..., -1:] / curve_RC1], dim=-1)

        return precondition


def _split(point_GRCE: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and biases in single precision, samples and classes one below the other."""
    flat_GKE = point_GRCE.flatten(1, 2).float()
    return flat_GKE[..., :-1].contiguous(), flat_GKE[..., -1:].contiguous()
