"""Tables reproduced at small scale with tiny encoders: our figures are those of stored predictions and analyses."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow as pa
import pytest

from crossling.analyses.result import AnalysisTable, find_results
from crossling.cli import main as cli
from crossling.cli.show_papers import lay_out, list_cells
from crossling.papers.measures import MEASURES, Results
from crossling.papers.published import parse_value
from crossling.papers.reproduce import ReproducedCell, ReproducedTable, collect_figures, reproduce_table
from crossling.papers.tables import Cell, CellSource, plan_table
from crossling.scores.predictions import read_predictions
from crossling.store.artefacts import Store, find_store
from crossling.study import scheduling
from inline_pool import InlinePool
from tiny import save_tiny

QUICK = ("run.threads=1", "run.device=cpu", "finetune.batch=64", "evaluate.0.split=test[:4]")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("encoder") / "tiny", family="xlm-r")


@pytest.fixture(scope="module")
def deep_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many layers as the papers' encoders have."""
    return save_tiny(tmp_path_factory.mktemp("encoder") / "deep", family="xlm-r", layers=12)


def _count_right(path: Path) -> float:
    """Accuracy in percent, by hand."""
    rows = read_predictions(path).table.to_pylist()
    return 100 * sum(row["gold"] == row["predicted"] for row in rows) / len(rows)


def test_command_line_reproduces_a_table_of_layer_fusion(
    deep_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def open_here(ray: str | None) -> Iterator[InlinePool]:
        yield InlinePool()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scheduling, "open_pool", open_here)
    settings = [f"encoder.name={deep_encoder}", *QUICK]
    command = ["crossling", "reproduce", "layer-fusion/4", *(text for one in settings for text in ("--set", one))]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert not stop.value.code
    shown = capsys.readouterr().out
    assert "no evidence" in shown and "French is a Romance language" in shown and "94.1" in shown
    assert "left out of this run (3 of 18 cells)" in shown and "gold items" not in shown
    out = tmp_path / "studies" / "reproduce-layer-fusion-4-small"
    lines = list(csv.DictReader((out / "reproduced.csv").read_text(encoding="utf-8").splitlines()))
    assert len(lines) == 18
    for line in lines:
        if line["column"] == "ko":  # the embedded corpus has no Korean
            assert (line["ours"], line["difference"]) == ("", "")
            continue
        system = {"mBERT": "baseline"}.get(line["row"], line["row"])
        path = (
            out / "PAWS-X" / system / "seed-1/predictions/phrasebook-paraphrase-test--4" / f"{line['column']}.parquet"
        )
        assert float(line["ours"]) == pytest.approx(_count_right(path), abs=1e-3)
        assert float(line["difference"]) == pytest.approx(float(line["ours"]) - float(line["paper"]), abs=1e-3)
    _check_groups(out)


def _check_groups(out: Path) -> None:
    """Means over groups of languages, and the best of several systems, of the same study."""
    results = Results(out)
    folder = out / "PAWS-X/baseline/seed-1/predictions/phrasebook-paraphrase-test--4"
    right = {path.stem: _count_right(path) for path in folder.glob("*.parquet")}
    assert len(right) == 8
    enf = results.score(CellSource(task="PAWS-X", group="avg_enf"), "baseline")
    others = results.score(CellSource(task="PAWS-X", group="avg_noenf"), "baseline")
    everything = results.score(CellSource(task="PAWS-X"), "baseline")
    assert enf == {1: pytest.approx(fmean([right["en"], right["de"]]))}
    assert others == {1: pytest.approx(fmean(value for code, value in right.items() if code not in ("en", "de")))}
    assert everything == {1: pytest.approx(fmean(right.values()))}
    marked = CellSource(task="PAWS-X", system="D_10")
    for languages, group, name in ((("de",), "", ""), ((), "", "macro_f1"), ((), "avg_noenf", "")):
        source = marked.model_copy(update={"languages": languages, "group": group, "score": name})
        assert results.mark(source) in ("", "▲", "▼")
    assert len(results._marks) == 2 and all(len(lines) > 8 for lines in results._marks.values()), "by task and score"
    among = CellSource(task="PAWS-X", systems=("D_10", "D_6"))
    scores = {name: results.score(among, name)[1] for name in among.systems}
    assert MEASURES["best"](results, among) == {1: max(scores.values())}
    (layer,) = MEASURES["best_layer"](results, among).values()
    assert scores[f"D_{layer:.0f}"] == max(scores.values())


