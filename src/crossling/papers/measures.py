"""Our figures, from a finished study and its analyses: one function for each measure that tables show."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, cast

from crossling.analyses._probes.results import list_results
from crossling.analyses.head_maps import correlate_ranks
from crossling.analyses.head_overlap import Overlap, measure_top_k_overlap
from crossling.analyses.head_probe import count_top
from crossling.analyses.head_scores import HeadScores, collect_heads
from crossling.analyses.head_updates import Settings as HeadUpdates
from crossling.analyses.head_updates import average_maps
from crossling.analyses.probe import find_results
from crossling.analyses.result import AnalysisTable
from crossling.analyses.settings import AnalysisSettings
from crossling.data.languages import group_of
from crossling.papers.tables import CellSource, SystemKey
from crossling.recipe.recipe import EvaluateSettings, Recipe, load_recipe
from crossling.scores.metrics import score
from crossling.scores.predictions import read_predictions
from crossling.scores.significance.rare_labels import describe_rare_labels, find_rare_labels
from crossling.study.compare import gather_comparison, read_finished
from crossling.study.folder import prediction_path, read_plan, set_name

PROBE_SCORE = "macro_f1"
"""The score of probes that the paper shows."""
PAPER_HEADS = 144
"""Heads of mBERT, of which the paper's best 40, 60 and 80 are."""

Values = dict[int | None, float]
"""By seed; None where a figure is not of one seed."""


@dataclass
class Results:
    """A study's finished cells and the results of its analyses, in the papers' units."""

    out: Path
    analyses: dict[str, AnalysisTable[AnalysisSettings]] = field(default_factory=dict)
    rare: dict[tuple[str, str], dict[str, dict[str, int]]] = field(default_factory=dict)
    """Of the sets and macro averages asked for so far, by language the labels that have few gold items."""
    _known: dict[tuple[Path, str], tuple[float, dict[str, int]]] = field(default_factory=dict)
    _heads: dict[str, HeadScores] = field(default_factory=dict)
    _marks: dict[tuple[str, str], dict[tuple[str, str, str], str]] = field(default_factory=dict)

    @cached_property
    def seeds(self) -> dict[SystemKey, tuple[str, list[int]]]:
        """For each system of each task its folder and the seeds that are finished."""
        plan = read_plan(self.out)
        finished = read_finished(plan, self.out)
        return {
            (variant.task, variant.system): (variant.folder, sorted(finished.get(variant.folder, {})))
            for variant in plan.variants
        }

    def is_finished(self, variant: SystemKey) -> bool:
        """Whether all seeds of a system are there."""
        return len(self.seeds[variant][1]) == len(read_plan(self.out).settings.seeds)

    def recipe(self, variant: SystemKey) -> Recipe:
        return load_recipe(self.out / self.seeds[variant][0] / "recipe.toml")

    def score(self, source: CellSource, system: str) -> Values:
        """A system's score in percent for each seed: the mean over the cell's languages."""
        folder, seeds = self.seeds[source.task, system]
        recipe = self.recipe((source.task, system))
        entry = recipe.evaluate[source.evaluate]
        languages = choose_languages(entry, source)
        name = source.score or recipe.main_score
        values: dict[int, list[float]] = {seed: [] for seed in seeds}
        for seed, code in product(seeds, languages):
            value, rare = self._read(prediction_path(self.out / folder, seed, entry, code), name)
            values[seed].append(value)
            if rare:
                self.rare.setdefault((set_name(entry), name), {}).setdefault(code, {}).update(rare)
        return {seed: 100 * fmean(some) for seed, some in values.items()}

    def _read(self, path: Path, name: str) -> tuple[float, dict[str, int]]:
        """A score, and if it is a macro average its labels with few gold items."""
        if (path, name) not in self._known:
            predictions = read_predictions(path)
            self._known[path, name] = score(predictions)[name], find_rare_labels([predictions], name)
        return self._known[path, name]

    def list_notes(self) -> list[str]:
        """What a reader of the scores that were asked for must know."""
        notes = [describe_rare_labels(data, name, rare) for (data, name), rare in self.rare.items()]
        return [f"{note}." for note in notes]

    def mark(self, source: CellSource) -> str:
        """▲ or ▼ where a score differs from the baseline's by the tests of ``crossling study compare``."""
        if source.measure != "score" or source.system in ("", source.less):
            return ""
        recipe = self.recipe((source.task, source.system))
        entry = recipe.evaluate[source.evaluate]
        languages = choose_languages(entry, source)
        plain = [code for code in entry.languages if "=" not in code]
        title = languages[0] if len(languages) == 1 else f"mean of {len(languages)}"
        if source.group:
            title = f"{source.group}: {title}"
        elif len(languages) not in (1, len(plain)):
            return ""  # an average that no comparison has
        return self._compare(source.task, source.score).get((set_name(entry), title, source.system), "")

    def _compare(self, task: str, score: str) -> dict[tuple[str, str, str], str]:
        """Marks of a task by data set, line and system."""
        if (task, score) not in self._marks:
            plan = read_plan(self.out)
            plan = replace(plan, variants=tuple(variant for variant in plan.variants if variant.task == task))
            found = gather_comparison(plan, self.out, groups=("enf",), score=score or None, choose_again=False)
            self._marks[task, score] = {
                (result.data, result.language, result.system): result.mark
                for part in found.parts
                for result in part.comparison.results
            }
        return self._marks[task, score]

    def rows(self, source: CellSource) -> list[dict[str, Any]]:
        """The rows of an analysis on a cell's model."""
        found = self.analyses.get(source.analysis)
        if found is None:
            return []
        return [row for row in found.rows() if row["model"] == source.model]

    def heads(self, source: CellSource) -> HeadScores | None:
        """Maps of all models' heads."""
        found = self.analyses.get(source.analysis)
        if found is not None and source.analysis not in self._heads:
            self._heads[source.analysis] = collect_heads(found, score=PROBE_SCORE, measure="difference")
        return self._heads.get(source.analysis)


