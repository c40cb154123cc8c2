"""Adaptation: the head learns alone, then everything; stops and goes on; what it leaves to the next stage."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from crossling.data.batching import Batch
from crossling.data.records import LabelledPair, TaggedSentence
from crossling.encoders.loading import load_encoder
from crossling.encoders.unlabelled import Chunking, encode_unlabelled
from crossling.errors import DataError, EncoderError
from crossling.models.model import Model, build_model, load_model, save_model
from crossling.objectives import masked_words
from crossling.recipe.recipe import EncoderSettings, parse_recipe
from crossling.stages import adapt
from crossling.stages.context import StageContext
from crossling.stages.masked_training import describe_scores, hold_out, repeat_rows
from crossling.store.artefacts import Store
from crossling.study.recipe_run import run_recipe
from crossling.training.distributed import Distributed
from crossling.training.settings import LoraSettings
from crossling.training.steps import PlainSteps, build_optimiser
from examples import make_rows
from tiny import save_tiny, save_with_head, tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
QUICK: dict[str, Any] = {"epochs": 3, "batch": 8, "lr": 3e-3, "held_out": 0.2, "head": {"epochs": 2, "lr": 1e-2}}


class StoppedError(Exception):
    """Stands for a kill in the middle."""


class Listener:
    """Progress that stops a run after some steps."""

    def __init__(self, stop: int | None = None) -> None:
        self.steps, self.stop = 0, stop
        self.said: list[str] = []

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self.what = what

    def end(self) -> None: ...

    def say(self, line: str) -> None:
        self.said.append(line)

    def advance(self, steps: int = 1, **facts: str) -> None:
        if self.what.startswith("adapting"):
            self.steps += steps
            if self.stop is not None and self.steps >= self.stop:
                raise StoppedError


def run(
    folder: Path,
    encoder: Path,
    listener: Listener | None = None,
    *,
    checkpoint_seconds: float = 600.0,
    **settings: Any,
) -> tuple[Model, Any, Any]:
    loaded = adapt.Settings.model_validate({"train": "made:en", **QUICK, **settings})
    rows = (make_rows(TaggedSentence, 60), make_rows(LabelledPair, 30, language="de", shift=2))
    context = StageContext(
        1,
        "en",
        load_encoder(str(encoder)),
        EncoderSettings(name=str(encoder)),
        ONE,
        folder / "work",
        folder,
        checkpoint_seconds=checkpoint_seconds,
        progress=listener or Listener(),
    )
    return adapt.train(loaded, adapt.Data(rows), context)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("adapt") / "plain", family="xlm-r", layers=1)


@pytest.fixture(scope="module")
def headed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapt") / "headed"
    save_with_head(folder, "bert")
    return folder


def bits(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def equal(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_held_out_words_are_predicted_better_afterwards(tmp_path: Path, plain: Path) -> None:
    listener = Listener()
    model, card, record = run(tmp_path, plain, listener, epochs=10, lr=2e-2, held_out=0.4)
    before, after = record["held_out"]["before"], record["held_out"]["after"]
    assert after["loss"] < before["loss"] - 0.2
    assert 0 < before["accuracy"] < 1
    assert set(after["languages"]) == {"en", "de"}
    assert after["masked"] == sum(part["masked"] for part in after["languages"].values()) > 0
    assert record["head"]["from"] == "trained"
    assert record["head"]["steps"] > 0
    assert "held-out words predicted" in listener.said[-1]
    assert card.tasks == {} and card.fusion == {"kind": "last"}
    assert not model.heads


def test_head_of_the_checkpoint_is_used(tmp_path: Path, headed: Path) -> None:
    listener = Listener()
    model, _, record = run(tmp_path, headed, listener, epochs=1)
    assert record["head"] == {"from": "checkpoint"}
    assert not (tmp_path / "work" / "head").exists()
    assert not equal(bits(model.encoder), bits(load_encoder(str(headed))))


def test_head_training_changes_no_bit_of_the_encoder(
    tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crossling.stages import masked_training

    seen = {}
    original = masked_training.train_head

    def watch(model: Model, *arguments: Any) -> Any:
        before, head = bits(model.encoder), bits(model.heads["words"])
        position = original(model, *arguments)
        seen["encoder"] = equal(before, bits(model.encoder))
        seen["head"] = equal(head, bits(model.heads["words"]))
        seen["free"] = all(parameter.requires_grad for parameter in model.parameters())
        return position

    monkeypatch.setattr(masked_training, "train_head", watch)
    model, _, _ = run(tmp_path, plain, epochs=1)
    assert seen == {"encoder": True, "head": False, "free": True}
    assert not equal(bits(model.encoder), bits(load_encoder(str(plain))))


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, plain: Path) -> Callable[[str], tuple[Any, Any]]:
    """The weights and scores of adaptations that nothing stops, by vocabulary, each made when first asked for."""

    @cache
    def get(vocabulary: str) -> tuple[Any, Any]:
        settings = {"vocabulary": vocabulary, "whole_words": True, "checkpoint_seconds": 0.0}
        model, _, record = run(tmp_path_factory.mktemp("calm"), plain, **settings)
        return bits(model), record["held_out"]

    return get


@pytest.mark.parametrize("stop", [3, 12, 18, 25])
@pytest.mark.parametrize("vocabulary", ["whole", "seen"])
def test_continued_adaptation_ends_with_same_bits(
    tmp_path: Path, plain: Path, calm: Callable[[str], tuple[Any, Any]], stop: int, vocabulary: str
) -> None:
    """Stops in the head's phase, and in each epoch of the other."""
    settings = {"vocabulary": vocabulary, "whole_words": True, "checkpoint_seconds": 0.0}
    with pytest.raises(StoppedError):
        run(tmp_path, plain, Listener(stop), **settings)
    hurt, _, record = run(tmp_path, plain, **settings)
    weights, held_out = calm(vocabulary)
    assert equal(weights, bits(hurt))
    assert record["held_out"] == held_out


