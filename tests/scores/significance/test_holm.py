"""Holm's correction, by hand and by its definition."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.scores.significance.holm import correct_holm


def test_holm_worked_by_hand() -> None:
    # Sorted: .005 x 4 = .02, .01 x 3 = .03, .03 x 2 = .06, and .04 x 1 = .04, which may not fall below .06.
    assert correct_holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert correct_holm([0.5, 0.9]) == (1.0, 1.0)
    assert correct_holm([0.2]) == (0.2,)
    assert correct_holm([]) == ()


@pytest.mark.parametrize("seed", range(5))
def test_holm_rejects_what_stepping_down_rejects(seed: int) -> None:
    p = np.random.default_rng(seed).random(12) ** 4
    rejected = set()
    for step, place in enumerate(np.argsort(p)):
        if p[place] >= 0.05 / (len(p) - step):
            break
        rejected.add(int(place))
    assert {place for place, value in enumerate(correct_holm(p.tolist())) if value < 0.05} == rejected
