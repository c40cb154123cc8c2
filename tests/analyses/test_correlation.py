"""Correlations of measures with scores within tasks, and their scatter plot."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from crossling.analyses.correlation import Variant, correlate_scores, draw_scatter


def make_points(group: str, cosines: list[float], scores: list[float]) -> list[Variant]:
    return [
        Variant(group, f"v{number}", {"cosine": cosine, "margin": -cosine}, score)
        for number, (cosine, score) in enumerate(zip(cosines, scores, strict=True))
    ]


def test_correlations_are_scipys_and_stay_within_a_group() -> None:
    pos, ner = ([0.1, 0.4, 0.2, 0.9], [0.7, 0.6, 0.8, 0.9]), ([1.0, 2.0, 3.0], [0.3, 0.2, 0.1])
    found = correlate_scores([*make_points("pos", *pos), *make_points("ner", *ner)])
    assert [(c.task, c.measure, c.n) for c in found] == [
        ("pos", "cosine", 4),
        ("pos", "margin", 4),
        ("ner", "cosine", 3),
        ("ner", "margin", 3),
    ]
    assert found[0].pearson == pytest.approx(stats.pearsonr(*pos).statistic)
    assert found[0].spearman == pytest.approx(stats.spearmanr(*pos).statistic)
    assert found[1].pearson == pytest.approx(-found[0].pearson)
    assert (found[2].spearman, found[3].spearman) == pytest.approx((-1, 1))
    assert "+1.00 over 3 variants" in found[3].describe()


def test_too_few_or_constant_points_have_no_correlation() -> None:
    few, _ = correlate_scores(make_points("", [1, 2], [3, 4]))
    assert math.isnan(few.pearson)
    assert "too few" in few.describe()
    constant, _ = correlate_scores(make_points("", [1, 1, 1], [3, 4, 5]))
    assert math.isnan(constant.spearman)
    assert "undefined" in constant.describe()


def test_scatter_is_reproducible_and_names_every_variant() -> None:
    points = make_points("pos", [0.1, 0.4, 0.2], [0.7, 0.6, 0.8])
    drawn = draw_scatter(points, title="a < b")
    assert drawn == draw_scatter(points, title="a < b")
    assert all(f">{point.label}<" in drawn for point in points)
    assert drawn.lstrip().startswith("<?xml")
