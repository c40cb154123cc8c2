"""One update of a model: gradients of one or more batches, added up, clipped, applied."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from crossling.errors import RecipeError
from crossling.models.model import Model, to_device
from crossling.training.bf16_states import Bfloat16AdamW
from crossling.training.distributed import Distributed
from crossling.training.eight_bit import EightBitAdamW
from crossling.training.fast.bf16_weights import Bf16Weights
from crossling.training.fast.cpu_operations import replace_operations
from crossling.training.fast.fused_norm import choose_kernels
from crossling.training.fast.recomputed_random import RecomputedRandom
from crossling.training.loss import add_terms
from crossling.training.settings import OptimiserSettings, TrainingSettings

if TYPE_CHECKING:
    from crossling.objectives import Objective

log = logging.getLogger(__name__)
Batches = Sequence[tuple["Objective", dict[str, Tensor]]]
Weights = Mapping[str, Sequence[float]]
"""By objective: what each term of its summed loss is multiplied by."""
StepLosses = list[tuple["Objective", Tensor]]
"""The weighted terms of every batch's loss, still on the device."""
SLOW = ("torch", "normalisation")
"""Kernels without that of the optimiser, in whose place many of torch's operations round moments stochastically."""


class PlainSteps:
    """Updates launched operation by operation: what runs everywhere, and what defines the result."""

    def __init__(
        self, model: Model, optimiser: torch.optim.Optimizer, settings: OptimiserSettings, distributed: Distributed
    ) -> None:
        self.model, self.optimiser, self.settings, self.distributed = model, optimiser, settings, distributed
        wanted = settings.kernels if isinstance(settings, TrainingSettings) else "torch"
        self.kernels = choose_kernels(wanted, distributed.device)
        if isinstance(optimiser, Bfloat16AdamW) and distributed.device.type == "cuda" and self.kernels in SLOW:
            log.warning('optimizer_states = "bfloat16": slow without kernels = "optimiser" or "fused"')
        self._bf16: Bf16Weights | None = None
        self._only = False
        """Whether the pass is the only one of its step, whose end reads gradients where the pass writes them."""
        self._random: RecomputedRandom | None = None
        if settings.gradient_checkpointing:
            self._recompute_layers()

    def _recompute_layers(self) -> None:
        """Recompute layers in the backward pass, with the dropout masks of the forward pass."""
        device = self.distributed.device
        if device.type == "cuda":
            self._random = RecomputedRandom(device)
            self.model.encoder.checkpoint_gradients(self._random.contexts, keep_random_state=False)
        else:
            self.model.encoder.checkpoint_gradients(lambda: (nullcontext(), replace_operations(device)))

    def begin_pass(self, number: int) -> None:
        """Before the n-th pass of a step."""
        if self._random is not None:
            self._random.begin(number)

    def update(self, batches: Batches, *, weights: Weights, rate: float, alike: bool = True) -> StepLosses:
        """Apply the gradient of the weighted losses of all batches; gives those losses.

        ``alike``: whether all processes have batches of the same shapes, as captured steps need.
        """
        self.optimiser.zero_grad(set_to_none=True)
        losses: StepLosses = []
        for number, (objective, batch) in enumerate(batches):
            self.begin_pass(number)
            on_device = torch.tensor(weights[objective.name], device=self.distributed.device)
            terms = self.backward(objective, to_device(batch, self.distributed.device), on_device)
            losses.append((objective, terms))
        self.set_rate(rate)
        self.apply()
        return losses

    def backward(self, objective: Objective, batch: dict[str, Tensor], weights: Tensor) -> Tensor:
        """Add a batch's gradients to those of the parameters; gives the weighted terms of its loss."""
        device, precision = self.distributed.device, self.distributed.precision
        reduced = precision != torch.float32
        # A captured graph must cast weights anew at every replay, so casts are never cached.
        with (
            replace_operations(device),
            torch.autocast(device.type, dtype=precision, enabled=reduced, cache_enabled=False),
        ):
            if reduced and not self.settings.gradient_checkpointing:
                return self.bf16_weights().backward(objective, batch, weights, only=self._only)
            loss, terms = add_terms(objective.sum_loss(self.model, batch), weights)
        loss.backward()  # type: ignore[no-untyped-call]
        return terms

    def bf16_weights(self) -> Bf16Weights:
        """Copies of the weights, made at the first step and updated by every step."""
        if self._bf16 is None:
            self._bf16 = Bf16Weights(
                self.model,
                self.distributed.precision,
                fuse_norms=self.kernels in ("normalisation", "fused"),
                fuse_attention=self.kernels == "fused",
            )
        return self._bf16

    def apply(self) -> None:
        """Add up the gradients of all processes, clip and step; the optimiser divides gradients as it reads them, which
        saves a pass over all of them."""
        self.distributed.sum_gradients(self.model)
        if self.settings.clip:
            norm = nn.utils.get_total_norm([p.grad for p in self.model.parameters() if p.grad is not None])
            self.optimiser.grad_scale = ((norm + 1e-6) / self.settings.clip).clamp(min=1.0)  # type: ignore[attr-defined]
        self.optimiser.step()
        if self._bf16 is not None:
            self._bf16.refresh()

    def set_rate(self, rate: float) -> None:
        """The learning rate of the next step; on a GPU it is a tensor, so that a captured step reads the new value."""
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["rate"])
            else:
                group["lr"] = rate * group["rate"]


def build_optimiser(
    model: Model, settings: OptimiserSettings, device: torch.device, *, seed: int = 0
) -> torch.optim.Optimizer:
    """AdamW for all that is trained; biases and normalisation do not decay, a fusion may have its own learning rate.

    ``seed``: of what an optimiser draws at random; the same in all processes, since their weights must stay the same.
    """
    groups = []
    fusion_rate = (getattr(model.fusion, "lr", None) or settings.lr) / settings.lr
    for part, rate in (("encoder", 1.0), ("fusion", fusion_rate), ("heads", 1.0)):
        parameters = [p for p in getattr(model, part).parameters() if p.requires_grad]
        for decay, chosen in (
            (settings.weight_decay, [p for p in parameters if p.ndim > 1]),
            (0.0, [p for p in parameters if p.ndim <= 1]),
        ):
            if chosen:
                groups.append({"params": chosen, "weight_decay": decay, "rate": rate, "lr": _rate(settings.lr, device)})
    if not groups:
        raise RecipeError("nothing is left to train: freeze fewer layers")
    states = settings.optimizer_states if isinstance(settings, TrainingSettings) else "float32"
    if states == "8bit":
        return EightBitAdamW(groups, betas=settings.betas, eps=settings.eps)
    if states == "bfloat16":
        return Bfloat16AdamW(groups, betas=settings.betas, eps=settings.eps, seed=seed)
    on_gpu = device.type == "cuda"
    return torch.optim.AdamW(
        groups, lr=_rate(settings.lr, device), betas=settings.betas, eps=settings.eps, fused=True, capturable=on_gpu
    )


def _rate(value: float, device: torch.device) -> float | Tensor:
    return torch.tensor(value, device=device) if device.type == "cuda" else value
