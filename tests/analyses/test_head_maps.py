"""Maps of attention heads: scales, ranks, and heads that two models have among their best."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from crossling.analyses import head_probe
from crossling.analyses.head_maps import build_map, correlate_ranks, page_map
from crossling.analyses.head_probe import count_top, rank_heads
from crossling.analyses.head_updates import NORMALISE, Settings, normalise_map
from crossling.errors import DataError

CHANGES = np.array([[1.0, 3.0], [2.0, 2.0]])
WEIGHTS = np.array([[1.0, 1.0], [4.0, 0.0]])


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("mean", [[0.5, 1.5], [1, 1]]),
        ("max", [[1 / 3, 1], [2 / 3, 2 / 3]]),
        ("range", [[0, 1], [0.5, 0.5]]),
        ("weights", [[1, 3], [0.5, 0]]),
        ("none", CHANGES),
    ],
)
def test_each_normalisation_gives_its_scale(how: str, expected: list[list[float]]) -> None:
    assert how in NORMALISE
    np.testing.assert_allclose(normalise_map(CHANGES, WEIGHTS, how), expected)


@pytest.mark.parametrize("how", NORMALISE)
def test_a_model_that_did_not_change_has_a_map_of_zeros(how: str) -> None:
    assert not normalise_map(np.zeros((2, 2)), WEIGHTS, how).any()


def test_every_scale_is_a_setting() -> None:
    assert [Settings(normalise=how).normalise for how in NORMALISE] == list(NORMALISE)
    with pytest.raises(ValidationError, match="normalise"):
        Settings(normalise="sum")


def test_spearman_equals_its_formula() -> None:
    """Without ties rho is 1 - 6 sum d^2 / (n (n^2 - 1))."""
    first, second = np.array([3.0, 1.0, 4.0, 1.5, 9.0]), np.array([2.0, 7.0, 1.0, 8.0, 3.0])
    distances = np.argsort(np.argsort(first)) - np.argsort(np.argsort(second))
    found = correlate_ranks(first, second)
    assert found.rho == pytest.approx(1 - 6 * (distances**2).sum() / (5 * 24))
    assert found.count == 5 and str(found) == f"{found.rho:.2f}"
    same = correlate_ranks(np.arange(20.0), np.arange(20.0) ** 3)
    assert same.rho == pytest.approx(1) and same.p < 1e-9 and str(same) == "1.00"


@pytest.mark.parametrize("values", [np.ones(5), np.array([1.0, 2.0])])
def test_constant_or_too_few_values_have_no_rho(values: np.ndarray) -> None:
    assert math.isnan(correlate_ranks(values, np.arange(float(len(values)))).rho)
    assert str(correlate_ranks(values, values)) == "–"


def test_equal_heads_rank_in_order_of_layers() -> None:
    assert rank_heads(np.array([[1.0, 2.0], [2.0, 0.0]])).tolist() == [1, 2, 0, 3]


def test_top_is_a_number_or_a_share_of_heads() -> None:
    assert count_top(["40", "60", "80"], 144) == [40, 60, 80] == count_top([], 144)
    assert count_top(["25%", "36"], 144) == [36]
    assert count_top([], 6) == [2, 3]
    for wrong in ("0", "145", "200%"):
        with pytest.raises(DataError, match="the encoder has 144 heads"):
            count_top([wrong], 144)
    with pytest.raises(ValidationError, match="neither a number of heads"):
        head_probe.Settings(tasks="pos", languages=("de",), top=("many",))


def test_map_has_a_row_for_each_layer_and_a_column_for_each_head() -> None:
    rows = [{"layer": layer, "head": head, "value": 10 * layer + head} for head in (1, 2) for layer in (1, 2, 3)]
    assert build_map(rows, "value").tolist() == [[11, 12], [21, 22], [31, 32]]
    with pytest.raises(DataError, match="5 rows are not one for each"):
        build_map(rows[:-1], "value")


def test_the_report_has_the_last_layer_on_top() -> None:
    drawn = page_map("update of heads", np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert drawn.rows == ["layer 2", "layer 1"] and drawn.columns == ["1", "2"]
    assert drawn.values == [[3.0, 4.0], [1.0, 2.0]]
