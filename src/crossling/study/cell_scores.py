"""Scores of a study's finished cells, one by one, from their stored predictions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from crossling.data.languages import is_same_language
from crossling.data.spec import parse_spec
from crossling.errors import ArtefactError
from crossling.recipe.recipe import Recipe, load_recipe
from crossling.report.run_summary import SeedResult
from crossling.report.table import Table
from crossling.scores.metrics import score
from crossling.scores.predictions import Predictions, read_predictions
from crossling.scores.significance.counts import score_supported
from crossling.store.artefacts import Store
from crossling.study.folder import RECIPE, StudyPlan, is_finished, prediction_path, set_name


@dataclass(frozen=True)
class CellScores:
    """All scores of one seed of one variant, in every language that it was evaluated in."""

    task: str
    label: str
    folder: str
    """Its variant's."""
    seed: int
    main_score: str
    """The name of the one that selects checkpoints and comes first in tables."""
    scores: Mapping[tuple[str, str], Mapping[str, float]]
    """By data set and language, as in the recipe, then by name."""
    zero_shot: float | None
    """The mean main score of the languages not trained on; none where there are no others.

    Each language counts once, with the first set of the recipe that has it: XNLI, not its mixed pairs as well. It is
    not the mean of the first set alone, since own files may be a set for each language.
    """

    def list_results(self) -> list[SeedResult]:
        """One for each data set and language."""
        names = (self.task, self.label, self.seed)
        return [SeedResult(*names, *place, found, self.main_score) for place, found in self.scores.items()]


class StudyFiles:
    """Recipes and predictions of a study, for what needs them several times: each file is read once.

    Of predictions only the scores are kept: those of a large study do not fit in memory.
    """

    def __init__(self, out: Path, *, keep_scores: bool = False) -> None:
        self.out = out
        self._keep_scores = keep_scores
        self._recipes: dict[str, Recipe] = {}
        self._scored: dict[Path, tuple[str, Mapping[str, float]]] = {}

    def load_recipe(self, folder: str) -> Recipe:
        """The recipe of a variant, by its folder."""
        if folder not in self._recipes:
            self._recipes[folder] = load_recipe(self.out / folder / RECIPE)
        return self._recipes[folder]

    def read_predictions(self, path: Path) -> Predictions:
        """A file of predictions; with ``keep_scores`` it is scored for later."""
        predictions = read_predictions(path)
        if self._keep_scores:
            self._scored[path] = _score(predictions)
        return predictions

    def score(self, path: Path) -> tuple[str, Mapping[str, float]]:
        """The language of predictions and all their scores."""
        if path in self._scored:
            return self._scored[path]
        return _score(read_predictions(path))


def _score(predictions: Predictions) -> tuple[str, Mapping[str, float]]:
    return predictions.language, {**score(predictions), **score_supported(predictions)}


CHANGES = ("drift", "variance", "variance_within", "correlation")
"""What adjusting and replay did to the source language, by the record of a stage."""


def list_seed_records(plan: StudyPlan, out: Path) -> Table:
    """What the stages of every seed recorded: scores on the source language's dev set, and what became of source words.

    Values of an axis are chosen by the former. Stages whose record is not in the store are left out.
    """
    head = ("task", "system", "seed", "stage", "kind", "dev", *CHANGES)
    rows = []
    if plan.store.is_dir():
        store = Store(plan.store)
        for cell in (cell for cell in plan.cells if is_finished(out, cell)):
            for number, identity in enumerate(cell.stages):
                with suppress(ArtefactError):
                    record = store.record(identity)
                    dev, changes = record.get("dev_score"), record.get("source_vectors") or {}
                    facts = (cell.task, cell.label, str(cell.seed), str(number), identity.partition("-")[0])
                    shown = ["" if changes.get(name) is None else f"{changes[name]:.6g}" for name in CHANGES]
                    rows.append((*facts, "" if dev is None else f"{100 * dev:.4f}", *shown))
    return Table("Records of every seed", head, tuple(rows), names=5)


def score_cells(plan: StudyPlan, out: Path, files: StudyFiles | None = None) -> list[CellScores]:
    """Scores of all cells that are finished, in the plan's order."""
    files = files or StudyFiles(out)
    found = []
    for cell in plan.cells:
        if not is_finished(out, cell):
            continue
        names = (cell.task, cell.label, cell.folder, cell.seed)
        found.append(CellScores(*names, *_score_cell(files, cell.folder, cell.seed)))
    return found


def _score_cell(
    files: StudyFiles, folder: str, seed: int
) -> tuple[str, dict[tuple[str, str], Mapping[str, float]], float | None]:
    """The name of the main score, all scores, and the zero-shot one."""
    recipe = files.load_recipe(folder)
    trained = trained_languages(recipe)
    scores: dict[tuple[str, str], Mapping[str, float]] = {}
    others: dict[str, float] = {}
    for entry in recipe.evaluate:
        for language, _ in entry.specs():
            predicted_language, found = files.score(prediction_path(files.out / folder, seed, entry, language))
            scores[set_name(entry), language] = found
            if not any(is_same_language(predicted_language, code) for code in (*trained, *others)):
                others[predicted_language] = found[recipe.main_score]
    return recipe.main_score, scores, fmean(others.values()) if others else None


def trained_languages(recipe: Recipe) -> set[str]:
    """Languages of the labels that a recipe's last stage learns from."""
    found = {recipe.source}
    for spec in getattr(recipe.stage[-1], "train", ()):
        named = spec if isinstance(spec, str) else spec.get("data", "")
        language = parse_spec(named).language if named else str(spec["language"])
        found.add(language.partition("_")[0])
    return found - {""}
