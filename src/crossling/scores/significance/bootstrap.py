"""The paired bootstrap over examples and seeds, for the intervals of scores and differences.

Shapes: R runs (seeds), N examples, K keys of rows, B draws of a block, C counts of all systems and runs side by side.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossling.scores.significance.counts import divide, flatten, split_blocks
from crossling.scores.spans import Array


def bootstrap(
    samples: Sequence[tuple[Sequence[Array], Array]], n_keys: int, *, draws: int, rng: np.random.Generator
) -> list[list[Array]]:
    """Scores (draws x R) of systems in languages when rows are drawn with replacement.

    `samples` holds for each language the counts of each system, and the keys of its rows. All systems, runs
    and languages see the same draw, which makes their differences paired.
    """
    scores = [[np.empty((draws, len(counts))) for counts in systems] for systems, _ in samples]
    flat = [(np.concatenate([flatten(counts) for counts in systems], axis=1), keys) for systems, keys in samples]
    for start, stop in split_blocks(draws, n_keys):
        offsets = np.arange(stop - start)[:, None] * n_keys
        drawn = rng.integers(0, n_keys, size=(stop - start, n_keys)) + offsets
        times_BK = np.bincount(drawn.ravel(), minlength=(stop - start) * n_keys).reshape(-1, n_keys).astype(float)
        for language, (systems, _) in enumerate(samples):
            values_NC, keys = flat[language]
            times_BN = times_BK if np.array_equal(keys, np.arange(n_keys)) else times_BK[:, keys]
            totals_BC = times_BN @ values_NC
            column = 0
            for system, counts in enumerate(systems):
                shape = (counts.shape[0], *counts.shape[2:])
                width = int(np.prod(shape))
                totals = totals_BC[:, column : column + width].reshape(-1, *shape)
                scores[language][system][start:stop] = divide(totals)
                column += width
    return scores


def draw_runs(runs: int, draws: int, rng: np.random.Generator) -> Array:
    """Weights (draws x R) of runs drawn with replacement.

    With few seeds this understates their spread a little (three draws of three have two thirds of its variance).
    """
    weights: Array = rng.multinomial(runs, np.full(runs, 1 / runs), size=draws) / runs
    return weights
