"""Figures that several analyses share: dots of models by language, and heat maps."""

from __future__ import annotations

import json
import re

from crossling.report.figures import HeatMap, draw_dots, draw_heat_maps

VALUES = {("plain", "de"): [101.0, 102.0], ("plain", "es"): [3001.0, 3002.0], ("ner: tuned", "de"): [50.0]}


def test_figure_names_all_models_and_languages_and_is_the_same_again() -> None:
    figure = draw_dots(VALUES, axis="perplexity", title="what <it> shows", logarithmic=True)
    texts = set(re.findall(r"<text[^>]*>([^<]*)</text>", figure))
    assert {"plain", "ner: tuned", "de", "es", "perplexity", "what &lt;it&gt; shows", "1,000"} <= texts
    assert figure == draw_dots(VALUES, axis="perplexity", title="what <it> shows", logarithmic=True)


def test_figures_that_lie_close_have_numbers_beside_them() -> None:
    values = {key: [60.0 + place] for place, key in enumerate(VALUES)}
    figure = draw_dots(values, axis="perplexity", title="", logarithmic=True)
    texts = re.findall(r"<text[^>]*>([\d,]+)</text>", figure)
    assert len(texts) >= 2


def test_colours_of_differences_have_zero_in_their_middle() -> None:
    values = [[-1.0, 3.0]]
    assert HeatMap("d", values, ["1"], ["1", "2"], colours="diverging").limits() == (-3, 3)
    assert HeatMap("s", [[1.0, 3.0]], ["1"], ["1", "2"]).limits() == (1, 3)
    assert HeatMap("r", [[1.0, 3.0]], ["1"], ["1", "2"], colours="ranked").limits() == (1, 3)
    assert HeatMap("e", [[None]], ["1"], ["1"]).limits() == (0, 1)


def test_maps_are_drawn_the_same_again() -> None:
    panels = [
        HeatMap("first", [[1.0, 2.0], [3.0, None]], ["1", "2"], ["a", "b"], upwards=True, axes=("layer", "head")),
        HeatMap("difference", [[-1.0, 0.5]], ["1"], ["a", "b"], colours="diverging", note="rho 0.5", write=True),
    ]
    figure = draw_heat_maps(panels, title="Updates", columns=2)
    assert figure == draw_heat_maps(panels, title="Updates", columns=2)
    for text in ("first", "difference", "layer", "rho 0.5", "Updates"):
        assert f">{text}<" in figure, text


def test_heat_map_comes_back_from_json() -> None:
    drawn = HeatMap("first", [[1.0, None]], ["1"], ["a", "b"], axes=("layer", "head"))
    assert HeatMap.from_json(json.loads(json.dumps(drawn.to_json()))) == drawn
