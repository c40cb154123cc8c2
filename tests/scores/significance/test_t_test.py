"""The paired t-test compared with scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_rel

from crossling.scores.significance.t_test import t_test


def test_t_test_is_scipys() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.random(50), rng.random(50)
    assert t_test(first, second) == pytest.approx(ttest_rel(first, second).pvalue, rel=1e-12)
    assert t_test(first, first + 0.1 * second) == pytest.approx(ttest_rel(first, first + 0.1 * second).pvalue)


def test_t_test_without_variance() -> None:
    ones = np.ones(5)
    assert t_test(ones, ones) == 1.0
    assert t_test(ones, 0 * ones) == 0.0
    assert t_test(ones[:1], 0 * ones[:1]) == 1.0
    assert t_test(ones[:0], ones[:0]) == 1.0
