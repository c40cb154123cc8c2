"""A comparison in words: what the sentences claim is what the figures say."""

from __future__ import annotations

from typing import Any

from crossling.report.wording import judge
from crossling.scores.significance import Comparison, Difference, Result, Settings


def make_comparison(deltas: dict[str, dict[str, tuple[float, int, float]]], *, runs: int = 3) -> Comparison:
    """System -> language -> difference, direction and half the interval's width; the baseline has 50 everywhere."""
    languages = list(next(iter(deltas.values())))
    results = []
    for language in [*languages, "mean of 2 zero-shot"] if len(languages) > 1 else languages:
        common: dict[str, Any] = {"data": "ud", "language": language, "score": "accuracy", "runs": runs, "examples": 9}
        common["is_average"] = language.startswith("mean")
        results.append(Result(system="plain", mean=0.5, spread=0.01, **common))
        for system, by_language in deltas.items():
            delta, direction, half = by_language.get(language) or next(iter(by_language.values()))
            p = 0.0002 if direction else 0.4
            one = Difference("plain", delta, delta - half, delta + half, p, p, "permutation test", direction)
            results.append(Result(system=system, mean=0.5 + delta, spread=0.01, from_baseline=one, **common))
    return Comparison("plain", None, ("plain", *deltas), tuple(results), Settings())


def tell(comparison: Comparison) -> str:
    return "\n".join(judge(comparison, "ud", task="pos").sentences)


def test_a_sure_winner_is_named_with_its_gain() -> None:
    comparison = make_comparison(
        {
            "new": {"de": (0.02, 1, 0.01), "hi": (-0.03, -1, 0.01)},
            "old": {"de": (-0.01, -1, 0.005), "hi": (0.0, 0, 0.01)},
        }
    )
    told = tell(comparison)
    assert "pos: ud, accuracy, mean of 2 zero-shot: new is best and beats plain, 52.0 ± 1.0 against 50.0 ± 1.0" in told
    assert "+2.0 points [+1.0, +3.0], p < 0.001" in told and "leaves out 0" in told
    assert "The others, in points from the baseline: old -1.0 (worse)." in told
    assert "By language new is better in 1 (German, +2.0), worse in 1 (Hindi, -3.0) of 2." in told
    assert "By language old is worse in 1 (German, -1.0), not told apart in 1 of 2." in told
    headlines = judge(comparison, "ud", task="pos").headlines
    assert [number for number, _, _ in headlines] == ["+2.0", "1 ▲ 1 ▼", "-3.0"]


def test_doubt_is_told() -> None:
    assert "could be chance" in tell(make_comparison({"new": {"de": (0.01, 0, 0.05), "hi": (0.01, 0, 0.05)}}))
    assert "nothing is better than plain beyond doubt" in tell(make_comparison({"new": {"de": (0.01, 0, 0.05)}}))
    seeds = tell(make_comparison({"new": {"de": (0.01, 1, 0.05), "hi": (0.01, 1, 0.005)}}))
    assert "beats plain" in seeds and "yet the interval, which draws seeds too, holds 0" in seeds
    assert "Of 2 differences marked in single languages, 1 have an interval over 3 seeds that holds 0." in seeds
    assert "one seed only" in tell(make_comparison({"new": {"de": (0.01, 1, 0.005)}}, runs=1))


def test_a_baseline_that_nothing_beats_is_best() -> None:
    told = tell(make_comparison({"new": {"de": (-0.02, -1, 0.01)}, "near": {"de": (-0.01, -1, 0.005)}}))
    assert "German: plain is best; of the others near comes nearest, 49.0 ± 1.0 against 50.0 ± 1.0" in told


def test_groups_of_several_languages_are_told() -> None:
    told = tell(
        make_comparison(
            {
                "new": {
                    "de": (0.01, 1, 0.005),
                    "fr": (0.03, 1, 0.005),
                    "fi": (-0.02, -1, 0.005),
                    "hu": (-0.04, -1, 0.005),
                }
            }
        )
    )
    assert (
        "By family, new does best in the Indo-European family (+2.0, mean of 2) and worst in the Uralic family (-3.0"
        in told
    )
    assert "By script" not in told, "all are Latin"


def test_one_system_under_two_names_is_told_once() -> None:
    gains = {"de": (0.02, 1, 0.01), "hi": (0.01, 1, 0.01)}
    told = tell(
        make_comparison({"chosen": gains, "layer=3": gains, "layer=2": {"de": (0.0, 0, 0.01), "hi": (0.0, 0, 0.01)}})
    )
    assert "chosen is best" in told and "layer=3" not in told and "layer=2 +0.0 (not told apart)" in told


def test_a_baseline_alone_is_told_too() -> None:
    comparison = make_comparison({"new": {"de": (0.02, 1, 0.01)}})
    alone = Comparison(
        "plain", None, ("plain",), tuple(r for r in comparison.results if r.system == "plain"), Settings()
    )
    assert "nothing yet to compare plain with. plain has 50.0 ± 1.0." in tell(alone)
