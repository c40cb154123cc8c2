"""Attention-head probing: a probe for every head from one run, and the comparison of models by their best heads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError

from crossling.analyses import AnalysisContext, head_probe
from crossling.analyses._probes.features import collect_features, extract_heads
from crossling.analyses._probes.training import InMemory, apply_probes, train_probes
from crossling.analyses.head_probe import (
    Settings,
    compare_heads,
    find_baselines,
    tabulate_best,
    tabulate_shared,
)
from crossling.analyses.head_scores import collect_heads
from crossling.analyses.result import AnalysisTable, write_result
from crossling.errors import DataError, EncoderError
from crossling.models.model import Model, ModelCard, build_model
from crossling.scores.metrics import score
from crossling.scores.predictions import Predictions
from crossling.scores.significance.counts import score_supported
from crossling.training.distributed import Distributed
from tiny import tiny_encoder

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
TASKS = {"ner": {"on": "phrasebook-ner"}, "sentiment": {"on": "phrasebook-sentiment"}}


def analyse(model: Model, folder: Path, **settings: Any) -> tuple[pa.Table, Any]:
    table = {"tasks": TASKS, "languages": ("en", "de"), "rows": 30, "test_rows": 8}
    chosen = head_probe.Settings(**{**table, **settings})
    data = head_probe.open_analysis_data(chosen, source="en", store=folder)
    card, context = ModelCard("tiny", model.encoder.identity), AnalysisContext(ONE_PROCESS, folder)
    return head_probe.analyse(model, card, data, settings=chosen, context=context), data


def make_model(family: str = "bert", seed: int = 0) -> Model:
    return build_model(tiny_encoder(family, seed=seed), {"kind": "last"}).eval()


def test_every_head_is_its_own_probe(tmp_path: Path) -> None:
    """One by one: a head's features alone, a probe alone, its predictions scored as everything else is."""
    model = make_model()
    table, data = analyse(model, tmp_path, tolerance=1e-6)
    for probed in data.probed:
        context = AnalysisContext(ONE_PROCESS, tmp_path)

        def collect(rows: Any, probed: Any = probed, context: Any = context) -> Any:
            stored, positions = collect_features(
                model,
                probed.task,
                rows,
                extract=extract_heads,
                key=["by hand"],
                groups=6,
                labels=probed.labels,
                folder=tmp_path / "own",
                context=context,
            )
            return torch.cat(list(stored.parts(64))), positions

        features, positions = collect(probed.train)
        for head in range(6):
            alone = InMemory(features[:, head : head + 1])
            probe = train_probes(
                alone, torch.from_numpy(positions.gold), classes=len(probed.task.labels), tolerance=1e-6
            )
            for language, rows in probed.tests.items():
                there, test = collect(rows)
                predicted = apply_probes(probe, InMemory(there[:, head : head + 1]))[:, 0, 0].numpy()
                made = Predictions.from_classes(
                    language,
                    "x",
                    labels=probed.labels,
                    gold=test.gold,
                    predicted=predicted,
                    confidence=np.ones(len(test)),
                )
                found = find(table, probed.name, language, head)
                scores = {**score(made), "macro_f1_supported": 0.0, **score_supported(made)}
                assert found == pytest.approx({name: scores[name] for name in found}, abs=0.03)


