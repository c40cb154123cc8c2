"""Comparisons of a study's systems, choices of an axis's value, and forecasts."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from crossling.criteria import FinishedCell, source_dev
from crossling.errors import ArtefactError, UserError
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import load_recipe, parse_recipe
from crossling.scores.metrics import score
from crossling.scores.predictions import write_predictions
from crossling.scores.significance.counts import score_supported
from crossling.store.artefacts import Store
from crossling.study.cell_scores import score_cells, trained_languages
from crossling.study.compare import compare_study, leave_out_values, load_comparison
from crossling.study.folder import prediction_path, read_plan
from crossling.study.forecast import forecast_study
from crossling.study.grid import load_study
from crossling.study.local import LocalPool
from crossling.study.plan import fix_threads
from finished_study import CHOOSING, finish_study, make_predictions
from small_study import write_recipe, write_study


@pytest.fixture
def finished(tmp_path: Path, flat_folder: Path) -> Path:
    """The folder of a study that looks as if it had been run."""
    return finish_study(tmp_path, flat_folder)


def means(comparison: Any, task: str) -> dict[str, float]:
    part = next(part for part in comparison.parts if part.task == task)
    return {result.system: result.mean for result in part.comparison.results}


def test_every_task_is_compared_with_its_baseline(finished: Path) -> None:
    comparison = compare_study(finished)
    assert [part.task for part in comparison.parts] == ["ner", "pos"]
    found = means(comparison, "pos")
    assert list(found) == ["plain", "other", "mean (chosen by source_dev)"]
    assert found["mean (chosen by source_dev)"] == pytest.approx(0.95, abs=0.05)
    marks = {result.system: result.mark for result in comparison.parts[1].comparison.results}
    assert marks["mean (chosen by source_dev)"] == "▲"
    assert comparison.parts[0].comparison.second == "other"
    assert comparison.parts[1].comparison.second == "mean (chosen by source_dev)", "a task may have its own"
    assert means(compare_study(finished, every=True), "pos").keys() >= {"mean weight=0.25", "mean weight=0.75"}


def test_a_choice_is_on_record_with_the_labels_it_used(finished: Path) -> None:
    comparison = compare_study(finished)
    choices = json.loads((finished / "choices.json").read_text(encoding="utf-8"))
    assert [choice["chosen"] for choice in choices] == ["mean weight=0.75"] * 2
    assert choices[0]["scores"] == pytest.approx({"mean weight=0.25": 0.8015, "mean weight=0.75": 0.9015})
    assert "source language" in choices[0]["labels"]
    assert any("dev set" in line and "mean weight=0.75" in line for line in comparison.lines)


def test_tables_are_written_in_every_format(finished: Path) -> None:
    comparison = compare_study(finished)
    assert {"compare.md", "comparison.json", "compare-pos-test.csv", "compare-ner-test.tex"} <= set(comparison.files)
    assert "| hi Hindi |" in (finished / "compare.md").read_text(encoding="utf-8")
    head, *lines = (finished / "seed-records.csv").read_text(encoding="utf-8").splitlines()
    assert head == "task,system,seed,stage,kind,dev,drift,variance,variance_within,correlation"
    assert len(lines) == 16 and "pos,mean weight=0.75,2,0,finetune,90.2000,,,," in lines
    facts = json.loads((finished / "comparison.json").read_text(encoding="utf-8"))
    assert [task["task"] for task in facts["tasks"]] == ["ner", "pos"]
    assert facts["tasks"][0]["results"][1]["from_baseline"]["p"] < 0.05


def test_every_score_of_every_seed_is_written_with_the_main_one_first(finished: Path) -> None:
    compared = {"span_f1": compare_study(finished), "macro_f1": compare_study(finished, score="macro_f1")}
    with (finished / "seed-scores.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if (row["task"], row["system"]) == ("ner", "plain")]
    assert list(rows[0]) == ["task", "system", "seed", "data", "language", "score", "percent"]
    assert {(row["data"], row["language"]) for row in rows} == {("test", "hi")}
    made = make_predictions(0.5, 1, spans=True)
    names = [name for name in {**score(made), **score_supported(made)} if name != "span_f1"]
    assert "span_macro_f1_supported" in names
    assert [(row["seed"], row["score"]) for row in rows] == [
        (seed, name) for seed in ("1", "2") for name in ("span_f1", *names)
    ]
    for name, comparison in compared.items():
        mean = fmean(float(row["percent"]) for row in rows if row["score"] == name)
        assert mean == pytest.approx(100 * means(comparison, "ner")["plain"], abs=1e-3)


def test_zero_shot_score_counts_every_language_once_with_its_first_set(finished: Path) -> None:
    folder = finished / "ner" / "plain"
    (folder / "seed-2" / "complete.json").unlink()
    tables = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
    evaluated = {"panx": ("en", "hi"), "panx@mixed": ("hi", "sw"), "own": ("context=sw,question=en", "yo")}
    tables["evaluate"] = [{"on": name, "languages": codes} for name, codes in evaluated.items()]
    (folder / "recipe.toml").write_text(to_toml(tables), encoding="utf-8")
    found = {}
    for entry in load_recipe(folder / "recipe.toml").evaluate:
        for language in entry.languages:
            code = language.removeprefix("context=").partition(",")[0]
            made = replace(make_predictions(0.3 + 0.1 * len(found), 1, spans=True), language=code)
            write_predictions(prediction_path(folder, 1, entry, language), made)
            found[entry.on, language] = score(made)["span_f1"]
    assert len(set(found.values())) == 6, "it makes a difference which are counted"
    [cell] = [one for one in score_cells(read_plan(finished), finished) if one.folder == "ner/plain"]
    counted = (("panx", "hi"), ("panx@mixed", "sw"), ("own", "yo"))
    assert cell.zero_shot == pytest.approx(fmean(found[place] for place in counted))


def test_another_score_has_separate_tables(finished: Path) -> None:
    usual = compare_study(finished)
    other = compare_study(finished, score="accuracy")
    assert {result.score for part in other.parts for result in part.comparison.results} == {"accuracy"}
    assert not set(usual.files) - {"choices.json"} & set(other.files)
    assert [part.comparison for part in (load_comparison(finished) or other).parts] == [
        part.comparison for part in usual.parts
    ]
    with pytest.raises(UserError, match="no score 'exact'"):
        compare_study(finished, score="exact")


def test_bootstrap_has_separate_tables_and_reads_back_from_older_versions(finished: Path) -> None:
    usual, old = compare_study(finished), compare_study(finished, interval="bootstrap")
    assert not set(usual.files) - {"choices.json"} & set(old.files)
    assert "compare-bootstrap.md" in old.files
    assert "paired bootstrap over seeds and examples" in (finished / "compare-bootstrap.md").read_text(encoding="utf-8")
    published = compare_study(finished, as_published=True)
    assert "compare-as-published.md" in published.files and "comparison-as-published.json" in published.files
    assert "not corrected for the number of tests" in (finished / "compare-as-published.md").read_text(encoding="utf-8")
    about = "the mean to expect of new seeds, on new examples of the same kind"
    assert about in (finished / "compare.md").read_text(encoding="utf-8")
    facts = json.loads((finished / "comparison-bootstrap.json").read_text(encoding="utf-8"))
    for task in facts["tasks"]:  # what versions without a choice of intervals wrote
        del task["settings"]["interval"]
        for result in task["results"]:
            del result["low"], result["high"]
            for role in ("from_baseline", "from_second"):
                for name in ("seeds", "tests") if result[role] else ():
                    del result[role][name]
    (finished / "comparison.json").write_text(json.dumps(facts), encoding="utf-8")
    read = load_comparison(finished)
    assert read is not None
    assert [part.tables[0].legend for part in read.parts] == [part.tables[0].legend for part in old.parts]


def test_comparison_reads_back_equal(finished: Path) -> None:
    written = compare_study(finished, every=True)
    read = load_comparison(finished)
    assert read is not None
    assert [part.comparison for part in read.parts] == [part.comparison for part in written.parts]
    assert (read.choices, read.lines) == (written.choices, written.lines)
    shown = leave_out_values(read, read_plan(finished))
    assert [part.comparison for part in shown.parts] == [part.comparison for part in compare_study(finished).parts]
    assert load_comparison(finished / "ner") is None


def test_choices_remain_without_the_models(finished: Path, tmp_path: Path) -> None:
    chosen = compare_study(finished).choices
    shutil.rmtree(tmp_path / "s")
    comparison = compare_study(finished)
    assert comparison.choices == chosen
    assert any("choices are those on record" in line for line in comparison.lines)
    (finished / "choices.json").unlink()
    comparison = compare_study(finished)
    assert any("nothing is chosen" in line for line in comparison.lines) and not comparison.choices
    assert "mean weight=0.75" in means(comparison, "ner")


def test_missing_cells_and_different_machines_are_noted(finished: Path) -> None:
    (finished / "ner/other/seed-2/complete.json").unlink()
    marker = finished / "ner/plain/seed-1/complete.json"
    marker.write_text(marker.read_text(encoding="utf-8").replace('"2"', '"3"'), encoding="utf-8")
    comparison = compare_study(finished)
    lines = "\n".join(comparison.lines)
    assert "1 of 16 cells are not finished: ner/other/seed-2" in lines
    assert "different torch: 2, 3" in lines
    (finished / "ner/mean/weight=0.25/seed-1/complete.json").unlink()
    comparison = compare_study(finished)
    assert any("nothing is chosen for mean yet: mean weight=0.25" in line for line in comparison.lines)
    assert "mean weight=0.75" in means(comparison, "ner")
    for path in finished.glob("*/plain/*/complete.json"):
        path.unlink()
    with pytest.raises(ArtefactError, match="baseline 'plain' has no finished cell"):
        compare_study(finished)


def test_a_system_with_more_labels_leaves_the_zero_shot_mean_to_the_others(finished: Path) -> None:
    before = compare_study(finished)
    recipe = finished / "ner/other/recipe.toml"
    text = recipe.read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("train = "))
    recipe.write_text(text.replace(line, 'train = ["panx:en", "panx:hi"]'), encoding="utf-8")
    after = compare_study(finished)
    assert means(after, "ner") == means(before, "ner")
    note = "ner: other learns from labels in hi too"
    assert any(note in line for line in after.lines) and not any(note in line for line in before.lines)


def test_a_choice_by_dev_needs_dev_scores(tmp_path: Path) -> None:
    cell = FinishedCell(1, tmp_path / "seed-1", tmp_path, {"dev_score": None})
    with pytest.raises(ArtefactError, match="dev score"):
        source_dev.score([cell], None)  # type: ignore[arg-type]


def test_the_languages_of_labels_are_read_from_the_recipe(tmp_path: Path, flat_folder: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, flat_folder))
    assert trained_languages(recipe) == {"en"}
    tables = recipe.model_dump(mode="json")
    tables["stage"][0]["train"] = ["ud:de_gsd", {"data": "panx:sw", "limit": 5}]
    assert trained_languages(parse_recipe(json.loads(json.dumps(tables)))) == {"en", "de", "sw"}
    assert "sw" in to_toml(tables)


def test_a_forecast_trains_nothing_and_counts_what_is_shared(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    text = CHOOSING.split("[choose]")[0].replace("2e-3", "1e-3")  # so that `other` is `plain` again
    write_recipe(tmp_path, flat_folder, "pos")
    study = load_study(write_study(tmp_path, flat_folder, text.replace('second = "mean"', "")))
    store = Store(tmp_path / "s")
    forecast = forecast_study(study, store=store, out=tmp_path / "out", workers=1)
    assert "16 stages in all, 12 different ones: 4 serve several cells, 0 are trained already" in forecast.lines[1]
    assert "a default rate" in forecast.basis
    hours = {one.workers: one.hours for one in forecast.times}
    assert 0 < hours[2] == pytest.approx(hours[1]), "on a CPU two workers share the cores"
    assert not (tmp_path / "s" / "artefacts").exists()
    stage = store.artefact("finetune-1-x")
    stage.mkdir(parents=True)
    work = {"encoder": str(flat_folder), "seconds": 2.0, "subwords": 2000}
    store.complete(
        "finetune-1-x", {"work": work, "machine": {"device": "cpu", "threads": str(forecast_threads(study))}}
    )
    again = forecast_study(study, store=store, out=tmp_path / "out", workers=1)
    assert "1,000 subwords/s, measured in 1 runs" in again.basis


def forecast_threads(study: Any) -> int:
    """Threads of a worker that has the machine for itself."""
    return len(os.sched_getaffinity(0))


@pytest.mark.parametrize(("variable", "threads"), [("3", 3), ("2,1", 2), ("64", 8), ("many", 8), ("0", 8)])
def test_workers_have_no_more_threads_than_omp_num_threads(
    variable: str, threads: int, tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_study(write_study(tmp_path, flat_folder))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.setenv("OMP_NUM_THREADS", variable)
    pool = LocalPool()
    pool.measure(study, tmp_path / "out", workers=1)
    assert pool.resources.threads == threads
    assert ("OMP_NUM_THREADS" in pool.resources.describe()) == (threads < 8)
    pool.measure(study, tmp_path / "out", workers=8)
    assert pool.resources.threads == 1, "a share of the cores"


def test_threads_of_a_recipe_are_left_alone(tmp_path: Path, flat_folder: Path) -> None:
    study = fix_threads(load_study(write_study(tmp_path, flat_folder)), 7)
    assert {variant.recipe.run.threads for variant in study.variants} == {1}
    text = (tmp_path / "ner.toml").read_text(encoding="utf-8").replace("threads = 1\n", "")
    (tmp_path / "ner.toml").write_text(text, encoding="utf-8")
    assert {v.recipe.run.threads for v in fix_threads(load_study(tmp_path / "study.toml"), 7).variants} == {7}
