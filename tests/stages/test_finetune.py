"""Fine-tuning with auxiliary tasks, several languages and replay: what is learnt, and what stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from crossling.data.records import LabelledPair, TaggedSentence
from crossling.encoders.loading import load_encoder
from crossling.errors import RecipeError
from crossling.models.model import Model, ModelCard, load_model, save_model
from crossling.recipe.recipe import EncoderSettings, freeze
from crossling.registry import load_kind
from crossling.stages import finetune, task_training
from crossling.stages.context import StageContext
from crossling.training.distributed import Distributed
from examples import make_rows
from parallel_text import describe, make_linked
from tiny import save_tiny, tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
PLAIN = {"task": {"kind": "tag"}, "train": "made:en", "select": "last", "epochs": 2, "batch": 8, "lr": 1e-3}
PAIRS = {"parallel": "made:en-ru", "batch": 4}


def _train(
    folder: Path, name: str, data: finetune.Data | None = None, base: Any = None, **changes: Any
) -> tuple[Model, ModelCard, dict[str, Any]]:
    encoder = folder / "encoder"
    if not encoder.exists():
        save_tiny(encoder)
    context = StageContext(
        1, "en", load_encoder(str(encoder)), EncoderSettings(name=str(encoder)), ONE, folder / name, folder, base=base
    )
    settings = finetune.Settings.model_validate(freeze({**PLAIN, **changes}))
    return finetune.train(settings, data or finetune.Data((make_rows(TaggedSentence),), None), context)


def _weights(model: Model) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_replay_without_weights_is_plain_fine_tuning(tmp_path: Path) -> None:
    """The stream is not drawn at all: the same bits, under the same identity."""
    plain, _, _ = _train(tmp_path, "plain")
    off, _, record = _train(tmp_path, "off", replay={**PAIRS, "pull": 0.0, "stay": 0.0})
    for name, weight in _weights(plain).items():
        assert torch.equal(weight, dict(off.named_parameters())[name]), name
    assert not any("replay_pull" in entry for entry in record["history"])
    rows = finetune.Data((make_rows(TaggedSentence),), None)
    identities = [
        finetune.identity_inputs(finetune.Settings.model_validate(freeze({**PLAIN, **changes})), rows)
        for changes in ({}, {"replay": {**PAIRS, "pull": 0.0, "stay": 0.0}}, {"replay": PAIRS})
    ]
    assert identities[0] == identities[1] != identities[2]


def test_replay_pulls_translations_together(tmp_path: Path) -> None:
    data = finetune.Data((make_rows(TaggedSentence),), None, (), describe(make_linked()))
    pulls = {}
    for pull in (0.01, 3.0):
        _, _, record = _train(tmp_path, str(pull), data, replay={**PAIRS, "pull": pull, "stay": 0.0}, epochs=10)
        entries = [entry["replay_pull"] / pull for entry in record["history"] if "replay_pull" in entry]
        pulls[pull] = entries[-1] / entries[0]
    assert pulls[3.0] < 0.6 * pulls[0.01]


def test_replay_does_not_change_number_of_updates(tmp_path: Path) -> None:
    data = finetune.Data((make_rows(TaggedSentence),), None, (), describe(make_linked()))
    steps = [_train(tmp_path, "0")[2]["steps"], _train(tmp_path, "1", data, replay=PAIRS)[2]["steps"]]
    assert steps[0] == steps[1] == 2 * 3


def test_reference_is_base_encoder_or_start_of_stage(tmp_path: Path) -> None:
    """Its vocabulary is the model's, its weights are those of the encoder that it stands for."""
    other = tiny_encoder(seed=7)
    for reference, expected in (("base", other), ("start", None)):
        seen = []
        original = task_training._find_reference

        def keep(*arguments: Any, original: Any = original, seen: list[Any] = seen) -> Any:
            seen.append(original(*arguments))
            return seen[-1]

        task_training._find_reference = keep
        try:
            data = finetune.Data((make_rows(TaggedSentence),), None, (), describe(make_linked()))
            base = lambda: tiny_encoder(seed=7)  # noqa: E731
            model, _, _ = _train(tmp_path, reference, data, base, replay={**PAIRS, "reference": reference}, lr=1e-9)
        finally:
            task_training._find_reference = original
        table = seen[0].model.get_input_embeddings().weight
        assert table.shape == model.encoder.model.get_input_embeddings().weight.shape
        whole = (expected or load_encoder(str(tmp_path / "encoder"))).model.get_input_embeddings().weight
        assert model.trimmed is not None
        assert torch.equal(table, whole[torch.from_numpy(model.trimmed.rows)])
        assert not any(p.requires_grad for p in seen[0].parameters())


