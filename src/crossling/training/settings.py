"""The settings that every stage that trains has."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from crossling.limits import LARGEST_BATCH, LARGEST_NUMBER, MOST_EPOCHS, MOST_LAYERS
from crossling.recipe.recipe import FALSE_IS_NONE, NONE_IS_FALSE, FrozenSettings

Beta = Annotated[float, Field(ge=0, lt=1)]
Kernels = Literal["torch", "normalisation", "optimiser", "fused"]


class OptimiserSettings(FrozenSettings):
    """How long, how fast and with what optimiser."""

    epochs: int = Field(default=5, ge=1, le=MOST_EPOCHS)
    """How often all training examples are seen."""
    batch: int = Field(default=32, ge=1, le=LARGEST_BATCH)
    """Examples in a batch; with several processes, shared among them."""
    accumulate: int = Field(default=1, ge=1, le=LARGEST_BATCH)
    """Batches whose gradients are added up before one update."""
    lr: float = Field(default=5e-5, gt=0, le=10)
    """The highest learning rate."""
    warmup: float = Field(default=0.1, ge=0, le=1)
    """Share of all updates during which the learning rate rises from 0."""
    schedule: Literal["linear", "constant"] = "linear"
    """After the warm-up: fall to 0 in a straight line, or stay."""
    weight_decay: float = Field(default=0.0, ge=0, le=10)
    """Not applied to biases and normalisation."""
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    """AdamW's: how slowly the means of the gradient and of its square follow."""
    eps: float = Field(default=1e-8, ge=1e-20, le=1)
    """AdamW's: added to what the step is divided by."""
    clip: float = Field(default=1.0, ge=0, le=LARGEST_NUMBER)
    """Largest norm of the gradient; 0: no clipping."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, a third (CPU) to two thirds (GPU) more
    time. On a GPU dropout masks are other ones, all else is the same."""

    @model_validator(mode="before")
    @classmethod
    def _accept_stored(cls, table: Any) -> Any:
        """Recipes that earlier versions stored beside results name a setting that is gone, with its only value."""
        if isinstance(table, dict) and table.get("table_update") == "all":
            return {name: value for name, value in table.items() if name != "table_update"}
        return table


class LoraSettings(FrozenSettings):
    """Low-rank adapters: a linear layer's change is the product of two small matrices, and only these are trained."""

    rank: int = Field(default=16, ge=1, le=4096)
    """The smaller side of the two matrices."""
    alpha: float = Field(default=32.0, gt=0, le=LARGEST_NUMBER)
    """The change is multiplied by alpha / rank."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Of what adapters read, beside the encoder's own dropout; more than 0 takes more memory for activations."""
    targets: Literal["attention", "all"] | tuple[str, ...] = "attention"
    """Which linear layers get adapters: those of attention, all, or those whose names end so: ["query", "value"]."""
    embeddings: bool = False
    """Train the embeddings in full, too."""

    @field_validator("targets", mode="before")
    @classmethod
    def _check_targets(cls, value: Any) -> Any:
        named = (
            isinstance(value, list | tuple) and bool(value) and all(isinstance(name, str) and name for name in value)
        )
        if not named and value not in ("attention", "all"):
            raise ValueError(f'{value!r}: write "attention", "all", or a list of names such as ["query", "value"]')
        return tuple(value) if named else value


class TrainingSettings(OptimiserSettings):
    """How a stage trains: how long, how fast, with what optimiser, and which parts of the encoder."""

    lora: Annotated[LoraSettings | None, FALSE_IS_NONE, NONE_IS_FALSE] = None
    """Train low-rank adapters instead of the encoder's weights; they are merged into the weights at the end of the
    stage. { rank = 16, alpha = 32, targets = "all" }, with an lr of about ten times the usual one; false: none."""
    freeze: Literal["none", "embeddings"] | Annotated[int, Field(ge=1, le=MOST_LAYERS)] = "none"
    """What stays as it is: embeddings, or, as a number, embeddings and this many of the lowest layers."""
    optimizer_states: Literal["float32", "bfloat16", "8bit"] = "float32"
    """What AdamW's two moments are stored in between updates: bfloat16 takes half of the memory and rounds them
    stochastically, 8bit a quarter and rounds them to the nearest."""
    kernels: Kernels = "torch"
    """Fused kernels (Triton) in captured steps on a GPU: for dropout with residual and normalisation (in bfloat16), for
    the optimiser, or fused: for both, and for attention over short texts. The same mathematics, with other dropout
    masks; with fused, gradients of steps with one batch are stored in bfloat16, as autocast computes them."""

    @field_validator("freeze", mode="before")
    @classmethod
    def _check_freeze(cls, value: Any) -> Any:
        counted = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_LAYERS
        if not counted and value not in ("none", "embeddings"):
            raise ValueError(f'{value!r}: write "none", "embeddings", or the number of lowest layers, from 1')
        return value

    @model_validator(mode="after")
    def _embeddings_one_way(self) -> Self:
        if self.lora is not None and self.lora.embeddings and self.freeze != "none":
            raise ValueError(f"lora.embeddings = true: freeze = {self.freeze!r} keeps them as they are; leave one out")
        return self


UNUSED: dict[str, Any] = {"lora": False, "freeze": "none", "optimizer_states": "float32", "kernels": "torch"}
"""Settings that were added when results had been stored, with the values at which they do nothing."""


FUSED = {"fused": "fused 2"}
"""What identities call kernels that compute other results than those of an earlier version under the same name."""


def drop_unused(table: dict[str, Any]) -> dict[str, Any]:
    """What of a stage's dumped settings counts in its identity: not those that do nothing, so that stored results stay
    known."""
    used = {name: value for name, value in table.items() if name not in UNUSED or value != UNUSED[name]}
    return used | ({"kernels": FUSED[used["kernels"]]} if used.get("kernels") in FUSED else {})


class HeadSettings(OptimiserSettings):
    """How a head for masked words is trained while its encoder stays as it is."""

    epochs: int = Field(default=1, ge=1, le=MOST_EPOCHS)
    """How often all texts are seen."""
    lr: float = Field(default=3e-3, gt=0, le=10)
    """The highest learning rate; a new head takes a higher one than an encoder does."""
