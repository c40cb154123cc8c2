"""The loss of aligned words against one written out pair by pair."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from crossling.data.batching import Batch, write_examples
from crossling.encoders.encoder import Encoder
from crossling.models.model import Model, build_model
from crossling.objectives import Terms
from crossling.objectives.aligned_words import AdjustmentSettings, Objective, PairedExamples
from crossling.training.loss import add_terms, weigh_terms
from tiny import tiny_encoder

CPU = torch.device("cpu")
SENTENCES = [
    # source ids, word of each subword; target likewise; links
    ([7, 8, 9], [0, 0, 1], [10, 11], [0, 1], [(0, 1), (1, 0)]),
    ([12, 13, 14, 15, 16], [0, 1, 1, 2, 3], [17, 18, 19, 20], [0, 0, 0, 1], [(3, 0), (0, 1)]),
    ([21], [0], [22, 23, 24, 25, 26, 27], [0, 1, 2, 2, 3, 4], [(0, 4)]),
]


def _examples(path: Path, encoder: Encoder) -> PairedExamples:
    first, last = encoder.tokenizer.cls_token_id, encoder.tokenizer.sep_token_id
    columns: dict[str, list[Any]] = {"ids": [], "words": [], "target_ids": [], "target_words": [], "links": []}
    for source, words, target, others, links in SENTENCES:
        for prefix, ids, numbers in (("", source, words), ("target_", target, others)):
            columns[f"{prefix}ids"].append(np.asarray([first, *ids, last], np.int32))
            columns[f"{prefix}words"].append(np.asarray([-1, *numbers, -1], np.int32))
        columns["links"].append(np.asarray(links, np.int32).reshape(-1))
    if encoder.uses_token_types:
        for prefix in ("", "target_"):
            columns[f"{prefix}types"] = [np.zeros_like(ids) for ids in columns[f"{prefix}ids"]]
    write_examples(path, [columns])
    return PairedExamples(path)


def _model(family: str = "bert", seed: int = 0) -> Model:
    model = build_model(tiny_encoder(family, seed=seed), {"kind": "last"}).eval()
    with torch.no_grad():  # else the last layer of a tiny encoder has nearly the same vector for all words
        for module in model.modules():
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.add_(1.0)
    return model


def _batch(model: Model, examples: PairedExamples, objective: Objective, size: int = 3) -> tuple[Any, dict[str, Any]]:
    arrays = objective.collate(examples, Batch(np.arange(len(examples)), 8), size=size)
    return arrays, model.prepare(arrays, CPU)


def _vectors(encoder: Encoder, ids: list[int], words: list[int], how: str, layer: int) -> tuple[torch.Tensor, ...]:
    """One sentence by itself: its words' vectors, and those of its two special tokens."""
    tokenizer = encoder.tokenizer
    row = torch.tensor([[tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]])
    hidden = encoder(row, torch.ones_like(row), torch.zeros_like(row), layers=[layer])[layer][0]
    found = []
    for word in range(max(words) + 1):
        own = [hidden[1 + place] for place, number in enumerate(words) if number == word]
        found.append({"mean": torch.stack(own).mean(0), "first": own[0], "last": own[-1]}[how])
    return torch.stack(found), hidden[0], hidden[-1]


def _write_out(
    model: Model, reference: Encoder, settings: AdjustmentSettings
) -> tuple[torch.Tensor, torch.Tensor, int, int]:
    """Both sums of squared distances, and how many vectors each is of."""
    layer = model.encoder.layers if settings.layer is None else settings.layer
    pull = stay = torch.zeros(())
    pairs = anchors = 0
    now: list[torch.Tensor] = []
    then: list[torch.Tensor] = []
    for source_ids, source_words, target_ids, target_words, links in SENTENCES:
        source = _vectors(model.encoder, source_ids, source_words, settings.pooling, layer)
        target = _vectors(model.encoder, target_ids, target_words, settings.pooling, layer)
        original = _vectors(reference, source_ids, source_words, settings.pooling, layer)
        moved = [part.detach() for part in source] if settings.moving == "target" else source
        if "words" in settings.anchors:
            for i, j in links:
                pull = pull + ((moved[0][i] - target[0][j]) ** 2).sum()
                pairs += 1
        for place, name in ((1, "cls"), (2, "sep")):
            if name in settings.anchors:
                pull = pull + ((moved[place] - target[place]) ** 2).sum()
                pairs += 1
        for vector, before in zip(source, original, strict=True):
            stay = stay + ((vector - before.detach()) ** 2).sum()
        anchors += len(source[0]) + 2
        now += [*moved[0], *target[0]]
        then += [*original[0]]
    if settings.distance == "relative":
        pull, stay = pull / _variance(now), stay / _variance(then).detach()
    return pull, stay if settings.stay else torch.zeros(()), pairs, anchors