def test_encoder_is_extended_once_and_a_finished_table_is_not_run_again(encoder: Path, tmp_path: Path) -> None:
    plan = plan_table("adjustment/9", "small", [f"encoder.name={encoder}", "extend.pieces=20", *QUICK])
    out, store = tmp_path / "out", Store(find_store())
    made = reproduce_table(plan, out=out, store=store, pool=InlinePool())
    assert not made.failed
    assert {(one.cell.column, one.value is not None) for one in made.cells} == {
        *(("XNLI", True), ("NER", True)),
        *(("MLQA", False), ("XQuAD", False)),
    }
    text = (out / f"{plan.extended}.txt").read_text(encoding="utf-8").splitlines()
    assert len(text) == 400 and all("\u0900" <= letter <= "\u097f" for letter in text[0][:1]), "the Hindi side"
    recipe = (out / "NLI-hi/Adjusted-by-30K/recipe.toml").read_text(encoding="utf-8")
    assert recipe.index('kind = "adapt"') < recipe.index('kind = "adjust"') < recipe.index('kind = "finetune"')
    extended = out / plan.extended
    assert str(extended) in recipe
    stamp = (extended / "config.json").stat().st_mtime_ns
    again = reproduce_table(plan, out=out, store=store, pool=InlinePool())
    assert again.cells == made.cells
    assert (extended / "config.json").stat().st_mtime_ns == stamp
    assert plan_table("adjustment/9", "small", ["extend.pieces=30"]).extended != plan.extended, (
        "other settings, another name"
    )
    results = Results(out)
    source = CellSource(task="NLI-hi", system="Adjusted by 30K", less="Original, extended", languages=("hi",))
    values = [results.score(source, name)[1] for name in ("Adjusted by 30K", "Original, extended")]
    assert MEASURES["score"](results, source) == {1: pytest.approx(values[0] - values[1])}


def test_labels_with_few_gold_items_are_named_below_macro_f1(encoder: Path, tmp_path: Path) -> None:
    small = [f"encoder.name={encoder}", "POS.stage.1.train=phrasebook-pos:en:train[:8]", *QUICK]
    plan = plan_table("knowledge/2", "small", small, rows=["POS: cross-ling"])
    made = reproduce_table(plan, out=tmp_path / "out", store=Store(find_store()), pool=InlinePool())
    (note,) = made.notes
    assert note.startswith("phrasebook-pos-test--4: macro_f1 gives labels with fewer than 10 gold items the weight")
    assert all(f" {code} " in note for code in ("en", "de", "es", "fr")) and "VERB (" in note
    assert f"- {note}" in lay_out(made)[0].to_markdown()


def test_perplexities_are_those_of_the_studys_models(encoder: Path, tmp_path: Path) -> None:
    plan = plan_table(
        "knowledge/5",
        "small",
        [f"encoder.name={encoder}", "seeds=[1,2]", "analysis.sentences=2", "analysis.training.rows=16", *QUICK],
    )
    made = reproduce_table(plan, out=tmp_path / "out", store=Store(find_store()), pool=InlinePool())
    assert not made.failed
    values = {(one.cell.row, one.cell.column): one for one in made.cells}
    assert all((one.value is not None) == one.cell.row.startswith(("POS", "NER")) for one in made.cells)
    assert values["POS: cross-ling", "de"].seeds == 2 and values["POS: cross-ling", "de"].spread is not None
    assert values["POS: mBERT", "de"].seeds == 1, "the pretrained encoder has no seed"
    distinct = {round(values[f"POS: {name}", "de"].value or 0, 6) for name in ("cross-ling", "multi-ling", "mBERT")}
    assert len(distinct) == 3, "three models, three figures"
    assert [result.kind for result in find_results(tmp_path / "out")] == ["perplexity", "perplexity"], "for the report"


