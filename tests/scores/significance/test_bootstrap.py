"""The bootstrap compared with plain loops and with the standard error of a mean."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from made import as_predictions, count_runs, make_gold, make_runs

from crossling.scores.metrics import score
from crossling.scores.significance import counts as counting
from crossling.scores.significance.bootstrap import bootstrap, draw_runs

ROWS = 7


@pytest.mark.parametrize("block", [1 << 22, 40])
def test_bootstrap_scores_what_was_drawn(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "BLOCK", block)
    golds = {"de": make_gold(1, ROWS), "hi": make_gold(2, 5)}
    keys = {"de": np.arange(ROWS), "hi": np.array([6, 0, 2, 3, 1])}
    runs = {
        language: [make_runs(gold, wrong=0.3, seeds=(1, 2, 3)), make_runs(gold, wrong=0.5, seeds=(4, 5))]
        for language, gold in golds.items()
    }
    samples = [
        (count_runs(golds[language], systems, scheme="bio", name="span_macro_f1"), keys[language])
        for language, systems in runs.items()
    ]
    found = bootstrap(samples, ROWS, draws=20, rng=np.random.default_rng(9))
    drawn = np.random.default_rng(9).integers(0, ROWS, size=(20, ROWS))
    for place, (language, systems) in enumerate(runs.items()):
        for system, some in enumerate(systems):
            assert found[place][system].shape == (20, len(some))
            for draw, run in product(range(20), range(len(some))):
                rows = [row for key in drawn[draw] for row in np.flatnonzero(keys[language] == key)]
                gold = [golds[language][row] for row in rows]
                resampled = as_predictions(gold, [some[run][row] for row in rows], "bio")
                assert found[place][system][draw, run] == pytest.approx(score(resampled)["span_macro_f1"])


def test_bootstrap_of_a_mean_has_its_standard_error() -> None:
    values = np.random.default_rng(0).random(200)
    summed = np.stack([values, np.ones(200)], axis=-1)[None, :, None]
    ((scores,),) = bootstrap([([summed], np.arange(200))], 200, draws=4000, rng=np.random.default_rng(1))
    assert scores.std() == pytest.approx(values.std() / np.sqrt(200), rel=0.05)
    assert scores.mean() == pytest.approx(values.mean(), abs=0.002)


def test_drawn_runs_are_weights() -> None:
    weights = draw_runs(3, 5000, np.random.default_rng(0))
    assert weights.sum(axis=1) == pytest.approx(np.ones(5000))
    assert weights.mean(axis=0) == pytest.approx(np.full(3, 1 / 3), abs=0.02)
    assert (weights == 1).any()
    assert np.array_equal(draw_runs(1, 4, np.random.default_rng(0)), np.ones((4, 1)))
