"""A comparison in sentences: which system is best, by how much, and whether that is significant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from crossling.data.languages import group_of, name_of
from crossling.report.run_summary import format_percent
from crossling.scores.metrics import title_of
from crossling.scores.significance.results import OVER_EXAMPLES, OVER_SEEDS, Comparison, Difference, Result

LISTED = 6
"""Systems that are listed one by one."""
BY_LANGUAGE = 3
"""Systems that have a sentence on languages."""
TINY_P = 0.001
_ABOUT = {
    OVER_SEEDS: " for new seeds and new examples",
    OVER_EXAMPLES: " for these trained models on new examples, with one seed",
}
"""What an interval and its test are about."""


@dataclass(frozen=True)
class ComparisonSummary:
    """The comparison on one data set in sentences and headlines."""

    sentences: tuple[str, ...]
    headlines: tuple[tuple[str, str, str], ...] = ()
    """Numbers, each with whose it is and what it is."""


def summarise_comparison(comparison: Comparison, data: str, *, task: str = "") -> ComparisonSummary:
    """The systems on one data set, in sentences."""
    results = [result for result in comparison.results if result.data == data]
    where, deciding = _find_deciding(results)
    base = next((result for result in deciding if result.system == comparison.baseline), None)
    others = _drop_twins(sorted((r for r in deciding if r.from_baseline), key=lambda r: -r.mean))
    title = ": ".join(filter(None, (task, data)))
    if base is None or not others:
        alone = base or (deciding[0] if deciding else None)
        score = f" {alone.system} has {format_percent(alone.mean, alone.spread)}." if alone else ""
        return ComparisonSummary((f"{title}: there is nothing to compare {comparison.baseline} with yet.{score}",))
    sentences = [
        f"{title}, {title_of(base.score)}, {where}: {_describe_best(base, others)}",
        *_describe_others(others[1:]),
        *(_describe_languages(results, one.system) for one in others[:BY_LANGUAGE]),
        *_describe_groups(results, others[0].system),
    ]
    named = {one.system for one in others}
    sentences += _describe_uncertainty([result for result in results if result.system in named])
    headlines = _find_headlines(results, base, others[0], f"{title}, {where}")
    return ComparisonSummary(tuple(filter(None, sentences)), tuple(headlines))


def _find_headlines(results: Sequence[Result], base: Result, best: Result, where: str) -> list[tuple[str, str, str]]:
    """The best system's mean, how many languages gain and lose, and the one that changes most."""
    assert best.from_baseline is not None
    found = [(f"{100 * best.from_baseline.delta:+.1f}", best.system, f"points over {base.system} · {where}")]
    own = [r for r in results if r.system == best.system and not r.is_average and r.from_baseline]
    if len(own) > 1:
        up, down = (sum(r.from_baseline.direction == sign for r in own if r.from_baseline) for sign in (1, -1))
        found.append((f"{up} ▲ {down} ▼", f"of {len(own)} languages", f"{best.system} significantly better and worse"))
        most = max(own, key=lambda r: abs(r.from_baseline.delta) if r.from_baseline else 0.0)
        assert most.from_baseline is not None
        delta = f"{100 * most.from_baseline.delta:+.1f}"
        found.append((delta, name_of(most.language), f"where {best.system} differs most"))
    return found


def _drop_twins(results: Sequence[Result]) -> list[Result]:
    """Without systems that are another under a second name, such as a chosen layer beside all layers."""
    found = {
        (r.mean, r.spread, r.from_baseline and (r.from_baseline.low, r.from_baseline.high)): r for r in results[::-1]
    }
    return list(found.values())[::-1]


def _find_deciding(results: Sequence[Result]) -> tuple[str, list[Result]]:
    """What decides: the mean over languages not trained on, else over all, else the only language."""
    overall = [r for r in results if r.is_average and r.language.startswith("mean of ")]
    zero_shot = [r for r in overall if r.language.endswith("zero-shot")]
    chosen = zero_shot or overall or [r for r in results if not r.is_average]
    titles = list(dict.fromkeys(r.language for r in chosen))
    if not titles:
        return "", []
    where = titles[0] if overall else name_of(titles[0])
    return where, [result for result in chosen if result.language == titles[0]]


def _describe_best(base: Result, others: Sequence[Result]) -> str:
    best = others[0]
    one = best.from_baseline
    assert one is not None
    figures = f"{format_percent(best.mean, best.spread)} against {format_percent(base.mean, base.spread)}"
    change = describe_difference(one)
    if one.direction > 0:
        return f"{best.system} is best and beats {base.system}, {figures}: {change}."
    if one.direction < 0:
        return f"{base.system} is best; {best.system} is second, {figures}: {change}."
    return f"no system is significantly better than {base.system}; {best.system} has {figures}: {change}."