def choose_languages(entry: EvaluateSettings, source: CellSource) -> list[str]:
    """The languages of a set that a cell is about, as the set has them: de may be de_gsd."""
    if source.group:
        return [code for code in entry.languages if group_of(code, "enf") == source.group]
    if not source.languages:
        return list(entry.languages)
    return [
        code
        for wanted in source.languages
        for code in entry.languages
        if wanted in (code, code.partition("_")[0] if "=" not in code else code)
    ]


def measure_score(results: Results, source: CellSource) -> Values:
    """A system's score, or by how much it is above another's with the same seed."""
    values = results.score(source, source.system)
    if not source.less:
        return values
    other = results.score(source, source.less)
    return {seed: value - other[seed] for seed, value in values.items() if seed in other}


def measure_best(results: Results, source: CellSource) -> Values:
    """The score of the system that is best on average over seeds."""
    best = _find_best(results, source)
    return results.score(source, best) if best else {}


def measure_best_layer(results: Results, source: CellSource) -> Values:
    """The layer that the best system fuses."""
    best = _find_best(results, source)
    return {None: float(results.recipe((source.task, best)).stage[-1].model_dump()["fusion"]["layer"])} if best else {}


def _find_best(results: Results, source: CellSource) -> str:
    means = {name: results.score(source, name) for name in source.systems}
    return max(
        (name for name, found in means.items() if found), key=lambda name: fmean(means[name].values()), default=""
    )


def measure_cosine(results: Results, source: CellSource) -> Values:
    """The mean cosine of sentences and their translations, over languages."""
    return _average(results.rows(source), "cosine")


def measure_perplexity(results: Results, source: CellSource) -> Values:
    """The pseudo-perplexity of one language's text."""
    rows = results.rows(source)
    return _average([row for row in rows if row["language"].partition("_")[0] in source.languages], "perplexity")


def _average(rows: Sequence[Mapping[str, Any]], column: str) -> Values:
    by_seed: dict[int | None, list[float]] = {}
    for row in rows:
        by_seed.setdefault(row["seed"], []).append(float(row[column]))
    return {seed: fmean(values) for seed, values in by_seed.items()}


def measure_probing(results: Results, source: CellSource) -> Values:
    """Points by which a probe on the model is better than one on its encoder before fine-tuning."""
    found = results.analyses.get(source.analysis)
    if found is None:
        return {}
    values = list_results(find_results(found), score=PROBE_SCORE).get((source.model, source.probe), [])
    return dict(enumerate(values))


def measure_shared_heads(results: Results, source: CellSource) -> Values:
    """How many of its best heads a model shares with another."""
    overlap = _compare_heads(results, source)
    return {} if overlap is None else {None: float(overlap.shared)}


def measure_shared_ranks(results: Results, source: CellSource) -> Values:
    """How alike two models rank the heads that they share."""
    overlap = _compare_heads(results, source)
    return {} if overlap is None or math.isnan(overlap.ranks.rho) else {None: overlap.ranks.rho}


def _compare_heads(results: Results, source: CellSource) -> Overlap | None:
    heads = results.heads(source)
    if heads is None:
        return None
    ours, theirs = (heads.maps.get((name, source.probe)) for name in (source.model, source.against))
    if ours is None or theirs is None:
        return None
    of_all = 100 * int(source.top) / PAPER_HEADS
    return measure_top_k_overlap(ours, theirs, count_top([f"{of_all}%"], ours.size)[0])


def measure_update_ranks(results: Results, source: CellSource) -> Values:
    """How alike training updated the heads of two models: Spearman's rho."""
    found = results.analyses.get(source.analysis)
    if found is None:
        return {}
    maps = average_maps(cast("AnalysisTable[HeadUpdates]", found), part="update", normalise="mean")
    if source.model not in maps or source.against not in maps:
        return {}
    rho = correlate_ranks(maps[source.model], maps[source.against]).rho
    return {} if math.isnan(rho) else {None: rho}


def measure_best_head(results: Results, source: CellSource) -> Values:
    """The best head's probe, in points above what the head had before training."""
    heads = results.heads(source)
    values = heads.maps.get((source.model, source.probe)) if heads else None
    return {} if values is None else {None: float(values.max())}


def measure_distances(results: Results, source: CellSource) -> Values:
    """A column of the analysis of distances, by the name of the measure."""
    rows = [row for row in results.rows(source) if row["language"] in source.languages]
    return _average(rows, source.measure)


MEASURES: Mapping[str, Callable[[Results, CellSource], Values]] = {
    "score": measure_score,
    "best": measure_best,
    "best_layer": measure_best_layer,
    "cosine": measure_cosine,
    "perplexity": measure_perplexity,
    "probing": measure_probing,
    "shared_heads": measure_shared_heads,
    "shared_ranks": measure_shared_ranks,
    "update_ranks": measure_update_ranks,
    "best_head": measure_best_head,
    "related": measure_distances,
    "unrelated": measure_distances,
    "overlap": measure_distances,
}
"""By the name that a source has it under."""
