"""Scores of a study's finished cells, one by one, from their stored predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from crossling.data.languages import is_same_language
from crossling.data.spec import parse_spec
from crossling.recipe.recipe import Recipe, load_recipe
from crossling.report.table import Table
from crossling.scores.metrics import score
from crossling.scores.predictions import read_predictions
from crossling.study.folder import StudyPlan, is_finished, prediction_path, set_name


@dataclass(frozen=True)
class CellScores:
    """The main score of one seed of one variant, in every language that it was evaluated in."""

    task: str
    label: str
    folder: str
    """Its variant's."""
    seed: int
    scores: Mapping[tuple[str, str], float]
    """By data set and language, as in the recipe."""
    zero_shot: float | None
    """The mean of all scores but those of languages trained on; none where there are no others."""


def list_seed_scores(cells: Iterable[CellScores], scores: Mapping[str, str]) -> Table:
    """Every score of every seed on a line, so that others can test again; ``scores``: the score's name by folder."""
    head = ("task", "system", "seed", "data", "language", "score", "percent")
    rows = tuple(
        (cell.task, cell.label, str(cell.seed), data, language, scores[cell.folder], f"{100 * value:.4f}")
        for cell in cells
        for (data, language), value in cell.scores.items()
    )
    return Table("Scores of every seed", head, rows, names=6)


def score_cells(plan: StudyPlan, out: Path) -> list[CellScores]:
    """Scores of all cells that are finished, in the plan's order."""
    recipes: dict[str, Recipe] = {}
    found = []
    for cell in plan.cells:
        if not is_finished(out, cell):
            continue
        folder = cell.folder
        if folder not in recipes:
            recipes[folder] = load_recipe(out / folder / "recipe.toml")
        scores, zero_shot = _score_cell(recipes[folder], out / folder, cell.seed)
        found.append(CellScores(cell.task, cell.label, folder, cell.seed, scores, zero_shot))
    return found


def _score_cell(recipe: Recipe, folder: Path, seed: int) -> tuple[dict[tuple[str, str], float], float | None]:
    trained = trained_languages(recipe)
    name = recipe.main_score
    scores: dict[tuple[str, str], float] = {}
    others = []
    for entry in recipe.evaluate:
        for language, _ in entry.specs():
            predictions = read_predictions(prediction_path(folder, seed, entry, language))
            value = scores[set_name(entry), language] = float(score(predictions)[name])
            if not any(is_same_language(predictions.language, code) for code in trained):
                others.append(value)
    return scores, sum(others) / len(others) if others else None


def trained_languages(recipe: Recipe) -> set[str]:
    """Languages of the labels that a recipe's last stage learns from."""
    found = {recipe.source}
    for spec in getattr(recipe.stage[-1], "train", ()):
        named = spec if isinstance(spec, str) else spec.get("data", "")
        language = parse_spec(named).language if named else str(spec["language"])
        found.add(language.partition("_")[0])
    return found - {""}