def test_masks_change_from_epoch_to_epoch_within_a_run(
    tmp_path: Path, plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: dict[int, set[int]] = {}
    collate = masked_words.Objective.collate

    def watch(self: Any, examples: Any, plan: Batch, *, size: int) -> Any:
        met.setdefault(plan.epoch, set()).update(plan.rows.tolist())
        return collate(self, examples, plan, size=size)

    monkeypatch.setattr(masked_words.Objective, "collate", watch)
    run(tmp_path, plain)
    assert set(met) == {0, 1, 2}
    assert met[0] >= met[1] == met[2]


def test_stored_model_has_one_table_and_its_adapted_head_beside_it(tmp_path: Path, plain: Path) -> None:
    for vocabulary in ("whole", "seen"):
        model, card, record = run(tmp_path / vocabulary, plain, vocabulary=vocabulary, epochs=1)
        save_model(model, card, tmp_path / vocabulary / "model")
        loaded, _ = load_model(tmp_path / vocabulary / "model")
        assert not loaded.heads
        assert equal(bits(loaded.kept["words"]), bits(model.kept["words"]))
        assert len(loaded.kept["words"].bias) == loaded.encoder.vocabulary
        if vocabulary == "whole":  # else fewer subwords were chosen from
            assert measure_loss(loaded, tmp_path) == pytest.approx(record["held_out"]["after"]["loss"], abs=1e-3)
        wide = [name for name, tensor in bits(loaded).items() if len(tensor) == loaded.encoder.vocabulary]
        assert len(wide) == 1
        base = load_encoder(str(plain)).model.get_input_embeddings().weight
        rows = loaded.encoder.model.get_input_embeddings().weight
        changed = (base != rows).any(dim=1)
        assert changed.sum() < len(base) if vocabulary == "seen" else changed.all()


def measure_loss(model: Model, folder: Path) -> float:
    """The loss on held-out words of a loaded model with the head that lies beside it, over the whole vocabulary."""
    from crossling.encoders.unlabelled import Chunking, encode_unlabelled
    from crossling.stages.masked_training import score_masked_words

    rows = (make_rows(TaggedSentence, 60), make_rows(LabelledPair, 30, language="de", shift=2))
    texts = encode_unlabelled(rows, model.encoder, Chunking(), cache=folder)
    _, held_out = hold_out(texts, QUICK["held_out"])
    objective = masked_words.Objective("words", masked_words.MaskingSettings(), model.encoder, seed=1)
    model.heads["words"] = model.kept["words"]
    found = score_masked_words(model, objective, held_out, distributed=ONE, progress=Listener())
    del model.heads["words"]
    return float(describe_scores(found, texts.languages)["loss"])


def test_head_and_encoder_share_one_table(tmp_path: Path, plain: Path) -> None:
    """The gradient of the table has both parts: of reading subwords, and of predicting them."""
    objective = masked_words.Objective("words", masked_words.MaskingSettings(), load_encoder(str(plain)), seed=1)
    model = build_model(load_encoder(str(plain)), {"kind": "last"})
    model.heads["words"] = objective.build_head(model.encoder.width)
    table = model.encoder.model.get_input_embeddings().weight
    texts = encode_unlabelled([make_rows(TaggedSentence, 8)], model.encoder, Chunking(), cache=tmp_path)
    arrays = objective.collate(texts.examples, Batch(np.arange(8), 32), size=8)
    objective.sum_loss(model, model.prepare(arrays, ONE.device)).task.backward()
    assert table.grad is not None
    assert (table.grad.abs().sum(dim=1) > 0).all(), "a softmax over all subwords moves all of them"
    assert sum(p is table for p in model.parameters()) == 1


@pytest.mark.parametrize("frozen", [True, False])
def test_bf16_table_gets_gradients_of_both_uses(tmp_path: Path, plain: Path, frozen: bool) -> None:
    """Steps in bfloat16 read copies of the weights: the head must find the copy, not the table itself."""
    gradients = []
    for precision in (torch.float32, torch.bfloat16):
        encoder = load_encoder(str(plain))
        objective = masked_words.Objective("words", masked_words.MaskingSettings(), encoder, seed=1, frozen=frozen)
        torch.manual_seed(0)
        model = build_model(encoder, {"kind": "last"}).train()
        model.heads["words"] = objective.build_head(encoder.width)
        model.encoder.requires_grad_(not frozen)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        texts = encode_unlabelled([make_rows(TaggedSentence, 8)], encoder, Chunking(), cache=tmp_path)
        arrays = objective.collate(texts.examples, Batch(np.arange(8), 32), size=8)
        distributed = Distributed(0, 1, torch.device("cpu"), precision)
        settings = adapt.Settings(train=("made:en",))
        steps = PlainSteps(model, build_optimiser(model, settings, distributed.device), settings, distributed)
        steps.backward(objective, model.prepare(arrays, distributed.device), torch.tensor([0.01, 0.0, 0.0, 0.0]))
        table = encoder.model.get_input_embeddings().weight
        gradients.append(table.grad if table.grad is not None else torch.zeros(1))
    assert gradients[0].abs().sum() > 0 or frozen
    assert gradients[1].dtype == torch.float32
    assert torch.allclose(gradients[0], gradients[1], atol=0.03 * float(gradients[0].abs().max()) + 1e-12)


def test_select_best_keeps_best_epoch(tmp_path: Path, plain: Path) -> None:
    _, _, record = run(tmp_path, plain, select="best", epochs=4)
    scores = [entry["dev"] for entry in record["history"] if "dev" in entry]
    assert len(scores) == 4
    assert record["held_out"]["after"]["accuracy"] == pytest.approx(max(scores), abs=1e-6)


def test_every_language_has_held_out_texts(tmp_path: Path) -> None:
    rows = [make_rows(TaggedSentence, 60), make_rows(TaggedSentence, 5, language="de", shift=1)]
    texts = encode_unlabelled(rows, tiny_encoder(), Chunking(), cache=tmp_path)
    learnt, held = hold_out(texts, 0.1)
    assert np.bincount(held.scalars("language")).tolist() == [6, 1]
    assert np.bincount(learnt.scalars("language")).tolist() == [54, 4]
    everything, nothing = hold_out(texts, 0.0)
    assert (len(everything), len(nothing)) == (65, 0)


def test_temperature_evens_out_languages_and_keeps_every_text() -> None:
    codes = np.array([0] * 1000 + [1] * 100 + [2] * 10)
    assert np.array_equal(np.sort(repeat_rows(codes, 1.0, 1)), np.arange(1110))
    for temperature, expected in ((2.0, [1000, 316, 100]), (1000.0, [1000, 998, 995])):
        rows = repeat_rows(codes, temperature, 1)
        assert np.bincount(codes[rows]).tolist() == pytest.approx(expected, abs=2)
        counts = np.bincount(rows, minlength=len(codes))
        assert counts.min() >= 1
        assert all(np.ptp(counts[codes == code]) <= 1 for code in range(3))


def test_contradictory_settings_are_rejected() -> None:
    for wrong, what in (
        ({"mask": 0.8, "random": 0.3}, "at most 1"),
        ({"select": "best", "held_out": 0.0}, "held-out"),
        ({"train": []}, "at least one"),
        ({"train": "no set:en"}, "train"),
        ({"temperature": 0.5}, "temperature"),
    ):
        with pytest.raises(ValidationError, match=what):
            adapt.Settings.model_validate({"train": "made:en", **wrong})


def test_missing_mask_token_or_text_raises(tmp_path: Path, plain: Path) -> None:
    encoder = load_encoder(str(plain))
    context = StageContext(1, "en", encoder, EncoderSettings(name="x"), ONE, tmp_path, tmp_path)
    settings = adapt.Settings(train=("made:en",))
    with pytest.raises(DataError, match="no text to learn from"):
        adapt.train(settings, adapt.Data((make_rows(TaggedSentence, 0),)), context)
    encoder.tokenizer.mask_token = None
    with pytest.raises(EncoderError, match="no mask"):
        adapt.train(settings, adapt.Data((make_rows(TaggedSentence, 9),)), context)


def test_adapt_then_finetune_on_the_phrasebook(tmp_path: Path, plain: Path) -> None:
    """Two stages of one recipe: text of two languages, then labels of one; the second starts where the first ended."""
    tables = {
        "encoder": {"name": str(plain)},
        "stage": [
            {
                "kind": "adapt",
                "train": [{"data": f"phrasebook-ner:{code}", "limit": 40} for code in ("en", "de")],
                "epochs": 1,
                "batch": 16,
            },
            {
                "kind": "finetune",
                "task": "ner",
                "train": {"data": "phrasebook-ner:en", "limit": 40},
                "select": "last",
                "epochs": 1,
            },
        ],
        "evaluate": [{"on": {"data": "phrasebook-ner:de", "limit": 20}}],
        "run": {"threads": 1},
    }
    store = Store(tmp_path / "store")
    finished = run_recipe(parse_recipe(tables), store=store, out=tmp_path / "out")
    first, second = finished.identify_stages(1)
    assert first.startswith("adapt-1-") and second.startswith("finetune-")
    assert store.record(first)["head"]["from"] == "trained"
    assert (tmp_path / "out" / "seed-1" / "predictions").is_dir()
    loaded, card = load_model(store.artefact(second))
    assert list(card.tasks) == ["tag"]
    adapted = bits(load_model(store.artefact(first))[0].encoder)
    base = bits(load_encoder(str(plain)))
    final = bits(loaded.encoder)
    name = next(name for name in base if "query.weight" in name)
    assert not torch.equal(base[name], adapted[name])
    assert not torch.equal(adapted[name], final[name])


def test_low_rank_adapters_and_frozen_embeddings_predict_masked_words_better(tmp_path: Path, plain: Path) -> None:
    """The head learns in full; the table that it shares with the encoder does not change."""
    model, _, record = run(tmp_path, plain, epochs=2, lr=1e-2, held_out=0.4, lora=LoraSettings(rank=4))
    assert record["held_out"]["after"]["loss"] < record["held_out"]["before"]["loss"]
    before, after = (one.model.get_input_embeddings().weight for one in (load_encoder(str(plain)), model.encoder))
    assert torch.equal(before, after)
    assert not {"lora", "freeze"} & set(
        adapt.identity_inputs(adapt.Settings(train="made:en"), adapt.Data(()))["settings"]
    )
