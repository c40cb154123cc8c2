"""Whole comparisons by resampling: which test, which rows together, which marks; and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made import (
    THREE,
    Cells,
    class_runs,
    copied_answers,
    make_answers,
    make_classes,
    make_systems,
    make_tags,
    pick,
    tag_cells,
)
from scipy.stats import ttest_rel

from crossling.errors import ArtefactError, UserError
from crossling.scores.metrics import per_example, score
from crossling.scores.predictions import Predictions
from crossling.scores.significance import Comparison, Settings, compare
from crossling.scores.significance.holm import correct_holm

QUICK = Settings(interval="bootstrap", rounds=1000, draws=1000)


def test_marks_of_either_sign_and_from_both_systems() -> None:
    comparison = compare(make_systems(), "plain", second="good", settings=QUICK)
    marks = {system: {r.mark for r in comparison.results if r.system == system} for system in make_systems()}
    assert marks == {"plain": {""}, "good": {"▲"}, "bad": {"▼▽"}, "alike": {"▽"}}
    good = pick(comparison, "de", "good")
    assert good.from_second is None
    assert good.from_baseline is not None
    assert (good.from_baseline.against, good.from_baseline.test) == ("plain", "permutation test")
    assert good.from_baseline.low < good.from_baseline.delta < good.from_baseline.high
    assert pick(comparison, "de", "plain").from_baseline is None


def test_results_are_ordered_and_averaged_over_languages() -> None:
    systems = make_systems()
    comparison = compare(systems, "plain", settings=QUICK)
    assert list(dict.fromkeys(r.language for r in comparison.results)) == [
        "en", "de", "hi", "mean of 3", "mean of 2 zero-shot",
    ]  # fmt: skip
    by_language = {language: [score(run)["span_f1"] for run in systems["good"]["panx", language]] for language in THREE}
    german = pick(comparison, "de", "good")
    assert (german.mean, german.spread) == pytest.approx(
        (np.mean(by_language["de"]), np.std(by_language["de"], ddof=1))
    )
    assert (german.runs, german.examples, german.score, german.is_source) == (3, 60, "span_f1", False)
    assert pick(comparison, "en", "good").is_source
    zero_shot = pick(comparison, "mean of 2 zero-shot", "good")
    seeds = np.mean([by_language["de"], by_language["hi"]], axis=0)
    assert (zero_shot.mean, zero_shot.spread) == pytest.approx((seeds.mean(), seeds.std(ddof=1)))
    assert (zero_shot.examples, zero_shot.is_average) == (105, True)
    difference, other = zero_shot.from_baseline, pick(comparison, "mean of 2 zero-shot", "plain")
    assert difference is not None
    assert difference.delta == pytest.approx(zero_shot.mean - other.mean)
    assert difference.corrected_p == difference.p


def test_scores_that_are_all_zero_are_noted_since_differences_say_nothing() -> None:
    gold = [np.array([1, 2, 0])] * 20
    nothing = [make_tags(gold, [np.zeros(3, int)] * 20, seed=seed) for seed in (1, 2)]
    found = [make_tags(gold, gold, seed=seed) for seed in (1, 2)]
    systems: dict[str, Cells] = {"plain": {("panx", "de"): nothing}, "other": {("panx", "de"): nothing}}
    comparison = compare(systems, "plain", settings=QUICK)
    note = "panx: every span_f1 of plain, other is 0: nothing right was found, so that differences say nothing"
    assert comparison.notes == (note,)
    systems["other"] = {("panx", "de"): found}
    assert not compare(systems, "plain", settings=QUICK).notes


def test_sources_are_left_out_of_zero_shot_means_by_any_of_their_codes() -> None:
    comparison = compare(make_systems(), "plain", sources=("eng_Latn", "de"), settings=QUICK)
    assert [r.language for r in comparison.results if r.system == "good"] == ["de", "en", "hi", "mean of 3"]


def test_two_languages_at_once_have_means_of_their_own() -> None:
    codes = ("en", "de", "hi", "context=en,question=de", "context=en,question=hi", "context=de,question=en",
             "context=hi,question=en", "context=de,question=hi")  # fmt: skip
    sizes = dict.fromkeys(codes, 20)
    systems = {name: tag_cells(sizes, wrong=wrong, seeds=(1, 2)) for name, wrong in (("plain", 0.4), ("good", 0.1))}
    comparison = compare(systems, "plain", groups=("script",), settings=QUICK)
    averages = {r.language: r for r in comparison.results if r.is_average and r.system == "good"}
    assert list(averages)[:4] == [
        "mean of 3", "mean of 2 zero-shot", "mean of 2, question in en", "mean of 2, context in en",
    ]  # fmt: skip
    two = [pick(comparison, code, "good").mean for code in codes[3:5]]
    assert averages["mean of 2, context in en"].mean == pytest.approx(np.mean(two))
    assert [name for name in averages if name.startswith("Latin")] == ["Latin script: mean of 2"]


def test_holm_runs_over_the_languages_of_a_data_set() -> None:
    systems = make_systems()
    systems["alike"] = tag_cells(THREE, wrong=0.3, seeds=(1, 2, 3), salt=5)
    comparison = compare(systems, "plain", settings=QUICK)
    found = [pick(comparison, language, "alike").from_baseline for language in THREE]
    assert correct_holm([one.p for one in found if one]) == tuple(one.corrected_p for one in found if one)
    (one,) = (one for one in found if one and one.p == min(other.p for other in found if other))
    assert one.p < one.corrected_p < 1
    for level, is_marked in (((one.p + one.corrected_p) / 2, False), (one.corrected_p + 1e-9, True)):
        settings = replace(QUICK, level=level)
        again = compare(systems, "plain", settings=settings)
        assert any(pick(again, language, "alike").mark for language in THREE) == is_marked


def test_classes_and_answers_take_scipys_t_test_over_seed_means() -> None:
    rng = np.random.default_rng(0)
    gold = rng.choice(["red car", "blue car", "tree"], 80).tolist()
    answers = [
        [make_answers(gold, np.where(rng.random(80) < right, gold, "a car").tolist()) for _ in range(2)]
        for right in (0.5, 0.6)
    ]
    systems = {
        "plain": {("xnli", "de"): class_runs(0.5, seeds=(1, 2, 3)), ("xquad", "de"): answers[0]},
        "other": {("xnli", "de"): class_runs(0.6, seeds=(1, 2, 3), salt=1), ("xquad", "de"): answers[1]},
    }
    comparison = compare(systems, "plain", settings=QUICK)
    assert comparison.data_sets == ("xnli", "xquad")
    for (data, name), result in zip(
        (("xnli", "accuracy"), ("xquad", "qa_f1")), (r for r in comparison.results if r.system == "other"), strict=True
    ):
        means = [
            np.mean([per_example(run, name) for run in systems[s][data, "de"]], axis=0) for s in ("other", "plain")
        ]
        assert result.from_baseline is not None
        assert (result.score, result.from_baseline.test) == (name, "paired t-test")
        assert result.from_baseline.p == pytest.approx(ttest_rel(*means).pvalue)
        assert 0 < result.from_baseline.p < 1


def test_score_can_be_chosen_for_all_sets_or_for_each() -> None:
    systems = {
        name: {("xnli", "de"): class_runs(0.5, seeds=(1, 2), salt=salt)} for salt, name in enumerate(("plain", "other"))
    }
    for chosen in ("macro_f1", {"xnli": "macro_f1"}):
        result = pick(compare(systems, "plain", score=chosen, settings=QUICK), "de", "other")
        assert result.score == "macro_f1"
        assert result.mean == pytest.approx(np.mean([score(run)["macro_f1"] for run in systems["other"]["xnli", "de"]]))
        assert result.from_baseline is not None
        assert result.from_baseline.test == "permutation test"
    with pytest.raises(UserError, match="no score 'span_f1'"):
        compare(systems, "plain", score="span_f1", settings=QUICK)


def test_same_settings_same_table_and_systems_do_not_disturb_each_other() -> None:
    systems = make_systems()
    whole = compare(systems, "plain", settings=QUICK)
    assert compare(systems, "plain", settings=QUICK) == whole
    two = compare({name: systems[name] for name in ("plain", "alike")}, "plain", settings=QUICK)
    assert two.results == tuple(r for r in whole.results if r.system in ("plain", "alike"))
    assert compare(systems, "plain", settings=replace(QUICK, seed=1)).results != whole.results


def test_p_is_the_same_whichever_system_is_the_baseline() -> None:
    systems = {name: cells for name, cells in make_systems().items() if name in ("plain", "alike")}
    for language in (*THREE, "mean of 3"):
        one = pick(compare(systems, "plain", settings=QUICK), language, "alike").from_baseline
        other = pick(compare(systems, "alike", settings=QUICK), language, "plain").from_baseline
        assert one is not None
        assert other is not None
        assert one.p == other.p
        assert (one.delta, one.low, one.high) == pytest.approx((-other.delta, -other.high, -other.low))


def test_translations_are_swapped_together() -> None:
    def run(name_id: Callable[[str, int], str]) -> Comparison:
        systems = {
            "plain": copied_answers(0.5, salt=1, name_id=name_id),
            "other": copied_answers(0.6, salt=2, name_id=name_id),
        }
        return compare(systems, "plain", settings=QUICK)

    together, apart = run(lambda _, row: str(row)), run(lambda language, row: f"{language}-{row}")
    single = pick(together, "de", "other").from_baseline
    joint, separate = (pick(one, "mean of 3", "other").from_baseline for one in (together, apart))
    assert single is not None
    assert joint is not None
    assert separate is not None
    assert (joint.delta, joint.low, joint.high) == pytest.approx((single.delta, single.low, single.high))
    assert separate.p < joint.p
    assert separate.high - separate.low < 0.75 * (joint.high - joint.low)


def test_rows_of_one_number_are_matched_by_place() -> None:
    """Copies of one language under three codes: their average must say what one of them says."""
    systems: dict[str, Cells] = {}
    for salt, (name, wrong) in enumerate((("plain", 0.4), ("other", 0.35))):
        runs = tag_cells({"de": 80}, wrong=wrong, seeds=(1, 2), salt=salt)["panx", "de"]
        systems[name] = {("pud", code): runs for code in ("ar", "de", "fr")}
    comparison = compare(systems, "plain", settings=QUICK)
    single, joint = (pick(comparison, title, "other").from_baseline for title in ("de", "mean of 3"))
    assert single is not None
    assert joint is not None
    assert joint.p == single.p
    assert (joint.low, joint.high) == pytest.approx((single.low, single.high))


def test_interval_widens_with_spread_of_seeds() -> None:
    steady = {"plain": class_runs(0.6, seeds=(1, 1)), "other": class_runs(0.7, seeds=(1, 1), salt=1)}
    steady = {
        name: [make_classes(r.column("gold"), r.column("predicted")) for r in runs] for name, runs in steady.items()
    }
    noisy = {
        "plain": class_runs(0.8, seeds=(1,)) + class_runs(0.4, seeds=(2,)),
        "other": class_runs(0.5, seeds=(1,), salt=1) + class_runs(0.9, seeds=(2,), salt=1),
    }
    widths = []
    for runs in (steady, noisy):
        comparison = compare({name: {("xnli", "de"): some} for name, some in runs.items()}, "plain", settings=QUICK)
        difference = pick(comparison, "de", "other").from_baseline
        assert difference is not None
        widths.append(difference.high - difference.low)
    assert widths[1] > 2 * widths[0]


def test_models_with_their_labels_in_another_order_can_be_compared() -> None:
    runs = class_runs(0.6, seeds=(1, 2))
    turn = np.array([2, 0, 1])
    turned = [
        make_classes(turn[run.column("gold")], turn[run.column("predicted")], labels="bca", seed=run.meta["seed"])
        for run in runs
    ]
    for name in ("accuracy", "macro_f1"):
        systems = {"plain": {("xnli", "de"): runs}, "turned": {("xnli", "de"): turned}}
        result = pick(compare(systems, "plain", score=name, settings=QUICK), "de", "turned")
        assert result.from_baseline is not None
        assert (result.from_baseline.p, result.from_baseline.delta) == (1.0, 0.0)


def test_seeds_are_paired_by_number() -> None:
    runs = class_runs(0.6, seeds=(1, 2, 3))
    systems = {"plain": {("xnli", "de"): runs}, "same": {("xnli", "de"): runs[::-1]}}
    comparison = compare(systems, "plain", score="macro_f1", settings=QUICK)
    difference = pick(comparison, "de", "same").from_baseline
    assert difference is not None
    assert (difference.p, difference.low, difference.high) == (1.0, 0.0, 0.0)
    assert comparison.notes == ()


def test_unequal_seeds_are_averaged_and_noted() -> None:
    cells = tag_cells({"de": 60}, wrong=0.4, seeds=(1, 2, 3)), tag_cells({"de": 60}, wrong=0.1, seeds=(1, 2), salt=1)
    comparison = compare({"plain": cells[0], "good": cells[1]}, "plain", settings=QUICK)
    assert [pick(comparison, "de", system).runs for system in ("plain", "good")] == [3, 2]
    assert pick(comparison, "de", "good").mark == "▲"
    (note,) = comparison.notes
    assert note.startswith("panx: systems differ in seeds (plain 3, good 2)") and "the seeds that both have" in note
    renamed = tag_cells({"de": 60}, wrong=0.1, seeds=(4, 5, 6), salt=1)
    (note,) = compare({"plain": cells[0], "good": renamed}, "plain", settings=QUICK).notes
    assert "different seeds" in note


def test_a_difference_is_between_the_seeds_that_both_have() -> None:
    """A system of which one seed is missing differs in nothing from the same system with all of them."""
    runs = class_runs(0.6, seeds=(1, 2, 3))
    systems = {"plain": {("xnli", "de"): runs}, "part": {("xnli", "de"): [runs[2], runs[0]]}}
    for name in ("accuracy", "macro_f1"):
        comparison = compare(systems, "plain", score=name, settings=QUICK)
        means = [pick(comparison, "de", system).mean for system in ("plain", "part")]
        difference = pick(comparison, "de", "part").from_baseline
        assert difference is not None and means[0] != means[1]
        assert (difference.delta, difference.low, difference.high, difference.p) == (0.0, 0.0, 0.0, 1.0)


def test_as_published_corrects_no_p_values() -> None:
    systems = {name: cells for name, cells in make_systems().items() if name in ("plain", "alike")}
    published = compare(systems, "plain", settings=replace(QUICK, as_published=True))
    assert published.results != compare(systems, "plain", settings=QUICK).results
    found = [result.from_baseline for result in published.results if result.from_baseline]
    assert all(one.corrected_p == one.p and one.tests == 1 for one in found), "the paper corrected nothing"


def test_languages_that_a_system_lacks_are_left_out_of_averages() -> None:
    systems = make_systems()
    del systems["bad"]["panx", "hi"]
    comparison = compare(systems, "plain", settings=QUICK)
    assert [r.system for r in comparison.results if r.language == "hi"] == ["plain", "good", "alike"]
    assert "mean of 2" in {r.language for r in comparison.results}
    assert comparison.notes == ("panx: averages leave out hi, which not every system has",)


def test_a_set_that_the_baseline_lacks_is_shown_without_tests() -> None:
    systems = {
        "plain": tag_cells({"de": 20}, wrong=0.2, seeds=(1,)),
        "other": {("xnli", "de"): class_runs(0.5, seeds=(1,))},
    }
    comparison = compare(systems, "plain", settings=QUICK)
    assert [(r.data, r.system, r.from_baseline, r.spread) for r in comparison.results] == [
        ("panx", "plain", None, None),
        ("xnli", "other", None, None),
    ]


def refuse(other: Predictions, match: str, *, first: Predictions | None = None) -> None:
    first = first or make_classes([0, 1, 2], [0, 1, 2])
    for systems in (
        {"plain": {("xnli", "de"): [first]}, "other": {("xnli", "de"): [other]}},
        {"plain": {("xnli", "de"): [first, other]}},  # nor may the seeds of one system differ
    ):
        with pytest.raises(ArtefactError, match=match):
            compare(systems, "plain", settings=QUICK)


def test_predictions_for_other_rows_are_refused() -> None:
    refuse(make_classes([0, 1], [0, 1]), "3 rows with 3 labels against 2")
    refuse(make_classes([0, 1, 1], [0, 1, 2]), "gold labels differ")
    refuse(make_classes([0, 1, 2], [0, 1, 2], labels="acb"), "gold labels differ")
    refuse(make_tags([[0], [1], [2]], [[0], [1], [2]]), "one holds classes")
    refuse(make_classes([0], [0], fingerprint="b"), "fingerprints", first=make_classes([0], [0], fingerprint="a"))
    refuse(make_tags([[0], [1, 2]], [[0], [1, 2]]), "length", first=make_tags([[0, 1], [2]], [[0, 1], [2]]))
    refuse(make_answers(["a"], ["a"]), "questions", first=make_answers(["a"], ["a"], ids=["x"]))
    refuse(make_answers(["a"], ["a"]), "questions", first=make_answers(["b"], ["a"]))


def test_a_gold_label_that_one_model_lacks_is_no_difference() -> None:
    systems = {
        "plain": {("xnli", "de"): [make_classes([0, 1, 2], [0, 1, 2])]},
        "other": {("xnli", "de"): [make_classes([0, 1, -1], [0, 1, 1], labels="ab")]},
    }
    assert pick(compare(systems, "plain", settings=QUICK), "de", "other").mean == pytest.approx(2 / 3)


def test_unknown_systems_raise() -> None:
    systems = {"plain": {("xnli", "de"): class_runs(0.5, seeds=(1,))}}
    with pytest.raises(UserError, match="Did you mean 'plain'"):
        compare(systems, "plan", settings=QUICK)
    with pytest.raises(UserError, match="no system 'second'"):
        compare(systems, "plain", second="second", settings=QUICK)
    with pytest.raises(UserError, match="baseline itself"):
        compare(systems, "plain", second="plain", settings=QUICK)
    with pytest.raises(ArtefactError, match="two runs of one seed"):
        compare({"plain": {("xnli", "de"): class_runs(0.5, seeds=(1, 1))}}, "plain", settings=QUICK)
    with pytest.raises(ArtefactError, match="no predictions"):
        compare({"plain": {("xnli", "de"): []}}, "plain", settings=QUICK)
    with pytest.raises(ArtefactError, match="no rows"):
        compare({"plain": {("xnli", "de"): [make_classes([], [])]}}, "plain", settings=QUICK)


@pytest.mark.parametrize(
    "wrong",
    [{"rounds": 999}, {"draws": 10}, {"level": 0.0}, {"confidence": 1.0}, {"interval": "t"}, {"as_published": True}],
)
def test_invalid_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Settings(**wrong)


def test_means_by_group_with_and_without_the_source() -> None:
    languages = {"en": 60, "de": 60, "fr": 45, "es": 45, "tr": 30}
    systems = {
        "plain": tag_cells(languages, wrong=0.4, seeds=(1, 2)),
        "good": tag_cells(languages, wrong=0.1, seeds=(1, 2), salt=1),
    }
    comparison = compare(systems, "plain", groups=("branch", "script", "enf"), settings=QUICK)
    titles = [r.language for r in comparison.results if r.system == "good" and r.is_average]
    assert titles == [
        "mean of 5",
        "mean of 4 zero-shot",
        "Germanic branch: mean of 2",
        "Romance branch: mean of 2",
        "Latin script: mean of 5",
        "Latin script: mean of 4 zero-shot",
        "avg_enf: mean of 2",
        "avg_noenf: mean of 3",
    ]
    germanic, paper = (
        pick(comparison, "Germanic branch: mean of 2", "good"),
        pick(comparison, "avg_enf: mean of 2", "good"),
    )
    assert (
        germanic.mean
        == paper.mean
        == pytest.approx(np.mean([pick(comparison, language, "good").mean for language in ("en", "de")]))
    )
    assert germanic.mark == "▲"
    assert [r.mean for r in comparison.results][:10] == [
        r.mean for r in compare(systems, "plain", settings=QUICK).results
    ][:10], "groups change no other line"
    with pytest.raises(UserError, match=r"no way 'famly'.*'family'"):
        compare(systems, "plain", groups=("famly",), settings=QUICK)
