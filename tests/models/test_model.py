"""Models on disk: whole again after trimming, refused when damaged or built on something else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from crossling.encoders.loading import load_encoder
from crossling.errors import ArtefactError
from crossling.models.model import ROWS, Model, ModelCard, build_model, load_model, save_model
from crossling.tasks import build_task, parse_task
from tiny import save_tiny

LABELS = ("B-X", "O")


def _saved(folder: Path, encoder_folder: Path, *, trim: bool) -> Model:
    task = build_task(parse_task("ner"), LABELS)
    model = build_model(load_encoder(str(encoder_folder)), {"kind": "last"})
    model.heads["tag"] = task.build_objective("tag").build_head(model.encoder.width)
    if trim:
        model.trim(np.arange(20, 40))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.01)
    stored = {"tag": {"settings": task.settings.model_dump(mode="json"), "labels": list(LABELS)}}
    save_model(model, ModelCard(str(encoder_folder), model.encoder.identity, tasks=stored), folder)
    return model


@pytest.mark.parametrize("trim", [False, True])
def test_saved_model_loads_with_whole_vocabulary(tmp_path: Path, tiny_folder: Path, trim: bool) -> None:
    trained = _saved(tmp_path / "model", tiny_folder, trim=trim)
    loaded, card = load_model(tmp_path / "model")
    base = load_encoder(str(tiny_folder)).model.get_input_embeddings().weight
    table = loaded.encoder.model.get_input_embeddings().weight
    assert card.tasks["tag"]["labels"] == list(LABELS)
    assert table.shape == base.shape
    assert torch.allclose(table[20:40], base[20:40] + 0.01)
    if trained.trimmed is not None:
        others = np.setdiff1d(np.arange(len(base)), trained.trimmed.rows)
        assert len(others) > 10
        assert torch.equal(table[others], base[others])
    ids = torch.arange(20, 40)[None]
    batch = {"ids": ids, "mask": torch.ones_like(ids)}
    own = {**batch, "ids": torch.from_numpy(trained.trimmed.map_ids(ids.numpy()))} if trained.trimmed else batch
    assert torch.allclose(loaded.represent(batch), trained.eval().represent(own), atol=1e-6)


def test_trimmed_weights_take_less_disk_space(tmp_path: Path, tiny_folder: Path) -> None:
    for trim in (False, True):
        _saved(tmp_path / str(trim), tiny_folder, trim=trim)
    weights = load_file(tmp_path / "True" / "model.safetensors")
    assert len(weights[ROWS]) < 40
    sizes = {trim: (tmp_path / str(trim) / "model.safetensors").stat().st_size for trim in (False, True)}
    assert sizes[True] < sizes[False]


def test_model_of_another_encoder_raises(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "encoder", family="xlm-r")
    _saved(tmp_path / "model", folder, trim=True)
    save_tiny(folder, family="xlm-r", seed=5)
    with pytest.raises(ArtefactError, match="was trained from"):
        load_model(tmp_path / "model")


def test_errors_distinguish_damaged_from_missing_models(tmp_path: Path, tiny_folder: Path) -> None:
    with pytest.raises(ArtefactError, match="holds no model"):
        load_model(tmp_path)
    _saved(tmp_path / "model", tiny_folder, trim=False)
    (tmp_path / "model" / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(ArtefactError, match="cannot be read"):
        load_model(tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text(json.dumps({"x": 1}), encoding="utf-8")
    with pytest.raises(ArtefactError, match="not a model card"):
        load_model(tmp_path / "model")
