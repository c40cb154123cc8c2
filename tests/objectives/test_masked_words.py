"""Masked words: which are masked and by what, that nothing but seed, epoch and text decides it, and the loss."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from crossling.data.batching import Batch, Examples, write_examples
from crossling.data.draws import draw_uniform
from crossling.encoders.vocabulary import trim_encoder
from crossling.models.model import Model, build_model
from crossling.objectives.inputs import IGNORED
from crossling.objectives.masked_words import SHORT, MaskingSettings, Objective
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit
from crossling.training.mixture import Stream
from crossling.training.settings import TrainingSettings
from tiny import tiny_encoder

LENGTH = 48


def make_examples(folder: Path, count: int = 200, *, words: int = 3, seed: int = 0) -> Examples:
    """Texts of random subwords between special ones, in words of at most ``words`` subwords."""
    encoder = tiny_encoder()
    generator = np.random.default_rng(seed)
    ids, numbers = [], []
    for _ in range(count):
        sizes = generator.integers(1, words + 1, generator.integers(3, 14))
        inside = generator.integers(5, len(encoder.tokenizer), sizes.sum())
        ids.append(np.concatenate([[2], inside, [3]]))
        numbers.append(np.concatenate([[-1], np.repeat(np.arange(len(sizes)), sizes), [-1]]))
    return write_examples(folder / "examples.arrow", [{"ids": ids, "words": numbers}])


def make_objective(seed: int = 1, **settings: Any) -> Objective:
    return Objective("words", MaskingSettings(**settings), tiny_encoder(), seed=seed)


def collate_all(objective: Objective, examples: Examples, *, epoch: int = 0) -> tuple[Any, Any, Any]:
    """The masked inputs of all texts, the true ones, and which places are to be predicted."""
    rows = np.arange(len(examples))
    batch = objective.collate(examples, Batch(rows, LENGTH, epoch), size=len(rows))
    truth = np.full_like(batch["ids"], -1)
    for row in rows:
        truth[row, : examples.lengths[row]] = examples.get("ids", int(row))
    chosen = np.zeros(truth.size, bool)
    chosen[batch["places"][batch["labels"] != IGNORED]] = True
    assert np.array_equal(
        truth.reshape(-1)[batch["places"]][batch["labels"] >= 0], batch["labels"][batch["labels"] >= 0]
    )
    return batch["ids"], truth, chosen.reshape(truth.shape)


def test_shares_of_masked_random_and_kept_subwords(tmp_path: Path) -> None:
    objective, examples = make_objective(), make_examples(tmp_path, 2_000)
    masked, truth, chosen = collate_all(objective, examples)
    inside = (truth >= 5).sum(axis=1)
    assert np.array_equal(chosen.sum(axis=1), np.maximum(1, np.floor(0.15 * inside + 0.5)))
    assert not chosen[truth < 5].any(), "special subwords and padding are never masked"
    assert np.array_equal(masked[~chosen], truth[~chosen])
    now, then = masked[chosen], truth[chosen]
    assert np.mean(now == objective.mask_id) == pytest.approx(0.8, abs=0.02)
    assert np.mean(now == then) == pytest.approx(0.1, abs=0.02)
    others = now[(now != objective.mask_id) & (now != then)]
    assert len(others) / len(now) == pytest.approx(0.1, abs=0.02)
    assert np.isin(others, objective.ordinary).all()
    assert len(np.unique(others)) > 100
    # Every place is as likely: the mean place of a masked subword is the middle of its text.
    places = np.nonzero(chosen)[1] - 1
    assert np.mean(places / (inside[np.nonzero(chosen)[0]] - 1)) == pytest.approx(0.5, abs=0.02)


def test_masks_depend_on_text_epoch_and_seed_not_on_batch(tmp_path: Path) -> None:
    objective, examples = make_objective(), make_examples(tmp_path)
    whole, truth, _ = collate_all(objective, examples)
    part = objective.collate(examples, Batch(np.array([17, 3]), 64), size=5)
    for place, row in enumerate((17, 3)):
        length = examples.lengths[row]
        assert np.array_equal(part["ids"][place, :length], whole[row, :length])
    again, _, _ = collate_all(make_objective(), examples)
    assert np.array_equal(again, whole)
    later, _, _ = collate_all(objective, examples, epoch=1)
    other, _, _ = collate_all(make_objective(seed=2), examples)
    for different in (later, other):
        assert np.mean((different != whole)[truth >= 5]) > 0.15


def test_batches_of_one_shape_have_arrays_of_one_shape(tmp_path: Path) -> None:
    examples = make_examples(tmp_path)
    for whole_words in (False, True):
        objective = make_objective(whole_words=whole_words)
        shapes = set()
        for rows in ([0, 1, 2, 3], [4, 5], [6, 7, 8, 9]):
            batch = objective.collate(examples, Batch(np.array(rows), LENGTH), size=4)
            assert objective.count_targets(batch).task == (batch["labels"] != IGNORED).sum() > 0
            shapes.add(tuple((name, values.shape) for name, values in sorted(batch.items())))
        assert len(shapes) == 1


def test_whole_words_are_masked_whole(tmp_path: Path) -> None:
    examples = make_examples(tmp_path, 500)
    _, truth, chosen = collate_all(make_objective(whole_words=True), examples)
    texts = 0
    for row in range(len(examples)):
        words = examples.get("words", row)
        picked = chosen[row, : len(words)]
        for word in np.unique(words[words >= 0]):
            assert len(set(picked[words == word])) == 1
        share = max(1, np.floor(0.15 * (words >= 0).sum() + 0.5))
        assert picked.sum() <= max(share, SHORT)
        texts += bool(picked.any())
    assert texts == len(examples)
    assert chosen.sum() / (truth >= 5).sum() == pytest.approx(0.15, abs=0.04)


def test_text_of_special_subwords_has_no_targets(tmp_path: Path) -> None:
    ids = [np.array([2, 3]), np.array([2, 1, 3])]  # 1 is the unknown one
    examples = write_examples(tmp_path / "e.arrow", [{"ids": ids}])
    objective = make_objective()
    assert objective.count_targets(objective.collate(examples, Batch(np.arange(2), 8), size=2)).task == 0


def test_draws_are_uniform_and_independent() -> None:
    numbers = draw_uniform(3, 1, 0, np.arange(1000), 50)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts = np.histogram(numbers, bins=20, range=(0, 1))[0]
    assert np.abs(counts / counts.mean() - 1).max() < 0.07
    for other in (
        draw_uniform(3, 2, 0, np.arange(1000), 50),
        draw_uniform(3, 1, 1, np.arange(1000), 50),
        numbers[:, ::-1],
    ):
        assert abs(np.corrcoef(numbers.ravel(), other.ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[:-1].ravel(), numbers[1:].ravel())[0, 1]) < 0.02


def build(objective: Objective) -> Model:
    torch.manual_seed(0)
    model = build_model(tiny_encoder(), {"kind": "last"})
    model.heads["words"] = head = objective.build_head(model.encoder.width)
    torch.nn.init.normal_(head.bias)
    return model.eval()


def test_loss_equals_full_softmax_at_masked_places(tmp_path: Path) -> None:
    objective, examples = make_objective(), make_examples(tmp_path, 6)
    model = build(objective)
    arrays = objective.collate(examples, Batch(np.arange(6), LENGTH), size=8)
    batch = model.prepare(arrays, torch.device("cpu"))
    expected, right = 0.0, 0
    for row in range(6):
        length = int(examples.lengths[row])
        ids = torch.from_numpy(arrays["ids"][row : row + 1, :length])
        alone = {"ids": ids, "mask": torch.ones_like(ids)}
        with torch.no_grad():
            table = model.encoder.model.embeddings.word_embeddings.weight
            scores = model.heads["words"](model.represent(alone)[0], table)
        for place, label in zip(arrays["places"], arrays["labels"], strict=True):
            if label != IGNORED and place // LENGTH == row:
                expected -= float(functional.log_softmax(scores[place % LENGTH], dim=-1)[label])
                right += int(scores[place % LENGTH].argmax()) == label
    with torch.no_grad():
        assert float(objective.sum_loss(model, batch).task) == pytest.approx(expected, rel=1e-5)
        outputs = objective.predict(model, batch)
    real = outputs["text"] >= 0
    assert int(real.sum()) == objective.count_targets(arrays).task
    assert float(outputs["loss"][real].sum()) == pytest.approx(expected, rel=1e-5)
    assert int(outputs["right"][real].sum()) == right


def test_frozen_encoder_gets_no_gradient_and_no_dropout(tmp_path: Path) -> None:
    examples = make_examples(tmp_path, 6)
    objective = Objective("words", MaskingSettings(), tiny_encoder(), seed=1, frozen=True)
    model = build(objective)
    batch = model.prepare(objective.collate(examples, Batch(np.arange(6), LENGTH), size=6), torch.device("cpu"))
    still = float(objective.sum_loss(model, batch).task.detach())
    model.train()
    for parameter in model.encoder.parameters():
        parameter.requires_grad_(False)
    loss = objective.sum_loss(model, batch).task
    assert float(loss.detach()) == still
    assert model.encoder.training
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is None for parameter in model.encoder.parameters())
    assert all(parameter.grad is not None for parameter in model.heads.parameters())


def _hear(losses: list[float], values: dict[str, float], step: int) -> None:
    losses.append(values["loss"])


@pytest.mark.gpu
@pytest.mark.parametrize("frozen", [True, False])
def test_captured_losses_equal_plain_losses(tmp_path: Path, frozen: bool) -> None:
    distributed = Distributed(0, 1, torch.device("cuda"), torch.float32)
    heard: dict[bool, list[float]] = {False: [], True: []}
    for capture, losses in heard.items():
        objective = Objective("words", MaskingSettings(), tiny_encoder(), seed=1, frozen=frozen)
        model = build(objective)
        model.encoder.requires_grad_(not frozen)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        model.encoder.model.config.attention_probs_dropout_prob = 0.0
        settings = TrainingSettings(epochs=2, batch=8, lr=1e-3)
        execution = Execution(
            distributed,
            1,
            tmp_path / str(capture),
            capture=capture,
            track=partial(_hear, losses),
        )
        fit(model, Stream(objective, make_examples(tmp_path)), settings, execution)
    assert len(heard[True]) > 3
    assert heard[True] == pytest.approx(heard[False], rel=1e-4)


def test_trimmed_table_renumbers_labels_and_random_subwords(tmp_path: Path) -> None:
    examples, encoder = make_examples(tmp_path, 20), tiny_encoder()
    full = trim_encoder(encoder, examples.distinct_ids())
    assert len(full.rows) < len(full.to_rows)
    objective = Objective("words", MaskingSettings(mask=0.0, random=1.0), tiny_encoder(), seed=1, to_rows=full.to_rows)
    batch = objective.collate(examples, Batch(np.arange(20), LENGTH), size=20)
    assert (full.to_rows[batch["ids"][batch["ids"] >= 0]] >= 0).all()
    labels = batch["labels"][batch["labels"] != IGNORED]
    plain = make_objective().collate(examples, Batch(np.arange(20), LENGTH), size=20)["labels"]
    assert np.array_equal(full.rows[labels], plain[plain != IGNORED])
