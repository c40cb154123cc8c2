"""Counter-based random numbers, each a hash of its use: no generator's state has to be stored to continue a run."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def draw_uniform(seed: int, epoch: int, purpose: int, rows: Array, length: int) -> Array:
    """Numbers from 0 to 1 for every row and place, each a hash of its arguments: neither order nor state matters."""
    key = np.zeros(1, np.uint64)
    for part in (seed, epoch, purpose):
        key = splitmix64(key ^ np.uint64(part))
    keys_B1 = splitmix64(key ^ rows.astype(np.uint64))[:, None]
    hashes_BS = splitmix64(keys_B1 ^ np.arange(length, dtype=np.uint64)[None, :])
    numbers: Array = (hashes_BS >> np.uint64(11)).astype(np.float64) / 2.0**53
    return numbers


def splitmix64(values: Array) -> Array:
    """SplitMix64: every bit of the input changes half of the output's."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = values ^ (values >> np.uint64(31))
    return mixed
