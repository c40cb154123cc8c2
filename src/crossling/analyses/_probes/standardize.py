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
COMPILED_BYTES = 1 << 24
"""Features held for a CPU that are worth compiled passes, whose compilation takes seconds, once on a machine;"""
COMPILED_GROUPS = 8
"""groups of features, at least, for threads share them;"""
COMPILED_WIDTH = 128
"""and features of a group, at most: products of wider ones are as fast in torch."""


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
        self.held_GDN: Tensor | None = None
        """What is held, as one tensor,"""
        self.by_group: list[Tensor] | None = None
        """or D x N of each group, which compiled passes read: some of the groups are then not copied."""
        self.rows = choose_rows(features.device, len(self.groups), width)

    @property
    def bytes(self) -> int:
        """What they take in memory."""
        return 4 * self.features.shape[0] * len(self.groups) * self.features.shape[2]

    @property
    def is_held(self) -> bool:
        return self.held_GDN is not None or self.by_group is not None

    def hold(self) -> None:
        """Keep them in memory from now on, group by group."""
        count, groups, width = self.features.shape
        held_GDN = torch.empty(groups, width, count, device=self.features.device)
        for number, part_NGD in enumerate(self.features.parts(self.rows)):
            start = number * self.rows
            held_GDN[:, :, start : start + len(part_NGD)] = self.moments.standardize(part_NGD).permute(1, 2, 0)
        self._hold(held_GDN)

    def _hold(self, held_GDN: Tensor) -> None:
        groups, width, _ = held_GDN.shape
        is_large = groups >= COMPILED_GROUPS and width <= COMPILED_WIDTH and held_GDN.nbytes >= COMPILED_BYTES
        if held_GDN.device.type == "cpu" and is_large:
            self.by_group = list(held_GDN)
        else:
            self.held_GDN = held_GDN

    def select(self, groups: Tensor | slice) -> Standardized:
        """Those of some groups; a slice of what is held is not copied."""
        chosen = Standardized(self.features, self.moments, width=self.width)
        chosen.groups = self.groups[groups]
        if self.is_held:
            chosen.rows = choose_rows(self.features.device, len(chosen.groups), self.width)
        if self.held_GDN is not None:
            chosen.held_GDN = self.held_GDN[groups]
        if self.by_group is not None:
            chosen.by_group = [self.by_group[place] for place in torch.arange(len(self.groups))[groups].tolist()]
        return chosen

    def subsample(self, step: int) -> Standardized:
        """Every ``step``-th example, held in memory."""
        held_GDN = torch.cat(list(self._subsample_parts(step)), dim=1).transpose(1, 2).contiguous()
        few = Standardized(InMemory(held_GDN.permute(2, 0, 1)), self.moments, width=self.width)
        few.rows = choose_rows(self.features.device, len(held_GDN), self.width)
        few._hold(held_GDN)
        return few

    def _subsample_parts(self, step: int) -> Iterator[Tensor]:
        start = 0
        for part_GND in self.parts():
            yield part_GND[:, -start % step :: step]
            start += part_GND.shape[1]

    def parts(self) -> Iterator[Tensor]:
        """G x n x D, a part's examples at a time."""
        if self.held_GDN is not None:
            yield from torch.split(self.held_GDN.transpose(1, 2), self.rows, dim=1)
        elif self.by_group is not None:
            for first in range(0, self.features.shape[0], self.rows):
                yield torch.stack([one_DN[:, first : first + self.rows].T for one_DN in self.by_group])
        else:
            for part_NGD in self.features.parts(self.rows):
                yield self.moments.standardize(part_NGD)[:, self.groups].transpose(0, 1).contiguous()
