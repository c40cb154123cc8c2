"""What every analysis keeps to, and that one model is analysed once."""

from __future__ import annotations

import inspect
from contextlib import nullcontext
from pathlib import Path
from types import FunctionType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from crossling.analyses import Analysis, AnalysisContext, Draws, Prepares, WritesCsv, stored
from crossling.analyses.result import AnalysisTable, find_results, write_result
from crossling.analyses.stored import analyse_model
from crossling.encoders.loading import load_encoder, save_encoder
from crossling.errors import UserError
from crossling.models.model import ModelCard, build_model, save_model
from crossling.registry import list_kinds, load_kind
from crossling.training.distributed import Distributed
from tiny_families import CASES, DECODERS, ENCODER_DECODERS, list_cases, make_family

ONE_PROCESS = Distributed(0, 1, torch.device("cpu"), torch.float32)
SETTINGS: dict[str, dict[str, Any]] = {
    "distances": {"on": "phrasebook-parallel", "languages": ("de", "hi"), "sentences": 12, "pairs": 30},
    "gates": {"on": "phrasebook-parallel", "languages": ("en", "hi"), "sentences": 6},
    "head_probe": {
        "tasks": {"ner": {"on": "phrasebook-ner"}, "sentiment": {"on": "phrasebook-sentiment"}},
        "languages": ("en", "hi"),
        "rows": 20,
        "test_rows": 10,
    },
    "head_updates": {},
    "perplexity": {
        "on": "phrasebook-pos",
        "languages": ("de", "hi"),
        "sentences": 3,
        "head": "trained",
        "training": {"train": ("phrasebook-pos:de:dev[:20]",), "batch": 8},
    },
    "probe": {
        "tasks": {"pos": {"on": "phrasebook-pos"}, "nli": {"on": "phrasebook-nli"}},
        "languages": ("en", "hi"),
        "rows": 20,
        "test_rows": 10,
    },
    "similarity": {"on": "phrasebook-parallel", "languages": ("de", "hi"), "sentences": 6},
}
"""For each analysis, settings that need no file."""