def describe_difference(one: Difference) -> str:
    """`+0.4 points [+0.1, +0.7], p < 0.001`, and what that is significant for."""
    interval = f"[{100 * one.low:+.1f}, {100 * one.high:+.1f}]"
    figures = f"{100 * one.delta:+.1f} points {interval}, {_show_p(one.corrected_p)}"
    if one.direction == 0:
        after = f" after correction over {one.tests} tests" if one.tests > 1 and not _includes_zero(one) else ""
        return f"{figures}, not significant{_ABOUT.get(one.test, '')}{after}"
    if one.test in _ABOUT:
        return f"{figures}; significant{_ABOUT[one.test]}"
    if _includes_zero(one):
        return f"{figures}; significant for these models, but the interval, which also resamples seeds, includes 0"
    return f"{figures}; significant for these models, and the interval, which also resamples seeds, excludes 0"


def _includes_zero(one: Difference) -> bool:
    return one.low <= 0 <= one.high


def _show_p(p: float) -> str:
    return f"p < {TINY_P:g}" if p < TINY_P else f"p = {p:.2g}"


def _describe_others(others: Sequence[Result]) -> list[str]:
    if not others:
        return []
    words = {1: "better", -1: "worse", 0: "not significant"}
    listed = [
        f"{r.system} {100 * r.from_baseline.delta:+.1f} ({words[r.from_baseline.direction]})"
        for r in others[:LISTED]
        if r.from_baseline
    ]
    more = f" and {len(others) - LISTED} more" if len(others) > LISTED else ""
    return [f"The others, in points from the baseline: {', '.join(listed)}{more}."]


def _describe_languages(results: Sequence[Result], system: str) -> str:
    """In how many languages a system is better or worse, and where most."""
    own = [r for r in results if r.system == system and not r.is_average and r.from_baseline]
    if len(own) < 2:
        return ""
    parts = []
    for direction, word, pick in ((1, "better", max), (-1, "worse", min)):
        marked = [r for r in own if r.from_baseline and r.from_baseline.direction == direction]
        if not marked:
            continue
        most = pick(marked, key=lambda r: r.from_baseline.delta if r.from_baseline else 0.0)
        assert most.from_baseline is not None
        most_in = "most in " if len(marked) > 1 else ""
        delta = 100 * most.from_baseline.delta
        parts.append(f"{word} in {len(marked)} ({most_in}{name_of(most.language)}, {delta:+.1f})")
    rest = sum(1 for r in own if r.from_baseline and r.from_baseline.direction == 0)
    if rest:
        parts.append(f"not significantly different in {rest}")
    return f"By language {system} is {', '.join(parts)} of {len(own)}."


def _describe_groups(results: Sequence[Result], system: str) -> list[str]:
    """Where a system gains most and least, by family and by script; several languages or it is no group."""
    own = [r for r in results if r.system == system and not r.is_average and not r.is_source and r.from_baseline]
    sentences = []
    for grouping in ("family", "script"):
        groups: dict[str, list[float]] = {}
        for result in own:
            assert result.from_baseline is not None
            groups.setdefault(group_of(result.language, grouping), []).append(result.from_baseline.delta)
        means = {name: (fmean(some), len(some)) for name, some in groups.items() if len(some) > 1}
        if len(means) > 1:
            best, worst = (pick(means, key=lambda name: means[name][0]) for pick in (max, min))
            named = [f"{name} ({100 * means[name][0]:+.1f}, mean of {means[name][1]})" for name in (best, worst)]
            sentences.append(f"By {grouping}, {system} gains most in the {named[0]} and least in the {named[1]}.")
    return sentences


def _describe_uncertainty(results: Sequence[Result]) -> list[str]:
    """How much seeds may change."""
    seeds = min(result.runs for result in results)
    marked = [r.from_baseline for r in results if not r.is_average and r.from_baseline and r.from_baseline.direction]
    doubtful = sum(_includes_zero(one) for one in marked)
    sentences = []
    if seeds == 1:
        sentences.append(
            "There is only one seed: no interval for the next seed, since the variation between training runs is not "
            "measured."
        )
    elif doubtful:
        sentences.append(
            f"Of {len(marked)} differences marked in single languages, {doubtful} have an interval over {seeds} seeds "
            "that includes 0."
        )
    return sentences
