"""What `crossling start` chooses agrees with the results that it quotes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from crossling.recipe.recipe import parse_recipe
from crossling.study.choices import Gain, Ingredient, choose_best, load_choices
from crossling.tasks import PRESETS

ROOT = Path(__file__).parent.parent.parent
INGREDIENTS = [(task, one) for task, choices in load_choices().items() for one in choices.ingredients]
PARALLEL = {"text": "ntrex:en-de", "pairs": {"source": "xnli:en:dev", "target": ["de"]}, "translations": "ntrex:en-de"}


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """The scripts that compute the figures."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "results"))
    return importlib.import_module


@pytest.fixture
def teaching(scripts: Callable[[str], ModuleType]) -> ModuleType:
    return scripts("teaching")


def test_figures_are_those_of_the_archived_scores(scripts: Callable[[str], ModuleType]) -> None:
    """If this fails: python docs/results/start_choices.py --write, or teaching.py --write"""
    script, teaching = scripts("start_choices"), scripts("teaching")
    written = script.CHOICES.read_text(encoding="utf-8")
    assert script.update_choices(written, script.read_systems()) == written
    page = (ROOT / "docs" / "results" / "teaching.md").read_text(encoding="utf-8")
    assert "\n".join(teaching.build_table(teaching.read_means(teaching.SCORES))) in page


def test_figures_are_computed_from_scores_of_seeds(scripts: Callable[[str], ModuleType]) -> None:
    """Differences of 1 and 3 with the two seeds that both have: mean 2; t with one degree of freedom is 12.7."""
    script = scripts("start_choices")
    plain = {"none": {1: 50.0, 2: 51.0, 3: 10.0}}, {"en": {1: 90.0, 2: 90.0}, "fi": {1: 40.0, 2: 41.0}, "ja": {1: 5.0}}
    taught = {"none": {2: 54.0, 1: 51.0}}, {"en": {1: 90.0, 2: 90.0}, "fi": {1: 42.0, 2: 43.5}, "ja": {2: 5.0}}
    systems = {("pos", "plain"): plain, ("pos", "taught"): taught}
    text = '[[pos.ingredients]]\nstudy = "pos"\nsystem = "{}"\nnone = []\ntext = [1.0, 1.0, 1.0]\n'
    text += "none_in = {{}}\ntext_in = {{}}\n"
    found = script.update_choices(text.format("taught"), systems)
    assert "none = [2.0, -10.7, 14.7]\ntext = []\n" in found
    assert found.endswith("none_in = { fi = [2.2, -0.9, 5.4] }\ntext_in = {}\n"), "no seed of Japanese has both"
    assert "none = []\ntext = []\nnone_in = {}" in script.update_choices(text.format("gone"), systems)
    kept = '[[pos.ingredients]]\nnone = [1.0, 0.5, 1.5]\npage = "x"\n'
    assert script.update_choices(kept, systems) == kept


def test_text_of_replay_is_in_all_languages_but_arabic(scripts: Callable[[str], ModuleType], tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    lines = ["study,task,system,seed,data,language,score,percent"]
    for system, gain in (("plain", 0), ("layer", 2)):
        lines += [
            f"replay-news,pos,{system},{seed},{data},{code},accuracy,{50 + seed + gain * seed * (code != 'en')}"
            for seed in (1, 2)
            for data in ("ud", "news")
            for code in ("en", "ar", "ja", "ru")
        ]
    table.write_text("\n".join(lines), encoding="utf-8")
    script = scripts("start_choices")
    figures = script.list_figures(script.read_replays(table), ("replay-news", "layer"))
    # Differences of 2 and 4: mean 3, standard error 1.
    assert figures == {
        "none": "[]",
        "text": "[3.0, -9.7, 15.7]",
        "none_in": "{ ar = [3.0, -9.7, 15.7] }",
        "text_in": "{ ja = [3.0, -9.7, 15.7], ru = [3.0, -9.7, 15.7] }",
    }


def test_gathered_scores_replace_those_of_the_same_seeds(teaching: ModuleType, tmp_path: Path) -> None:
    table = tmp_path / "teaching.csv"
    head = "study,system,seed,language,measure,score\n"
    table.write_text(f"{head}ner,plain,1,de,span_f1,50.000\nner,plain,2,de,span_f1,51.000\n", encoding="utf-8")
    lines = ["task,system,seed,data,language,score,percent", ",plain,2,panx-dev,de,span_f1,60.0"]
    lines += [",plain,2,panx-dev,de,accuracy,90.0", ",switch,2,panx-dev,de,span_f1,61.23456"]
    (tmp_path / "teach-ner-seed-scores.csv").write_text("\n".join(lines), encoding="utf-8")
    assert teaching.gather_scores(tmp_path, table) == 2
    rows = ("ner,plain,1,de,span_f1,50.000", "ner,plain,2,de,span_f1,60.000", "ner,switch,2,de,span_f1,61.235")
    assert table.read_text(encoding="utf-8") == head + "\n".join(rows) + "\n"


@pytest.mark.parametrize(("task", "ingredient"), [(t, i) for t, i in INGREDIENTS if not i.study])
def test_quoted_figures_are_on_the_page(task: str, ingredient: Ingredient) -> None:
    page = (ROOT / ingredient.page).read_text(encoding="utf-8")
    for values in filter(None, (ingredient.none, ingredient.text)):
        mean, low, high = values
        assert f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]" in page


