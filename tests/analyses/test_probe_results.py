"""Probing results, and the auxiliary tasks that they suggest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from crossling.analyses._probes.results import (
    ProbingResult,
    choose_from_results,
    choose_tasks,
    estimate_results,
    list_results,
    read_csv,
    results_to_csv,
    subtract_bases,
)
from crossling.analyses.probe import draw_results, tabulate_languages, tabulate_results
from crossling.errors import ArtefactError, DataError
from crossling.scores.significance.counts import find_errors

PUBLISHED = {
    "pos": ({"ner": 3.61, "paraphrase": 3.39, "sentiment": 4.80}, {"ner": 0.05, "paraphrase": 2.79, "sentiment": 1.96}),
    "ner": (
        {"pos": -1.14, "paraphrase": 1.00, "sentiment": 0.76},
        {"pos": -0.14, "paraphrase": 2.22, "sentiment": -2.36},
    ),
    "paraphrase": ({"pos": 0.81, "ner": 3.09, "sentiment": 2.97}, {"pos": 1.61, "ner": 3.69, "sentiment": -4.37}),
    "sentiment": ({"pos": -0.40, "ner": 1.83, "paraphrase": 0.73}, {"pos": -0.29, "ner": 5.02, "paraphrase": 4.96}),
}
"""Table 3 of the multilingual-knowledge paper: cross-lingual and multi-lingual results by main task."""
SETS = {
    "pos": (),
    "ner": ("pos", "paraphrase"),
    "paraphrase": ("pos", "ner"),
    "sentiment": ("ner", "paraphrase"),
}
"""The auxiliary tasks that its section 4.1 takes."""


@pytest.mark.parametrize("task", PUBLISHED)
def test_the_papers_table_gives_the_papers_sets(task: str) -> None:
    cross, multi = PUBLISHED[task]
    assert tuple(gain.probe for gain in choose_tasks(cross, multi) if gain.chosen) == SETS[task]


def test_smaller_min_gain_chooses_more_tasks() -> None:
    cross, multi = PUBLISHED["sentiment"]
    chosen = [gain.probe for gain in choose_tasks(cross, multi, min_gain=0.1) if gain.chosen]
    assert chosen == ["pos", "ner", "paraphrase"]
    assert not any(gain.chosen for gain in choose_tasks(cross, multi, min_gain=5))


def test_gain_equal_to_min_gain_is_enough() -> None:
    (gain,) = choose_tasks({"pos": -1.14}, {"pos": -0.64})
    assert gain.gain < 0.5 and gain.chosen
    assert not choose_tasks({"pos": -1.14}, {"pos": -0.65})[0].chosen


def make_results(task: str = "ner") -> list[ProbingResult]:
    """The paper's figures of one task as results of two models, with the task itself among the probes."""
    found = []
    for model, values in zip(("cross", "multi"), PUBLISHED[task], strict=True):
        for probe, value in {task: 50.0, **values}.items():
            own = probe == task
            for language in ("all", "en", "de"):
                found.append(
                    ProbingResult(model, "1", probe, own, language, "macro_f1", 0, 60 + value, "mbert", 60.0, 10)
                )
    return found


def test_own_task_of_a_model_is_not_auxiliary() -> None:
    choice = choose_from_results(make_results(), cross="cross", multi="multi", score="macro_f1")
    assert choice.chosen == ("pos", "paraphrase")
    assert "ner" not in [gain.probe for gain in choice.gains]


def test_a_choice_says_whose_labels_it_used() -> None:
    said = choose_from_results(make_results(), cross="cross", multi="multi", score="macro_f1").describe()
    assert "The choice used labels of the target languages: the probes' tests in en, de." in said
    assert "pos +1.00" in said and "sentiment -3.12" in said and "at least 0.5" in said
    none = choose_from_results(make_results("pos"), cross="cross", multi="multi", score="macro_f1").describe()
    assert "learnt: none." in none


