"""Tables of systems: marks, differences, legends, in four forms."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from crossling.errors import ArtefactError
from crossling.report.system_tables import comparison_table, comparison_tables
from crossling.scores.significance import Comparison, Difference, Result, Settings


def differ(against: str, delta: float, direction: int, test: str = "permutation test") -> Difference:
    p = 0.01 if direction else 0.5
    return Difference(against, delta, delta - 0.01, delta + 0.02, p, 2 * p, test, direction)


def make_result(language: str, system: str, mean: float, **more: Any) -> Result:
    values: dict[str, Any] = {"data": "panx", "score": "span_f1", "spread": 0.004, "runs": 3, "examples": 1000}
    return Result(language=language, system=system, mean=mean, **{**values, **more})


def make_comparison(**changes: Any) -> Comparison:
    results = (
        make_result("en", "plain", 0.8, is_source=True),
        make_result("en", "fu_sed", 0.81, from_baseline=differ("plain", 0.01, 0), is_source=True),
        make_result("de", "plain", 0.7),
        make_result(
            "de", "fu_sed", 0.75, from_baseline=differ("plain", 0.05, 1), from_second=differ("extra", -0.02, -1)
        ),
        make_result("de", "extra", 0.65, from_baseline=differ("plain", -0.05, -1)),
        make_result("mean of 2", "plain", 0.75, is_average=True, examples=2000),
        make_result(
            "mean of 2", "fu_sed", 0.78, is_average=True, examples=2000, from_baseline=differ("plain", 0.03, 1)
        ),
    )
    settings = Settings(interval="bootstrap")
    whole = Comparison("plain", "extra", ("plain", "fu_sed", "extra"), results, settings, ("panx: mind this",))
    return replace(whole, **changes)


def test_markdown_shows_scores_with_marks() -> None:
    lines = comparison_table(make_comparison()).to_markdown().splitlines()
    assert lines[0] == "## panx: span_f1"
    assert lines[2:7] == [
        "| language | plain | fu_sed | extra |",
        "| --- | --: | --: | --: |",
        "| en English | 80.0 ± 0.4 | 81.0 ± 0.4 | – |",
        "| de German | 70.0 ± 0.4 | 75.0 ± 0.4 ▲▽ | 65.0 ± 0.4 ▼ |",
        "| *mean of 2* | *75.0 ± 0.4* | *78.0 ± 0.4 ▲* | *–* |",
    ]
    assert lines[7] == ""


def test_differences_leave_the_baseline_out() -> None:
    lines = comparison_table(make_comparison()).to_table("differences").to_markdown().splitlines()[2:]
    assert lines[0] == "| language | fu_sed | extra |"
    assert lines[3] == "| de German | +5.0 [+4.0, +7.0] ▲▽ | -5.0 [-6.0, -3.0] ▼ |"


def test_wide_tables_have_systems_in_rows() -> None:
    lines = comparison_table(make_comparison()).to_table(wide=True).to_markdown().splitlines()[2:]
    assert lines[0] == "| system | en | de | mean of 2 |"
    assert lines[3] == "| fu_sed | 81.0 ± 0.4 | 75.0 ± 0.4 ▲▽ | 78.0 ± 0.4 ▲ |"


def test_legend_says_what_marks_mean_and_how_it_was_tested() -> None:
    legend = "\n".join(comparison_table(make_comparison()).legend)
    for wanted in (
        "over 3 seeds",
        "▲ better or ▼ worse than plain, △ better or ▽ worse than extra",
        "p < 0.05 after Holm's correction over 2 languages",
        "permutation test: 10,000 rounds",
        "swapped in all seeds at once",
        "95% interval: paired bootstrap over seeds and examples, 2,000 draws",
        "Note: panx: mind this.",
    ):
        assert wanted in legend
    assert "t-test" not in legend


def test_legend_follows_settings_and_tests() -> None:
    settings = Settings(interval="bootstrap", rounds=1000, level=0.01, as_published=True)
    results = (
        make_result("de", "plain", 0.5, runs=1, spread=None),
        make_result("de", "other", 0.6, runs=1, spread=None, from_baseline=differ("plain", 0.1, 1, "paired t-test")),
    )
    made = make_comparison(results=results, settings=settings, second=None, systems=("plain", "other"))
    legend = "\n".join(comparison_table(made).legend)
    assert "over 1 seed." in legend
    assert "paired t-test: scores of single examples" in legend
    assert "p < 0.01, two-sided, not corrected for the number of tests, as published" in legend
    assert "△" not in legend
    assert "permutation" not in legend
    published = "\n".join(comparison_table(make_comparison(settings=settings)).legend)
    assert "1,000 rounds; seeds concatenated" in published


def make_hierarchical(runs: int = 3, **more: Any) -> Comparison:
    """The same with intervals for new seeds and examples, corrected over systems and languages."""
    results = []
    for result in make_comparison().results:
        test = "t-test over seeds and examples" if runs > 1 else "t-test over examples"
        tests = 2 if result.is_average else 4
        found = {
            role: one and replace(one, test=test, seeds=runs, tests=tests)
            for role, one in (("from_baseline", result.from_baseline), ("from_second", result.from_second))
        }
        results.append(replace(result, runs=runs, low=result.mean - 0.02, high=result.mean + 0.01, **found))
    return make_comparison(results=tuple(results), settings=Settings(), **more)


def test_legend_says_what_an_interval_for_new_seeds_is_about() -> None:
    table = comparison_table(make_hierarchical())
    legend = "\n".join(table.legend)
    assert "p < 0.05, two-sided, after Holm's correction over 4 tests (systems × languages), for each average" in legend
    assert "over 2 tests (systems)." in legend
    about = "[95% interval]: the mean to expect of new seeds, on new examples of the same kind in these languages"
    assert about in legend
    assert "bootstrap" not in legend and "One seed" not in legend and "Two seeds" not in legend
    scores, differences = table.to_markdown().split("### Differences")
    assert about in scores and about in differences, "below every table"
    assert "Two seeds: a 95% interval may cover 91%" in "\n".join(comparison_table(make_hierarchical(2)).legend)


def test_legend_counts_tests_against_either_system() -> None:
    made = make_hierarchical()
    results = [
        replace(result, from_second=result.from_second and replace(result.from_second, tests=1))
        for result in made.results
    ]
    legend = "\n".join(comparison_table(replace(made, results=tuple(results))).legend)
    assert "over 4 tests against plain and 1 test against extra (systems × languages)" in legend


def test_one_seed_has_no_interval_for_the_next() -> None:
    legend = "\n".join(comparison_table(make_hierarchical(1)).legend)
    assert "One seed: no interval for the next seed." in legend
    assert "[95% interval over examples alone], and marks, are about these trained models" in legend
    assert "new seeds" not in legend


def test_csv_has_the_interval_of_the_mean() -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_table(make_hierarchical()).to_data().to_csv())))
    assert [rows[0][name] for name in ("mean", "sd", "low", "high")] == ["80.000", "0.400", "78.000", "81.000"]
    old = list(csv.DictReader(io.StringIO(comparison_table(make_comparison()).to_data().to_csv())))
    assert (old[0]["low"], old[0]["high"]) == ("", ""), "not on record in results of older versions"


def test_legend_without_differences_is_short() -> None:
    legend = comparison_table(make_comparison(results=(make_result("de", "plain", 0.5),))).legend
    assert legend == ("span_f1 in percent, mean ± standard deviation over 3 seeds.", "Note: panx: mind this.")


def test_csv_has_every_figure_and_marks_in_words() -> None:
    text = comparison_table(make_comparison()).to_data().to_csv()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert text.isascii()
    assert len(rows) == 7
    fused = rows[3]
    assert [fused[key] for key in ("code", "language", "average", "system", "mean", "sd", "seeds")] == [
        "de", "German", "no", "fu_sed", "75.000", "0.400", "3",
    ]  # fmt: skip
    assert [fused[f"baseline_{name}"] for name in ("delta", "low", "high", "p", "holm_p", "test", "mark")] == [
        "5.000", "4.000", "7.000", "0.01", "0.02", "permutation test", "better",
    ]  # fmt: skip
    assert fused["second_mark"] == "worse"
    assert rows[0]["baseline_p"] == ""
    assert (rows[-1]["average"], rows[-1]["code"], rows[-1]["language"]) == ("yes", "", "mean of 2")
    assert "second_p" not in comparison_table(make_comparison(second=None)).to_data().to_csv()


def test_latex_is_escaped_and_balanced() -> None:
    table = comparison_table(make_comparison())
    text = table.to_table(wide=True).to_latex()
    assert r"fu\_sed & 81.0 $\pm$ 0.4 & 75.0 $\pm$ 0.4$^{\blacktriangle\triangledown}$" in text
    assert text.count(r"\midrule") == 1
    assert r"\begin{tabular}{lrrr}" in text
    tall = table.to_table().to_latex().splitlines()
    assert tall[tall.index(r"\bottomrule") - 2] == r"\midrule"
    assert tall[tall.index(r"\bottomrule") - 1].startswith("mean of 2")
    body = [line for line in tall if not line.startswith("%")]
    assert all(line.isascii() for line in body)


def test_terminal_escapes_markup_and_shows_the_legend() -> None:
    results = tuple(
        replace(result, system="[red]" if result.system == "fu_sed" else result.system)
        for result in make_comparison().results
    )
    table = comparison_table(make_comparison(results=results, systems=("plain", "[red]", "extra")))
    text = io.StringIO()
    Console(file=text, width=120, color_system=None).print(table.to_table().to_rich(whole=True))
    printed = text.getvalue()
    assert "panx: span_f1" in printed
    assert "[red]" in printed
    assert "75.0 ± 0.4 ▲▽" in printed
    assert "Note: panx: mind this." in printed
    shown = io.StringIO()
    Console(file=shown, width=120, color_system=None).print(table.to_table("differences").to_rich(whole=True))
    assert "+5.0 [+4.0, +7.0] ▲▽" in shown.getvalue()


@pytest.mark.parametrize("width", [50, 80, 260])
def test_terminal_never_cuts_a_figure_and_repeats_the_baseline(width: int) -> None:
    names = ["plain", *(f"dlfa layer={layer} start=identity" for layer in range(1, 12))]
    made = make_comparison().results
    results = [replace(one, system=name) for name in names for one in made if one.system == "plain"]
    table = comparison_table(make_comparison(results=tuple(results), systems=tuple(names)))
    text = io.StringIO()
    Console(file=text, width=width, color_system=None).print(table.to_table().to_rich(whole=True))
    printed = text.getvalue()
    assert "…" not in printed
    parts = sum(line.strip().startswith("language ") for line in printed.splitlines())
    german = next(line for line in table.lines if line.code == "de")
    # The baseline stands in every part, each other system in one.
    assert printed.count(table.cells(german, "scores")[0]) >= len(names) + parts - 1
    assert (parts == 1) == (width == 260)


def test_one_table_for_each_data_set_with_its_own_notes() -> None:
    first = make_comparison()
    other = tuple(replace(result, data="ud", score="accuracy") for result in first.results[:2])
    both = replace(first, results=(*first.results, *other), notes=("panx: mind this", "ud: and that", "all is well"))
    tables = comparison_tables(both)
    assert [(table.title, table.systems) for table in tables] == [
        ("panx: span_f1", ("plain", "fu_sed", "extra")),
        ("ud: accuracy", ("plain", "fu_sed")),
    ]
    assert [[line for line in table.legend if line.startswith("Note")] for table in tables] == [
        ["Note: panx: mind this.", "Note: all is well."],
        ["Note: ud: and that.", "Note: all is well."],
    ]


def test_missing_data_set_or_results_raise() -> None:
    with pytest.raises(ArtefactError, match="Did you mean 'panx'"):
        comparison_table(make_comparison(), "pan-x")
    with pytest.raises(ArtefactError, match="run the study"):
        comparison_table(make_comparison(results=()))