def test_figures_are_drawn_from_the_studys_models(encoder: Path, tmp_path: Path) -> None:
    small = [f"encoder.name={encoder}", "adjust.sentences=8", "analysis.sentences=10", "analysis.pairs=20", *QUICK]
    small += ["NLI-hi.stage.2.train=phrasebook-nli:en:train[:8]", "evaluate.1.split=test[:4]"]
    plan = plan_table("adjustment/figure-1", "small", small)
    made = reproduce_table(plan, out=tmp_path / "distances", store=Store(find_store()), pool=InlinePool())
    assert not made.failed and len(made.cells) == 12
    values = {(one.cell.row, one.cell.column): one.value for one in made.cells}
    assert all(value is not None and value >= 0 for value in values.values())
    assert len({values[row, "related"] for row in plan.table.rows}) == 4, "four models, one of them between two stages"
    assert list((tmp_path / "distances").glob("distances*hi*.svg"))

    small = [f"encoder.name={encoder}", *QUICK]
    small += [f"POS.stage.{number}.train=phrasebook-pos:en:train[:8]" for number in (1, 2)]
    plan = plan_table("knowledge/figure-1", "small", small, rows=["POS"])
    made = reproduce_table(plan, out=tmp_path / "updates", store=Store(find_store()), pool=InlinePool())
    (rho,) = [one.value for one in made.cells if one.cell.source]
    assert rho is not None and -1 <= rho <= 1
    (figure,) = (tmp_path / "updates").glob("head_updates*.svg")
    assert "difference" in figure.read_text(encoding="utf-8"), "of the pair that was run"


def _table(rows: list[dict[str, Any]]) -> AnalysisTable[Any]:
    """An analysis that found these rows; every model is compared with the one called base."""
    full = [{"task": "", "seed": None, **row} for row in rows]
    models = {row["model"] for row in rows} - {"base"}
    return AnalysisTable(None, pa.Table.from_pylist(full), bases=dict.fromkeys(models, "base"))


def test_probing_result_is_the_gain_over_the_pretrained_encoder_for_each_seed(tmp_path: Path) -> None:
    shared = {"probe": "ner", "own": False, "score": "macro_f1", "sample": 0, "examples": 9}
    rows = [{**shared, "model": "base", "language": code, "value": 0.5} for code in ("all", "de")]
    for seed, value in ((1, 0.53), (2, 0.56)):
        rows += [{**shared, "model": "POS: cross-ling", "language": "all", "seed": seed, "value": value}]
        rows += [{**shared, "model": "POS: cross-ling", "language": "de", "seed": seed, "value": 0.9}]
    results = Results(tmp_path, {"probe": _table(rows)})
    source = CellSource(task="POS", system="cross-ling", analysis="probe", probe="ner")
    assert sorted(MEASURES["probing"](results, source).values()) == pytest.approx([3.0, 6.0])
    assert MEASURES["probing"](Results(tmp_path), source) == {}, "an analysis that could not be made has no figures"