@pytest.mark.parametrize(
    ("changed", "message"), [({"cross": "crosss"}, "Did you mean 'cross'"), ({"score": "f1"}, "f1")]
)
def test_unknown_model_or_score_is_reported(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose_from_results(make_results(), **{"cross": "cross", "multi": "multi", "score": "macro_f1", **changed})


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = make_results()
    (tmp_path / "probe.csv").write_text(results_to_csv(results), encoding="utf-8")
    again = read_csv(tmp_path / "probe.csv")
    assert [(one.model, one.probe, one.own, one.language, one.sample) for one in again] == [
        (one.model, one.probe, one.own, one.language, one.sample) for one in results
    ]
    assert [one.result for one in again] == pytest.approx([one.result for one in results], abs=1e-3)
    assert results_to_csv(results).startswith("model,seed,probe,own,")


def test_another_file_is_no_table_of_results(tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="not a table of probing results"):
        read_csv(tmp_path / "other.csv")
    with pytest.raises(DataError, match="no such file"):
        read_csv(tmp_path / "none.csv")


def make_rows(model: str, value: float, *, seed: int | None = 1, task: str = "", sample: int = 0) -> dict[str, Any]:
    facts = {"probe": "pos", "own": False, "data": "ud:de", "language": "de", "score": "accuracy", "examples": 7}
    return {"task": task, "model": model, "seed": seed, "value": value, "sample": sample, **facts}


def test_each_seed_is_compared_with_the_base() -> None:
    rows = [make_rows("tuned", 0.75), make_rows("tuned", 0.65, seed=2), make_rows("base", 0.5, seed=None)]
    results = subtract_bases(rows, {"tuned": "base"})
    assert [(one.model, one.seed, round(one.result, 6)) for one in results] == [
        ("tuned", "1", 25.0),
        ("tuned", "2", 15.0),
    ]
    assert list_results(results, score="accuracy") == {("tuned", "pos"): pytest.approx([25.0, 15.0])}
    assert "20.00 ± 7.07" in tabulate_results(results, score="accuracy").to_markdown()


def test_a_sample_is_compared_with_the_same_sample() -> None:
    rows = [make_rows("tuned", 0.7), make_rows("base", 0.5)]
    rows += [make_rows("tuned", 0.6 + n / 10, sample=n) for n in (1, 2)] + [
        make_rows("base", 0.5, sample=n) for n in (1, 2)
    ]
    results = subtract_bases(rows, {"tuned": "base"})
    assert [round(one.result) for one in results if one.sample] == [20, 30]
    sheet = tabulate_results(results, score="accuracy")
    assert sheet.rows == (("tuned", "+20.00 ± 7.07"),)
    assert any("bootstrap" in note for note in sheet.notes)


def test_a_study_has_models_of_several_tasks() -> None:
    rows = [make_rows("plain", 0.7, task="ner"), make_rows("plain", 0.8, task="nli"), make_rows("base", 0.5)]
    results = subtract_bases(rows, {"ner: plain": "base", "nli: plain": "base"})
    assert [one.model for one in results] == ["ner: plain", "nli: plain"]


def test_a_base_that_was_not_probed_alike_is_an_error() -> None:
    with pytest.raises(ArtefactError, match="was not probed for pos in de"):
        subtract_bases([make_rows("tuned", 0.7), {**make_rows("base", 0.5), "language": "fr"}], {"tuned": "base"})


def test_the_table_is_the_papers() -> None:
    sheet = tabulate_results(make_results(), score="macro_f1")
    assert sheet.head == ("model", "ner", "pos", "paraphrase", "sentiment")
    assert sheet.rows[0] == ("cross", "(+50.00)", "-1.14", "+1.00", "+0.76")
    assert any("brackets" in note for note in sheet.notes)
    languages = tabulate_languages(make_results(), score="macro_f1")
    assert ("pos", "de", "cross", "58.86", "60.00", "-1.14", "10") in languages.rows


def test_the_figure_has_a_map_for_each_language() -> None:
    picture = draw_results(make_results(), score="macro_f1")
    assert picture.startswith("<?xml") and picture == draw_results(make_results(), score="macro_f1")
    for text in ("all", "en", "de", "cross", "multi", "paraphrase", "-1.1"):
        assert f">{text}<" in picture.replace("−", "-"), text


def make_table(runs: dict[str, list[list[float]]]) -> pa.Table:
    """A table with each model's share of right answers: for each seed whether it was right on each row."""
    rows = []
    for model, seeds in runs.items():
        for seed, right in enumerate(seeds, 1):
            counts = np.stack([np.asarray(right, float), np.ones(len(right))], axis=-1)[:, None]
            errors = find_errors(counts).tolist()
            rows.append({**make_rows(model, float(np.mean(right)), seed=seed), "errors": errors})
    return pa.Table.from_pylist(rows)


def test_the_interval_of_one_seed_is_that_of_the_paired_differences() -> None:
    """Against the paired t-test of scipy."""
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    base = (rng.random(80) < 0.5).astype(float)
    tuned = np.where(rng.random(80) < 0.7, base, 1.0)
    table = make_table({"tuned": [tuned.tolist()], "base": [base.tolist()]})
    found = estimate_results(table, {"tuned": "base"}, ["base"], score="accuracy")
    wanted = ttest_rel(tuned, base).confidence_interval(0.95)
    one = found["tuned", "pos", "de"]
    assert (one.low, one.high) == pytest.approx((100 * wanted.low, 100 * wanted.high), abs=1e-3)
    results = subtract_bases(table.drop_columns(["errors"]).to_pylist(), {"tuned": "base"})
    sheet = tabulate_results(results, score="accuracy", estimates=found)
    assert sheet.rows[0][1] == f"{one.value:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"
    assert any("nothing about the next one" in note for note in sheet.notes)
    assert tabulate_languages(results, score="accuracy", estimates=found).rows[0][5] == sheet.rows[0][1]


def test_an_interval_over_seeds_is_wider_than_one_over_examples() -> None:
    rng = np.random.default_rng(1)
    base = (rng.random(400) < 0.5).astype(float)
    seeds = [np.where(rng.random(400) < 1 - share, base, 1.0).tolist() for share in (0.1, 0.4, 0.7)]
    alone = estimate_results(
        make_table({"tuned": seeds[1:2], "base": [base.tolist()]}), {"tuned": "base"}, ["base"], score="accuracy"
    )["tuned", "pos", "de"]
    found = estimate_results(
        make_table({"tuned": seeds, "base": [base.tolist()]}), {"tuned": "base"}, ["base"], score="accuracy"
    )["tuned", "pos", "de"]
    spread = np.std([100 * (np.mean(one) - np.mean(base)) for one in seeds], ddof=1)
    assert found.seeds == 3 and found.high - found.low > 2 * 2.9 * spread / np.sqrt(3)
    assert found.high - found.low > 3 * (alone.high - alone.low)


def test_results_without_errors_of_examples_have_no_interval() -> None:
    table = pa.Table.from_pylist([make_rows("tuned", 0.7), make_rows("base", 0.5)])
    assert estimate_results(table, {"tuned": "base"}, ["base"], score="accuracy") == {}