def find(table: pa.Table, probe: str, language: str, head: int) -> dict[str, float]:
    return {
        row["score"]: row["value"]
        for row in table.to_pylist()
        if (row["probe"], row["language"], row["layer"], row["head"]) == (probe, language, 1 + head // 2, 1 + head % 2)
    }


def test_all_languages_together_are_one_test(tmp_path: Path) -> None:
    table, data = analyse(make_model(), tmp_path)
    (probed, _) = data.probed
    sizes = {language: sum(len(r.words) for r in rows) for language, rows in probed.tests.items()}
    for head in range(6):
        each = {language: find(table, "ner", language, head)["accuracy"] for language in sizes}
        mean = sum(each[language] * size for language, size in sizes.items()) / sum(sizes.values())
        assert find(table, "ner", "all", head)["accuracy"] == pytest.approx(mean)


def test_features_of_heads_are_deleted_after_probing(tmp_path: Path) -> None:
    analyse(make_model(), tmp_path)
    assert not list((tmp_path / "features").rglob("*.f16"))


def test_encoder_without_known_heads_fails_before_features_are_read(tmp_path: Path) -> None:
    model = make_model()
    model.encoder.model.encoder.layer[0].attention.output.dense = torch.nn.Identity()
    with pytest.raises(EncoderError, match="no attention heads are known"):
        analyse(model, tmp_path)
    assert not (tmp_path / "features").exists()


def make_table(values: dict[tuple[str, str], Any], *, own: set[tuple[str, str]] = frozenset()) -> pa.Table:  # type: ignore[assignment]
    """The table of an analysis from maps by model and probe."""
    rows = []
    for (model, probe), grid in values.items():
        for layer, line in enumerate(np.asarray(grid, float), 1):
            for head, value in enumerate(line, 1):
                facts = {"language": "all", "score": "macro_f1", "sample": 0, "layer": layer, "head": head}
                mine = (model, probe) in own
                rows.append(
                    {"task": "", "model": model, "seed": 1, "probe": probe, "own": mine, **facts, "value": value}
                )
                rows.append({**rows[-1], "language": "de", "value": 0.0})
    names = {"task": pa.string(), "model": pa.string(), "seed": pa.int64()}
    return pa.Table.from_pylist(rows, schema=pa.schema([*names.items(), *head_probe.SCHEMA]))


def make_found(
    values: Any, *, own: Any = frozenset(), bases: dict[str, str] | None = None, **settings: Any
) -> AnalysisTable[Settings]:
    chosen = Settings(tasks=TASKS, languages=("en", "de"), **settings)
    return AnalysisTable(chosen, make_table(values, own=own), "made", bases=bases or {})


BASE = np.full((2, 4), 0.5)
CROSS = BASE + np.array([[0.08, 0.07, 0.06, 0.05], [0.0, 0.01, 0.02, 0.03]])
MULTI = BASE + np.array([[0.0, 0.07, 0.08, 0.06], [0.05, 0.01, 0.02, 0.03]])
OWN = {("cross", "pos"), ("multi", "pos")}
MAPS = {("cross", "pos"): CROSS, ("multi", "pos"): MULTI, ("base", "pos"): BASE}
BASES = {"cross": "base", "multi": "base"}


def test_what_training_added_is_compared_with_the_tasks_own_model() -> None:
    heads = collect_heads(make_found(MAPS, own=OWN, bases=BASES), score="macro_f1", measure="difference")
    assert heads.models == ["cross", "multi"], "what was not trained gained nothing"
    np.testing.assert_allclose(heads.maps["cross", "pos"], 100 * (CROSS - BASE))
    assert find_baselines(heads, {}) == {"pos": "cross"}, "the first that was trained for it"
    settings = Settings(tasks=TASKS, languages=("en",), top=("4",), permutations=199)
    (shared,) = compare_heads(heads, {"pos": "cross"}, settings)
    assert (shared.model, shared.baseline, shared.overlap.shared) == ("multi", "cross", 3)
    assert shared.overlap.ranks.rho == pytest.approx(0.5)
    sheet = tabulate_shared([shared], settings)
    assert sheet.rows == (("multi", "4", "3.0", f"{shared.test.expected:.1f}", "0.50"), ("cross", "4", "–", "–", "–"))
    assert "null = residuals" in sheet.notes[1] and "199 permutations" in sheet.notes[1]
    assert "2.0 of 4 (the hypergeometric mean)" in sheet.notes[3]
    best = tabulate_best(heads)
    assert best.rows[0][2].startswith("1.1 (8.0), 1.2 (7.0), 1.3 (6.0)")


def test_measure_score_includes_pretrained_encoders() -> None:
    heads = collect_heads(make_found(MAPS, own=OWN, bases=BASES), score="macro_f1", measure="score")
    assert heads.models == ["cross", "multi", "base"]
    np.testing.assert_allclose(heads.maps["multi", "pos"], 100 * MULTI)


def test_seeds_are_compared_with_seeds_and_maps_are_their_means() -> None:
    found = make_found(MAPS, own=OWN, bases=BASES, top=("4",), permutations=99)
    table = found.table
    second = table.set_column(2, "seed", pa.array([2] * len(table), pa.int64()))
    second = second.set_column(10, "value", pa.compute.add(table.column("value"), 0.1))
    trained = pa.compute.equal(table.column("model"), "cross")
    both = pa.concat_tables([table, second.filter(trained)])
    heads = collect_heads(replace(found, table=both), score="macro_f1", measure="difference")
    np.testing.assert_allclose(heads.maps["cross", "pos"], 100 * (CROSS - BASE + 0.05))
    (shared,) = compare_heads(heads, {"pos": "cross"}, found.settings)
    assert (shared.test.pairs, shared.test.ceiling) == (1, 4), "seed 1 with seed 2; the same heads gain in both"
    rows = tabulate_shared([shared], found.settings).rows
    assert rows[1] == ("cross", "4", "seeds 4.0", "–", "–")


@pytest.mark.parametrize(
    ("named", "message"), [({"pos": "crosss"}, "Did you mean 'cross'"), ({"poss": "cross"}, "Did you mean 'pos'")]
)
def test_unknown_baseline_is_reported_with_the_nearest_name(named: dict[str, str], message: str) -> None:
    heads = collect_heads(make_found(MAPS, own=OWN, bases=BASES), score="macro_f1", measure="score")
    with pytest.raises(DataError, match=message):
        find_baselines(heads, named)


@pytest.mark.parametrize("wrong", [{"score": "span_f1"}, {"measure": "ratio"}])
def test_unknown_score_or_measure_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        make_found(MAPS, **wrong)


def test_encoders_of_different_sizes_are_not_compared() -> None:
    maps = {("cross", "pos"): CROSS, ("multi", "pos"): MULTI[:, :2], ("base", "pos"): BASE}
    heads = collect_heads(make_found(maps, own=OWN), score="macro_f1", measure="score")
    with pytest.raises(DataError, match="different sizes"):
        compare_heads(heads, {"pos": "cross"}, Settings(tasks=TASKS, languages=("en",), top=("2",)))


def test_head_probing_writes_every_file(tmp_path: Path) -> None:
    maps = {**MAPS, **{(model, "ner"): grid for (model, _), grid in MAPS.items()}}
    result, _ = write_result(make_found(maps, own=OWN, bases=BASES, top=("3", "50%")), tmp_path / "h.csv")
    written = {path.name: path for path in tmp_path.iterdir()}
    assert set(written) == {"h.csv", "h-shared.csv", "h.md", "h-pos.svg", "h-ner.svg", "h.parquet", "h.json"}
    texts = {name: path.read_text(encoding="utf-8") for name, path in written.items() if path.suffix != ".parquet"}
    assert texts["h-shared.csv"].splitlines()[1].startswith("pos,multi,cross,3,")
    assert len(texts["h.csv"].splitlines()) == 1 + 6 * 8 * 2
    assert "No model here was trained for ner" in texts["h.md"]
    assert result.tables[0].title == "Best attention heads that models share"
    assert [heat.title for heat in result.heat_maps][:1] == [
        "macro_f1 of heads, points above what they were before training: cross: pos"
    ]
