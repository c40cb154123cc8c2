"""LoRA and frozen layers: against peft, against weights written out, and with all that a stage does beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from crossling.data.batching import Batch
from crossling.errors import RecipeError
from crossling.models.model import Model, build_model, weights_of
from crossling.progress import NoProgress
from crossling.recipe.recipe import freeze
from crossling.training import eight_bit
from crossling.training.distributed import Distributed
from crossling.training.loop import Execution, fit
from crossling.training.settings import LoraSettings, TrainingSettings, drop_unused
from crossling.training.steps import PlainSteps, build_optimiser
from crossling.training.trained_parts import TrainedParts, choose_layers, list_frozen
from learner import make_learner
from tiny import FAMILIES, tiny_encoder

ONE = Distributed(0, 1, torch.device("cpu"), torch.float32)
REDUCED = Distributed(0, 1, torch.device("cpu"), torch.bfloat16)
LORA = {"rank": 4, "alpha": 8.0}


def _settings(**changes: Any) -> TrainingSettings:
    return TrainingSettings(**{"epochs": 2, "batch": 8, "lr": 1e-2, **changes})


def _batch(model: Model, stream: Any, size: int = 8) -> dict[str, torch.Tensor]:
    arrays = stream.objective.collate(stream.examples, Batch(np.arange(size), 64), size=size)
    return model.prepare(arrays, ONE.device)


def _loss(model: Model, stream: Any) -> torch.Tensor:
    loss = stream.objective.sum_loss(model, _batch(model, stream)).task
    assert loss is not None
    return loss


def _fill_factors(parts: TrainedParts) -> None:
    """Adapters that change something: B starts at 0."""
    generator = torch.Generator().manual_seed(7)
    for adapter in parts.adapters.values():
        with torch.no_grad():
            adapter.lora_B.copy_(torch.randn(adapter.lora_B.shape, generator=generator))


@pytest.mark.parametrize("targets", ["attention", "all"])
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_gradients_and_merged_weights_equal_those_of_peft(family: str, targets: str) -> None:
    peft = pytest.importorskip("peft")
    model, other = (tiny_encoder(family).eval() for _ in range(2))
    parts = TrainedParts(_wrap(model), _settings(lora={**LORA, "targets": targets}), seed=1)
    _fill_factors(parts)
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=list(parts.adapters), bias="none")
    peft.inject_adapter_in_model(config, other.model)
    for name, adapter in parts.adapters.items():
        layer = other.model.get_submodule(name)
        with torch.no_grad():
            layer.lora_A["default"].weight.copy_(adapter.lora_A)
            layer.lora_B["default"].weight.copy_(adapter.lora_B)
    ids = torch.arange(5, 21).view(2, 8)
    outputs = [one(ids, torch.ones_like(ids), layers=(3,))[3] for one in (model, other)]
    torch.testing.assert_close(*outputs)
    for output in outputs:
        output.square().sum().backward()
    for name, adapter in parts.adapters.items():
        layer = other.model.get_submodule(name)
        torch.testing.assert_close(adapter.lora_A.grad, layer.lora_A["default"].weight.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(adapter.lora_B.grad, layer.lora_B["default"].weight.grad, rtol=1e-4, atol=1e-4)
        assert adapter.weight.grad is None
        layer.merge()
    names = list(parts.adapters)
    parts.restore()
    for name in names:
        merged = model.model.get_submodule(name)
        assert type(merged) is nn.Linear and merged.weight.requires_grad
        torch.testing.assert_close(merged.weight, other.model.get_submodule(name).base_layer.weight)


def _wrap(encoder: Any) -> Model:
    return build_model(encoder, {"kind": "last"})


def test_targets_are_found_by_structure() -> None:
    counts = {}
    for family in FAMILIES:
        encoder = tiny_encoder(family)
        by_target = {t: choose_layers(encoder, LoraSettings(targets=t)) for t in ("attention", "all")}
        assert by_target["attention"].keys() < by_target["all"].keys()
        linear = [m for m in encoder.get_layers().modules() if isinstance(m, nn.Linear)]
        assert set(map(id, by_target["all"].values())) == set(map(id, linear))
        counts[family] = tuple(map(len, by_target.values()))
    assert counts == {"bert": (12, 18), "xlm-r": (12, 18), "distilbert": (12, 18), "modernbert": (6, 12)}
    encoder = tiny_encoder("bert")
    named = choose_layers(encoder, LoraSettings(targets=("query", "output.dense")), skipped=1)
    assert {name.split(".")[2] for name in named} == {"1", "2"} and len(named) == 6
    with pytest.raises(RecipeError, match="no linear layer 'quary'.*query.*end in dense, key, query, value"):
        choose_layers(encoder, LoraSettings(targets=("quary",)))


@pytest.mark.parametrize("embeddings", [False, True])
@pytest.mark.parametrize("distributed", [ONE, REDUCED], ids=["float32", "bfloat16"])
def test_only_adapters_heads_and_fusion_learn_and_merged_model_predicts_alike(
    tmp_path: Path, distributed: Distributed, embeddings: bool
) -> None:
    model, stream = make_learner(tmp_path, trim=True, fusion={"kind": "dlfa", "layer": 1})
    before = {name: p.clone() for name, p in model.named_parameters()}
    settings = _settings(lora={**LORA, "embeddings": embeddings, "dropout": 0.1})
    seen: list[Any] = []

    def evaluate() -> float:
        seen.append(_loss(model.eval(), stream))
        return float(len(seen))

    position = fit(model, stream, settings, Execution(distributed, 1, tmp_path / "work"), evaluate=evaluate)
    losses = [entry["loss"] for entry in position.history if "loss" in entry]
    assert losses[-1] < losses[0]
    assert set(dict(model.named_parameters())) == set(before), "the names of an ordinary model"
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    attention = {f"encoder.model.{name}.weight" for name in choose_layers(model.encoder, LoraSettings())}
    own = {name for name in changed if name.startswith("encoder.")}
    assert {name for name in own if ".layer." in name} == attention
    assert any("embeddings" in name for name in own) == embeddings
    assert any(name.startswith("heads.") for name in changed) and any(name.startswith("fusion.") for name in changed)
    assert all(p.requires_grad for p in model.parameters())
    torch.testing.assert_close(_loss(model.eval(), stream), seen[-1])


class _StopAfter(NoProgress):
    def __init__(self, steps: int) -> None:
        self.left = steps

    def advance(self, steps: int = 1, **facts: str) -> None:
        self.left -= steps
        if self.left <= 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("changes", "average"),
    [
        ({"lora": {**LORA, "dropout": 0.1}}, True),
        ({"lora": LORA, "freeze": 1, "gradient_checkpointing": True}, False),
        ({"freeze": "embeddings", "optimizer_states": "8bit"}, False),
        ({"optimizer_states": "bfloat16"}, False),
    ],
    ids=["lora", "lora above frozen layers", "8bit", "bfloat16"],
)
def test_continued_run_ends_with_same_bits(
    tmp_path: Path, changes: dict[str, Any], average: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eight_bit, "SMALLEST", 64)  # so that a tiny encoder has means in 8 bits

    def run(folder: str, stop: int | None = None) -> dict[str, torch.Tensor]:
        model, stream = make_learner(tmp_path, count=16, trim=True)
        progress = NoProgress() if stop is None else _StopAfter(stop)
        execution = Execution(ONE, 3, tmp_path / folder, checkpoint_seconds=0.0, progress=progress)
        evaluate = lambda: -float(_loss(model.eval(), stream).detach())  # noqa: E731
        fit(model, stream, _settings(epochs=3, **changes), execution, evaluate=evaluate, average=average)
        return weights_of(model)

    expected = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("cut", stop=3)
    found = run("cut")
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_mean_of_epochs_is_the_mean_of_merged_weights(tmp_path: Path) -> None:
    """Not what the mean of both factors would give."""
    settings = _settings(epochs=3, lora=LORA)
    after: list[dict[str, torch.Tensor]] = []
    for epochs in (1, 2, 3):
        model, stream = make_learner(tmp_path, count=24)
        # The learning rate is that of three epochs; the run is stopped after one, two or three of them.
        execution = Execution(ONE, 1, tmp_path / str(epochs), progress=_StopAfter(3 * epochs))
        with pytest.raises(KeyboardInterrupt):
            fit(model, stream, settings, execution)
        after.append({name: weight.clone() for name, weight in model.state_dict().items()})
    model, stream = make_learner(tmp_path, count=24)
    fit(model, stream, settings, Execution(ONE, 1, tmp_path / "mean"), average=True)
    for name, weight in model.state_dict().items():
        mean = torch.stack([one[name].double() for one in after]).mean(0)
        torch.testing.assert_close(weight.double(), mean, atol=1e-6, rtol=1e-5, msg=name)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("distributed", [ONE, REDUCED], ids=["float32", "bfloat16"])
def test_frozen_layers_get_no_gradient_and_no_backward_pass(
    tmp_path: Path, family: str, distributed: Distributed
) -> None:
    model, stream = make_learner(tmp_path, family=family, trim=True)
    settings = _settings(freeze=2)
    parts = TrainedParts(model, settings, seed=1)
    optimiser = build_optimiser(model, settings, ONE.device)
    recorded: list[bool] = []
    for layer in model.encoder.get_layers():
        layer.register_forward_hook(
            lambda _m, _i, out: recorded.append((out[0] if isinstance(out, tuple) else out).requires_grad)
        )
    steps = PlainSteps(model.train(), optimiser, settings, distributed)
    steps.update([(stream.objective, _batch(model, stream))], weights={"main": (1.0, 0, 0, 0)}, rate=1e-2)
    assert recorded == [False, False, True], "no graph is recorded below the third layer"
    frozen = {id(p) for p in parts.frozen}
    assert frozen == {id(p) for p in list_frozen(model.encoder, 2)}
    assert id(model.encoder.model.get_input_embeddings().weight) in frozen
    for parameter in model.encoder.parameters():
        has = parameter.grad is not None
        assert has == (id(parameter) not in frozen) == (parameter in optimiser.state)
    parts.restore()
    assert all(p.requires_grad for p in model.parameters())


def test_gradients_above_frozen_layers_equal_those_of_full_training(tmp_path: Path) -> None:
    gradients = []
    for frozen in ("none", 2):
        model, stream = make_learner(tmp_path, dropout=False)
        TrainedParts(model, _settings(freeze=frozen), seed=1)
        _loss(model.train(), stream).backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    whole, part = gradients
    assert {name for name in whole if ".layer.2." in name or "heads" in name} == set(part)
    for name, gradient in part.items():
        torch.testing.assert_close(gradient, whole[name])


def test_freezing_too_many_layers_or_everything_is_refused(tmp_path: Path) -> None:
    model, _ = make_learner(tmp_path)
    with pytest.raises(RecipeError, match="freeze = 4: the encoder has 3 layers"):
        TrainedParts(model, _settings(freeze=4), seed=1)
    model.heads.clear()
    TrainedParts(model, _settings(freeze=3), seed=1)
    with pytest.raises(RecipeError, match="nothing is left to train"):
        build_optimiser(model, _settings(), ONE.device)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"freeze": 0}, 'freeze\n.*0: write "none", "embeddings", or the number'),
        ({"freeze": True}, "True: write"),
        ({"lora": {"targets": []}}, r"\[\]: write .attention., .all., or a list of names"),
        ({"lora": {"rank": 0}}, "lora.rank"),
        ({"lora": {"embeddings": True}, "freeze": 1}, "freeze = 1 keeps them as they are"),
        ({"optimizer_states": "4bit"}, "optimizer_states"),
    ],
)
def test_contradictory_settings_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingSettings(**table)


def test_unused_settings_do_not_count_in_an_identity() -> None:
    plain = TrainingSettings()
    assert TrainingSettings.model_validate(freeze(plain.model_dump(mode="json"))) == plain, "stored recipes are read"
    assert not {"lora", "freeze", "optimizer_states", "kernels"} & set(drop_unused(plain.model_dump(mode="json")))
    used = TrainingSettings(lora=LoraSettings(targets=("query",)), freeze=3, optimizer_states="8bit", kernels="fused")
    table = used.model_dump(mode="json")
    assert TrainingSettings.model_validate(freeze(table)) == used
    assert drop_unused(table) == table | {"kernels": "fused 2"}, "models of an earlier version are others"
