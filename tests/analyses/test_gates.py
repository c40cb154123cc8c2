"""Gates of fused layers against ones that are read sentence by sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from crossling.analyses import AnalysisContext, gates
from crossling.analyses.result import AnalysisTable, write_result
from crossling.data.catalogue import open_data
from crossling.errors import ArtefactError
from crossling.models.model import Model, ModelCard, build_model
from crossling.progress import NoProgress
from crossling.training.distributed import Distributed
from tiny import tiny_encoder

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
DLFA = {"kind": "dlfa", "layer": 0, "second": 2}


def make_model(fusion: dict[str, Any]) -> Model:
    torch.manual_seed(1)
    model = build_model(tiny_encoder(), fusion).eval()
    with torch.no_grad():
        for weight in model.fusion.parameters():
            weight.add_(torch.randn_like(weight))
    return model


def measure(model: Model, fusion: dict[str, Any], folder: Path, **changes: Any) -> pa.Table:
    settings = gates.Settings(**{"on": "phrasebook-pos", "languages": ("en", "hi"), "sentences": 5, **changes})
    data = gates.open_analysis_data(settings, source="en", store=folder)
    context = AnalysisContext(ONE_PROCESS, folder, batch=2)
    return gates.analyse(model, ModelCard("x", "y", fusion=fusion), data, settings=settings, context=context)


def test_gates_equal_those_of_single_sentences(tmp_path: Path) -> None:
    model = make_model(DLFA)
    table = measure(model, DLFA, tmp_path)
    assert table.schema.equals(gates.SCHEMA) and len(table) == 2 * model.encoder.width
    tokenizer = model.encoder.tokenizer
    found, moved, second = [], [], []
    for row in range(5):
        words = list(open_data("phrasebook-pos:hi:test", store=tmp_path)[row].words)
        ids = torch.tensor([tokenizer(words, is_split_into_words=True)["input_ids"]])
        mask = torch.ones_like(ids)
        with torch.no_grad():
            hidden = model.encoder(ids, mask, torch.zeros_like(ids), layers=[0, 2])
            gate = model.fusion.attention_map((hidden[0] + hidden[2]) / 2, mask).expand_as(hidden[0])
            mixed = gate * hidden[0] + (1 - gate) * hidden[2]
        found.append(gate[0])
        moved.append((mixed - hidden[2])[0])
        second.append(hidden[2][0])
    gate, change, base = (torch.cat(some).double().numpy() for some in (found, moved, second))
    of_hindi = table.filter(pa.compute.equal(table["language"], "hi")).to_pydict()
    assert of_hindi["channel"] == list(range(model.encoder.width)) and of_hindi["tokens"][0] == len(gate)
    np.testing.assert_allclose(of_hindi["gate"], gate.mean(0), atol=1e-6)
    np.testing.assert_allclose(of_hindi["deviation"], gate.std(0), atol=1e-5)
    expected = np.sqrt((change**2).sum(0) / (base**2).sum(0))
    np.testing.assert_allclose(of_hindi["moved"], expected, rtol=1e-4, atol=1e-6)


def test_mean_has_the_same_gate_everywhere_and_other_fusions_none(tmp_path: Path) -> None:
    mean = {"kind": "mean", "layer": 1, "weight": 0.25}
    table = measure(make_model(mean), mean, tmp_path)
    np.testing.assert_allclose(table["gate"].to_numpy(), 0.25)
    np.testing.assert_allclose(table["deviation"].to_numpy(), 0.0, atol=1e-8)
    said: list[str] = []
    progress = NoProgress()
    progress.say = said.append  # type: ignore[method-assign]
    settings = gates.Settings(on="phrasebook-pos", languages=("en",), sentences=2)
    data = gates.open_analysis_data(settings, source="en", store=tmp_path)
    context = AnalysisContext(ONE_PROCESS, tmp_path, progress=progress)
    for other in ({"kind": "last"}, {"kind": "mean", "layers": [0, 1]}, {"kind": "last"}):
        card = ModelCard("x", "y", fusion=other)
        assert gates.analyse(make_model(other), card, data, settings=settings, context=context).num_rows == 0
    assert [line.partition(" mixes")[0] for line in said] == ["fusion 'last'", "fusion 'mean'"], "each once"
    with pytest.raises(ArtefactError, match="none of the models mixes two layers"):
        gates.summarise(AnalysisTable(gates.Settings(languages=("en",)), pa.table({})))


def test_summary_shows_every_language_and_figures_are_written(tmp_path: Path) -> None:
    table = measure(make_model(DLFA), DLFA, tmp_path, on="phrasebook-parallel")
    count = len(table)
    names = {"task": [""] * count, "model": ["m"] * count, "seed": pa.array([1] * count, pa.int64())}
    whole = pa.table({**names, **{name: table.column(name) for name in table.column_names}})
    settings = gates.Settings(on="phrasebook-parallel", languages=("en", "hi"))
    result, files = write_result(AnalysisTable(settings, whole, "one", tmp_path / "out"))
    (shown,) = result.tables
    assert shown.head == ("language", "gate", "over channels", "over tokens", "moved", "correlation")
    assert [row[0] for row in shown.rows] == ["en", "hi", "mean of 2"]
    assert shown.rows[0][-1] == "1.0000"
    assert {path.name for path in files if path.suffix == ".svg"} == {
        "gates-phrasebook-parallel.svg",
        "gates-phrasebook-parallel-channels.svg",
    }
