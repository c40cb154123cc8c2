"""The losses of many linear probes as one function of all their weights, and preconditioners for it.

N examples, G groups of features, D features of a group, E the same and one for the bias, R samples of the examples, C
classes, K = R x C, H = C x E.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from crossling.analyses._probes.standardize import BLOCK_BYTES, Standardized

TOGETHER_BYTES = {"cpu": 1 << 27, "cuda": 1 << 36}
"""Features whose probes are trained together: enough that steps cost little beside passes, few enough for a cache that
CPU cores share."""
LEAST_SHARE = 1e-2
"""The least share of a class that the preconditioner assumes."""
MATRIX_BYTES = {"cpu": 1, "cuda": 1 << 27}
"""Hessians that are computed together: on a CPU one, which stays in its cache."""
CLASSES_TOGETHER = 4
"""Classes whose rows of a Hessian are computed together: enough for fast products, few below the diagonal."""
DAMPING = 1e-4
"""Added to the diagonal of a Hessian of few examples, which is singular in some directions."""


@dataclass
class ProbeLosses:
    """Mean cross-entropy and penalty of every probe."""

    features: Standardized
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

    def start(self) -> Tensor:
        """Where training starts: weights of 0, and the log frequencies of the classes as biases."""
        groups, width = self.correlation.shape[:2]
        point_GRCE = torch.zeros(groups, *self.shares.shape, width + 1, dtype=torch.float64, device=self.shares.device)
        point_GRCE[..., -1] = self.shares.log()
        return point_GRCE

    def divide(self) -> Iterator[ProbeLosses]:
        """Groups to train together: few enough that what is held of them stays in a cache, else all.

        What is not held is read for all of them at once.
        """
        groups = len(self.features.groups)
        size = groups
        if self.features.is_held:
            size = max(1, TOGETHER_BYTES[self.labels.device.type] * groups // self.features.bytes)
        for first in range(0, groups, size):
            some = slice(first, first + size)
            yield replace(self, features=self.features.select(some), correlation=self.correlation[some])

    def keep(self, groups: Tensor) -> None:
        self.features = self.features.select(groups)
        self.correlation = self.correlation[groups]

    def evaluate(self, point_GRCE: Tensor) -> tuple[Tensor, Tensor]:
        """Every probe's loss, G x R, and its gradient; one pass over the examples."""
        weight_GKD, bias_GK1 = split_point(point_GRCE)
        loss_GR, gradient_GKE = torch.zeros_like(point_GRCE[:, :, 0, 0]), torch.zeros_like(point_GRCE).flatten(1, 2)
        if self.features.by_group is not None:
            from crossling.analyses._probes.compiled_losses import add_cross_entropy

            probes = zip(weight_GKD, bias_GK1, loss_GR, gradient_GKE, strict=True)
            add_cross_entropy(self.features.by_group, self.labels, self.weights, probes)
        else:
            self._add_cross_entropy(weight_GKD, bias_GK1, loss_GR, gradient_GKE)
        gradient_GRCE = gradient_GKE.view_as(point_GRCE) / self.totals[:, None, None]
        penalty_R = self.l2 / self.totals
        gradient_GRCE[..., :-1] += penalty_R[:, None, None] * point_GRCE[..., :-1]
        return loss_GR / self.totals + penalty_R / 2 * point_GRCE[..., :-1].square().sum((2, 3)), gradient_GRCE

    def _add_cross_entropy(self, weight_GKD: Tensor, bias_GK1: Tensor, loss_GR: Tensor, gradient_GKE: Tensor) -> None:
        """Add the sums of cross-entropies, and their gradients."""
        start = 0
        for part_GND in self.features.parts():
            span = slice(start, start + part_GND.shape[1])
            start = span.stop
            for some in self._list_blocks(part_GND):
                # Examples come last: sums over a few classes then run through memory from one end to the other.
                scores_GKN = torch.baddbmm(bias_GK1[some], weight_GKD[some], part_GND[some].transpose(1, 2))
                losses_GRN, errors_GKN = self._cross_entropy(scores_GKN, span)
                loss_GR[some] += losses_GRN.sum(2)
                gradient_GKE[some, :, :-1] += errors_GKN @ part_GND[some]
                gradient_GKE[some, :, -1] += errors_GKN.sum(2)

    def _list_blocks(self, part_GND: Tensor) -> Iterator[slice]:
        """Groups that are computed together."""
        groups, count, _ = part_GND.shape
        size = max(1, BLOCK_BYTES[part_GND.device.type] // (4 * count * self.features.width))
        for first in range(0, groups, size):
            yield slice(first, first + size)

    def _cross_entropy(self, scores_GKN: Tensor, span: slice) -> tuple[Tensor, Tensor]:
        """Each example's cross-entropy, and its gradient by the scores, which are overwritten."""
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

    def subsample(self, step: int) -> ProbeLosses:
        """The same losses of every ``step``-th example; the penalty has the same weight."""
        labels, weights = self.labels[::step], self.weights[:, ::step]
        l2 = self.l2 * len(labels) / len(self.labels)
        return replace(self, features=self.features.subsample(step), labels=labels, weights=weights, l2=l2)

    def make_prior_preconditioner(self) -> PriorPreconditioner:
        """The inverse Hessian where training starts: predictions are the classes' frequencies."""
        values_GD, vectors_GDD = torch.linalg.eigh(self.correlation)
        curve_RC1 = (self.shares * (1 - self.shares)).clamp(min=LEAST_SHARE)[..., None]
        penalty_R11 = (self.l2 / self.totals)[:, None, None]
        return PriorPreconditioner(values_GD.clamp(min=0), vectors_GDD, curve_RC1, penalty_R11 + 1e-6)

    def make_hessian_preconditioner(self, point_GRCE: Tensor) -> HessianPreconditioner:
        """The inverse Hessian at a point, for each group's first sample; those of other samples are close to it.

        The second derivative by the weights of classes c and c' is the mean of (p_c [c = c'] - p_c p_c') x x^T.
        """
        weight_GKD, bias_GK1 = split_point(point_GRCE[:, :1])
        groups, classes, width = weight_GKD.shape
        size = max(1, MATRIX_BYTES[weight_GKD.device.type] // (8 * (classes * (width + 1)) ** 2))
        found = [
            self._invert_hessian(self.features.select(some), weight_GKD[some], bias_GK1[some])
            for some in (slice(first, first + size) for first in range(0, groups, size))
        ]
        return HessianPreconditioner(torch.cat(found))

    def _invert_hessian(self, features: Standardized, weight_GKD: Tensor, bias_GK1: Tensor) -> Tensor:
        """The inverse of some groups' Hessian, in single precision."""
        groups, classes, width = weight_GKD.shape
        size = classes * (width + 1)
        total_GHH = torch.zeros(groups, size, size, device=weight_GKD.device)
        diagonal_GHE = torch.zeros(groups, size, width + 1, device=weight_GKD.device)
        for part_GND in features.parts():
            shares_GCN = torch.baddbmm(bias_GK1, weight_GKD, part_GND.transpose(1, 2)).softmax(1)
            wide_GEN = functional.pad(part_GND, (0, 1), value=1.0).transpose(1, 2).contiguous()
            product_GHN = (shares_GCN[:, :, None] * wide_GEN[:, None]).flatten(1, 2)
            diagonal_GHE.baddbmm_(product_GHN, wide_GEN.transpose(1, 2))
            step = CLASSES_TOGETHER * (width + 1)
            for first in range(0, size, step):  # above the diagonal: what is below is the same
                some = slice(first, first + step)
                total_GHH[:, some, first:].baddbmm_(
                    product_GHN[:, some], product_GHN[:, first:].transpose(1, 2), alpha=-1
                )
        for first in range(0, size, width + 1):
            some = slice(first, first + width + 1)
            total_GHH[:, some, some] += diagonal_GHE[:, some]
        count = len(self.labels)
        ridge_E = torch.full((width + 1,), DAMPING + self.l2 / count, dtype=torch.float64, device=total_GHH.device)
        ridge_E[-1] = DAMPING
        whole_GHH = (total_GHH.triu() + total_GHH.triu(1).transpose(1, 2)).double() / count
        return torch.cholesky_inverse(torch.linalg.cholesky(whole_GHH + torch.diag(ridge_E.repeat(classes)))).float()


@dataclass(frozen=True)
class PriorPreconditioner:
    """The inverse of p (1 - p) times the features' correlations, for each class c with share p."""

    values: Tensor
    """Eigenvalues of the correlations, G x D."""
    vectors: Tensor
    curve: Tensor
    """p (1 - p): R x C x 1."""
    penalty: Tensor

    def select(self, groups: Tensor) -> PriorPreconditioner:
        return replace(self, values=self.values[groups], vectors=self.vectors[groups])

    def __call__(self, gradient_GRCE: Tensor) -> Tensor:
        inverse_GRCD = 1 / (self.values[:, None, None] * self.curve + self.penalty)
        turned_GKD = gradient_GRCE[..., :-1].flatten(1, 2) @ self.vectors
        scaled_GKD = (turned_GKD.view_as(inverse_GRCD) * inverse_GRCD).flatten(1, 2)
        weight_GRCD = (scaled_GKD @ self.vectors.transpose(1, 2)).view_as(inverse_GRCD)
        return torch.cat([weight_GRCD, gradient_GRCE[..., -1:] / self.curve], dim=-1)


@dataclass(frozen=True)
class HessianPreconditioner:
    """The inverse of a computed Hessian, H = C x E."""

    inverse: Tensor
    """G x H x H."""

    def select(self, groups: Tensor) -> HessianPreconditioner:
        return HessianPreconditioner(self.inverse[groups])

    def __call__(self, gradient_GRCE: Tensor) -> Tensor:
        flat_GRH = gradient_GRCE.flatten(2).float()
        return (flat_GRH @ self.inverse).double().view_as(gradient_GRCE)


def split_point(point_GRCE: Tensor) -> tuple[Tensor, Tensor]:
    """Weights and biases in single precision, samples and classes one below the other."""
    flat_GKE = point_GRCE.flatten(1, 2).float()
    return flat_GKE[..., :-1].contiguous(), flat_GKE[..., -1:].contiguous()
