"""Holm's correction for several tests at once, here those of systems and languages on a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from crossling.scores.significance.results import Difference, Result, Settings


def correct_holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's step-down correction: the chance of even one false difference among all stays below the level."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return tuple(corrected.tolist())


def correct_results(results: Sequence[Result], settings: Settings) -> tuple[Result, ...]:
    """Results with p-values corrected for what was tried, and the directions that follow.

    Corrected together are the tests of all systems in all languages of a data set, and those of all systems for one
    average. By `bootstrap` each system is corrected alone, as it was before; `as_published` corrects nothing.
    """
    families: dict[tuple[str, ...], dict[tuple[str, str], Difference]] = {}
    for result in results:
        alone = (result.system,) if settings.interval == "bootstrap" else ()
        line = (result.language,) if result.is_average else ()
        for role, one in (("baseline", result.from_baseline), ("second", result.from_second)):
            if one is not None:
                families.setdefault((result.data, role, *line, *alone), {})[result.language, result.system] = one
    corrected = {name: _correct_family(family, settings) for name, family in families.items()}
    by_key = {(data, role, *key): one for (data, role, *_), family in corrected.items() for key, one in family.items()}
    return tuple(
        replace(
            result,
            from_baseline=by_key.get((result.data, "baseline", result.language, result.system)),
            from_second=by_key.get((result.data, "second", result.language, result.system)),
        )
        for result in results
    )


def _correct_family(
    family: Mapping[tuple[str, str], Difference], settings: Settings
) -> dict[tuple[str, str], Difference]:
    """A system that stands there under two names, such as a chosen layer beside all layers, is one test."""
    tests = {key: (key[0], one.delta, one.low, one.high, one.p) for key, one in family.items()}
    distinct = list(dict.fromkeys(tests.values()))
    p_values = [p for *_, p in distinct]
    corrected = dict(zip(distinct, p_values if settings.as_published else correct_holm(p_values), strict=True))
    found = {}
    for key, one in family.items():
        p = corrected[tests[key]]
        direction = int(np.sign(one.delta)) if p < settings.level else 0
        tests_counted = 1 if settings.as_published else len(distinct)
        found[key] = replace(one, corrected_p=p, direction=direction, tests=tests_counted)
    return found