def save_small(folder: Path, encoder: Path, *, add: float = 0.0) -> Path:
    model = build_model(load_encoder(str(encoder)), {"kind": "mean", "layer": 1})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(add)
    save_model(model, ModelCard(str(encoder), model.encoder.identity, fusion={"kind": "mean", "layer": 1}), folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store for rows of the embedded corpus, which are made once: half of what an analysis of a tiny model takes."""
    return tmp_path_factory.mktemp("corpus")


def prepare(name: str, store: Path) -> tuple[Any, Any]:
    kind = load_kind("analyses", name)
    settings = kind.Settings(**SETTINGS[name])
    return settings, kind.open_analysis_data(settings, source="en", store=store)


@pytest.mark.parametrize("name", list_kinds("analyses"))
def test_every_kind_fulfils_the_contract(name: str, tmp_path: Path, tiny_folder: Path, corpus: Path) -> None:
    kind = load_kind("analyses", name)
    assert isinstance(kind.VERSION, int)
    assert kind.Settings.model_config["frozen"]
    assert set(getattr(kind, "MEASURES", ())) <= set(kind.SCHEMA.names)
    for protocol in (Analysis, Prepares, Draws, WritesCsv):
        for function in (one for one in vars(protocol).values() if isinstance(one, FunctionType) and one.__doc__):
            defined = getattr(kind, function.__name__, None)
            assert defined or protocol is not Analysis, f"{name} has no {function.__name__}"
            wanted = [one for one in inspect.signature(function).parameters if one != "self"]
            assert defined is None or list(inspect.signature(defined).parameters) == wanted
    settings, data = prepare(name, corpus)
    assert settings.kind == name
    assert data.fingerprints() == prepare(name, corpus)[1].fingerprints(), "the same data, the same fingerprints"
    table = analyse_model(
        settings, data, save_small(tmp_path / "m", tiny_folder), AnalysisContext(ONE_PROCESS, tmp_path / "s")
    )
    assert table.schema.equals(kind.SCHEMA)
    assert len(table)


@pytest.mark.parametrize("name", list_kinds("analyses"))
def test_finished_table_is_read_from_the_store(
    name: str, tmp_path: Path, tiny_folder: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, data = prepare(name, corpus)
    folder, context = save_small(tmp_path / "m", tiny_folder), AnalysisContext(ONE_PROCESS, tmp_path / "s")
    first = analyse_model(settings, data, folder, context)
    (path,) = (tmp_path / "s" / "analyses").rglob("*.parquet")

    def refuse(_: Path) -> None:
        raise AssertionError("the model was loaded again")

    with monkeypatch.context() as patch:
        patch.setattr("crossling.models.model.load_model", refuse)
        assert analyse_model(settings, data, folder, context).equals(first)
        path.write_bytes(path.read_bytes()[:-20])
        with pytest.raises(AssertionError, match="loaded again"):
            analyse_model(settings, data, folder, context)
    assert analyse_model(settings, data, folder, context).equals(first), "a damaged table is made again"
    other = analyse_model(settings, data, save_small(tmp_path / "other", tiny_folder, add=0.3), context)
    assert not other.equals(first), "another model has another table"


GROUPED = ("eurobert", "gemma3_text", "qwen3")
"""Families whose heads share keys here."""
REFUSED = {
    "head_probe": dict.fromkeys(GROUPED, "grouped-query attention")
    | dict.fromkeys(ENCODER_DECODERS, "Probe tasks of words"),
    "head_updates": dict.fromkeys(GROUPED, "grouped-query attention"),
    "perplexity": dict.fromkeys([*ENCODER_DECODERS, *DECODERS], "no mask"),
}
"""Analyses that a family cannot have, with a part of the message that says why."""


@pytest.mark.parametrize("label", list_cases("albert", "deberta-v2", "t5", "gemma3_text"))
def test_analyses_read_models_of_other_families_or_say_why_not(label: str, tmp_path: Path, corpus: Path) -> None:
    model = save_small(tmp_path / "m", save_encoder(make_family(label), tmp_path / "encoder"), add=0.01)
    for name in list_kinds("analyses"):
        settings, data = prepare(name, corpus)
        reason = REFUSED.get(name, {}).get(CASES[label][0])
        with pytest.raises(UserError, match=reason) if reason else nullcontext():
            assert len(analyse_model(settings, data, model, AnalysisContext(ONE_PROCESS, tmp_path / "s"))), name


def test_other_data_or_settings_are_another_table(tmp_path: Path, corpus: Path) -> None:
    settings, data = prepare("similarity", corpus)
    paths = {
        stored._table_path(changed, data, "model-1", store=tmp_path)
        for changed in (settings, settings.model_copy(update={"pool": "cls"}))
    }
    fewer = load_kind("analyses", "similarity").Data(data.pairs[:1])
    assert len(paths | {stored._table_path(settings, fewer, "model-1", store=tmp_path)}) == 3


@pytest.mark.parametrize("name", list_kinds("analyses"))
def test_results_come_back_as_objects(name: str, tmp_path: Path, tiny_folder: Path, corpus: Path) -> None:
    settings, data = prepare(name, corpus)
    table = analyse_model(
        settings, data, save_small(tmp_path / "m", tiny_folder, add=0.1), AnalysisContext(ONE_PROCESS, tmp_path / "s")
    )
    count = len(table)
    names = {"task": [""] * count, "model": ["m|<b>"] * count, "seed": pa.array([1] * count, pa.int64())}
    whole = pa.table({**names, **{column: table.column(column) for column in table.column_names}})
    if "measure" in type(settings).model_fields:
        settings = settings.model_copy(update={"measure": "score"})
    result, files = write_result(AnalysisTable(settings, whole, "one model", tmp_path / "out"))
    (again,) = find_results(tmp_path / "out")
    assert again == result and again.tables and all(one.rows for one in again.tables)
    assert all(path.is_file() for path in (*files, *again.figures.values()))
    assert pq.read_table(next(path for path in files if path.suffix == ".parquet")).equals(whole)


def test_other_files_are_no_results(tmp_path: Path) -> None:
    for stem, text in (("a", "{}"), ("b", "no JSON"), ("c", '{"analysis": "probe"}'), ("d", "[1]")):
        (tmp_path / f"{stem}.json").write_text(text, encoding="utf-8")
        (tmp_path / f"{stem}.parquet").touch()
    assert find_results(tmp_path) == []
