"""Charts: every point at its place, whatever the numbers are."""

from __future__ import annotations

import json
import math
import re
from html import unescape

import pytest

from crossling.report.charts import HEIGHT, WIDTH, Chart, Series, draw_difference, draw_heat, find_powers, find_ticks


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-7.3, 2.4), (1, 11), (0.001, 0.0011), (0, 1e6), (74.4, 77.4)])
def test_ticks_are_round_few_and_inside(low: float, high: float) -> None:
    ticks = find_ticks(low, high)
    assert 2 <= len(ticks) <= 8
    assert low - 1e-9 <= ticks[0] and ticks[-1] <= high + 1e-9
    steps = {round(b - a, 9) for a, b in zip(ticks, ticks[1:], strict=False)}
    assert len(steps) == 1
    mantissa = steps.pop() / 10 ** math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)
    assert min(abs(mantissa - good) for good in (1, 2, 5)) < 1e-6
    assert find_ticks(3.0, 3.0) == [3.0]


def test_lines_go_through_their_points() -> None:
    series = (Series("a", ((0.0, 10.0, 1.0), (10.0, 20.0, 1.0))), Series("b", ((0.0, 15.0, None),), "base"))
    drawing = str(Chart("title", "x", "y", series).draw())
    left, right, top, bottom, x0, x1, y0, y1, logarithmic = json.loads(re.findall(r'data-frame="([^"]+)"', drawing)[0])
    assert (x0, x1, logarithmic) == (0, 10, 0) and y0 < 9 and y1 > 21, "bands are inside"
    path = re.findall(r'class="line c1" data-n="0" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', drawing)[0]
    expected = (
        left,
        bottom - (bottom - top) * (10 - y0) / (y1 - y0),
        right,
        bottom - (bottom - top) * (20 - y0) / (y1 - y0),
    )
    assert [float(value) for value in path] == pytest.approx(expected, abs=0.1)
    assert json.loads(unescape(re.findall(r'data-series="([^"]+)"', drawing)[0]))[0]["points"] == [
        [0, 10, 1],
        [10, 20, 1],
    ]
    level = re.findall(r'class="line base" data-n="1" d="M\d+ ([\d.]+)H', drawing)
    assert float(level[0]) == pytest.approx(bottom - (bottom - top) * (15 - y0) / (y1 - y0), abs=0.1)


@pytest.mark.parametrize(
    ("places", "chosen", "middle"),
    [
        ((1.0, 10.0, 100.0), True, 0.5),
        ((1e-5, 1e-4, 1e-3), True, 0.5),
        ((1.0, 10.0, 100.0), False, 9 / 99),
        ((1.0, 5.0, 29.0), True, 4 / 28),
        ((0.0, 10.0, 100.0), True, 0.1),
    ],
)
def test_axis_is_logarithmic_over_decades(places: tuple[float, ...], chosen: bool, middle: float) -> None:
    series = (Series("a", tuple((place, 1.0, None) for place in places)),)
    drawing = str(Chart("t", "x", "y", series, chosen=chosen).draw())
    left, right = json.loads(re.findall(r'data-frame="([^"]+)"', drawing)[0])[:2]
    dots = [float(x) for x in re.findall(r'class="dot c1" r="2.6" cx="([\d.]+)"', drawing)]
    assert [dots[0], dots[2]] == [left, right]
    assert (dots[1] - left) / (right - left) == pytest.approx(middle, abs=1e-3)
    ticks = [float(x) for x in re.findall(r'class="tick" x="([\d.]+)"', drawing)]
    assert 2 <= len(ticks) <= 8 and all(left <= tick <= right for tick in ticks)


def test_powers_are_few_and_round() -> None:
    assert find_powers(1, 100) == [1, 2, 5, 10, 20, 50, 100]
    assert find_powers(5_000, 250_000) == [5_000, 10_000, 20_000, 50_000, 100_000, 200_000]
    assert find_powers(1e-6, 1e-2) == [1e-6, 1e-5, 1e-4, 1e-3, 1e-2]
    assert find_powers(1, 1e3, most=5) == [1, 10, 100, 1000]
    assert len(find_powers(1e-12, 1e12)) <= 7


def test_colours_go_to_main_lines_alone() -> None:
    series = tuple(Series(str(n), ((0, n, None), (1, n, None)), "thin" if n == 1 else "main") for n in range(4))
    assert [kind for kind, _ in Chart("", "", "", series).legend()] == ["c1", "c2", "c3"]


@pytest.mark.parametrize(
    "series", [(), (Series("a", ()),), (Series("a", ((1, 2, None),)),), (Series("a", ((1, 0, 0), (1, 0, 0))),)]
)
def test_charts_without_points_are_drawn(series: tuple[Series, ...]) -> None:
    drawing = str(Chart("t", "x", "y", series).draw())
    assert "nan" not in drawing and "inf" not in drawing
    assert all(
        -20 <= float(x) <= max(WIDTH, HEIGHT)
        for x in re.findall(r"[MLHV ](-?[\d.]+)", "".join(re.findall(r' d="([^"]*)"', drawing)))
    )


def test_gain_is_drawn_right_of_zero() -> None:
    drawing = str(draw_difference(0.02, 0.01, 0.04, reach=0.04, kind="up"))
    assert 'class="gap up"' in drawing and "M62.5 6H100.0" in drawing and "M75.0 1.5v9" in drawing
    assert "M0.0 6H37.5" in str(draw_difference(-0.02, -0.09, -0.01, reach=0.04, kind=""))
    assert "50.0" in str(draw_difference(0, 0, 0, reach=0, kind=""))


def test_heat_map_shades_by_size_and_colours_by_sign() -> None:
    drawing = str(draw_heat([[1.0, -1.0], [0.05, None]], rows=["l2", "l1"], columns=["1", "2"], title="t"))
    kinds = re.findall(r'<path class="(\w+ s\d+)"', drawing)
    assert sorted(kinds) == ["right s1", "right s10", "wrong s10"]
    data = json.loads(unescape(re.findall(r'data-heat="([^"]+)"', drawing)[0]))
    assert data["values"] == [[1.0, -1.0], [0.05, None]]
    assert "s1" in str(draw_heat([[float("nan")], [2.0]], rows=["a", "b"], columns=["1"], title=""))
    assert "<svg" in str(draw_heat([], rows=[], columns=[], title=""))
