"""Comparisons with the default interval: against plain loops, and what is corrected, paired and said of one seed."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from made import THREE, Cells, class_runs, copied_answers, make_classes, make_systems, pick, tag_cells
from scipy.stats import t, ttest_rel

from crossling.scores.metrics import score
from crossling.scores.predictions import Predictions
from crossling.scores.significance import Comparison, Difference, compare
from crossling.scores.significance.holm import correct_holm
from crossling.scores.significance.results import OVER_EXAMPLES, OVER_SEEDS


def find(comparison: Comparison, language: str, system: str) -> Difference:
    difference = pick(comparison, language, system).from_baseline
    assert difference is not None
    return difference


def count_words(run: Predictions) -> tuple[np.ndarray, np.ndarray]:
    """Words labelled rightly and words, by sentence."""
    right, row = run.column("gold") == run.column("predicted"), run.column("row")
    return np.bincount(row, weights=right, minlength=run.n_rows), np.bincount(row, minlength=run.n_rows)


def test_interval_and_p_are_those_of_plain_loops() -> None:
    systems = {
        name: tag_cells({"de": 60, "en": 60, "hi": 45}, wrong=wrong, seeds=(1, 2, 3), salt=salt)
        for salt, (name, wrong) in enumerate((("plain", 0.4), ("other", 0.35)))
    }
    result = find(compare(systems, "plain", score="accuracy"), "mean of 3", "other")
    differences = np.zeros(3)
    shared, apart = np.zeros((3, 60)), np.zeros((3, 45))  # de and en have equally many rows, which are matched
    for language, errors in (("de", shared), ("en", shared), ("hi", apart)):
        for name, sign in (("other", 1), ("plain", -1)):
            for seed, run in enumerate(systems[name]["panx", language]):
                right, words = count_words(run)
                differences[seed] += sign * score(run)["accuracy"] / 3
                errors[seed] += sign * (right - score(run)["accuracy"] * words) / words.sum() / 3
    between = differences.var(ddof=1) / 3
    common = sum(
        np.mean([(some[i] * some[j]).sum() for i, j in combinations(range(3), 2)]) * rows / (rows - 1)
        for some, rows in ((shared, 60), (apart, 45))
    )
    variance = between + max(common, 0)
    freedom = variance / (between / 2 + max(common, 0) / (59 + 44))
    half = t.ppf(0.975, freedom) * np.sqrt(variance)
    mean = differences.mean()
    assert (result.delta, result.low, result.high) == pytest.approx((mean, mean - half, mean + half))
    assert result.p == pytest.approx(2 * t.sf(abs(mean) / np.sqrt(variance), freedom))
    assert (result.test, result.seeds) == (OVER_SEEDS, 3)


def test_one_seed_is_tested_over_examples_alone_and_says_so() -> None:
    systems = {
        name: {("xnli", "de"): class_runs(right, seeds=(1,), salt=salt)}
        for salt, (name, right) in enumerate((("plain", 0.5), ("other", 0.7)))
    }
    one = find(compare(systems, "plain"), "de", "other")
    right = [run.column("gold") == run.column("predicted") for name in systems for run in systems[name]["xnli", "de"]]
    assert (one.test, one.seeds, one.direction) == (OVER_EXAMPLES, 1, 1)
    assert one.p == pytest.approx(ttest_rel(right[1].astype(float), right[0].astype(float)).pvalue)
    interval = ttest_rel(right[1].astype(float), right[0].astype(float)).confidence_interval()
    assert (one.low, one.high) == pytest.approx((interval.low, interval.high))


def test_seeds_on_the_same_predictions_do_not_narrow_the_interval_of_examples() -> None:
    """Three equal runs say nothing new of other examples."""
    runs = {
        name: class_runs(right, seeds=(1,), salt=salt)
        for salt, (name, right) in enumerate((("plain", 0.5), ("other", 0.6)))
    }
    thrice = {
        name: [make_classes(r.column("gold"), r.column("predicted"), seed=seed) for r in some for seed in (1, 2, 3)]
        for name, some in runs.items()
    }
    single, three = (
        find(compare({name: {("xnli", "de"): some} for name, some in each.items()}, "plain"), "de", "other")
        for each in (runs, thrice)
    )
    assert (three.low, three.high, three.p) == pytest.approx((single.low, single.high, single.p))
    assert (three.test, three.seeds) == (OVER_SEEDS, 3)


def test_marks_follow_the_corrected_test() -> None:
    systems = make_systems()
    comparison = compare(systems, "plain", second="good")
    for result in comparison.results:
        for one in filter(None, (result.from_baseline, result.from_second)):
            assert one.direction == (np.sign(one.delta) if one.corrected_p < 0.05 else 0)
            assert one.p <= one.corrected_p
    marks = {system: {r.mark for r in comparison.results if r.system == system} for system in systems}
    assert marks["plain"] == {""} and any("▼" in mark for mark in marks["bad"])


def test_holm_runs_over_systems_and_languages_and_for_averages_over_systems() -> None:
    comparison = compare(make_systems(), "plain", second="good")
    names = ("good", "bad", "alike")
    single = [find(comparison, language, name) for language in THREE for name in names]
    assert [one.corrected_p for one in single] == pytest.approx(correct_holm([one.p for one in single]))
    assert {one.tests for one in single} == {9}
    for title in ("mean of 3", "mean of 2 zero-shot"):
        averages = [find(comparison, title, name) for name in names]
        assert [one.corrected_p for one in averages] == pytest.approx(correct_holm([one.p for one in averages]))
        assert {one.tests for one in averages} == {3}
    second = [pick(comparison, "de", name).from_second for name in ("bad", "alike")]
    assert [one.tests for one in second if one] == [6, 6]


def test_a_system_under_two_names_is_one_test() -> None:
    systems = make_systems()
    once = compare(systems, "plain")
    twice = compare({**systems, "chosen": systems["alike"]}, "plain")
    for language in (*THREE, "mean of 3"):
        for name in ("good", "alike"):
            assert find(twice, language, name) == find(once, language, name)
        assert find(twice, language, "chosen") == find(once, language, "alike")


def test_translations_are_not_independent_examples() -> None:
    """Copies of a question in three languages say what one of them says; three questions say more."""

    def run(is_shared: bool) -> Comparison:
        def name_id(language: str, row: int) -> str:
            return str(row) if is_shared else f"{language}-{row}"

        systems = {
            name: copied_answers(right, salt=salt, name_id=name_id)
            for salt, (name, right) in enumerate((("plain", 0.5), ("other", 0.6)))
        }
        return compare(systems, "plain")

    single, joint = find(run(True), "de", "other"), find(run(True), "mean of 3", "other")
    separate = find(run(False), "mean of 3", "other")
    assert (joint.low, joint.high, joint.p) == pytest.approx((single.low, single.high, single.p))
    assert separate.high - separate.low == pytest.approx((joint.high - joint.low) / np.sqrt(3), rel=0.02)


def test_equal_systems_do_not_differ() -> None:
    runs = class_runs(0.6, seeds=(1, 2, 3))
    one = find(compare({"plain": {("xnli", "de"): runs}, "same": {("xnli", "de"): runs[::-1]}}, "plain"), "de", "same")
    assert (one.delta, one.low, one.high, one.p, one.direction) == (0.0, 0.0, 0.0, 1.0, 0)


def test_differences_are_over_seeds_that_both_have_or_else_in_order() -> None:
    runs, more = class_runs(0.6, seeds=(1, 2, 3)), class_runs(0.7, seeds=(2, 3, 4), salt=1)
    other = class_runs(0.7, seeds=(5, 6), salt=1)
    for some, seeds, place in ((more, 2, slice(1, 3)), (other, 2, slice(0, 2))):
        one = find(compare({"plain": {("xnli", "de"): runs}, "new": {("xnli", "de"): some}}, "plain"), "de", "new")
        values = [score(new)["accuracy"] - score(old)["accuracy"] for new, old in zip(some, runs[place], strict=False)]
        assert (one.seeds, one.delta) == (seeds, pytest.approx(np.mean(values)))


def test_averages_are_over_seeds_that_all_languages_have() -> None:
    systems: dict[str, Cells] = {}
    for salt, name in enumerate(("plain", "new")):
        languages = {"de": (1, 2, 3), "hi": (2, 3, 4)}
        systems[name] = {
            ("xnli", language): class_runs(0.5 + 0.1 * salt, seeds=seeds, language=language, salt=salt)
            for language, seeds in languages.items()
        }
    one = find(compare(systems, "plain"), "mean of 2", "new")
    assert one.seeds == 2
    systems["new"]["xnli", "hi"] = class_runs(0.6, seeds=(7, 8, 9), language="hi", salt=1)
    assert find(compare(systems, "plain"), "mean of 2", "new").seeds == 3, "independent runs, in any order"


def test_means_have_intervals() -> None:
    german = pick(compare(make_systems(), "plain"), "de", "good")
    assert german.low is not None and german.high is not None
    assert german.low < german.mean < german.high
    perfect = pick(compare({"plain": {("xnli", "de"): class_runs(0.99, seeds=(1, 2))}}, "plain"), "de", "plain")
    assert perfect.high == 1.0, "no score lies above"


def test_labels_with_few_gold_items_are_named_below_macro_f1() -> None:
    gold = np.array([0] * 30 + [1] * 25 + [2] * 3)
    systems: dict[str, Cells] = {}
    for salt, name in enumerate(("plain", "new")):
        runs = [np.where(np.random.default_rng([salt, s]).random(58) < 0.3, (gold + 1) % 2, gold) for s in (1, 2)]
        systems[name] = {
            ("umsab", language): [make_classes(gold, run, language=language, seed=s) for s, run in enumerate(runs)]
            for language in ("de", "hi")
        }
    (note,) = compare(systems, "plain", score="macro_f1").notes
    assert note == (
        "umsab: macro_f1 gives labels with fewer than 10 gold items the weight of the others, so that single items "
        "move it: de c (3); hi c (3); in a study, crossling study compare --score macro_f1_supported leaves them out"
    )
    supported = compare(systems, "plain", score="macro_f1_supported")
    assert supported.notes == (
        "umsab: macro_f1_supported leaves out labels with fewer than 10 gold items: de c (3); hi c (3)",
    )
    assert pick(supported, "de", "new").mean != pick(compare(systems, "plain", score="macro_f1"), "de", "new").mean
    assert compare(systems, "plain", score="accuracy").notes == ()