def test_overlap_counts_heads_among_the_best_of_both_models(tmp_path: Path) -> None:
    heads = {
        "base": [0] * 12,
        "POS: multi-ling": list(range(12)),
        "NER: cross-ling": [0, 1, 2, 3, 4, 5, 6, 9, 8, 7, 10, 11],
    }
    shared = {"probe": "ner", "own": False, "language": "all", "score": "macro_f1", "sample": 0}
    rows = [
        {**shared, "model": model, "layer": place // 4 + 1, "head": place % 4 + 1, "value": value / 100}
        for model, values in heads.items()
        for place, value in enumerate(values)
    ]
    results = Results(tmp_path, {"heads": _table(rows)})
    source = CellSource(
        task="POS", system="multi-ling", analysis="heads", probe="ner", against="NER: cross-ling", top="60"
    )
    assert MEASURES["shared_heads"](results, source) == {None: 5.0}, "60 of 144 are 5 of 12"
    (rho,) = MEASURES["shared_ranks"](results, source).values()
    assert rho == pytest.approx(1 - 6 * (2**2 + 2**2) / (5 * 24)), "of 7, 8, 9, 10, 11 and 9, 8, 7, 10, 11"


def test_mean_spread_and_difference_are_written_to_files(tmp_path: Path) -> None:
    plan = plan_table("layer-fusion/6", "small")
    rows = [
        {"model": "XNLI: D_11", "language": code, "seed": seed, "cosine": value}
        for seed, values in ((1, (0.5, 0.7)), (2, (0.7, 0.9)))
        for code, value in zip(("de", "hi"), values, strict=True)
    ]
    cells = collect_figures(plan, Results(tmp_path, {"similarity": _table(rows)}))
    assert (cells[0].value, cells[0].seeds) == (pytest.approx(0.7), 2)
    assert cells[0].spread == pytest.approx(0.2 / 2**0.5)
    assert cells[0].difference == pytest.approx(0.7 - 0.5689)
    assert cells[1].value is None
    made = ReproducedTable(plan, tuple(cells), tmp_path, {"XNLI/D_8/seed-1": "no memory"})
    text = lay_out(made)[0].to_markdown()
    assert "| XNLI: D_11 | 0.5689 | 0.7000 | +0.1311 |" in text and "| XNLI: D_8 | 0.6822 | – | – |" in text
    assert "cosine similarity of 20 XNLI test sentences" in text
    assert "no evidence" in text and "no memory" in text
    assert "XNLI: D_11,Avg C.S.,0.5689,,0.7000,0.1414,2,0.1311" in list_cells(made).to_csv()


def test_footnote_counts_every_kind_of_dash() -> None:
    plan = plan_table("layer-fusion/2", "small")
    cells = tuple(ReproducedCell(cell, 50.0 if cell.column != "POS" else None, None, 1) for cell in plan.cells)
    left_out = sum(cell.source is None for cell in plan.cells)
    assert left_out == 51 - 16
    text = lay_out(ReproducedTable(plan, cells, Path()))[0].to_markdown()
    assert (
        "–: left out of this run (35 of 51 cells); run without a result (4 of 16 cells); not in the paper (1)." in text
    )


def test_our_marks_are_shown_beside_our_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_table("layer-fusion/4", "small")
    cell = next(cell for cell in plan.cells if (cell.row, cell.column) == ("D_10", "de"))
    made = ReproducedTable(plan, (ReproducedCell(cell, 43.75, None, 1, "▲"),), tmp_path)
    text = lay_out(made)[0].to_markdown()
    assert "| 86.5 | 43.8 ▲ | -42.7 |" in text
    assert "▲ better or ▼ worse than baseline by our tests" in text and "with one seed, of these models" in text
    assert ",43.7500,,1,-42.7500,▲" in list_cells(made).to_csv()


def test_unreadable_figure_is_a_question_mark() -> None:
    plan = plan_table("layer-fusion/6", "small")
    unreadable = Cell("XNLI: D_11", "Avg C.S.", parse_value(""), plan.cells[0].source)
    (table,) = lay_out(ReproducedTable(plan, (ReproducedCell(unreadable, 0.7, None, 1),), Path()))
    assert table.rows[0] == ("XNLI: D_11", "?", "0.70", "–")
    assert "?: no number can be read in the paper." in table.to_markdown()


def test_shown_figures_add_up() -> None:
    plan = plan_table("layer-fusion/4", "small")
    french = next(cell for cell in plan.cells if (cell.row, cell.column) == ("mBERT", "fr"))
    made = ReproducedTable(plan, (ReproducedCell(french, 43.75, None, 1),), Path())
    assert "| 87.4 | 43.8 | -43.6 |" in lay_out(made)[0].to_markdown()
    assert ",43.7500,,1,-43.6500" in list_cells(made).to_csv()
    assert "Stars" not in lay_out(made)[0].to_markdown()
    starred = plan_table("adjustment/3", "small")
    cells = tuple(ReproducedCell(cell, None) for cell in starred.cells)
    (table,) = lay_out(ReproducedTable(starred, cells, Path()))
    assert "percent. Stars are the paper's marks of significance." in table.to_markdown()


def test_wide_table_is_shown_in_parts() -> None:
    plan = plan_table("layer-fusion/2", "small")
    made = ReproducedTable(plan, tuple(ReproducedCell(cell, 50.0, None, 1) for cell in plan.cells), Path())
    assert [len(table.head) for table in lay_out(made, width=80)] == [7, 7]
    assert [len(table.head) for table in lay_out(made, width=20)] == [4, 4, 4, 4]
    assert [len(table.head) for table in lay_out(made)] == [13]
