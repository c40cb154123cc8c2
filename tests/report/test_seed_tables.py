"""Tables of the pages of results, from scores of every seed that are made up here."""

from __future__ import annotations

import csv
import importlib
import json
import re
import shutil
from itertools import product
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pandas as pd
import pytest

from crossling.study.grid import load_study

RESULTS = Path(__file__).parents[2] / "docs" / "results"
ARCHIVE = RESULTS / "tables"
HEAD = ("task", "system", "seed", "data", "language", "score", "percent")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """A script of docs/results whose tables and pages lie in an empty folder."""
    monkeypatch.syspath_prepend(str(RESULTS))

    def import_script(name: str) -> ModuleType:
        module = importlib.import_module(name)
        for setting, value in vars(module).copy().items():
            if isinstance(value, Path) and value.suffix == ".csv":
                monkeypatch.setattr(module, setting, tmp_path / value.name)
        return module

    return import_script


def write_scores(path: Path, rows: list[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([HEAD, *rows])


def test_gain_is_students_t_over_seeds_that_both_systems_have(load) -> None:  # type: ignore[no-untyped-def]
    tables = load("seed_tables")
    gain = tables.measure_gain({1: 51.0, 2: 54.0, 3: 9.0}, {1: 50.0, 2: 51.0})
    # Differences of 1 and 3: mean 2, standard error 1, and t with one degree of freedom is 12.706 at 95 %.
    assert (gain.mean, gain.seeds) == (2.0, 2) and gain.low == pytest.approx(2 - 12.706, abs=1e-3)
    assert tables.measure_gain({1: 1.0}, {1: 2.0}) is None
    same = tables.measure_gain({1: 1.0, 2: 3.0}, {1: 1.0, 2: 3.0})
    assert (same.mean, same.p) == (0.0, 1.0)
    corrected = tables.correct([tables.Gain(1, 0, 2, 0.02, 5), None, tables.Gain(1, 0, 2, 0.04, 5)])
    assert corrected == [0.04, None, 0.04]
    assert tables.decide(tables.Gain(-1, -2, 0, 0.02, 5), 0.04) == "worse"
    assert tables.decide(tables.Gain(1, 0, 2, 0.02, 5), 0.06) == "inconclusive"


def test_average_leaves_out_seeds_that_lack_a_language(load) -> None:  # type: ignore[no-untyped-def]
    tables = load("seed_tables")
    rows = [("en", 1, 90), ("de", 1, 60), ("fr", 1, 70), ("en", 2, 90), ("de", 2, 62)]
    scores = tables.SeedScores(
        {"task": "pos", "system": "plain", "data": "ud", "language": code, "seed": str(seed), "percent": str(percent)}
        for code, seed, percent in rows
    )
    assert scores.average("pos", "plain", "ud", tables.is_zero_shot) == {1: 65.0}
    assert scores.average("pos", "plain", "ud", tables.is_english) == {1: 90.0, 2: 90.0}


def test_a_system_is_compared_with_another_in_every_task_that_has_both(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    gains = {("pos", "new"): 1.0, ("pos", "old"): 0.0, ("nli", "new"): -2.0, ("nli", "old"): 0.0, ("qa", "new"): 5.0}
    rows = [
        (task, system, seed, "set", code, score, share * (70 + seed + (code != "en") * gain * (1 + seed / 10)))
        for (task, system), gain in gains.items()
        for seed in (1, 2, 3)
        for code in ("en", "de")
        for score, share in (("macro_f1", 1.0), ("accuracy", 0.5))
    ]
    write_scores(tmp_path / "scores.csv", rows)
    # Differences of 1.1, 1.2 and 1.3: t is 20.8 with two degrees of freedom, p 0.0023, the same in both tasks.
    assert load("seed_tables").compare_systems(tmp_path / "scores.csv", "new", "old") == [
        "pos set: +1.20 [+0.95, +1.45], p 0.005, 3 seeds, better",
        "nli set: -2.40 [-2.90, -1.90], p 0.005, 3 seeds, worse",
    ]
    with pytest.raises(SystemExit, match="no task with both"):
        load("seed_tables").compare_systems(tmp_path / "scores.csv", "new", "other")


def test_a_section_is_replaced_between_its_markers_and_asks_for_missing_ones(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    tables, page = load("seed_tables"), tmp_path / "page.md"
    before, after = "# Page\n\nText.\n\n", "\n\nMore.\n"
    page.write_text(f"{before}{format_section('seeds', ['Old.'])}{after}", encoding="utf-8")
    for figure in ("1", "2"):
        tables.write_section(page, "seeds", [f"Figure {figure}."])
    assert page.read_text(encoding="utf-8") == f"{before}{format_section('seeds', ['Figure 2.'])}{after}"
    with pytest.raises(SystemExit, match=r"page.md: has no section 'other'; put these two lines"):
        tables.write_section(page, "other", [])


def make_sweep(script: ModuleType) -> list[tuple[object, ...]]:
    """Scores of three seeds that rise with the layer; controls are a point below plain, D_12 is plain."""
    rows: list[tuple[object, ...]] = []
    for task, system, seed in product(script.TASKS, script.SYSTEMS, (1, 2, 3)):
        gain = script.LAYERS[system] - 6 if system in script.LAYERS else -1.0 if system in script.CONTROLS else 0.0
        gain = 0.0 if system == "itself" else gain + 0.1 * seed * (system != "plain")
        rows += [(task, system, seed, "set", code, "accuracy", 70 + seed + gain) for code in ("en", "de", "fr")]
    return rows


def write_dev(path: Path, script: ModuleType) -> None:
    """English dev scores: layer 9 is the best of the mean, layer 10 that of the second seed."""
    lines = ["task,system,seed,stage,kind,dev,drift,variance,variance_within,correlation"]
    for task, system, seed in product(script.TASKS, script.SYSTEMS, (1, 2, 3)):
        layer = script.LAYERS.get(system, 0)
        dev = 90 - abs(layer - 9) + 1.5 * (seed == 2 and layer == 10)
        lines.append(f"{task},{system},{seed},0,finetune,{dev},,,,")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_layer_that_english_dev_chooses_is_shown_with_its_gain(load, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    script, tables = load("layer_fusion"), load("seed_tables")
    folder = tmp_path / "layer-fusion"
    folder.mkdir()
    write_scores(folder / "seed-scores.csv", make_sweep(script))
    write_dev(folder / "seed-records.csv", script)
    script.gather(folder)
    reported = capsys.readouterr().out
    assert "no scores: pos plain seed 4\n" in reported and "seed 3\n" not in reported
    scores = tables.read_scores(tmp_path / "layer-fusion.csv")
    one, each, _ = [line for line in script.build_choices(scores) if line.startswith("| Inference ")]
    assert "| 9 | +3.20 [" in one and one.endswith("| 11 (+5.20) |")
    assert "| 9, 10, 9 | +3.53 [" in each
    sweep = script.build_sweep(scores)
    assert sum(line.startswith("| DLFA 11 |") for line in sweep) == 4
    # Differences of -0.9, -0.8 and -0.7: t is -13.86 with two degrees of freedom, p 0.00517. Of the 18 systems nine
    # layers have smaller p, so that Holm's correction multiplies by nine.
    [frozen, *_] = [line for line in sweep if line.startswith("| frozen gate 8 |")]
    assert frozen.endswith("| -0.80 [-1.05, -0.55], p 0.047 | worse |")
    controls = script.build_controls(scores)
    assert any(line.startswith("| D_12 less plain | +0.00 [+0.00, +0.00], p 1.000 |") for line in controls)
    assert any(line.startswith("| frozen gate 8 less DLFA 8 | -3.00 [") for line in controls)
    script.draw_sweep(scores, tmp_path / "sweep.svg")
    assert (tmp_path / "sweep.svg").stat().st_size


def test_the_gate_at_its_own_rate_is_tested_on_new_seeds_alone_and_shown_with_all(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    script, tables = load("layer_fusion"), load("seed_tables")
    folder = tmp_path / "layer-fusion-gate"
    folder.mkdir()
    gains = {"plain": 0.0, "dlfa layer=11": 0.5, "dlfa-1e-3 layer=11": 1.0}
    rows = [
        (task, system, seed, "set", code, "accuracy", 70 + seed + gain + 0.1 * (seed - 7) * (system != "plain"))
        for task, (system, gain), seed in product(("pos", "nli"), gains.items(), (6, 7, 8))
        for code in ("en", "de")
    ]
    write_scores(folder / "seed-scores.csv", rows)
    script.gather(tmp_path)
    first = tables.SeedScores(dict(zip(HEAD, map(str, row), strict=True)) for row in make_sweep(script))
    lines = script.build_confirmation(first)
    # Differences of 0.9, 1.0 and 1.1: t is 17.3 with two degrees of freedom, p 0.0033, doubled by the correction. The
    # first seeds have -0.9, -0.8 and -0.7; all six -0.9 to 1.1.
    [shown] = [line for line in lines if line.startswith("| Inference |")]
    assert "| +1.00 [+0.75, +1.25], p 0.007 | better | -0.80 [-1.05, -0.55] | +0.10 [" in shown
    assert shown.endswith("| +0.50 [+0.25, +0.75] |")
    assert not any("entities" in line for line in lines), "not run"


def test_differences_under_one_point_are_tested_on_new_seeds_and_shown_with_all(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    script, tables = load("layer_fusion"), load("seed_tables")
    (tmp_path / "layer-fusion-more-seeds").mkdir()
    gains = {system: 0.5 * (system == "local layer=11") for pair in script.MORE for system in pair}
    rows = [
        ("ner", system, seed, "set", code, "span_f1", 70 + seed + gain * (1 + (seed - 7) / 5))
        for (system, gain), seed in product(gains.items(), (6, 7, 8))
        for code in ("en", "de")
    ]
    write_scores(tmp_path / "layer-fusion-more-seeds" / "seed-scores.csv", rows)
    script.gather(tmp_path)
    first = tables.SeedScores(dict(zip(HEAD, map(str, row), strict=True)) for row in make_sweep(script))
    lines = script.build_more_seeds(first)
    # Differences of 0.4, 0.5 and 0.6: t is 8.66 with two degrees of freedom, p 0.0131, times six. The first seeds have
    # -0.9, -0.8 and -0.7.
    [local] = [line for line in lines if "local branches 11 less plain" in line]
    assert "| +0.50 [+0.25, +0.75], p 0.078 | inconclusive | -0.80 [-1.05, -0.55] | -0.15 [" in local
    assert not any("Inference" in line for line in lines), "not run"


def test_learnt_gates_are_compared_with_the_frozen_ones_of_their_seed(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    script = load("layer_fusion")
    gates = {("dlfa", 1): (0.2, 0.6, 0.4), ("frozen", 1): (0.4, 0.8, 0.6), ("dlfa", 2): (0.2, 0.6, 0.4)}
    gates[("frozen", 2)] = (0.6, 0.2, 0.4)
    rows = [
        (model, seed, code, channel, value if code == "en" else 1 - value, 0.1, 1.0)
        for (model, seed), values in gates.items()
        for code in ("en", "de")
        for channel, value in enumerate(values)
    ]
    (tmp_path / "analyses").mkdir()
    columns = ["model", "seed", "language", "channel", "gate", "deviation", "moved"]
    pd.DataFrame(rows, columns=columns).to_parquet(tmp_path / "analyses" / "gates-nli.parquet")
    script.gather_gates(tmp_path)
    found = pd.read_csv(script.GATES).set_index(["system", "seed", "language"])
    assert found.loc[("dlfa", 1, "en"), "like frozen"] == 1 and found.loc[("dlfa", 2, "de"), "like frozen"] == -1
    assert found.loc[("dlfa", 1, "de"), "like English"] == -1
    text = "\n".join(script.build_gates(load("seed_tables").SeedScores(())))
    assert "| Inference, learnt | 0.500 ± 0.000 |" in text and "| -1.000 ± 0.000 | 0.000 ± 1.414 |" in text


def test_papers_differences_from_its_baseline_stand_beside_ours(load) -> None:  # type: ignore[no-untyped-def]
    script, tables = load("layer_fusion"), load("seed_tables")
    scores = tables.SeedScores(dict(zip(HEAD, map(str, row), strict=True)) for row in make_sweep(script))
    lines = script.build_published(scores)
    assert any(line.startswith("| DLFA 8 | +1.08 | +2.20 [") for line in lines), "71.36 less 70.28"
    assert any(line.startswith("| XNLI, DLFA 11 | +1.94 | +5.20 [") for line in lines), "77.34 less 75.40"
    assert any(line.startswith("| POS | 11 | -0.26 | -6.00 [") for line in lines), "71.2763 less 71.5339"


def test_systems_of_layer_fusion_that_are_shown_are_those_of_the_study(load) -> None:  # type: ignore[no-untyped-def]
    script = load("layer_fusion")
    study = load_study(RESULTS.parents[1] / "recipes" / "studies" / "layer-fusion.toml")
    shown = set(product(script.TASKS, script.SYSTEMS))
    assert {(variant.task, variant.label) for variant in study.variants} == shown
    assert study.settings.seeds == script.SEEDS


@pytest.mark.parametrize("name", ["adjustment", "baseline", "encoders", "knowledge", "layer_fusion", "what_helped"])
def test_tables_on_the_pages_are_those_of_the_archived_scores(name: str, load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """If this fails: python docs/results/NAME.py --write"""
    script = load(name)
    for archived in ARCHIVE.glob("*.csv"):
        shutil.copy(archived, tmp_path)
    for page, sections in script.list_pages().items():
        text = page.read_text(encoding="utf-8")
        for section, build in sections.items():
            assert format_section(section, build()) in text, f"{page.name}: {section}"


def build_sections(script: ModuleType, *names: str) -> list[str]:
    """Some of the sections of a script's only page."""
    [sections] = script.list_pages().values()
    return [line for name in names for line in sections[name]()]


def format_section(name: str, lines: list[str]) -> str:
    """A section between its markers, as a script writes it into a page."""
    return "\n".join([f"<!-- {name}: written by docs/results -->", "", *lines, f"<!-- end of {name} -->"])


def test_adjustment_is_compared_with_the_original_by_kind_of_text(load, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    script = load("adjustment")
    rows: list[tuple[object, ...]] = []
    for seed in (1, 2, 3):
        for system, loss in (("original", 0.0), ("replayed", 4.0 + 0.1 * seed)):
            for kind, share in (("news", 1.0), ("wikipedia", 0.5), ("web", 0.0)):
                codes = ("en_ewt",) if kind == "web" else ("en", "de")
                rows += [("pos", system, seed, kind, code, "accuracy", 90 + seed - share * loss) for code in codes]
    write_scores(tmp_path / "adjustment-seed-scores.csv", rows)
    change = {"drift": 0.5, "variance": 0.25, "variance_within": 0.5, "correlation": 0.9, "words": 7}
    with (tmp_path / "records.csv").open("w", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(("study", "task", "system", "seed", "kind", "dev_score", "source_vectors"))
        table.writerows(("adjustment", "pos", "adjusted", seed, "adjust", "", json.dumps(change)) for seed in (1, 2))
        table.writerow(("adjustment", "pos", "replayed", 1, "finetune", "", json.dumps(change)))
    monkeypatch.setattr(script, "DISTANCES", {"ner": tmp_path / "distances.csv"})
    (tmp_path / "analyses").mkdir()
    text = "model,seed,language,related,unrelated,relative,auc,same_sentence_auc\n"
    text += "".join(
        f"tuned,{seed},{code},1,2,0.5,{auc},0.7\n" for code in ("es", "ru") for seed, auc in ((1, 0.8), (2, 0.9))
    )
    (tmp_path / "analyses" / "distances-ner.csv").write_text(text, encoding="utf-8")
    script.gather(tmp_path)
    lines = build_sections(script, "distances-ner", "replay-short", "english-words")
    assert any("| 0.850 ± 0.071 | 0.700 ± 0.000 |" in line for line in lines), "means over languages, then over seeds"
    assert any(line.startswith("| replayed | -4.20 [") for line in lines), "news"
    assert any(line.startswith("| replayed | -2.10 [") and "-4.20 [" in line for line in lines), "news less the others"
    assert any(line.startswith("| adjusted | 0.500 ± 0.000 | 0.250") for line in lines)
    assert not any(line.startswith("| replayed | 0.500") for line in lines), "no adjust stage"


@pytest.mark.parametrize(
    "names",
    [
        ("adjustment", "adjustment-more-seeds"),
        ("layer-fusion", "layer-fusion-gate"),
        ("layer-fusion", "layer-fusion-more-seeds"),
        ("layer-fusion-ablation", "layer-fusion-mixes"),
        ("replay-news", "replay-news-more-seeds"),
        ("replay-news", "replay-news-harm"),
    ],
)
def test_studies_whose_seeds_stand_together_differ_in_seeds_alone(names: tuple[str, str]) -> None:
    studies = [load_study(RESULTS.parents[1] / "recipes" / "studies" / f"{name}.toml") for name in names]
    first, more = ({(one.task, one.label): one.recipe for one in study.variants} for study in studies)
    assert more.keys() <= first.keys()
    for name, recipe in more.items():
        assert recipe.model_dump(exclude={"seeds"}) == first[name].model_dump(exclude={"seeds"}), name
    assert not set(studies[0].settings.seeds) & set(studies[1].settings.seeds)


def test_systems_that_are_shown_are_those_of_their_studies(load) -> None:  # type: ignore[no-untyped-def]
    studies = RESULTS.parents[1] / "recipes" / "studies"
    ablation = load_study(studies / "layer-fusion-ablation.toml")
    assert {"plain", *load("layer_fusion").ABLATION} == {variant.label for variant in ablation.variants}
    few = load_study(studies / "few-shot.toml")
    assert list(load("baseline").FEW_SYSTEMS) == [variant.label for variant in few.variants]
    script, study = load("adjustment"), load_study(studies / "adjustment.toml")
    assert set(script.REPLAYS) <= {variant.label for variant in study.variants if variant.task == "pos"}
    longer = load_study(studies / "replay-news.toml")
    assert {*script.LONG_REPLAYS, *script.LONG_REPLAYS.values()} == {variant.label for variant in longer.variants}


def test_dev_scores_and_drift_come_from_what_a_comparison_wrote(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    tables = load("seed_tables")
    (tmp_path / "adjustment").mkdir()
    scored = [
        ("pos", "adjusted", 1, "ud", "de", name, percent) for name, percent in (("accuracy", 70), ("macro_f1", 9))
    ]
    write_scores(tmp_path / "adjustment" / "seed-scores.csv", scored)
    head = "task,system,seed,stage,kind,dev,drift,variance,variance_within,correlation"
    lines = ("pos,adjusted,1,0,adjust,,0.5,0.25,0.5,0.9", "pos,adjusted,1,1,finetune,96.5,0.7,0.2,0.4,0.8")
    (tmp_path / "adjustment" / "seed-records.csv").write_text("\n".join((head, *lines)), encoding="utf-8")
    assert tables.gather_scores(tmp_path, ("adjustment",), tmp_path / "all.csv") == 2
    scores = tables.read_scores(tmp_path / "all.csv")
    assert scores.average("pos", "adjusted", tables.DEV) == {1: 96.5}
    assert scores.average("pos", "adjusted", "ud") == {1: 70.0}, "the main score, which stands first"
    tables.gather_changes(tmp_path, "adjustment", tmp_path / "changes.csv")
    assert (tmp_path / "changes.csv").read_text(encoding="utf-8").splitlines() == [
        "system,seed,drift,variance,variance_within,correlation",
        "adjusted,1,0.5,0.25,0.5,0.9",
    ]


def test_knowledge_has_scores_heads_and_ratios_of_perplexities(load, tmp_path: Path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    script = load("knowledge")
    monkeypatch.setattr(script, "name_perplexities", lambda task: tmp_path / f"perplexity-{task}.csv")
    rows = [
        ("sentiment", system, seed, "umsab", code, "macro_f1", 60 + seed + gain * seed)
        for system, gain in (("cross", 0.0), ("multi", 2.0), ("'+DA", 0.0))
        for seed in (1, 2, 3)
        for code in ("en", "de", "es")
    ]
    write_scores(tmp_path / "knowledge-sentiment-seed-scores.csv", rows)
    (tmp_path / "analyses").mkdir()
    shared = "probe,model,baseline,top,shared,expected,p,p_corrected,ceiling,pairs_of_seeds\n"
    shared += "pos,ner,pos,60,30,27.5,0.2,0.4,55,20\n"
    (tmp_path / "analyses" / "head_probe-shared.csv").write_text(shared, encoding="utf-8")
    in_layers = shared.replace("27.5,0.2,0.4", "29.5,0.0005,0.042")
    (tmp_path / "analyses" / "head_probe-in-layers-shared.csv").write_text(in_layers, encoding="utf-8")
    columns = "model,seed,probe,own,language,score,sample,result"
    probes = [
        f"{task}{end},{seed},{probe},,{language},macro_f1,{sample},{seed + (2 + seed / 10) * bool(end)}"
        for task, probe, end, seed in product(script.TASKS, script.TASKS, ("", "-multi"), (1, 2, 3))
        for language, sample in (("all", 0), ("de", 0), ("all", 1))
    ]
    (tmp_path / "analyses" / "probe.csv").write_text("\n".join([columns, *probes]) + "\n", encoding="utf-8")
    heads = [("pos", 1.0, "ner", language, "macro_f1", 0, 1, 2, 0.5) for language in ("all", "de")]
    table = pd.DataFrame(
        heads, columns=["model", "seed", "probe", "language", "score", "sample", "layer", "head", "value"]
    )
    table.to_parquet(tmp_path / "analyses" / "head_probe.parquet")
    lines = ["model,seed,language,perplexity", "original,,de,100"]
    lines += [
        f"sentiment{end},{seed},de,{level * seed}" for end, level in (("", 200), ("-multi", 400)) for seed in (1, 2)
    ]
    (tmp_path / "analyses" / "perplexity-sentiment.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    script.gather(tmp_path)
    text = "\n".join(build_sections(script, "scores", "methods", "languages", "probes", "heads", "perplexities"))
    assert "| multi | 3 | 66.00 ± 3.00 | 66.00 ± 3.00 | +4.00 [-0.97, +8.97], p 0.148 | inconclusive | +13.9 |" in text
    assert "| +DA | 3 | 62.00 ± 1.00 | 62.00 ± 1.00 | +0.00 [+0.00, +0.00], p 1.000 | inconclusive | +11.0 |" in text
    assert "| pos | ner | 30.0 | 55.0 | 27.5, p 0.400 | 29.5, p ≤ 0.042 |" in text
    # Multi is 2.1, 2.2 and 2.3 points ahead: t is 38.1 with two degrees of freedom, p 0.00069, times 16.
    assert "| ner-multi less ner | +2.20 [+1.95, +2.45], p 0.011 |" in text
    assert "| ner | +2.00 [-0.48, +4.48] | (+2.00 [-0.48, +4.48]) |" in text, "the task of the model itself in brackets"
    assert "| sentiment | en | de | es |" in text and "| multi | +4.00 [-0.97, +8.97] | +4.00 [" in text
    assert script.HEAD_SCORES.read_text(encoding="utf-8") == "model,seed,probe,1.2\npos,1,ner,0.5000\n"
    assert "2.00 [2.00, 2.00]" in text


def test_a_system_is_shown_at_the_rate_that_english_dev_chooses_and_compared_at_it(load) -> None:  # type: ignore[no-untyped-def]
    tables, encoders = load("seed_tables"), load("encoders")

    def make(system: str, dev: float, others: float) -> list[dict[str, str]]:
        cells = [(tables.DEV, "en", dev), ("set", "en", 90.0), ("set", "de", others), ("set", "hi", others)]
        return [
            {"task": "pos", "system": system, "seed": str(seed), "data": data, "language": language}
            | {"percent": str(percent + seed * (language == "hi") * (system != "plain"))}
            for seed in (1, 2, 3)
            for data, language, percent in cells
        ]

    rows = [*make("plain", 60, 50), *make("plain-3x", 70, 40), *make("lora", 65, 45), *make("lora-3x", 60, 99)]
    found = encoders.build_scores(tables.SeedScores([*rows, *make("8bit", 60, 50)]), "plain")
    shown = {line.split(" | ")[1]: line for line in found[2:-1]}
    assert list(shown) == ["plain", "8bit", "lora"]
    assert "| plain | 3x | 70.00" in shown["plain"] and "41.00" in shown["plain"]
    assert "| lora | 1x | 65.00" in shown["lora"] and "+5.00 [" in shown["lora"]
    assert "+1.00 [" in shown["8bit"], "it has one rate, and is compared with plain at that"


def test_taggers_agree_on_the_words_that_both_tag_alike(load, tmp_path: Path, capsys, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Every run is compared with the first, seed by seed."""
    script = load("agreement")
    tags = {
        ("first", 1): "NOUN VERB NOUN",
        ("first", 2): "NOUN VERB ADJ",
        ("second", 1): "NOUN VERB ADJ",
        ("second", 2): "NOUN VERB ADJ",
        ("third", 1): "X X X",
        ("third", 2): "X VERB X",
    }
    for name, seed in tags:
        (tmp_path / name / f"seed-{seed}").mkdir(parents=True)
        (tmp_path / name / "seed-scores.csv").touch()  # as a run has it

    def read_model(path: Path, seed: int) -> tuple[str, int]:
        return path.name, seed

    def predict(model: tuple[str, int], texts: list[str]) -> list[dict[str, object]]:
        return [{"words": [{"tag": tag} for tag in tags[model].split()]} for _ in texts]

    monkeypatch.setattr(script.crossling, "load", read_model, raising=False)
    monkeypatch.setattr(script.crossling, "predict", predict, raising=False)
    (tmp_path / "news.txt").write_text("a b c\n\nd e f\n", encoding="utf-8")
    script.main(*(str(tmp_path / name) for name in ("first", "second", "third", "news.txt")))
    assert capsys.readouterr().out.splitlines() == [
        "system,seed,text,words,agreed",
        "second,1,news,6,66.67",
        "third,1,news,6,0.00",
        "second,2,news,6,100.00",
        "third,2,news,6,33.33",
    ]


def test_a_saved_model_has_no_seeds(load, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    assert load("agreement").list_seeds(tmp_path) == [None]


def test_baseline_in_the_readme_is_that_of_the_archived_scores(load) -> None:  # type: ignore[no-untyped-def]
    script, teaching = load("baseline"), load("teaching")
    teaching.SCORES = ARCHIVE / teaching.SCORES.name
    plain = script.read_plain()
    readme = (RESULTS.parents[1] / "README.md").read_text(encoding="utf-8")
    for scores in plain.values():
        means = [fmean(one.values()) for one in (scores["en"], script.average_others(scores))]
        assert f"| {len(scores['en'])} | {means[0]:.1f} | {means[1]:.1f} | {len(scores) - 1} |" in readme


def test_cells_of_the_readme_are_marked_by_their_figures(load) -> None:  # type: ignore[no-untyped-def]
    script, tables = load("what_helped"), load("seed_tables")
    small, sure, large = (tables.Gain(mean, 0.1, 2.0, 0.01, seeds) for mean, seeds in ((0.9, 5), (0.9, 10), (1.5, 5)))
    assert [script.mark(gain, 0.01) for gain in (small, sure, large)] == ["†", "", ""]
    assert [script.mark(gain, 0.05) for gain in (small, sure)] == ["†‡", "‡"]
    assert script.mark(tables.Gain(0.5, -0.1, 1.1, 0.1, 5), 0.2) == "", "inconclusive as it stands"


def test_cells_of_the_readme_name_what_was_run(load) -> None:  # type: ignore[no-untyped-def]
    """But for a method that a study has on some of its tasks alone."""
    script = load("what_helped")
    found = script.measure_all()
    missing = [cell for row in script.ROWS for cell in row.cells.values() if not found[cell[0]].get(cell[1])]
    assert missing == [("knowledge pos", "+FA")]
    assert all(set(row.cells) <= set(script.COLUMNS) and set(row.notes) <= set(row.cells) for row in script.ROWS)


def test_gains_of_the_strongest_recipes_are_those_of_the_archived_scores(load) -> None:  # type: ignore[no-untyped-def]
    teaching = load("teaching")
    means = teaching.read_means(ARCHIVE / "teaching.csv")
    tasks = ("ner", "nli", "nli-gemma", "paraphrase", "qa", "sentiment", "pos")
    others = {"best-ner": ("ner", "taught"), "best-nli-gemma": ("teach-gemma", "best-gemma")}
    for page, name in product(("README.md", "docs/best-recipes.md"), (f"best-{task}" for task in tasks)):
        text = (RESULTS.parents[1] / page).read_text(encoding="utf-8")
        [row] = re.findall(rf"^\|.*\| `(?:recipes/)?{name}(?:\.toml)?` \|.*$", text, flags=re.MULTILINE)
        key = others.get(name, (name, "best"))
        pairs = [(key, find(means, key)) for find in (teaching.find_plain, teaching.find_control)]
        gains = [teaching.measure_gain(*(means[one]["none"] for one in pair)) for pair in pairs]
        assert row.endswith(f"| {' | '.join(map(teaching.show_gain, gains))} |"), page
