"""Changed copies of examples, and the loss that compares them with the examples."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn import functional

from crossling.data.batching import Batch, plan_epoch, write_examples
from crossling.encoders.special_tokens import special_layout
from crossling.encoders.subword_sampling import SubwordSampler
from crossling.errors import RecipeError
from crossling.models.model import Model
from crossling.objectives import changed_copies
from crossling.objectives.changed_copies import ROOM, VariedExamples, cut_units
from crossling.objectives.consistency import ConsistencySettings, make_consistent, vary_examples
from crossling.recipe.recipe import freeze
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit
from crossling.training.mixture import Stream
from crossling.training.settings import TrainingSettings
from learner import make_learner
from tiny import tiny_tokenizer

TASKS = ("tag", "classify", "classify_pair", "answer")
FAMILIES = ("bert", "xlm-r-initials", "modernbert")
HOW: dict[str, Any] = {"subwords": 0.9, "alpha": 0.0, "dropout": 0.6}
CUT = ConsistencySettings(**HOW)
CPU = torch.device("cpu")
LEXICON: Any = SimpleNamespace(
    language_pair=("en", "ru"),
    translations={"cat": [("кошка", 0.75), ("кот", 0.25)], "the": [("не", 1.0)], "dog": [("猫猫", 1.0)]},
)


def make_consistent_learner(
    folder: Path, settings: ConsistencySettings = CUT, *, seed: int = 1, lexicon: bool = False, **what: Any
) -> tuple[Model, Stream, Stream]:
    """A model without dropout, the plain stream that it learns from, and the one with copies."""
    model, plain = make_learner(folder, **{"dropout": False, **what})
    with torch.no_grad():
        model.heads["main"].linear.weight.mul_(50)  # or answers would be nearly the same whatever is read
        for norm in (module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)):
            norm.weight.fill_(1.0)
    languages = ["en"] * len(plain.examples)
    varied = vary_examples(
        plain.examples,
        settings,
        model.encoder,
        seed=seed,
        lexicons=[LEXICON] if lexicon else [],
        languages=languages,
    )
    return model, plain, Stream(make_consistent(plain.objective, settings), varied)


def spell(sampler: SubwordSampler, ids: Any) -> str:
    return "".join(sampler.read(sampler.spell([index])) for index in ids.tolist())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", TASKS)
def test_copies_have_the_same_words_and_labels(tmp_path: Path, kind: str, family: str) -> None:
    model, plain, stream = make_consistent_learner(tmp_path, kind=kind, family=family)
    examples, varied = plain.examples, stream.examples
    sampler, rows = SubwordSampler(model.encoder.tokenizer), np.arange(len(plain.examples))
    assert isinstance(varied, VariedExamples)
    copies = varied.copy(rows, 0)
    changed = 0
    for row in rows.tolist():
        ids, other = examples.get("ids", row), copies.get("ids", row)
        changed += ids.tolist() != other.tolist()
        units, moved = varied.get("units", row), copies.get("units", row)
        assert len(units) == len(ids) and len(moved) == len(other) <= varied.lengths[row]
        assert units.max() == moved.max()
        for unit in range(units.max() + 1):
            assert spell(sampler, ids[units == unit]) == spell(sampler, other[moved == unit])
        assert copies.get("gold" if kind != "answer" else "row", row).tolist() == (
            examples.get("gold" if kind != "answer" else "row", row).tolist()
        )
        if kind == "tag":
            firsts, words = examples.get("firsts", row), copies.get("firsts", row)
            assert units[firsts].tolist() == moved[words].tolist()
            assert all(word == 0 or moved[word - 1] != moved[word] for word in words), "a word's first subword"
            assert all(spell(sampler, other[word : word + 1]) for word in words), "which holds a character"
        if kind == "answer":
            first, last = (int(copies.get(side, row)[0]) for side in ("first", "last"))
            answer = ids[examples.get("first", row)[0] : examples.get("last", row)[0] + 1]
            assert spell(sampler, answer) in spell(sampler, other[first : last + 1])
            begin = int(copies.get("context_from", row)[0])
            context = other[begin : begin + len(copies.get("starts", row))]
            old = int(examples.get("context_from", row)[0])
            assert spell(sampler, context) == spell(sampler, ids[old : old + len(examples.get("starts", row))])
        if "types" in examples.columns:
            types = copies.get("types", row)
            assert len(types) == len(other) and set(types) == set(examples.get("types", row))
    assert changed > len(rows) // 3


def test_copies_depend_on_seed_epoch_and_row_alone(tmp_path: Path) -> None:
    _, _, stream = make_consistent_learner(tmp_path)
    varied: Any = stream.examples
    together = varied.copy(np.arange(20), 3)
    alone = [varied.copy(np.array([row]), 3).get("ids", row).tolist() for row in range(20)]
    assert alone == [together.get("ids", row).tolist() for row in range(20)]
    again: Any = make_consistent_learner(tmp_path)[2].examples
    assert alone == [again.copy(np.arange(20), 3).get("ids", row).tolist() for row in range(20)]
    seed: Any = make_consistent_learner(tmp_path, seed=2)[2].examples
    for other in (varied.copy(np.arange(20), 4), seed.copy(np.arange(20), 3)):
        assert alone != [other.get("ids", row).tolist() for row in range(20)]


def test_copies_fit_the_length_that_batches_are_planned_for(tmp_path: Path) -> None:
    """Where no more fits, the rest of the words stay as they are."""
    settings = ConsistencySettings(subwords=1.0, alpha=0.0)
    model, plain, stream = make_consistent_learner(tmp_path, settings, family="xlm-r-initials")
    varied: Any = stream.examples
    limit = model.encoder.max_length
    most = [min(-(-n * ROOM // 1), limit) for n in plain.examples.lengths.tolist()]
    assert all(n <= planned <= m for n, planned, m in zip(plain.examples.lengths, varied.lengths, most, strict=True))
    full = 0
    for row in range(len(varied)):
        copy, ids = varied.copy(np.array([row]), 0).get("ids", row), plain.examples.get("ids", row)
        assert len(ids) <= len(copy) <= varied.lengths[row]
        assert copy[-1] == ids[-1], "no word is cut off"
        full += len(copy) == varied.lengths[row]
    assert full > 0
    for batch in plan_epoch(varied.lengths, 8, seed=1, epoch=0):
        arrays = stream.objective.collate(varied, batch, size=8)
        assert arrays["ids"].shape == (16, batch.length)


@pytest.mark.parametrize(
    "settings",
    [
        ConsistencySettings(subwords=0.3, alpha=0.0),
        ConsistencySettings(words=0.5, lexicon=("made.tsv",)),
        ConsistencySettings(subwords=0.4, alpha=0.0, words=0.3, lexicon=("made.tsv",)),
    ],
    ids=["cut", "replaced", "both"],
)
def test_planned_lengths_are_three_standard_deviations_above_the_mean_of_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: ConsistencySettings
) -> None:
    """Compared with what copies of 400 epochs have, none of them held back by the length that is planned."""
    monkeypatch.setattr(changed_copies, "ROOM", 10.0)
    monkeypatch.setattr(changed_copies, "PLANNED_ROWS", 7)
    lexicon = bool(settings.lexicon)
    model, plain, stream = make_consistent_learner(
        tmp_path, settings, family="xlm-r-initials", lexicon=lexicon, count=24
    )
    varied: Any = stream.examples
    planned = varied.lengths.copy()
    varied.lengths = np.full(len(varied), 10_000, np.int32)
    rows = np.arange(len(varied))
    lengths = np.array([varied.copy(rows, epoch).lengths for epoch in range(400)])
    above = np.maximum(lengths.mean(0) - plain.examples.lengths + 3 * lengths.std(0), 0)
    expected = np.minimum(plain.examples.lengths + above, model.encoder.max_length)
    assert np.abs(planned - expected - 0.5).max() < 1.5
    assert above.max() > 3


@pytest.mark.parametrize("family", FAMILIES)
def test_words_of_a_lexicon_are_replaced_by_their_translations(tmp_path: Path, family: str) -> None:
    settings = ConsistencySettings(words=0.5, lexicon=("made.tsv",))
    model, plain, stream = make_consistent_learner(tmp_path, settings, family=family, lexicon=True, count=200)
    varied: Any = stream.examples
    sampler = SubwordSampler(model.encoder.tokenizer)
    copies = varied.copy(np.arange(len(varied)), 0)
    seen: dict[str, list[str]] = {}
    for row in range(len(varied)):
        units, moved = varied.get("units", row), copies.get("units", row)
        for unit in range(units.max() + 1):
            before = spell(sampler, plain.examples.get("ids", row)[units == unit])
            seen.setdefault(before, []).append(spell(sampler, copies.get("ids", row)[moved == unit]))
    for word, targets in seen.items():
        found = set(targets)
        if word in LEXICON.translations and family != "modernbert":
            assert found == {word, *(target for target, _ in LEXICON.translations[word])}
            assert np.mean([target != word for target in targets]) == pytest.approx(0.5, abs=0.15)
        elif word not in LEXICON.translations:
            assert found == {word}
    used = set(varied.distinct_ids().tolist())
    assert used >= {index for row in range(len(varied)) for index in copies.get("ids", row).tolist()}
    assert used > set(plain.examples.distinct_ids().tolist())


def test_words_are_replaced_only_in_text_of_the_lexicons_language(tmp_path: Path) -> None:
    model, plain = make_learner(tmp_path)
    settings = ConsistencySettings(words=1.0, lexicon=("made.tsv",))
    languages = ["en", "de"] * (len(plain.examples) // 2)
    varied = vary_examples(plain.examples, settings, model.encoder, seed=1, lexicons=[LEXICON], languages=languages)
    copies = varied.copy(np.arange(len(varied)), 0)
    same = [copies.get("ids", r).tolist() == plain.examples.get("ids", r).tolist() for r in range(len(varied))]
    assert all(same[1::2]) and not all(same[::2])


def test_case_follows_the_word_that_is_replaced(tmp_path: Path) -> None:
    from crossling.objectives.changed_copies import _match_case

    assert [_match_case("haus", word) for word in ("house", "House", "HOUSE", "I")] == ["haus", "Haus", "HAUS", "Haus"]


def test_units_are_words_special_tokens_and_punctuation() -> None:
    tokenizer = tiny_tokenizer("xlm-r")
    sampler, layout = SubwordSampler(tokenizer), special_layout(tokenizer)
    from crossling.data.ragged import build_ragged

    text = tokenizer.backend_tokenizer.encode("the walking (cat), 猫狗", add_special_tokens=False).ids
    rows = build_ragged([[*layout.prefix, *text, *layout.single_suffix], [*layout.prefix, *layout.single_suffix]])
    units, distinct = cut_units(rows, sampler)
    words = [spell(sampler, distinct[number]) for number in units[0].tolist()]
    assert words[1:-1] == ["the", "walking", "", "(", "cat", ")", ",", "猫狗"] or "walking" in words
    assert len(units[1]) == 2 and units.offsets[-1] == len(units.values)


def _slow_loss(model: Model, stream: Stream, plan: Batch, settings: ConsistencySettings, kind: str) -> tuple[Any, Any]:
    """Two forward passes, one for examples and one for copies, and torch's own divergence."""
    consistent: Any = stream.objective
    task, varied = consistent.task, stream.examples
    copies = varied.copy(plan.rows, plan.epoch)  # type: ignore[attr-defined]
    size = len(plan.rows)
    batches = [model.prepare(task.collate(some, plan, size=size), CPU) for some in (varied, copies)]
    losses = [task.sum_loss(model, batch).task for batch in batches]
    scores = [task.logits(model, batch).float() for batch in batches]
    divergence = torch.zeros(())
    count = 0
    for place, row in enumerate(plan.rows.tolist()):
        both = [one[place] for one in scores]
        if kind == "tag":
            both = [one[some.get("firsts", row).tolist()] for one, some in zip(both, (varied, copies), strict=True)]
        elif kind == "answer":
            found = []
            for one, some in zip(both, (varied, copies), strict=True):
                units = some.get("units", row)
                chances = one.softmax(0)
                words = [chances[: len(units)][units == unit].sum(0) for unit in range(units.max() + 1)]
                found.append(torch.stack(words).T.log())
            both = found
        else:
            both = [one[None] for one in both]
        answers = len(both[0]) if kind != "answer" else 1
        p, q = (one.log_softmax(-1) for one in both)
        share = 0.5 if kind == "answer" else 1.0
        divergence = divergence + share * functional.kl_div(q, p.detach(), reduction="sum", log_target=True)
        count += answers
    learnt = losses[0] + losses[1] if settings.learn == "both" else losses[0]
    return learnt, divergence if count else None


