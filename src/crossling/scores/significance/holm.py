"""Holm's correction for several tests at once, here one for each language of a data set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def correct_holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction: the chance of even one false difference among all stays below the level."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return tuple(corrected.tolist())
