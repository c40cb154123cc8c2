"""A contract for every registered fusion, and all of them under every head and family of encoders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.batching import Batch
from crossling.encoders.loading import load_encoder
from crossling.fusions import identify_fusion
from crossling.inference.evaluate import encode_rows, predict_rows
from crossling.models.model import Model, ModelCard, build_model, load_model, save_model
from crossling.registry import list_kinds, load_kind
from crossling.tasks import build_task
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, Stream, fit
from crossling.training.settings import TrainingSettings
from examples import make_rows
from tiny import FAMILIES, save_tiny, tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
KINDS = list_kinds("fusions")


def _table(kind: str, layer: int = 1) -> dict[str, Any]:
    """The least that a recipe must say of a kind."""
    needs_layer = "layer" in load_kind("fusions", kind).Settings.model_fields
    return {"kind": kind, "layer": layer} if needs_layer else {"kind": kind}


def _fusion(kind: str, *, layers: int = 3, width: int = 16) -> Any:
    module = load_kind("fusions", kind)
    torch.manual_seed(0)
    return module.build(module.Settings.model_validate(_table(kind)), layers=layers, width=width)


def _example(fusion: Any, width: int = 16) -> tuple[dict[int, torch.Tensor], torch.Tensor]:
    torch.manual_seed(1)
    hidden = {layer: torch.randn(3, 6, width, requires_grad=True) for layer in fusion.reads}
    return hidden, (torch.arange(6) < torch.tensor([6, 3, 4])[:, None]).long()


def _model(kind: str, encoder: Any, fusion: dict[str, Any]) -> tuple[Any, Model, Any]:
    module = load_kind("tasks", kind)
    rows = make_rows(module.Task.record)
    task = build_task(module.Settings(), module.Task.collect_labels([rows]))
    torch.manual_seed(0)
    model = build_model(encoder, fusion)
    model.heads["main"] = task.build_objective("main").build_head(model.encoder.width)
    return task, model, rows


def _train(task: Any, model: Model, rows: Any, folder: Path, **settings: Any) -> None:
    examples = encode_rows(task, [rows], model.encoder, cache=folder / "encoded", labels=task.labels)
    changes = {"epochs": 2, "batch": 8, "lr": 1e-3, **settings}
    fit(
        model,
        Stream(task.build_objective("main"), examples),
        TrainingSettings(**changes),
        Execution(ONE, 1, folder / "work"),
    )


@pytest.mark.parametrize("layers", [1, 2, 3, 12])
@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_reads_existing_layers_and_keeps_the_shape(kind: str, layers: int) -> None:
    fusion = _fusion(kind, layers=layers)
    assert isinstance(fusion.reads, tuple)
    assert fusion.reads == tuple(sorted(set(fusion.reads)))
    assert set(fusion.reads) <= set(range(layers + 1))
    assert layers in fusion.reads
    hidden, mask = _example(fusion)
    assert fusion(hidden, mask).shape == (3, 6, 16)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_passes_gradients_to_all_that_it_reads(kind: str, training: bool) -> None:
    fusion = _fusion(kind).train(training)
    hidden, mask = _example(fusion)
    fused = fusion(hidden, mask)
    (fused * torch.randn(fused.shape) * mask[:, :, None]).sum().backward()
    for layer, values in hidden.items():
        assert values.grad[mask.bool()].abs().sum() > 0, layer
    assert all(parameter.grad is not None for parameter in fusion.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_gives_the_same_bits_in_evaluation(kind: str) -> None:
    fusion = _fusion(kind)
    hidden, mask = _example(fusion)
    fusion(hidden, mask)
    fusion.eval()
    assert torch.equal(fusion(hidden, mask), fusion(hidden, mask))


@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_works_in_reduced_precision(kind: str) -> None:
    fusion = _fusion(kind).eval()
    hidden, mask = _example(fusion)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        reduced = fusion(hidden, mask)
        narrow = fusion({layer: h.bfloat16() for layer, h in hidden.items()}, mask)
    assert reduced.dtype == torch.float32
    assert narrow.dtype == torch.bfloat16
    assert torch.allclose(reduced, fusion(hidden, mask), atol=0.05)
    assert torch.allclose(narrow.float(), fusion(hidden, mask), atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_keeps_its_settings_in_a_model_card(kind: str) -> None:
    settings = load_kind("fusions", kind).Settings
    first = settings.model_validate(_table(kind))
    assert settings.model_validate(first.model_dump(mode="json")) == first


KNOWN_BY = {
    "last": {"kind"},
    "mean": {"kind", "layer", "weight"},
    "scalar_mix": {"kind", "embeddings", "lr"},
    "dlfa": {"kind", "layer", "branches", "r", "reading", "start", "lr"},
}
"""The settings that stored results are known by, which must not change."""
OTHERS: dict[str, dict[str, Any]] = {
    "mean": {"layer": None, "layers": [0, 1]},
    "scalar_mix": {"layers": [0, 1]},
    "dlfa": {"second": 2, "statistics": "debiased", "frozen": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_later_settings_count_only_where_they_are_used(kind: str) -> None:
    settings = load_kind("fusions", kind).Settings
    table = settings.model_validate(_table(kind)).model_dump()
    for stored in (table, json.loads(json.dumps(table))):
        assert identify_fusion(stored).keys() == KNOWN_BY[kind]
    changed = settings.model_validate({**_table(kind), **OTHERS.get(kind, {})}).model_dump()
    added = set(changed) - KNOWN_BY[kind]
    assert added == set(getattr(load_kind("fusions", kind), "ADDED", ()))
    assert identify_fusion(changed).keys() == KNOWN_BY[kind] | added


@pytest.mark.parametrize("task_kind", list_kinds("tasks"))
@pytest.mark.parametrize("family", FAMILIES)
def test_dlfa_works_under_every_head_whatever_the_batch(task_kind: str, family: str, tmp_path: Path) -> None:
    """Trained for a few steps, so that the normalisation has statistics of its own; then a row at a time."""
    task, model, rows = _model(task_kind, tiny_encoder(family), {"kind": "dlfa", "layer": 2})
    before = {name: buffer.clone() for name, buffer in model.fusion.named_buffers()}
    _train(task, model, rows, tmp_path, epochs=1)
    assert all(not torch.equal(before[name], buffer) for name, buffer in model.fusion.named_buffers())
    many = predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path, batch=16)
    one = predict_rows(model, task, rows, head="main", distributed=ONE, cache=tmp_path, batch=1)
    assert many.n_rows == len(rows)
    assert many.table.column("predicted").equals(one.table.column("predicted"))
    assert np.allclose(many.column("confidence"), one.column("confidence"), atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 5])
def test_every_fusion_trains_in_batches_of_any_size(kind: str, size: int, tmp_path: Path) -> None:
    task, model, rows = _model("tag", tiny_encoder("bert"), _table(kind))
    before = {name: p.clone() for name, p in model.named_parameters()}
    _train(task, model, rows, tmp_path, batch=size, epochs=1)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())
    reached = {"fusion", "heads", "encoder"} if list(model.fusion.parameters()) else {"heads", "encoder"}
    moved = {name.split(".")[0] for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert moved == reached


def _prepare_step(task: Any, model: Model, rows: Any, folder: Path, *, count: int, size: int) -> tuple[Any, Any]:
    """An objective and a batch; the model as in training, but without dropout."""
    objective = task.build_objective("main")
    examples = encode_rows(task, [rows], model.encoder, cache=folder, labels=task.labels)
    model.eval()
    model.fusion.train()
    return objective, model.prepare(objective.collate(examples, Batch(np.arange(count), 24), size=size), ONE.device)


@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_learns_a_task(kind: str, tmp_path: Path) -> None:
    task, model, rows = _model("tag", tiny_encoder("xlm-r"), _table(kind))
    objective, batch = _prepare_step(task, model, rows, tmp_path, count=len(rows), size=len(rows))
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(200):
        optimiser.zero_grad()
        loss = objective.sum_loss(model, batch).task
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
        if losses[-1] < 0.5 * losses[0]:
            break
    assert losses[-1] < 0.5 * losses[0]


def test_empty_rows_do_not_change_a_training_step(tmp_path: Path) -> None:
    """The rows that fill a batch up come from the collator itself here."""
    results = []
    for size in (5, 9):
        task, model, rows = _model("tag", tiny_encoder("bert"), {"kind": "dlfa", "layer": 1})
        objective, batch = _prepare_step(task, model, rows, tmp_path, count=5, size=size)
        objective.sum_loss(model, batch).task.backward()
        results.append([*(p.grad for p in model.fusion.parameters()), *model.fusion.buffers()])
    for exact, filled in zip(*results, strict=True):
        assert torch.allclose(exact, filled, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_every_fusion_is_saved_and_loaded_with_its_model(kind: str, tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "encoder", family="xlm-r")
    task, model, rows = _model("tag", load_encoder(str(folder)), _table(kind))
    model.trim(encode_rows(task, [rows], model.encoder, cache=tmp_path, labels=task.labels).distinct_ids())
    _train(task, model, rows, tmp_path)
    stored = {"main": {"settings": task.settings.model_dump(mode="json"), "labels": list(task.labels)}}
    card = ModelCard(str(folder), model.encoder.identity, fusion=_table(kind), tasks=stored)
    save_model(model, card, tmp_path / "model")
    loaded, _ = load_model(tmp_path / "model")
    state = model.fusion.state_dict()
    assert loaded.fusion.state_dict().keys() == state.keys()
    assert all(torch.equal(value, state[name]) for name, value in loaded.fusion.state_dict().items())
    own, again = (predict_rows(m, task, rows, head="main", distributed=ONE, cache=tmp_path) for m in (model, loaded))
    assert np.allclose(own.column("confidence"), again.column("confidence"), atol=1e-6)


@pytest.mark.parametrize("statistics", ["running", "debiased"])
def test_stopped_run_restores_running_statistics(statistics: str, tmp_path: Path) -> None:
    """Cut after the first of two epochs and continued: the same weights and the same running statistics."""

    class StoppedError(Exception):
        pass

    def run(name: str, *, stop: bool) -> dict[str, torch.Tensor]:
        table = {"kind": "dlfa", "layer": 1, "statistics": statistics}
        task, model, rows = _model("tag", tiny_encoder("bert"), table)
        examples = encode_rows(task, [rows], model.encoder, cache=tmp_path / "encoded", labels=task.labels)
        epochs = 0

        def evaluate() -> float:
            nonlocal epochs
            epochs += 1
            if stop and epochs == 2:
                raise StoppedError
            return float(epochs)

        settings = TrainingSettings(epochs=3, batch=8, lr=1e-3)
        stream = Stream(task.build_objective("main"), examples)
        fit(model, stream, settings, Execution(ONE, 1, tmp_path / name), evaluate=evaluate)
        return model.fusion.state_dict()

    expected = run("whole", stop=False)
    with pytest.raises(StoppedError):
        run("cut", stop=True)
    found = run("cut", stop=False)
    assert all(torch.equal(found[name], value) for name, value in expected.items())
