"""L-BFGS on many small convex problems side by side, each with its own curvature, step length and end.

G groups, R samples, C classes, E weights of a class: a problem is a group and a sample. A group is evaluated only while
one of its problems has not converged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

HISTORY = 12
"""Pairs (s, y) that the curvature is estimated from."""
SUFFICIENT_DECREASE = 1e-4
"""Armijo's condition: a step is accepted if the loss falls by this share of what the gradient predicts."""
ROUNDING = 1e-7
"""A loss that rises by no more than this share has not risen: sums in single precision are no more exact."""
MAX_FAILURES = 12
"""A problem whose last steps, this many in a row, were too long has no digits left to gain."""
COMPACT = 0.8
"""Converged groups are dropped when no more than this share is still active."""


class Preconditioner(Protocol):
    """An approximate inverse of the Hessian."""

    def __call__(self, gradient_GRCE: Tensor) -> Tensor:
        """From a gradient to a direction."""

    def select(self, groups: Tensor) -> Preconditioner:
        """That of some of the groups."""


class BatchedLoss(Protocol):
    """The losses of all problems as one function of all their weights."""

    def evaluate(self, point_GRCE: Tensor) -> tuple[Tensor, Tensor]:
        """Every problem's loss, G x R, and its gradient."""

    def keep(self, groups: Tensor) -> None:
        """Drop all groups but these."""


@dataclass(frozen=True)
class Minimum:
    """Where the problems ended."""

    point: Tensor
    """G x R x C x E."""
    loss: Tensor
    gradient: Tensor
    """The largest absolute partial derivative that is left: G x R, both."""
    passes: int
    """How often the losses were evaluated."""


def minimise(
    losses: BatchedLoss,
    start_GRCE: Tensor,
    preconditioner: Preconditioner,
    *,
    tolerance: float,
    passes: int,
    finished: Callable[[int], None] = lambda groups: None,
) -> Minimum:
    """Minimise until no partial derivative exceeds ``tolerance``, in at most ``passes`` evaluations.

    ``finished`` is called with the number of groups that converged since the last call.
    """
    search = _Search(losses, start_GRCE, preconditioner)
    point, loss_GR, gradient_GR = start_GRCE.clone(), search.loss.clone(), search.gradient.abs().amax((2, 3))
    groups = torch.arange(len(point), device=point.device)
    used = 1
    while True:
        point[groups], loss_GR[groups] = search.point, search.loss
        gradient_GR[groups] = search.gradient.abs().amax((2, 3))
        active_GR = (gradient_GR[groups] > tolerance) & (search.failures < MAX_FAILURES)
        if used >= passes or not active_GR.any():
            finished(len(groups))
            return Minimum(point, loss_GR, gradient_GR, used)
        active = active_GR.any(1).nonzero()[:, 0]
        if len(active) <= COMPACT * len(groups):
            finished(len(groups) - len(active))
            search.keep(active)
            groups, active_GR = groups[active], active_GR[active]
        search.step(active_GR)
        used += 1


class _Search:
    """The state of the problems that have not converged."""

    def __init__(self, losses: BatchedLoss, point: Tensor, preconditioner: Preconditioner) -> None:
        self.losses, self.preconditioner = losses, preconditioner
        self.point = point
        self.loss, self.gradient = losses.evaluate(point)
        self.direction = -self.preconditioner(self.gradient)
        self.length = torch.ones_like(self.loss)
        self.failures = torch.zeros_like(self.loss)
        self.scale = torch.ones_like(self.loss)
        """gamma = (s . y) / (y . P y) of each problem's last step: how far the preconditioner P was off."""
        self.pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=HISTORY)
        """The last steps s, changes of the gradient y, and rho = 1 / (s . y)."""

    def keep(self, groups: Tensor) -> None:
        """Continue with these groups alone."""
        self.losses.keep(groups)
        self.preconditioner = self.preconditioner.select(groups)
        for name in ("point", "loss", "gradient", "direction", "length", "failures", "scale"):
            setattr(self, name, getattr(self, name)[groups])
        self.pairs = deque(((s[groups], y[groups], rho[groups]) for s, y, rho in self.pairs), maxlen=HISTORY)

    def step(self, active_GR: Tensor) -> None:
        """One evaluation: each active problem accepts its step, or shortens it."""
        trial = self.point + _expand(self.length * active_GR) * self.direction
        trial_loss_GR, trial_gradient = self.losses.evaluate(trial)
        predicted_GR = self.length * _dot(self.gradient, self.direction)
        bound_GR = self.loss + SUFFICIENT_DECREASE * predicted_GR + ROUNDING * self.loss.abs()
        decreased_GR = trial_loss_GR <= bound_GR
        # Where a step was too long, the minimum of the parabola through the known values gives its new length.
        excess_GR = (trial_loss_GR - self.loss - predicted_GR).clamp(min=1e-300)
        shorter_GR = self.length * (-predicted_GR / (2 * excess_GR)).clamp(0.1, 0.5)
        self.length = torch.where(decreased_GR, 1.0, shorter_GR)
        self.failures = torch.where(decreased_GR, 0.0, self.failures + active_GR)
        accepted_GR = active_GR & decreased_GR
        self._update_history(trial - self.point, trial_gradient - self.gradient, accepted_GR)
        accepted = _expand(accepted_GR)
        self.point = torch.where(accepted, trial, self.point)
        self.gradient = torch.where(accepted, trial_gradient, self.gradient)
        self.loss = torch.where(accepted_GR, trial_loss_GR, self.loss)
        self.direction = torch.where(accepted, self._find_direction(), self.direction)

    def _update_history(self, s: Tensor, y: Tensor, accepted_GR: Tensor) -> None:
        """Add a pair; rho is 0 for problems that rejected the step or met no curvature along it."""
        product_GR = _dot(s, y)
        useful_GR = accepted_GR & (product_GR > 1e-12 * _dot(y, y))
        rho_GR = torch.where(useful_GR, 1 / product_GR.clamp(min=1e-300), 0.0)
        self.pairs.append((s, y, rho_GR))
        norm_GR = _dot(y, self.preconditioner(y)).clamp(min=1e-300)
        self.scale = torch.where(useful_GR, product_GR / norm_GR, self.scale)

    def _find_direction(self) -> Tensor:
        """The two-loop recursion of L-BFGS."""
        q, alphas = self.gradient, []
        for s, y, rho_GR in reversed(self.pairs):
            alphas.append(rho_GR * _dot(s, q))
            q = q - _expand(alphas[-1]) * y
        r = self.preconditioner(q) * _expand(self.scale)
        for (s, y, rho_GR), alpha_GR in zip(self.pairs, reversed(alphas), strict=True):
            r = r + _expand(alpha_GR - rho_GR * _dot(y, r)) * s
        return -r


def _expand(values_GR: Tensor) -> Tensor:
    """A number of each problem beside its weights."""
    return values_GR[:, :, None, None]


def _dot(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum((2, 3))
