"""Dots of models by language."""

from __future__ import annotations

import re

from crossling.report.dots import draw_dots, group_values

ROWS = [
    {"task": "", "model": "plain", "seed": seed, "language": code, "perplexity": value + seed}
    for seed in (1, 2)
    for code, value in (("de", 100.0), ("es", 3000.0))
] + [{"task": "ner", "model": "tuned", "seed": None, "language": "de", "perplexity": 50.0}]


def test_values_are_grouped_by_model_and_language() -> None:
    assert group_values(ROWS, "perplexity") == {
        ("plain", "de"): [101.0, 102.0],
        ("plain", "es"): [3001.0, 3002.0],
        ("ner: tuned", "de"): [50.0],
    }


def test_the_picture_names_all_models_and_languages_and_is_the_same_again() -> None:
    picture = draw_dots(ROWS, "perplexity", title="what <it> shows", log=True)
    texts = set(re.findall(r"<text[^>]*>([^<]*)</text>", picture))
    assert {"plain", "ner: tuned", "de", "es", "perplexity", "what &lt;it&gt; shows", "1,000"} <= texts
    assert picture == draw_dots(ROWS, "perplexity", title="what <it> shows", log=True)


def test_figures_that_lie_close_have_numbers_beside_them() -> None:
    rows = [{**row, "perplexity": 60 + place} for place, row in enumerate(ROWS)]
    texts = re.findall(r"<text[^>]*>([\d,]+)</text>", draw_dots(rows, "perplexity", title="", log=True))
    assert len(texts) >= 2
