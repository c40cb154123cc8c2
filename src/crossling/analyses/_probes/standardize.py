"""Standardized features, in memory or on disk, in parts that fit the cache of a CPU or keep a GPU busy.

N examples (words or texts), G groups of features, D features of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

LEAST = 512
"""Examples in a part, at least."""
BLOCK_BYTES = {"cpu": 1 << 19, "cuda": 1 << 28}
"""Bytes of features, or scores, in a part: what stays in a CPU core's cache, or keeps a GPU busy."""


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
class InMemory:
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
    """Mean, standard deviation and correlations of features."""

    mean: Tensor
    std: Tensor
    """G x D, both."""
    correlation: Tensor
    """G x D x D."""

    def standardize(self, part_NGD: Tensor) -> Tensor:
        """Mean 0 and variance 1."""
        return (part_NGD - self.mean.float()) / self.std.float()


def choose_rows(device: torch.device, groups: int, width: int) -> int:
    """Examples in a part, each of ``groups * width`` numbers."""
    return max(LEAST, BLOCK_BYTES[device.type] // (4 * groups * width))


def measure_moments(features: Features) -> Moments:
    """Mean, standard deviation and correlations of every group's features, in one pass.

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
    # A constant feature carries no information, whatever it is divided by.
    constant_GD = variance_GD <= 1e-12 * (origin_GD.double() ** 2 + 1e-12)
    std_GD = torch.where(constant_GD, 1.0, variance_GD.sqrt())
    correlation_GDD = covariance_GDD / (std_GD[:, :, None] * std_GD[:, None, :])
    return Moments(origin_GD.double() + offset_GD, std_GD, correlation_GDD)


class Standardized:
    """Standardized features of some of the groups; in memory, or read and scaled whenever they are needed."""

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
            self.held_GND[:, start : start + len(part_NGD)] = self.moments.standardize(part_NGD).transpose(0, 1)

    def select(self, groups: Tensor | slice) -> Standardized:
        """Those of some groups; a slice of what is held is not copied."""
        chosen = Standardized(self.features, self.moments, width=self.width)
        chosen.groups = self.groups[groups]
        if self.held_GND is not None:
            chosen.held_GND = self.held_GND[groups]
            chosen.rows = choose_rows(self.features.device, len(chosen.groups), self.width)
        return chosen

    def subsample(self, step: int) -> Standardized:
        """Every ``step``-th example, held in memory."""
        held_GND = torch.cat(list(self._subsample_parts(step)), dim=1).contiguous()
        few = Standardized(InMemory(held_GND.transpose(0, 1)), self.moments, width=self.width)
        few.held_GND = held_GND
        few.rows = choose_rows(self.features.device, len(held_GND), self.width)
        return few

    def _subsample_parts(self, step: int) -> Iterator[Tensor]:
        start = 0
        for part_GND in self.parts():
            yield part_GND[:, -start % step :: step]
            start += part_GND.shape[1]

    def parts(self) -> Iterator[Tensor]:
        """G x n x D, a part's examples at a time."""
        if self.held_GND is not None:
            yield from torch.split(self.held_GND, self.rows, dim=1)
            return
        for part_NGD in self.features.parts(self.rows):
            yield self.moments.standardize(part_NGD)[:, self.groups].transpose(0, 1).contiguous()
