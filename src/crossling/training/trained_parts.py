"""Which parts of an encoder a stage trains: low-rank adapters (LoRA) instead of weights, and layers that stay frozen.

An adapter changes a linear layer's weight W to ``W + alpha / rank * B A``, with W fixed (Hu et al. 2021). It keeps the
names of the layer's parameters and adds ``lora_A`` and ``lora_B`` beside them, so that weights with adapters can be
merged by name, on the CPU, into those of the ordinary model: what is kept of an epoch, averaged and stored has no
adapters. (peft gives parameters other names and wraps the layers that it finds by the type of the model.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from crossling.errors import RecipeError, nearest
from crossling.training.settings import LoraSettings, OptimiserSettings, TrainingSettings

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model

FACTORS = (".lora_A", ".lora_B")
ATTENTION = ("attention", "attn")
"""What the name of a module of attention has in it, in every family."""


class LoraLinear(nn.Module):
    """A linear layer with an adapter; B starts at 0, so that training starts from the layer as it is."""

    def __init__(self, linear: nn.Linear, settings: LoraSettings, generator: torch.Generator) -> None:
        super().__init__()
        self.linear = (linear,)  # in a tuple: its parameters are registered below, under their own names
        self.weight, self.bias = linear.weight, linear.bias
        self.scale, self.dropout = settings.alpha / settings.rank, settings.dropout
        drawn = torch.empty(settings.rank, linear.in_features)
        nn.init.kaiming_uniform_(drawn, a=math.sqrt(5), generator=generator)
        self.lora_A = nn.Parameter(drawn.to(linear.weight.device))
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, settings.rank, device=linear.weight.device))

    def forward(self, x: Tensor) -> Tensor:
        low = functional.linear(functional.dropout(x, self.dropout, self.training), self.lora_A)
        fixed = functional.linear(x, self.weight, self.bias)
        return torch.add(fixed, functional.linear(low, self.lora_B), alpha=self.scale)

    def merge(self) -> nn.Linear:
        """The linear layer with the change in its weight."""
        with torch.no_grad():
            self.weight.copy_(merge_factors(self.weight, self.lora_A, self.lora_B, self.scale))
        return self.linear[0]


def merge_factors(weight: Tensor, lora_A: Tensor, lora_B: Tensor, scale: float) -> Tensor:
    """``W + scale * B A``."""
    return weight + scale * (lora_B @ lora_A)


class TrainedParts:
    """The parts of a model that are trained, by its stage's settings."""

    def __init__(self, model: Model, settings: OptimiserSettings, *, seed: int) -> None:
        self.model = model
        self.frozen: list[nn.Parameter] = []
        self.adapters: dict[str, LoraLinear] = {}
        self.scale = 1.0
        if not isinstance(settings, TrainingSettings):
            return
        if settings.lora is not None:
            self.scale = settings.lora.alpha / settings.lora.rank
            self._add_adapters(settings.lora, settings.freeze, seed)
        elif settings.freeze != "none":
            self._freeze(list_frozen(model.encoder, settings.freeze))

    def _add_adapters(self, lora: LoraSettings, freeze: str | int, seed: int) -> None:
        encoder = self.model.encoder
        chosen = choose_layers(encoder, lora, skipped=freeze if isinstance(freeze, int) else 0)
        embeddings = {id(p) for p in list_frozen(encoder, "embeddings")} if lora.embeddings else set()
        self._freeze([p for p in encoder.model.parameters() if id(p) not in embeddings])
        generator = torch.Generator().manual_seed(seed)
        for name, linear in chosen.items():
            self.adapters[name] = LoraLinear(linear, lora, generator)
            _set_module(encoder.model, name, self.adapters[name])

    def _freeze(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            if parameter.requires_grad:
                parameter.requires_grad_(False)
                self.frozen.append(parameter)

    def merge_weights(self, weights: dict[str, Tensor]) -> dict[str, Tensor]:
        """A model's stored weights as those of the ordinary model: each adapter is added to its weight.

        So a mean of epochs is one of weights: the mean of A and of B would not give the mean of B A.
        """
        merged = {name: weight for name, weight in weights.items() if not name.endswith(FACTORS)}
        for name in self.adapters:
            layer = f"encoder.model.{name}"
            lora_A, lora_B = (weights[f"{layer}{factor}"] for factor in FACTORS)
            merged[f"{layer}.weight"] = merge_factors(merged[f"{layer}.weight"], lora_A, lora_B, self.scale)
        return merged

    @contextmanager
    def training(self) -> Iterator[None]:
        """A context after which the model is an ordinary one again."""
        try:
            yield
        finally:
            self.restore()

    def restore(self) -> None:
        """The ordinary model again, with what adapters learnt; all of it can be trained by another stage."""
        for name, adapter in self.adapters.items():
            _set_module(self.model.encoder.model, name, adapter.merge())
        for parameter in self.frozen:
            parameter.requires_grad_(True)
        self.adapters, self.frozen = {}, []


def choose_layers(encoder: Encoder, lora: LoraSettings, *, skipped: int = 0) -> dict[str, nn.Linear]:
    """The linear layers that get adapters, by name; none in the ``skipped`` lowest layers."""
    stack = encoder.structure.layers
    if skipped:
        check_freeze(encoder, skipped)
    inside = {
        f"{stack}.{layer}.{name}": module
        for layer, part in enumerate(encoder.get_layers())
        for name, module in part.named_modules()
        if layer >= skipped and isinstance(module, nn.Linear)
    }
    if lora.targets == "attention":
        attends = [name for name in inside if any(word in name[len(stack) :].lower() for word in ATTENTION)]
        return {name: inside[name] for name in attends}
    if lora.targets == "all":
        return inside
    for target in lora.targets:
        if not any(_ends_with(name, target) for name in inside):
            known = sorted({name.rpartition(".")[2] for name in inside})
            raise RecipeError(
                f"lora.targets: {encoder.name} has no linear layer {target!r}.{nearest(target, known)} "
                f"Its layers' names end in {', '.join(known)}."
            )
    return {name: one for name, one in inside.items() if any(_ends_with(name, target) for target in lora.targets)}


def _ends_with(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def check_freeze(encoder: Encoder, freeze: str | int) -> None:
    """Refuse to freeze layers that the encoder does not have, or that share their weights with others."""
    if not isinstance(freeze, int):
        return
    if freeze > encoder.layers:
        raise RecipeError(f"freeze = {freeze}: the encoder has {encoder.layers} layers.")
    if len(encoder.get_layers()) != encoder.layers:
        raise RecipeError(f'freeze = {freeze}: the layers of {encoder.name} share weights; set freeze = "embeddings".')


def list_frozen(encoder: Encoder, freeze: str | int) -> list[nn.Parameter]:
    """The parameters that stay as they are: of embeddings, with all that precedes the layers, and of lowest layers."""
    check_freeze(encoder, freeze)
    if freeze == "none":
        return []
    stack = encoder.structure.layers
    names = [name for name, _ in encoder.model.named_parameters()]
    first = next((place for place, name in enumerate(names) if name.startswith(f"{stack}.")), len(names))
    tables = {id(m.weight) for name, m in encoder.model.named_modules() if isinstance(m, nn.Embedding)}
    low = tuple(f"{stack}.{layer}." for layer in range(freeze if isinstance(freeze, int) else 0))
    return [
        parameter
        for place, (name, parameter) in enumerate(encoder.model.named_parameters())
        if place < first or name.startswith(low) or (id(parameter) in tables and not name.startswith(f"{stack}."))
    ]


def _set_module(root: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, own = name.rpartition(".")
    setattr(root.get_submodule(parent), own, module)