def _variance(vectors: list[torch.Tensor]) -> torch.Tensor:
    """Of words about their mean, averaged over dimensions."""
    mean = sum(vectors) / len(vectors)
    return sum(((vector - mean) ** 2).mean() for vector in vectors) / len(vectors)


@pytest.mark.parametrize("family", ["bert", "xlm-r", "distilbert"])
@pytest.mark.parametrize(
    "settings",
    [
        AdjustmentSettings(),
        AdjustmentSettings(pooling="first", layer=1),
        AdjustmentSettings(pooling="last", moving="target"),
        AdjustmentSettings(anchors=("words",)),
        AdjustmentSettings(anchors=("cls",)),
        AdjustmentSettings(anchors=("cls", "sep"), pull=0.5, stay=2.0, reduction="sum"),
        AdjustmentSettings(distance="relative"),
        AdjustmentSettings(distance="relative", moving="target", layer=1, stay=0.0),
    ],
)
def test_loss_and_gradient_equal_equation_1(tmp_path: Path, family: str, settings: AdjustmentSettings) -> None:
    model, reference = _model(family), _model(family, seed=5).encoder
    objective = Objective("words", settings, model.encoder, reference=reference)
    arrays, batch = _batch(model, _examples(tmp_path / "e.arrow", model.encoder), objective)
    found = objective.sum_loss(model, batch)
    pull, stay, pairs, anchors = _write_out(model, reference, settings)
    assert found.task is None
    torch.testing.assert_close(torch.stack(found[1:3]), torch.stack([pull, stay]), rtol=1e-4, atol=1e-5)
    width = model.encoder.width
    by_mean = settings.reduction == "mean"
    counts = Terms(pull=pairs * width, stay=anchors * width) if by_mean else Terms(pull=0, stay=0)
    assert objective.count_targets(arrays) == counts
    divisors = (pairs * width, anchors * width) if by_mean else (1, 1)
    expected = settings.pull * pull / divisors[0] + settings.stay * stay / divisors[1]
    total, _ = add_terms(found, torch.tensor(weigh_terms(objective.weights, counts)))
    torch.testing.assert_close(total, expected, rtol=1e-4, atol=1e-6)
    parameters = [p for p in model.encoder.parameters() if p.requires_grad]
    ours = torch.autograd.grad(total, parameters, allow_unused=True)
    theirs = torch.autograd.grad(expected, parameters, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        if one is None or other is None:
            assert all(g is None or not g.any() for g in (one, other))
        else:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)


def _scale(encoder: Encoder, factor: float, *, about: torch.Tensor | float = 0.0) -> None:
    """Let the last layer's vectors be ``factor`` times as far from a point: it ends with a normalisation."""
    norm = encoder.model.encoder.layer[-1].output.LayerNorm
    with torch.no_grad():
        norm.weight.mul_(factor)
        norm.bias.mul_(factor).add_((1 - factor) * about)


def test_shrinking_lowers_the_papers_loss_but_not_the_relative_one(tmp_path: Path) -> None:
    """Of an encoder that equals its reference at first, and shrinks about its source words' mean. The pull of a space
    of c times the size is c squared of what it was, or the same; staying costs least where nothing shrinks."""
    examples = _examples(tmp_path / "e.arrow", tiny_encoder())
    start = _model().encoder
    layer = start.layers
    centre = torch.cat([_vectors(start, ids, words, "mean", layer)[0] for ids, words, *_ in SENTENCES]).mean(0).detach()
    losses: dict[str, list[float]] = {"absolute": [], "relative": []}
    for distance, totals in losses.items():
        settings = AdjustmentSettings.model_validate({"distance": distance})
        pulls = []
        for factor in (1.0, 0.9, 0.5):
            model, reference = _model(), _model().encoder
            _scale(model.encoder, factor, about=centre)
            objective = Objective("words", settings, model.encoder, reference=reference)
            arrays, batch = _batch(model, examples, objective)
            sums, counts = objective.sum_loss(model, batch), objective.count_targets(arrays)
            total, _ = add_terms(sums, torch.tensor(weigh_terms(objective.weights, counts)))
            pulls.append(sums.pull.item())
            totals.append(total.item())
        expected = [1.0, 0.81, 0.25] if distance == "absolute" else [1.0, 1.0, 1.0]
        assert [pull / pulls[0] for pull in pulls] == pytest.approx(expected, rel=1e-4)
    assert losses["absolute"][1] < losses["absolute"][0], "a smaller space costs less"
    assert losses["relative"][0] < losses["relative"][1] < losses["relative"][2], "a smaller space costs more"


