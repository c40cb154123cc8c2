"""The report of a study: whatever its folder holds is shown, and what is missing is noted."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from crossling.analyses.result import AnalysisResult
from crossling.cli.study import app
from crossling.data.declarations import list_names, load_declaration
from crossling.errors import ArtefactError
from crossling.report.citations import CITATIONS, DATA_WORKS
from crossling.report.figures import HeatMap
from crossling.report.table import Table
from crossling.scores.predictions import Predictions, read_predictions
from crossling.store.artefacts import Store
from crossling.study.cell_scores import StudyFiles, score_cells
from crossling.study.compare import compare_study, gather_comparison
from crossling.study.folder import read_plan
from crossling.study.report import LARGEST_FIGURE, cite_data, flatten, gather_report, report_study
from crossling.study.report_charts import average_curves, average_languages
from finished_study import CHOOSING, finish_study

EVIL = '<img src=x onerror="alert(1)">'


@pytest.fixture
def finished(tmp_path: Path, flat_folder: Path) -> Path:
    """The folder of a study that looks as if it had been run."""
    return finish_study(tmp_path, flat_folder)


def read_page(out: Path) -> str:
    return (out / "report.html").read_text(encoding="utf-8")


def test_report_has_every_section(finished: Path) -> None:
    document = report_study(finished).document
    assert [panel.key for panel in document.panels] == ["compare-ner-test", "compare-pos-test"]
    assert document.panels[1].table.systems == ("plain", "other", "mean (chosen by source_dev)")
    assert any("mean (chosen by source_dev) is best and beats plain" in sentence for sentence in document.summary)
    assert dict(document.facts)["cells done"] == "16 of 16"
    assert document.learning_note == "" and document.notes == ()
    titles = [chart.title for chart in document.learning]
    assert titles == [
        "ner: training loss",
        "ner: score on dev, percent",
        "pos: training loss",
        "pos: score on dev, percent",
    ]
    dev = next(series for series in document.learning[1].series if series.name == "mean weight=0.75")
    assert [(x, round(y, 2)) for x, y, _ in dev.points] == [(5, 45.08), (10, 90.15)]
    assert ("torch", "2") in document.machines.rows
    assert ("ner", "plain", "2", "1.0", "10", "500") in document.timing.rows
    assert [table.stem for table in document.choices] == ["choices"]
    assert any("Holm" in text for text in document.citations) and not any("DLFA" in text for text in document.citations)


def test_times_have_the_memory_of_cells_that_a_gpu_trained(
    tmp_path: Path, flat_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = {"seconds": 2.0, "subwords": 1000, "gpu_bytes": 1_250_000_000}
    monkeypatch.setattr("finished_study.make_record", lambda score: {"dev_score": score, "steps": 10, "work": work})
    timing = report_study(finish_study(tmp_path, flat_folder)).document.timing
    assert timing.head[-1] == "GPU memory, GB"
    assert ("ner", "plain", "2", "1.0", "10", "500", "1.25") in timing.rows


def test_report_reads_every_file_of_predictions_once_and_scores_it_as_alone(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, read = read_plan(finished), Counter[Path]()

    def count(path: Path) -> Predictions:
        read[path] += 1
        return read_predictions(path)

    alone = score_cells(plan, finished)
    monkeypatch.setattr("crossling.study.cell_scores.read_predictions", count)
    files = StudyFiles(finished, keep_scores=True)
    gather_comparison(plan, finished, files=files)
    assert score_cells(plan, finished, files) == alone
    report_study(finished)
    assert set(read) == set(finished.rglob("*.parquet"))
    assert set(read.values()) == {2}, "once for each of the two"


def test_data_come_with_their_fingerprints(finished: Path) -> None:
    data = gather_report(finished).data
    assert data is not None
    roles = {row[1] for row in data.rows}
    assert roles == {"stage 0: train", "stage 0: dev", "test"}
    assert all(len(row[-1]) > 10 for row in data.rows) and {row[4] for row in data.rows} == {"40", "8", "12"}
    for path in finished.rglob("run.json"):  # a study of an earlier version: its predictions are still read
        facts = json.loads(path.read_text(encoding="utf-8"))
        del facts["data"]
        path.write_text(json.dumps(facts), encoding="utf-8")
    data = gather_report(finished).data
    assert data is not None and {row[1] for row in data.rows} == {"test"}


def test_numeric_axis_is_drawn_as_a_curve(finished: Path) -> None:
    sweep = next(sweep for sweep in gather_report(finished).sweeps if "pos" in sweep.table.title)
    means = next(series for series in sweep.charts[0].series if series.role == "main")
    assert [x for x, _, _ in means.points] == [0.25, 0.75]
    assert [y for _, y, _ in means.points] == pytest.approx([60, 95], abs=3)
    level = next(series for series in sweep.charts[0].series if series.role == "base")
    assert level.points[0][1] == pytest.approx(30, abs=4)
    assert "highest at weight 0.75" in sweep.sentence and "lowest at weight 0.25" in sweep.sentence
    assert [row[:2] for row in sweep.table.rows] == [("plain", "–"), ("mean", "0.25"), ("mean", "0.75")]
    apart = sweep.charts[1].series[-2]
    assert apart.points[1][1] == pytest.approx(means.points[1][1] - level.points[0][1])


def test_recipes_are_listed_by_differences(finished: Path) -> None:
    document = gather_report(finished)
    assert [name for name, _ in document.recipes] == ["ner: plain", "pos: plain"]
    assert "epochs = 1" in document.recipes[0][1]
    assert document.variants is not None
    differences = {row[:2]: row[2] for row in document.variants.rows}
    assert differences["ner", "other"] == "stage.0.lr = 0.002"
    assert "stage.0.fusion.weight = 0.75" in differences["pos", "mean weight=0.75"]
    assert "[systems.mean]" in document.settings and "[[choose]]" in document.settings
    assert dict(flatten({"a": [{"b": 1}, {"b": [1, 2]}], "c": {}})) == {"a.0.b": "1", "a.1.b": "[1, 2]"}


def test_report_notes_missing_records_of_training(finished: Path, tmp_path: Path) -> None:
    compare_study(finished)
    shutil.move(tmp_path / "s", tmp_path / "elsewhere")
    document = report_study(finished).document
    assert document.panels and not document.learning
    assert document.learning_note.startswith("All trainings of this study have no record in the store")
    assert document.learning_note.split(":")[0].removeprefix("All trainings") in read_page(finished)
    assert not (tmp_path / "s").exists(), "looking at a study makes no store"
    assert len(gather_report(finished, store=tmp_path / "elsewhere").learning) == 4
    shutil.rmtree(next((tmp_path / "elsewhere" / "artefacts").iterdir()))
    partly = gather_report(finished, store=tmp_path / "elsewhere")
    assert partly.learning_note.startswith("1 of 16 trainings") and len(partly.learning) == 4


def test_choices_on_record_are_not_made_again(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = compare_study(finished).choices
    monkeypatch.setattr("crossling.study.compare.make_choices", lambda plan, out: ([], ["asked again"]))
    assert gather_report(finished).panels[0].table.systems[-1] == chosen[0].name
    path = finished / "choices.json"
    path.write_text(path.read_text(encoding="utf-8").replace("mean weight=0.75", "gone"), encoding="utf-8")
    assert "asked again" in gather_report(finished).notes[0], "they are of another plan"


def test_report_without_predictions_uses_the_stored_comparison(finished: Path) -> None:
    compare_study(finished, every=True)
    before = gather_report(finished)
    shutil.rmtree(finished / "ner" / "plain" / "seed-1" / "predictions")
    document = gather_report(finished)
    assert any("the predictions of 1 of 16 finished cells are not in this folder; figures" in n for n in document.notes)
    assert [panel.table.lines for panel in document.panels] == [panel.table.lines for panel in before.panels]
    assert [sweep.table for sweep in document.sweeps] == [sweep.table for sweep in before.sweeps]
    (finished / "comparison.json").write_text('{"tasks": 1}', encoding="utf-8")
    assert "was not written by this version" in gather_report(finished).notes[0]
    (finished / "comparison.json").unlink()
    document = report_study(finished).document
    assert not document.panels and "nothing to compare" in document.notes[0]


def test_report_of_an_unfinished_study(finished: Path) -> None:
    for path in finished.glob("*/*/seed-2/complete.json"):
        path.unlink()
    (finished / "pos/plain/seed-2/failed.json").write_text(json.dumps({"error": f"out of {EVIL}"}), encoding="utf-8")
    document = report_study(finished).document
    assert any("cells are not finished" in note for note in document.notes)
    assert ("pos", "plain", "1", "0", "0", "1") in document.cells.rows
    assert document.cells.notes == (f"pos/plain/seed-2 failed: out of {EVIL}",)
    assert EVIL not in read_page(finished) and "out of &lt;img" in read_page(finished)
    for path in finished.rglob("complete.json"):
        path.unlink()
    document = report_study(finished).document
    assert not document.panels and dict(document.facts)["cells done"] == "0 of 16"
    assert "has no finished cell" in read_page(finished)


def test_hostile_names_are_escaped(tmp_path: Path, flat_folder: Path) -> None:
    text = CHOOSING.replace("[systems.other]", f"[systems.{json.dumps(EVIL)}]").replace('second = "other"\n', "")
    out = finish_study(tmp_path, flat_folder, text)
    report_study(out)
    page = read_page(out)
    assert EVIL not in page and "&lt;img src=x onerror=" in page
    text = (out / "report.md").read_text(encoding="utf-8")
    assert EVIL in text and EVIL not in text.replace(f"\\{EVIL}", "")
    assert {path.parent for path in out.rglob("*.tex")} == {out / "report"}


def write_analysis(out: Path, **parts: Any) -> None:
    """A table of heads as ``crossling analyse`` writes it."""
    (out / "x.parquet").touch()
    table = Table(f"Updates {EVIL}", ("model", "value"), (("a|b", "0.5"),), notes=("mind.",), stem="head_updates")
    facts = {"title": EVIL, "settings": "{}", "tables": (table,), **parts}
    result = AnalysisResult("head_updates", **facts)
    (out / "x.json").write_text(json.dumps(result.to_json()), encoding="utf-8")


def test_analyses_in_the_folder_are_shown(finished: Path) -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><path d="M0 0h7"/></svg>'
    (finished / "x-de.svg").write_text(drawing, encoding="utf-8")
    (finished / "large.svg").write_text(" " * (LARGEST_FIGURE + 1), encoding="utf-8")
    heat = HeatMap("update of heads", [[4.0, 5.0], [3.0, 4.0]], ["layer 2", "layer 1"], ["1", "2"])
    figures = {name: finished / f"{file}.svg" for name, file in (("de", "x-de"), ("es", "none"), ("fr", "large"))}
    write_analysis(finished, figures=figures, heat_maps=(heat,), notes=("Note: this.",))
    (part,) = report_study(finished).document.analyses
    assert part.title == f"head_updates: {EVIL}" and part.facts == "Settings: {}."
    assert part.tables[0].rows == (("a|b", "0.5"),) and part.tables[0].notes == ("mind.",)
    assert [figure.title for figure in part.figures] == ["de", "update of heads"]
    assert "&#34;values&#34;:[[4.0,5.0],[3.0,4.0]]" in str(part.figures[1].drawing)
    assert part.notes == (
        "Note: this.",
        "The figure none.svg is missing.",
        "The figure large.svg is too large for this page.",
    )
    page = read_page(finished)
    assert "M0%200h7" in page or "M0 0h7" in page
    assert "<script>alert(1)" not in page and EVIL not in page
    rows = list(csv.reader((finished / "report" / "head_updates.csv").open(encoding="utf-8")))
    assert rows[1] == ["a|b", "0.5"]


def test_rounds_of_teaching_are_shown(finished: Path) -> None:
    plan = read_plan(finished)
    facts = {"offered": 8, "kept": 4, "agreement": 0.5, "classes": {"O": 9}}
    cells = []
    for cell in plan.cells:
        stages = [f"teach-1-{number}-{cell.seed}" for number in (1, 2)] if cell.label == "other" else []
        for stage in stages:
            Store(plan.store).artefact(stage).mkdir(parents=True, exist_ok=True)
            Store(plan.store).complete(stage, {"dev_score": 0.5, "teaching": {"languages": {"hi": facts}}})
        cells.append(replace(cell, stages=(*cell.stages, *stages)))
    replace(plan, cells=tuple(cells)).write(finished)
    document = report_study(finished).document
    (part,) = document.analyses
    assert [row[:3] for row in part.tables[0].rows[:2]] == [("ner: other", "1", "hi"), ("ner: other", "1", "all")]
    assert len(part.figures) == 2 and "ner: other: over rounds" in read_page(finished)
    assert (finished / "report" / "teaching.csv").is_file()


def test_analyses_of_the_paper_are_cited(finished: Path) -> None:
    before = gather_report(finished).citations
    write_analysis(finished)
    assert len(gather_report(finished).citations) == len(before) + 1


def test_curves_are_averaged_over_seeds_and_thinned() -> None:
    points = average_curves(
        [{step: float(step) for step in range(1, 241)}, {step: 3.0 * step for step in range(1, 200)}]
    )
    assert 40 <= len(points) <= 60
    x, y, spread = points[0]
    assert x == 2.5 and y == pytest.approx(5.0) and spread == pytest.approx(2.5 * 2**0.5)
    assert average_curves([]) == () and average_curves([{1: 1.0}]) == ((1, 1.0, None),)


def test_means_of_curves_leave_out_languages_trained_on_and_pairs_of_two() -> None:
    scores = {"en": 0.9, "es": 0.5, "hi": 0.3, "context=en,question=es": 0.8}
    assert average_languages(scores, {"en"}) == pytest.approx(0.4)
    assert average_languages({"en": 0.9}, {"en"}) == 0.9
    assert average_languages({"context=en,question=es": 0.8, "context=es,question=en": 0.6}, {"en"}) == pytest.approx(
        0.7
    )


def test_sets_are_cited_by_the_catalogue(finished: Path) -> None:
    assert cite_data([]) == []
    from crossling.recipe.recipe import load_recipe

    recipe = load_recipe(Path(__file__).parents[2] / "recipes" / "pos.toml")
    assert any(text.startswith("ud: ") and "Nivre et al." in text for text in cite_data([recipe]))


def test_every_set_of_the_catalogue_that_has_a_work_is_cited_by_it() -> None:
    keys = {load_declaration(name).citation for name in list_names()} - {""}
    assert keys == DATA_WORKS.keys()
    for work in (*DATA_WORKS.values(), *(citation.text for citation in CITATIONS)):
        assert work.endswith(".") and ("Anonymous" in work or re.search(r"\b(19|20)\d\d\.$", work)), work


def test_command_writes_and_prints_the_report(finished: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(finished), "--all"], catch_exceptions=False)
    assert done.exit_code == 0
    assert "mean weight=0.75" in read_page(finished)
    files = {path.name for path in (finished / "report").iterdir()}
    assert {"compare-ner-test.csv", "compare-ner-test.tex", "timing.csv", "sweep-ner-test-mean-weight.tex"} <= files
    with pytest.raises(ArtefactError, match="not the folder of a study"):
        report_study(finished / "ner")
