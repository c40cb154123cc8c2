"""Tiny trained models of every task, made in a second or two: what the command line and predictions are tested with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from crossling.data.records import LabelledPair, LabelledText, Question, TaggedSentence
from crossling.data.rows import Rows
from crossling.encoders.loading import load_encoder
from crossling.inference.predictor import Predictor
from crossling.models.model import Model, ModelCard, save_model
from crossling.recipe.recipe import EncoderSettings
from crossling.registry import load_kind
from crossling.stages.context import StageContext
from crossling.training.distributed import Distributed
from examples import make_rows
from tiny import save_tiny

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
LEARNING = {"epochs": 25, "batch": 8, "lr": 1e-2, "warmup": 0.0, "clip": 0.0}
"""Enough for a tiny encoder without dropout to distinguish cats and dogs from the rest."""


def train_tiny(
    encoder: Path, work: Path, task: str | dict[str, Any], *, fusion: dict[str, Any] | None = None, **settings: Any
) -> tuple[Model, ModelCard]:
    """A model of a task, trained by the real stage on made-up rows; by default for one epoch."""
    stage = load_kind("stages", "finetune")
    table = {"task": task, "train": "made:en", "select": "last", "epochs": 1, "fusion": fusion or {"kind": "last"}}
    loaded = stage.Settings.model_validate({**table, **settings})
    rows = make_rows(load_kind("tasks", loaded.task.kind).Task.record)
    context = StageContext(1, "en", load_encoder(str(encoder)), EncoderSettings(name=str(encoder)), ONE, work, work)
    model, card, _ = stage.train(loaded, stage.Data((rows,), None), context)
    return model, card


def save_trained(folder: Path, task: str) -> Path:
    """The folder of a saved model that has learnt its task, with the encoder that it began as."""
    encoder = save_tiny(folder / "encoder", family="xlm-r", layers=1)
    config = json.loads((encoder / "config.json").read_text(encoding="utf-8"))
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (encoder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model, card = train_tiny(encoder, folder / "work", {"preset": task, "dropout": 0.0}, **LEARNING)
    save_model(model, card, folder)
    return folder


def list_inputs(rows: Rows) -> list[Any]:
    """Rows as a user would give them to a predictor."""
    return [_AS_INPUT[type(record)](record) for record in rows]


_AS_INPUT: dict[Any, Any] = {
    TaggedSentence: lambda record: list(record.words),
    LabelledText: lambda record: record.text,
    LabelledPair: lambda record: (record.first, record.second),
    Question: lambda record: (record.question, record.context),
}


def wrap(model: Model, card: ModelCard) -> Predictor:
    """A predictor of a model in memory, as it came out of training."""
    return Predictor.from_model(model, card, distributed=ONE)
