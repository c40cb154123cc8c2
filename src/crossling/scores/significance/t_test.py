"""The paired t-test, for scores that are means over examples."""

from __future__ import annotations

import numpy as np

from crossling.scores.spans import Array


def t_test(first: Array, second: Array) -> float:
    """Two-sided p of a paired t-test; 1 where the examples do not differ or are fewer than two."""
    from scipy.stats import ttest_rel

    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if len(difference) < 2 or not np.any(np.abs(difference) > 1e-12):
        return 1.0
    if np.ptp(difference) <= 1e-12:  # no variance: the statistic is infinite
        return 0.0
    return float(ttest_rel(first, second).pvalue)