def test_relative_loss_does_not_depend_on_the_units_of_the_encoder(tmp_path: Path) -> None:
    examples = _examples(tmp_path / "e.arrow", tiny_encoder())
    found = []
    for factor in (1.0, 7.0):
        model, reference = _model(), _model(seed=5).encoder
        for encoder in (model.encoder, reference):
            _scale(encoder, factor)
        objective = Objective("words", AdjustmentSettings(distance="relative"), model.encoder, reference=reference)
        found.append(torch.stack(objective.sum_loss(model, _batch(model, examples, objective)[1])[1:3]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("distance", ["absolute", "relative"])
def test_empty_rows_and_longer_padding_change_nothing(tmp_path: Path, distance: str) -> None:
    model, reference = _model(), _model(seed=5).encoder
    settings = AdjustmentSettings.model_validate({"distance": distance})
    objective = Objective("words", settings, model.encoder, reference=reference)
    examples = _examples(tmp_path / "e.arrow", model.encoder)
    results = []
    for size, length in ((3, 8), (5, 24)):
        arrays = objective.collate(examples, Batch(np.arange(3), length), size=size)
        sums = objective.sum_loss(model, model.prepare(arrays, CPU))
        results.append((objective.count_targets(arrays), torch.stack(sums[1:3])))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-5, atol=1e-6)


def test_reference_gets_no_gradient(tmp_path: Path) -> None:
    model, reference = _model(), _model(seed=5).encoder
    objective = Objective("words", AdjustmentSettings(), model.encoder, reference=reference)
    _, batch = _batch(model, _examples(tmp_path / "e.arrow", model.encoder), objective)
    torch.stack(objective.sum_loss(model, batch)[1:3]).sum().backward()
    assert all(parameter.grad is None for parameter in reference.parameters())
    assert any(p.grad is not None and p.grad.any() for p in model.encoder.parameters())
    table = model.encoder.model.get_input_embeddings().weight.grad
    used = {i for source, _, target, _, _ in SENTENCES for i in (*source, *target)}
    special = {model.encoder.tokenizer.cls_token_id, model.encoder.tokenizer.sep_token_id}
    assert set(table.abs().sum(1).nonzero().flatten().tolist()) <= used | special


def test_stay_is_zero_for_unchanged_encoder(tmp_path: Path) -> None:
    model = _model()
    objective = Objective("words", AdjustmentSettings(), model.encoder, reference=_model().encoder)
    _, batch = _batch(model, _examples(tmp_path / "e.arrow", model.encoder), objective)
    _, pull, stay, _ = objective.sum_loss(model, batch)
    assert float(stay.detach()) == pytest.approx(0.0, abs=1e-9) and float(pull.detach()) > 0


def test_reference_is_not_run_without_stay(tmp_path: Path) -> None:
    model = _model()
    objective = Objective("words", AdjustmentSettings(stay=0.0), model.encoder, reference=_model().encoder)
    assert objective.reference is None
    _, batch = _batch(model, _examples(tmp_path / "e.arrow", model.encoder), objective)
    assert objective.sum_loss(model, batch).stay.item() == 0.0


def test_dropout_can_be_switched_off(tmp_path: Path) -> None:
    model = _model().train()
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    examples = _examples(tmp_path / "e.arrow", model.encoder)
    losses = {}
    for dropout in (False, True):
        objective = Objective("words", AdjustmentSettings(stay=0.0, dropout=dropout), model.encoder)
        _, batch = _batch(model, examples, objective)
        losses[dropout] = [objective.sum_loss(model, batch).pull.item() for _ in range(2)]
        assert model.encoder.training
    assert losses[False][0] == losses[False][1] and losses[True][0] != losses[True][1]


def test_pairs_are_as_long_as_their_longer_side(tmp_path: Path) -> None:
    examples = _examples(tmp_path / "e.arrow", tiny_encoder())
    assert examples.lengths.tolist() == [5, 7, 8]
    assert set(range(7, 28)) <= set(examples.distinct_ids().tolist())
