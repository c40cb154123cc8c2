"""Histograms: the area that two share, and panels on one axis."""

from __future__ import annotations

import numpy as np
import pytest

from crossling.report.histograms import PANELS, Panel, draw_histograms, measure_overlap, shared_edges


def test_overlap_is_the_shared_area_of_both_histograms() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(size=300), rng.normal(1.5, 2, size=200)
    edges = shared_edges(first, second, bins=9)
    shared = 0.0
    for number in range(9):
        low, high = edges[number], edges[number + 1]
        last = number == 8
        counts = [sum(low <= x < high or (last and x == high) for x in group) for group in (first, second)]
        shared += min(counts[0] / 300, counts[1] / 200)
    assert measure_overlap(first, second, bins=9) == pytest.approx(shared)
    assert 0 < shared < 1


def test_overlap_has_its_ends() -> None:
    some = np.array([1.0, 2.0, 3.0])
    assert measure_overlap(some, some, bins=5) == pytest.approx(1)
    assert measure_overlap(some, some + 10, bins=5) == 0
    assert measure_overlap(np.ones(3), np.ones(2), bins=5) == pytest.approx(1), "one value only is no error"


@pytest.mark.parametrize("count", [1, PANELS, PANELS + 1, 2 * PANELS + 3])
def test_any_number_of_panels_is_drawn(count: int) -> None:
    rng = np.random.default_rng(0)
    panels = [Panel(f"model-{n}.", (rng.random(20), rng.random(20) + n), f"note-{n}.") for n in range(count)]
    figure = draw_histograms(panels, title="Title", axis="distance", names=("near", "far"), bins=8)
    for n in range(count):
        assert figure.count(f">model-{n}.<") == figure.count(f">note-{n}.<") == 1
    columns = -(-count // PANELS)
    assert figure.count(">distance<") == columns
    assert figure.startswith("<?xml")