def test_auxiliary_tasks_have_own_heads_and_keep_initial_main_head(tmp_path: Path) -> None:
    rows, other = make_rows(TaggedSentence), make_rows(LabelledPair, 16)
    data = finetune.Data((rows,), None, ((other,),))
    auxiliary = [{"task": {"kind": "classify_pair"}, "train": "made:en"}]
    tiny_rate = {"lr": 1e-12}
    plain, _, _ = _train(tmp_path, "plain", **tiny_rate)
    model, card, record = _train(tmp_path, "augmented", data, auxiliary=auxiliary, **tiny_rate)
    assert list(card.tasks) == ["tag", "auxiliary-0-classify_pair"] == list(model.heads)
    torch.testing.assert_close(_weights(model)["heads.tag.linear.weight"], _weights(plain)["heads.tag.linear.weight"])
    assert record["steps"] == 2 * (3 + 2), "three batches of the main task and two of the other in an epoch"
    assert {"tag", "auxiliary-0-classify_pair"} <= set(record["history"][0])
    save_model(model, card, tmp_path / "saved")
    loaded, again = load_model(tmp_path / "saved")
    assert list(again.tasks) == list(card.tasks) and list(loaded.heads) == list(model.heads)


@pytest.mark.parametrize(("temperature", "steps"), [(1.0, 12), (2.0, 6), (1000.0, 3)])
def test_auxiliary_steps_follow_the_temperature(tmp_path: Path, temperature: float, steps: int) -> None:
    data = finetune.Data((make_rows(TaggedSentence),), None, ((make_rows(TaggedSentence, 96),),))
    auxiliary = [{"task": {"kind": "tag"}, "train": "made:en"}]
    _, _, record = _train(tmp_path, "work", data, auxiliary=auxiliary, auxiliary_temperature=temperature, epochs=1)
    assert record["steps"] == 3 + steps


def test_temperature_evens_out_languages(tmp_path: Path) -> None:
    data = finetune.Data((make_rows(TaggedSentence, 32), make_rows(TaggedSentence, 8, language="de", shift=5)), None)
    steps = {}
    for temperature in (1.0, 1000.0):
        _, _, record = _train(tmp_path, f"t{temperature}", data, temperature=temperature, epochs=1)
        steps[temperature] = record["steps"]
    assert steps == {1.0: 5, 1000.0: 8}, "40 examples as they are, 64 where the smaller language is repeated"


def test_auxiliary_data_in_another_language_raises(tmp_path: Path) -> None:
    table = {"task": "pos", "train": "phrasebook-pos:en", "auxiliary": [{"task": "ner", "train": "phrasebook-ner:de"}]}
    with pytest.raises(RecipeError, match=r"auxiliary.0.train.*'de'.*source language, 'en'"):
        finetune.open_stage_data(finetune.Settings.model_validate(freeze(table)), source="en", store=tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"auxiliary": [{"task": "posx", "train": "panx:en"}]}, "pos"),
        ({"auxiliary": [{"task": "pos"}]}, "train"),
        ({"temperature": 0.5}, "greater than or equal to 1"),
        ({"replay": {"batch": 0}}, "batch"),
        ({"replay": {"reference": "none"}}, "base"),
    ],
)
def test_invalid_settings_are_explained(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        finetune.Settings.model_validate(freeze({**PLAIN, **changes}))


def test_unused_settings_do_not_change_identity() -> None:
    """What a stage does not use is not part of what it is known by."""
    rows = finetune.Data((make_rows(TaggedSentence),), None)
    known = finetune.identity_inputs(finetune.Settings.model_validate(PLAIN), rows)["settings"]
    unused = {"auxiliary", "auxiliary_temperature", "temperature", "replay", "average", "initial_head"}
    unused |= {"lora", "freeze", "optimizer_states", "kernels"}
    assert not unused & set(known) and "select" in known
    assert load_kind("stages", "finetune").VERSION == 2
    assert np.isfinite(known["lr"])


def test_low_rank_adapters_learn_beside_replay_and_consistency_and_are_stored_as_weights(tmp_path: Path) -> None:
    """The reference stays the original encoder, and a stored model is read as one that was trained in full."""
    data = finetune.Data((make_rows(TaggedSentence),), None, (), describe(make_linked()))
    changes = {"lora": {"rank": 4}, "replay": PAIRS, "consistency": {"subwords": 0.5}, "average": "epochs"}
    model, card, record = _train(tmp_path, "lora", data, lr=1e-2, **changes)
    assert {"replay_stay", "tag_consistency"} <= set(record["history"][0])
    save_model(model, card, tmp_path / "saved")
    stored, _ = load_model(tmp_path / "saved")
    base = dict(load_encoder(str(tmp_path / "encoder")).named_parameters())
    changed = {name for name, p in stored.encoder.named_parameters() if not torch.equal(p, base[name])}
    assert changed == {name for name in base if ".attention." in name and "LayerNorm" not in name and "weight" in name}