@pytest.mark.parametrize(("task", "ingredient"), INGREDIENTS)
def test_every_ingredient_makes_a_valid_recipe(task: str, ingredient: Ingredient) -> None:
    assert (ROOT / ingredient.page).is_file()
    finetune = {"kind": "finetune", "task": task, "train": "panx:en", "dev": "panx:en:dev", **ingredient.finetune}
    before, after = ([dict(stage) for stage in stages] for stages in (ingredient.before, ingredient.after))
    for stages in filter(None, (before, after) if ingredient.needs != "nothing" else ()):
        key = "text" if ingredient.needs == "text" else "parallel"
        if "train" in stages[0]:
            stages[0]["train"] = ingredient.list_other_sets("en")[0]
        elif stages[0]["kind"] != "average":
            stages[0][key] = [PARALLEL[ingredient.needs]]
    stages: list[dict[str, Any]] = [*before, finetune, *after]
    if "replay" in finetune:
        finetune["replay"] = {**finetune["replay"], "parallel": PARALLEL[ingredient.needs]}
    switched = [stage for stage in stages if "consistency" in stage]
    for stage in switched:
        stage["consistency"] = {**stage["consistency"], "lexicon": [{"parallel": PARALLEL["translations"]}]}
    assert bool(switched) == ingredient.replaces_words
    recipe = parse_recipe({"encoder": {"name": "x"}, "stage": stages})
    assert len(recipe.stage) == len(stages)
    assert len(stages) > 1 or ingredient.finetune or ingredient.needs in ("labels", "teachers")


def test_every_named_task_has_choices_and_the_phrasebook_last() -> None:
    assert set(load_choices()) == set(PRESETS)
    for task, choices in load_choices().items():
        assert [one.test.startswith("phrasebook") for one in choices.sets] == [False] * (len(choices.sets) - 1) + [True]
        assert choices.sets[-1].trains == (f"phrasebook-{task}:{{source}}:train",)


def test_largest_gain_whose_interval_is_above_zero_is_chosen() -> None:
    def make(none: tuple[float, ...], text: tuple[float, ...] = ()) -> Ingredient:
        return Ingredient(none=none, text=text, page="", needs="text", ask="", why="")

    sure, unsure, harmful, unmeasured = (
        make((1.0, 0.5, 1.5)),
        make((3.0, -1.0, 7.0)),
        make((-2.0, -3.0, -1.0)),
        make(()),
    )
    both = make((0.5, 0.1, 0.9), (4.0, 3.0, 5.0))
    everything = (harmful, unmeasured, unsure, sure, both)
    assert choose_best(everything, lambda one: one.gain({"sw": False})) == (sure, Gain(1.0, 0.5, 1.5))
    assert choose_best(everything, lambda one: one.gain({"sw": True})) == (both, Gain(4.0, 3.0, 5.0))
    assert choose_best((harmful, unmeasured, unsure), lambda one: one.gain({"sw": True})) == (None, None)
    assert str(Gain(1.0, 0.5, 1.5)) == "+1.0 points [+0.5, +1.5]"


def test_a_language_that_was_scored_has_its_own_gain_and_others_that_of_their_group() -> None:
    one = Ingredient(
        none=(0.5, 0.1, 0.9),
        text=(1.0, 0.5, 1.5),
        text_in={"ja": (7.0, 6.0, 8.0), "ru": (-1.0, -1.5, -0.5)},
        page="",
        needs="translations",
        ask="",
        why="",
    )
    assert one.gain({"ja": True}) == Gain(7.0, 6.0, 8.0)
    assert one.gain({"ru": True}) == Gain(-1.0, -1.5, -0.5), "so that it is not chosen"
    assert one.gain({"ja": False}) == Gain(0.5, 0.1, 0.9), "scored with text alone"
    assert one.gain({"sw": True}) == Gain(1.0, 0.5, 1.5)
    assert one.gain({"ja": True, "ru": True}) == Gain(3.0, 2.25, 3.75)
    assert one.gain({"ja": True, "sw": False}) == Gain(3.75, 3.05, 4.45)
    with_text = one.model_copy(update={"none": ()})
    assert with_text.gain({"sw": False}) is None, "not measured without text"
    assert with_text.gain({"sw": False, "ja": True}) == Gain(7.0, 6.0, 8.0)
    assert with_text.model_copy(update={"needs": "labels"}).gain({"sw": False}) == Gain(1.0, 0.5, 1.5)
