"""The scores of attention heads' probes as maps of layers by heads, for every model and task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crossling.analyses._probes.probing import ALL, EVERYTHING
from crossling.analyses.head_maps import Array, build_map
from crossling.analyses.models import name_model

if TYPE_CHECKING:
    from crossling.analyses.result import AnalysisTable
    from crossling.analyses.settings import AnalysisSettings


@dataclass(frozen=True)
class HeadScores:
    """The scores of the probes of all heads, for every model and task: layers by heads, in percent or points."""

    maps: Mapping[tuple[str, str], Array]
    """By model and probe: the mean over seeds of what heads rank by."""
    own: frozenset[tuple[str, str]]
    """Models with the tasks that they were trained for."""
    scores: Mapping[tuple[str, str], Mapping[Any, Array]]
    """By model and probe: the scores themselves, in percent, of each seed."""
    bases: Mapping[tuple[str, str], Array]
    """By model and probe: the mean scores of the encoder that the model is compared with, where there is one."""

    @property
    def models(self) -> list[str]:
        """Names in the order of the table."""
        return list(dict.fromkeys(model for model, _ in self.maps))

    @property
    def probes(self) -> list[str]:
        """Names of tasks in the order of the table."""
        return list(dict.fromkeys(probe for _, probe in self.maps))


def collect_heads(found: AnalysisTable[AnalysisSettings], *, score: str, measure: str) -> HeadScores:
    """Maps of all models: each head's score less what the same head had before training, or the score itself.

    The paper probes heads "using the same probing method" as models, whose result is such a difference.
    """
    groups: dict[tuple[str, str], dict[Any, list[dict[str, Any]]]] = {}
    own = set()
    for row in _choose_rows(found.rows(), score):
        key = (name_model(row), row["probe"])
        groups.setdefault(key, {}).setdefault(row["seed"], []).append(row)
        if row["own"]:
            own.add(key)
    scores = {
        key: {seed: 100 * build_map(some, "value") for seed, some in seeds.items()} for key, seeds in groups.items()
    }
    means = {key: np.mean(list(seeds.values()), axis=0) for key, seeds in scores.items()}
    bases = {(m, p): means[found.bases[m], p] for m, p in means if m in found.bases}
    maps = means if measure == "score" else {key: means[key] - base for key, base in bases.items()}
    return HeadScores(maps, frozenset(own), scores, bases)


def _choose_rows(rows: Sequence[dict[str, Any]], score: str) -> list[dict[str, Any]]:
    """One score of all languages together (or of the only one), from all training rows."""
    together = {(row["probe"], row["language"]) for row in rows if row["language"] == ALL}
    return [
        row
        for row in rows
        if row["score"] == score
        and row["sample"] == EVERYTHING
        and (row["language"] == ALL or (row["probe"], ALL) not in together)
    ]
