"""A tiny model that is about to learn a task from made-up rows: what the tests of training begin with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from crossling.encoders.encoder import Encoder
from crossling.inference.evaluate import encode_rows
from crossling.models.model import Model, build_model
from crossling.registry import load_kind
from crossling.tasks import build_task
from crossling.training.mixture import Stream
from examples import make_rows
from tiny import tiny_encoder


def make_learner(
    folder: Path,
    *,
    kind: str = "tag",
    family: str = "bert",
    encoder: Encoder | None = None,
    fusion: dict[str, Any] | None = None,
    count: int = 40,
    trim: bool = False,
    dropout: bool = True,
) -> tuple[Model, Stream]:
    """A model with a head named ``main``, and the stream that it learns from; the same weights every time."""
    module = load_kind("tasks", kind)
    rows = make_rows(module.Task.record, count)
    task = build_task(module.Settings(), module.Task.collect_labels([rows]))
    torch.manual_seed(0)
    model = build_model(encoder or tiny_encoder(family), fusion or {"kind": "last"})
    objective = task.build_objective("main")
    model.heads["main"] = objective.build_head(model.encoder.width)
    examples = encode_rows(task, [rows], model.encoder, cache=folder / "encoded", labels=task.labels)
    if trim:
        model.trim(examples.distinct_ids())
    if not dropout:
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
    return model, Stream(objective, examples)


def update_matrix(
    build: Callable[[list[dict[str, Any]]], torch.optim.Optimizer], steps: int
) -> tuple[list[torch.Tensor], torch.optim.Optimizer]:
    """A matrix after each update by the same made-up gradients, of very different sizes in each row."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.nn.Parameter(torch.randn(40, 300, generator=generator))
    sizes = 10 ** torch.linspace(-3, 0, 40)[:, None]
    optimiser = build([{"params": [weight], "lr": 1e-2, "weight_decay": 0.1}])
    seen = []
    for _ in range(steps):
        weight.grad = sizes * (torch.randn(40, 300, generator=generator) + 0.5)
        optimiser.grad_scale = torch.tensor(2.0)  # type: ignore[attr-defined]
        optimiser.step()
        seen.append(weight.detach().clone())
    return seen, optimiser
