"""Auxiliary tasks chosen from probing results, as a study's criterion."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossling.analyses._probes.results import ProbingResult, results_to_csv
from crossling.criteria import ChoiceContext, probing
from crossling.errors import RecipeError
from crossling.recipe.recipe import parse_recipe

SETS = {"pos": "ud:en", "ner": "panx:en", "paraphrase": "pawsx:en", "sentiment": "marc:en", "nli": "xnli:en"}
RESULTS = {
    "cross": {"pos": -1.14, "paraphrase": 1.00, "sentiment": 0.76},
    "multi": {"pos": -0.14, "paraphrase": 2.22, "sentiment": -2.36},
}
"""The multilingual-knowledge paper's, of its two models for named entities."""


def make_recipe(*auxiliary: str) -> Any:
    tables = [{"task": name, "train": SETS[name]} for name in auxiliary]
    stage = {"kind": "finetune", "task": "ner", "train": "panx:en", "auxiliary": tables}
    return parse_recipe({"encoder": {"name": "e"}, "stage": [stage]})


@pytest.fixture()
def table(tmp_path: Path) -> Path:
    path = tmp_path / "probe.csv"
    results = [
        ProbingResult(model, "", probe, probe == "ner", "all", "macro_f1", 0, 50 + value, "mbert", 50.0, 9)
        for model, values in RESULTS.items()
        for probe, value in {"ner": 9.0, **values}.items()
    ]
    path.write_text(results_to_csv(results), encoding="utf-8")
    return path


def choose(table: Path, *sets: tuple[str, ...], **settings: Any) -> tuple[str, ...]:
    """The set with the highest score."""
    chosen = probing.Settings(table=str(table), cross="cross", multi="multi", **settings)
    facts: dict[str, Any] = {}
    scores = {
        some: probing.score([], ChoiceContext("", make_recipe(*some), table.parent, chosen, facts)) for some in sets
    }
    return max(scores, key=lambda some: scores[some])


def test_the_set_of_all_tasks_that_gain_enough_wins(table: Path) -> None:
    everything = [
        (),
        ("pos",),
        ("paraphrase",),
        ("sentiment",),
        ("pos", "paraphrase"),
        ("pos", "sentiment"),
        ("paraphrase", "sentiment"),
        ("pos", "paraphrase", "sentiment"),
    ]
    assert choose(table, *everything) == ("pos", "paraphrase")
    assert choose(table, *reversed(everything)) == ("pos", "paraphrase")
    assert choose(table, *everything, min_gain=1.1) == ("paraphrase",)
    assert choose(table, *everything, min_gain=2.0) == ()
    assert choose(table, *reversed(everything), min_gain=1.0) == ("pos", "paraphrase"), "just enough is enough"


def test_a_task_without_a_result_is_an_error(table: Path) -> None:
    with pytest.raises(RecipeError, match="auxiliary task nli: .*probe.csv has no probing result of it"):
        choose(table, ("nli",))


def test_the_choice_says_that_it_used_target_labels(table: Path) -> None:
    settings = probing.Settings(table="probe.csv", cross="a", multi="b")
    assert probing.LABELS.format(settings=settings).startswith("labels of the target languages")


@pytest.mark.parametrize("name", SETS)
def test_a_resolved_task_is_known_by_its_data(name: str) -> None:
    (found,) = probing.list_auxiliary(make_recipe(name))
    assert found == name


def test_task_on_custom_files_is_known_by_its_kind_and_scheme() -> None:
    own = {"format": "conllu", "path": "x.conllu", "language": "en"}
    for task, expected in (("pos", "pos"), ("ner", "ner"), ("nli", "classify_pair")):
        stage = {
            "kind": "finetune",
            "task": "sentiment",
            "train": "marc:en",
            "auxiliary": [{"task": task, "train": own}],
        }
        (found,) = probing.list_auxiliary(parse_recipe({"encoder": {"name": "e"}, "stage": [stage]}))
        assert found == expected