@pytest.mark.parametrize("learn", ["both", "original"])
@pytest.mark.parametrize("kind", TASKS)
def test_loss_equals_two_passes_and_torchs_divergence(tmp_path: Path, kind: str, learn: Any) -> None:
    settings = ConsistencySettings(**HOW, weight=2.0, learn=learn)
    model, _, stream = make_consistent_learner(tmp_path, settings, kind=kind)
    model.eval()
    plan = plan_epoch(stream.examples.lengths, 6, seed=1, epoch=0)[0]
    expected = _slow_loss(model, stream, plan, settings, kind)
    arrays = stream.objective.collate(stream.examples, plan, size=9)
    sums = stream.objective.sum_loss(model, model.prepare(arrays, CPU))
    torch.testing.assert_close(sums.task, expected[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(sums.consistency, expected[1], rtol=1e-3, atol=1e-6)
    assert sums.consistency is not None and sums.consistency.item() > 1e-3 and sums.pull is None
    counts = stream.objective.count_targets(arrays)
    words = sum(len(stream.examples.get("firsts", row)) for row in plan.rows.tolist()) if kind == "tag" else 6
    assert counts.consistency == words
    assert counts.task == (2 * words if learn == "both" else words)


def test_gradients_reach_copies_alone(tmp_path: Path) -> None:
    """The example's own distribution teaches; it is not drawn towards the copy's."""
    model, _, stream = make_consistent_learner(tmp_path, kind="classify")
    consistent: Any = stream.objective
    plan = plan_epoch(stream.examples.lengths, 6, seed=1, epoch=0)[0]
    batch = model.prepare(consistent.collate(stream.examples, plan, size=6), CPU)
    logits = torch.randn(12, 2, requires_grad=True)
    consistent.task.logits = lambda *_: logits
    consistent.sum_loss(model, batch).consistency.backward()
    assert logits.grad is not None
    assert not logits.grad[:6].any() and logits.grad[6:].all()


def test_soft_targets_are_learnt_from_both(tmp_path: Path) -> None:
    model, plain, _ = make_consistent_learner(tmp_path, kind="classify", family="xlm-r")
    rows = range(len(plain.examples))
    chunk = {
        "ids": [plain.examples.get("ids", row) for row in rows],
        "gold": plain.examples.scalars("gold"),
        "targets": [np.array([0.25, 0.75], np.float16) for _ in rows],
    }
    soft = write_examples(tmp_path / "soft.arrow", [chunk])
    varied = vary_examples(soft, CUT, model.encoder, seed=1)
    objective = make_consistent(plain.objective, CUT)
    arrays = objective.collate(varied, Batch(np.arange(4), int(varied.lengths[:4].max())), size=4)
    assert arrays["targets"].shape == (8, 2)
    batch = model.prepare(arrays, CPU)
    expected = -(batch["targets"] * objective.task.logits(model.eval(), batch).log_softmax(-1)).sum()
    torch.testing.assert_close(objective.sum_loss(model, batch).task, expected)


def test_without_weight_and_copies_the_gradient_is_that_of_the_plain_task(tmp_path: Path) -> None:
    settings = ConsistencySettings(**HOW, weight=0.0, learn="original")
    for kind in ("tag", "answer"):
        model, plain, stream = make_consistent_learner(tmp_path / kind, settings, kind=kind)
        gradients = []
        plan = plan_epoch(stream.examples.lengths, 8, seed=1, epoch=0)[0]
        for one in (plain, stream):
            model.zero_grad()
            arrays = one.objective.collate(one.examples, plan, size=8)
            counts = one.objective.count_targets(arrays)
            sums = one.objective.sum_loss(model.train(), model.prepare(arrays, CPU))
            weight = one.objective.weights.consistency or 0.0
            (sums.task / counts.task + weight * (0.0 if sums.consistency is None else sums.consistency)).backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for left, right in zip(*gradients, strict=True):
            torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-6)


def _fit(folder: Path, name: str, stop_at: int | None = None, **settings: Any) -> dict[str, torch.Tensor]:
    model, _, stream = make_consistent_learner(folder, dropout=True)
    steps = 0

    def track(values: dict[str, float], step: int) -> None:
        nonlocal steps
        steps += 1
        if stop_at is not None and steps == stop_at:
            raise KeyboardInterrupt

    execution = Execution(Distributed(0, 1, CPU, torch.float32), 1, folder / name, checkpoint_seconds=0.0, track=track)
    how = TrainingSettings(**{"epochs": 3, "batch": 16, "lr": 1e-3, **settings})
    if stop_at is None:
        fit(model, stream, how, execution)
    else:
        with pytest.raises(KeyboardInterrupt):
            fit(model, stream, how, execution)
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_stopped_run_continues_to_the_same_bits(tmp_path: Path, accumulate: int) -> None:
    whole = _fit(tmp_path, "whole", accumulate=accumulate)
    _fit(tmp_path, "stopped", stop_at=2, accumulate=accumulate)
    continued = _fit(tmp_path, "stopped", accumulate=accumulate)
    for name, weight in whole.items():
        assert torch.equal(weight, continued[name]), name


@pytest.mark.gpu
@pytest.mark.parametrize("kind", TASKS)
def test_captured_losses_equal_plain_losses(tmp_path: Path, kind: str) -> None:
    heard: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for capture, losses in heard.items():
        model, _, stream = make_consistent_learner(tmp_path, kind=kind, count=200)
        execution = Execution(
            Distributed(0, 1, torch.device("cuda"), torch.float32),
            1,
            tmp_path / str(capture),
            capture=capture,
            track=lambda values, step, losses=losses: losses.append(values),  # type: ignore[misc]
        )
        fit(model, stream, TrainingSettings(epochs=2, batch=8, lr=1e-3), execution)
    for term in ("loss", "main", "main_consistency"):
        plain, captured = ([values[term] for values in heard[capture]] for capture in (False, True))
        assert captured == pytest.approx(plain, rel=1e-3, abs=1e-5), term


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "a copy would equal its example"),
        ({"words": 0.2}, "lexicon: missing"),
        ({"subwords": 0.2, "lexicon": ["a.tsv"]}, "words = 0"),
        ({"subwords": 1.5}, "less than or equal to 1"),
        ({"subwords": 0.2, "weight": -1}, "greater than or equal to 0"),
        ({"subwords": 0.2, "learn": "copies"}, "original"),
        ({"subword": 0.2}, "Extra inputs"),
    ],
)
def test_invalid_settings_are_refused(table: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        ConsistencySettings.model_validate(freeze(table))


def test_objectives_that_cannot_compare_predictions_are_refused() -> None:
    with pytest.raises(RecipeError, match="'masked'.*cannot compare predictions"):
        make_consistent(SimpleNamespace(name="masked"), CUT)  # type: ignore[arg-type]
