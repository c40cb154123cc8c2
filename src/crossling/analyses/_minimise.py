"""L-BFGS on many small convex problems side by side, each with its own curvature, step and end.

G groups, R samples, C classes, E weights of a class: a problem is a group and a sample. What a group costs to evaluate
is paid only while one of its problems still goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

PAIRS = 12
"""Steps that the curvature is estimated from."""
ENOUGH = 1e-4
"""A step is taken if the loss falls by this share of what its slope promises."""
NOISE = 1e-7
"""A loss that rises by no more than this share has not risen: sums in single precision know no better."""
STUCK = 12
"""A problem whose steps were too long so often in a row has no digits left to gain."""
LEAVE = 0.8
"""Groups that are done are left out when no more than this share is not."""


class Guess(Protocol):
    """A guess at the inverse of the curvature."""

    def __call__(self, slope_GRCE: Tensor) -> Tensor:
        """From a slope to a direction."""

    def select(self, groups: Tensor) -> Guess:
        """That of some of the groups."""


class Losses(Protocol):
    """The losses of all problems as one function of all their weights."""

    def evaluate(self, point_GRCE: Tensor) -> tuple[Tensor, Tensor]:
        """Every problem's loss, G x R, and its derivatives."""

    def keep(self, groups: Tensor) -> None:
        """From now on there are only these of the groups."""


@dataclass(frozen=True)
class Minimum:
    """Where the problems ended."""

    point: Tensor
    """G x R x C x E."""
    loss: Tensor
    slope: Tensor
    """The largest derivative that is left: G x R, both."""
    passes: int
    """How often the losses were evaluated."""


def minimise(
    losses: Losses,
    start_GRCE: Tensor,
    guess: Guess,
    *,
    tolerance: float,
    passes: int,
    finished: Callable[[int], None] = lambda groups: None,
) -> Minimum:
    """Go downhill until no derivative exceeds ``tolerance``, in at most so many passes.

    ``finished`` hears how many groups came to their end, now and then.
    """
    search = _Search(losses, start_GRCE, guess)
    point, loss_GR, slope_GR = start_GRCE.clone(), search.loss.clone(), search.slope.abs().amax((2, 3))
    groups = torch.arange(len(point), device=point.device)
    used = 1
    while True:
        point[groups], loss_GR[groups], slope_GR[groups] = search.point, search.loss, search.slope.abs().amax((2, 3))
        active_GR = (slope_GR[groups] > tolerance) & (search.failures < STUCK)
        if used >= passes or not active_GR.any():
            finished(len(groups))
            return Minimum(point, loss_GR, slope_GR, used)
        going = active_GR.any(1).nonzero()[:, 0]
        if len(going) <= LEAVE * len(groups):
            finished(len(groups) - len(going))
            search.keep(going)
            groups, active_GR = groups[going], active_GR[going]
        search.step(active_GR)
        used += 1


class _Search:
    """The state of the problems that still go on."""

    def __init__(self, losses: Losses, point: Tensor, guess: Guess) -> None:
        self.losses, self.guess = losses, guess
        self.point = point
        self.loss, self.slope = losses.evaluate(point)
        self.direction = -self.guess(self.slope)
        self.length = torch.ones_like(self.loss)
        self.failures = torch.zeros_like(self.loss)
        self.scale = torch.ones_like(self.loss)
        """How far the guess at the curvature was off over each problem's last step."""
        self.pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=PAIRS)
        """The last steps, how the slopes changed over them, and what each weighs."""

    def keep(self, groups: Tensor) -> None:
        """Go on with these groups alone."""
        self.losses.keep(groups)
        self.guess = self.guess.select(groups)
        for name in ("point", "loss", "slope", "direction", "length", "failures", "scale"):
            setattr(self, name, getattr(self, name)[groups])
        self.pairs = deque(((a[groups], b[groups], c[groups]) for a, b, c in self.pairs), maxlen=PAIRS)

    def step(self, active_GR: Tensor) -> None:
        """One pass: each active problem takes its step, or learns that it was too long."""
        trial = self.point + _spread(self.length * active_GR) * self.direction
        trial_loss_GR, trial_slope = self.losses.evaluate(trial)
        promised_GR = self.length * _dot(self.slope, self.direction)
        falls_GR = trial_loss_GR <= self.loss + ENOUGH * promised_GR + NOISE * self.loss.abs()
        # Where a step was too long, the parabola through what is known says how long it should have been.
        excess_GR = (trial_loss_GR - self.loss - promised_GR).clamp(min=1e-300)
        shorter_GR = self.length * (-promised_GR / (2 * excess_GR)).clamp(0.1, 0.5)
        self.length = torch.where(falls_GR, 1.0, shorter_GR)
        self.failures = torch.where(falls_GR, 0.0, self.failures + active_GR)
        taken_GR = active_GR & falls_GR
        self._remember(trial - self.point, trial_slope - self.slope, taken_GR)
        taken = _spread(taken_GR)
        self.point, self.slope = torch.where(taken, trial, self.point), torch.where(taken, trial_slope, self.slope)
        self.loss = torch.where(taken_GR, trial_loss_GR, self.loss)
        self.direction = torch.where(taken, self._find_direction(), self.direction)

    def _remember(self, moved: Tensor, bent: Tensor, taken_GR: Tensor) -> None:
        """A step; it weighs nothing for problems that did not take it, or saw no curvature in it."""
        product_GR = _dot(moved, bent)
        useful_GR = taken_GR & (product_GR > 1e-12 * _dot(bent, bent))
        weight_GR = torch.where(useful_GR, 1 / product_GR.clamp(min=1e-300), 0.0)
        self.pairs.append((moved, bent, weight_GR))
        guessed_GR = _dot(bent, self.guess(bent)).clamp(min=1e-300)
        self.scale = torch.where(useful_GR, product_GR / guessed_GR, self.scale)

    def _find_direction(self) -> Tensor:
        """Downhill, by the curvature of the remembered steps: the two loops of L-BFGS."""
        rest, shares = self.slope, []
        for moved, bent, weight_GR in reversed(self.pairs):
            shares.append(weight_GR * _dot(moved, rest))
            rest = rest - _spread(shares[-1]) * bent
        towards = self.guess(rest) * _spread(self.scale)
        for (moved, bent, weight_GR), share_GR in zip(self.pairs, reversed(shares), strict=True):
            towards = towards + _spread(share_GR - weight_GR * _dot(bent, towards)) * moved
        return -towards


def _spread(values_GR: Tensor) -> Tensor:
    """A number of each problem beside its weights."""
    return values_GR[:, :, None, None]


def _dot(first: Tensor, second: Tensor) -> Tensor:
    return (first * second).sum((2, 3))
