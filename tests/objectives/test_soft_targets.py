"""Distributions as targets: the loss is torch's own cross-entropy with probabilities, weights included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from crossling.data.batching import Batch, join_examples, write_examples
from crossling.models.model import Model, build_model
from crossling.objectives import label_texts, label_words
from tiny import tiny_encoder

CLASSES = 4


def _build_model(objective: Any) -> Model:
    encoder = tiny_encoder()
    model = build_model(encoder, {"kind": "last"}).eval()
    model.heads[objective.name] = objective.build_head(encoder.width)
    return model.eval()


def _sum_loss(objective: Any, model: Model, arrays: dict[str, Any]) -> torch.Tensor:
    batch = model.prepare(arrays, torch.device("cpu"))
    loss = objective.sum_loss(model, batch).task
    assert loss is not None
    return loss


def test_soft_classes_are_learnt_by_cross_entropy(tmp_path: Path) -> None:
    """A labelled example, one with a distribution, and one with a weighted distribution, in one batch."""
    soft = np.random.default_rng(0).dirichlet([1.0] * CLASSES, size=2)
    plain = write_examples(tmp_path / "a.arrow", [{"ids": [np.array([2, 9, 3])], "gold": np.array([1], np.int32)}])
    taught = {
        "ids": [np.array([2, 9, 8, 3]), np.array([2, 7, 3])],
        "gold": np.array([0, 2], np.int32),
        "targets": [soft[0].astype(np.float16), (0.5 * soft[1]).astype(np.float16)],
    }
    examples = join_examples([plain, write_examples(tmp_path / "b.arrow", [taught])])
    assert examples.get("targets", 1).dtype == np.float16
    objective = label_texts.Objective("classify", classes=CLASSES, dropout=0.0)
    model = _build_model(objective)
    arrays = objective.collate(examples, Batch(np.arange(3), 4), size=5)
    assert arrays["targets"].shape == (5, CLASSES), "rows beyond the batch are there, and learn nothing"
    logits = objective.logits(model, model.prepare(arrays, torch.device("cpu")))[:3]
    expected = functional.cross_entropy(logits[:1], torch.tensor([1]))
    for row, weight in ((1, 1.0), (2, 0.5)):
        given = torch.tensor(soft[row - 1 : row], dtype=torch.float32)
        expected = expected + weight * functional.cross_entropy(logits[row : row + 1], given)
    torch.testing.assert_close(_sum_loss(objective, model, arrays), expected, rtol=1e-3, atol=1e-3)
    assert objective.count_targets(arrays).task == 3


def test_soft_tags_are_learnt_by_cross_entropy_and_words_without_a_tag_are_not(tmp_path: Path) -> None:
    soft = np.random.default_rng(1).dirichlet([1.0] * CLASSES, size=3)
    soft[1] = 0
    chunk = {
        "ids": [np.array([2, 9, 8, 7, 3])],
        "firsts": [np.array([1, 2, 3])],
        "gold": [np.array([0, -1, 2])],
        "targets": [soft.astype(np.float16).reshape(-1)],
    }
    examples = write_examples(tmp_path / "a.arrow", [chunk])
    objective = label_words.Objective("tag", classes=CLASSES, dropout=0.0)
    model = _build_model(objective)
    arrays = objective.collate(examples, Batch(np.arange(1), 6), size=2)
    logits = objective.logits(model, model.prepare(arrays, torch.device("cpu")))[0]
    given = torch.tensor(soft[[0, 2]], dtype=torch.float32)
    expected = functional.cross_entropy(logits[[1, 3]], given, reduction="sum")
    torch.testing.assert_close(_sum_loss(objective, model, arrays), expected, rtol=1e-3, atol=1e-3)
    assert objective.count_targets(arrays).task == 2


@pytest.mark.parametrize("kind", ["tag", "classify"])
def test_certain_targets_give_the_loss_of_labels(kind: str, tmp_path: Path) -> None:
    chunk: dict[str, Any] = {"ids": [np.array([2, 9, 8, 3])], "gold": np.array([3], np.int32)}
    objective: Any = label_texts.Objective(kind, classes=CLASSES, dropout=0.0)
    targets = np.eye(CLASSES)[[3]]
    if kind == "tag":
        chunk |= {"firsts": [np.array([1, 2])], "gold": [np.array([3, 0])]}
        objective, targets = label_words.Objective(kind, classes=CLASSES, dropout=0.0), np.eye(CLASSES)[[3, 0]]
    model = _build_model(objective)
    losses = []
    for extra in ({}, {"targets": [targets.astype(np.float16).reshape(-1)]}):
        examples = write_examples(tmp_path / f"{len(extra)}.arrow", [{**chunk, **extra}])
        losses.append(_sum_loss(objective, model, objective.collate(examples, Batch(np.arange(1), 4), size=1)))
    torch.testing.assert_close(losses[0], losses[1])
