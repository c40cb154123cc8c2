"""Our figures, from a finished study and its analyses: one function for each way in which a table's cells are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from crossling.data.languages import group_of
from crossling.papers.definitions import Address
from crossling.papers.drafting import Variant
from crossling.recipe.recipe import EvaluateSettings, Recipe, load_recipe
from crossling.report.head_maps import compare_best, count_top
from crossling.report.probing import list_results
from crossling.scores.metrics import score
from crossling.scores.predictions import read_predictions
from crossling.study.compare import read_finished
from crossling.study.folder import prediction_path, read_plan

if TYPE_CHECKING:
    from crossling.study.head_probing import Heads
    from crossling.study.probing import Compared

ORIGINAL = "original"
"""The name of the encoder as it was, among the models of an analysis."""
PROBED = "macro_f1"
"""The score of probes that the paper shows."""
OF_HEADS = 144
"""Heads of mBERT, of which the paper's best 40, 60 and 80 are."""

Values = dict[Any, float]
"""By seed; by none where a figure is not of one."""


@dataclass
class Results:
    """A study's finished cells and what analyses found, as the papers' units have them."""

    out: Path
    scores: Mapping[str, str]
    """By task, the score that is shown."""
    analyses: dict[str, Compared] = field(default_factory=dict)
    _known: dict[Path, dict[str, float]] = field(default_factory=dict)
    _heads: dict[str, Heads] = field(default_factory=dict)

    @cached_property
    def seeds(self) -> dict[Variant, tuple[str, list[int]]]:
        """For each system of each task its folder and the seeds that are finished."""
        plan = read_plan(self.out)
        finished = read_finished(plan, self.out)
        return {
            (variant["task"], variant["system"]): (variant["folder"], sorted(finished.get(variant["folder"], {})))
            for variant in plan["variants"]
        }

    def is_finished(self, variant: Variant) -> bool:
        """Whether all seeds of a system are there."""
        return len(self.seeds[variant][1]) == len(read_plan(self.out)["settings"]["seeds"])

    def recipe(self, variant: Variant) -> Recipe:
        return load_recipe(self.out / self.seeds[variant][0] / "recipe.toml")

    def score(self, address: Address, system: str) -> Values:
        """A system's score in percent: the mean over the cell's languages, for each seed."""
        folder, seeds = self.seeds[address.task, system]
        entry = self.recipe((address.task, system)).evaluate[address.evaluate]
        languages = choose_languages(entry, address)
        name = self.scores[address.task]
        return {
            seed: 100
            * fmean(self._read(prediction_path(self.out / folder, seed, entry, code))[name] for code in languages)
            for seed in seeds
        }

    def _read(self, path: Path) -> dict[str, float]:
        if path not in self._known:
            self._known[path] = score(read_predictions(path))
        return self._known[path]

    def rows(self, address: Address) -> list[dict[str, Any]]:
        """What an analysis has of a cell's model."""
        found = self.analyses.get(address.analysis)
        if found is None:
            return []
        rows: list[dict[str, Any]] = found.analysis.table.to_pylist()
        return [row for row in rows if row["model"] == name_model(address)]

    def heads(self, address: Address) -> Heads | None:
        """Maps of all models' heads."""
        from crossling.study.head_probing import collect_heads

        found = self.analyses.get(address.analysis)
        if found is not None and address.analysis not in self._heads:
            self._heads[address.analysis] = collect_heads(found, score=PROBED, measure="difference")
        return self._heads.get(address.analysis)


def name_model(address: Address) -> str:
    """What a cell's model is called among those of an analysis."""
    return ORIGINAL if address.original else f"{address.task}: {address.system}"


def choose_languages(entry: EvaluateSettings, address: Address) -> list[str]:
    """The languages of a set that a cell is about, as the set has them: de may be de_gsd."""
    if address.group:
        return [code for code in entry.languages if group_of(code, "enf") == address.group]
    if not address.languages:
        return list(entry.languages)
    return [
        code
        for wanted in address.languages
        for code in entry.languages
        if wanted in (code, code.partition("_")[0] if "=" not in code else code)
    ]


def measure_score(results: Results, address: Address) -> Values:
    """A system's score, or by how much it is above another's with the same seed."""
    values = results.score(address, address.system)
    if not address.less:
        return values
    other = results.score(address, address.less)
    return {seed: value - other[seed] for seed, value in values.items() if seed in other}


def measure_best(results: Results, address: Address) -> Values:
    """The score of the system that is best on average over seeds."""
    best = _find_best(results, address)
    return results.score(address, best) if best else {}


def measure_best_layer(results: Results, address: Address) -> Values:
    """The layer that the best system fuses."""
    best = _find_best(results, address)
    return {None: float(results.recipe((address.task, best)).stage[-1].fusion["layer"])} if best else {}


def _find_best(results: Results, address: Address) -> str:
    means = {name: results.score(address, name) for name in address.systems}
    return max(
        (name for name, found in means.items() if found), key=lambda name: fmean(means[name].values()), default=""
    )


def measure_cosine(results: Results, address: Address) -> Values:
    """The mean cosine of sentences and their translations, over languages."""
    return _average(results.rows(address), "cosine")


def measure_perplexity(results: Results, address: Address) -> Values:
    """The pseudo-perplexity of one language's text."""
    rows = results.rows(address)
    return _average([row for row in rows if row["language"].partition("_")[0] in address.languages], "perplexity")


def _average(rows: Sequence[Mapping[str, Any]], column: str) -> Values:
    by_seed: dict[Any, list[float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], []).append(float(row[column]))
    return {seed: fmean(values) for seed, values in by_seed.items()}


def measure_probing(results: Results, address: Address) -> Values:
    """Points by which a probe on the model is better than one on the encoder that it was."""
    from crossling.study.probing import find_results

    found = results.analyses.get(address.analysis)
    if found is None:
        return {}
    values = list_results(find_results(found), score=PROBED).get((name_model(address), address.probe), [])
    return dict(enumerate(values))


def measure_shared_heads(results: Results, address: Address) -> Values:
    """How many of its best heads a model shares with another."""
    overlap = _compare_heads(results, address)
    return {} if overlap is None else {None: float(overlap.shared)}


def measure_shared_ranks(results: Results, address: Address) -> Values:
    """How alike two models rank the heads that they share."""
    overlap = _compare_heads(results, address)
    return {} if overlap is None or math.isnan(overlap.ranks.rho) else {None: overlap.ranks.rho}


def _compare_heads(results: Results, address: Address) -> Any:
    heads = results.heads(address)
    if heads is None:
        return None
    ours, theirs = (heads.maps.get((name, address.probe)) for name in (name_model(address), address.against))
    if ours is None or theirs is None:
        return None
    of_all = 100 * int(address.top) / OF_HEADS
    return compare_best(ours, theirs, count_top([f"{of_all}%"], ours.size)[0])


MEASURES: Mapping[str, Callable[[Results, Address], Values]] = {
    "score": measure_score,
    "best": measure_best,
    "best_layer": measure_best_layer,
    "cosine": measure_cosine,
    "perplexity": measure_perplexity,
    "probing": measure_probing,
    "shared_heads": measure_shared_heads,
    "shared_ranks": measure_shared_ranks,
}
"""By the name that an address has it under."""
