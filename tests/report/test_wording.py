"""A comparison in words: what the sentences claim is what the figures say."""

from __future__ import annotations

from typing import Any

from crossling.report.wording import summarise_comparison
from crossling.scores.significance import Comparison, Difference, Result, Settings


def make_comparison(
    deltas: dict[str, dict[str, tuple[float, int, float]]], *, runs: int = 3, test: str = "permutation test"
) -> Comparison:
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
            one = Difference("plain", delta, delta - half, delta + half, p, p, test, direction, runs, 4)
            results.append(Result(system=system, mean=0.5 + delta, spread=0.01, from_baseline=one, **common))
    return Comparison("plain", None, ("plain", *deltas), tuple(results), Settings())


def describe(comparison: Comparison) -> str:
    return "\n".join(summarise_comparison(comparison, "ud", task="pos").sentences)


def test_best_system_is_named_with_its_gain() -> None:
    comparison = make_comparison(
        {
            "new": {"de": (0.02, 1, 0.01), "hi": (-0.03, -1, 0.01)},
            "old": {"de": (-0.01, -1, 0.005), "hi": (0.0, 0, 0.01)},
        }
    )
    text = describe(comparison)
    assert "pos: ud, accuracy, mean of 2 zero-shot: new is best and beats plain, 52.0 ± 1.0 against 50.0 ± 1.0" in text
    assert "+2.0 points [+1.0, +3.0], p < 0.001" in text and "excludes 0" in text
    assert "The others, in points from the baseline: old -1.0 (worse)." in text
    assert "By language new is better in 1 (German, +2.0), worse in 1 (Hindi, -3.0) of 2." in text
    assert "By language old is worse in 1 (German, -1.0), not significantly different in 1 of 2." in text
    headlines = summarise_comparison(comparison, "ud", task="pos").headlines
    assert [number for number, _, _ in headlines] == ["+2.0", "1 ▲ 1 ▼", "-3.0"]


def test_insignificant_differences_and_seeds_are_named() -> None:
    assert "not significant" in describe(make_comparison({"new": {"de": (0.01, 0, 0.05), "hi": (0.01, 0, 0.05)}}))
    assert "no system is significantly better than plain" in describe(make_comparison({"new": {"de": (0.01, 0, 0.05)}}))
    seeds = describe(make_comparison({"new": {"de": (0.01, 1, 0.05), "hi": (0.01, 1, 0.005)}}))
    assert "beats plain" in seeds and "but the interval, which also resamples seeds, includes 0" in seeds
    assert "Of 2 differences marked in single languages, 1 have an interval over 3 seeds that includes 0." in seeds
    assert "only one seed" in describe(make_comparison({"new": {"de": (0.01, 1, 0.005)}}, runs=1))


def test_what_a_difference_is_significant_for() -> None:
    seeds, one = "t-test over seeds and examples", "t-test over examples"
    gain, near = {"de": (0.02, 1, 0.01)}, {"de": (0.02, 0, 0.01)}
    assert "p < 0.001; significant for new seeds and new examples." in describe(
        make_comparison({"new": gain}, test=seeds)
    )
    text = describe(make_comparison({"new": gain}, runs=1, test=one))
    assert "significant for these trained models on new examples, with one seed" in text
    assert "no interval for the next seed" in text
    text = describe(make_comparison({"new": near}, test=seeds))
    assert "[+1.0, +3.0], p = 0.4, not significant for new seeds and new examples after correction over 4 tests" in text


def test_baseline_can_be_best() -> None:
    text = describe(make_comparison({"new": {"de": (-0.02, -1, 0.01)}, "near": {"de": (-0.01, -1, 0.005)}}))
    assert "German: plain is best; near is second, 49.0 ± 1.0 against 50.0 ± 1.0" in text


def test_groups_of_several_languages_have_a_sentence() -> None:
    text = describe(
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
        "By family, new gains most in the Indo-European family (+2.0, mean of 2) and least in the Uralic family (-3.0"
        in text
    )
    assert "By script" not in text, "all are Latin"


def test_system_under_two_names_is_listed_once() -> None:
    gains = {"de": (0.02, 1, 0.01), "hi": (0.01, 1, 0.01)}
    text = describe(
        make_comparison({"chosen": gains, "layer=3": gains, "layer=2": {"de": (0.0, 0, 0.01), "hi": (0.0, 0, 0.01)}})
    )
    assert "chosen is best" in text and "layer=3" not in text and "layer=2 +0.0 (not significant)" in text


def test_baseline_alone_has_its_score() -> None:
    comparison = make_comparison({"new": {"de": (0.02, 1, 0.01)}})
    alone = Comparison(
        "plain", None, ("plain",), tuple(r for r in comparison.results if r.system == "plain"), Settings()
    )
    assert "nothing to compare plain with yet. plain has 50.0 ± 1.0." in describe(alone)
