"""The settings that every stage that trains has."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from crossling.limits import LARGEST_BATCH, LARGEST_NUMBER, MOST_EPOCHS
from crossling.recipe.recipe import FrozenSettings

Beta = Annotated[float, Field(ge=0, lt=1)]


class TrainingSettings(FrozenSettings):
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
    """Recompute activations in the backward pass: less memory, a third more time, the same result."""

    @model_validator(mode="before")
    @classmethod
    def _accept_stored(cls, table: Any) -> Any:
        """Recipes that earlier versions stored beside results name a setting that is gone, with its only value."""
        if isinstance(table, dict) and table.get("table_update") == "all":
            return {name: value for name, value in table.items() if name != "table_update"}
        return table


class HeadSettings(TrainingSettings):
    """How a head for masked words is trained while its encoder stays as it is."""

    epochs: int = Field(default=1, ge=1, le=MOST_EPOCHS)
    """How often all texts are seen."""
    lr: float = Field(default=3e-3, gt=0, le=10)
    """The highest learning rate; a new head takes a higher one than an encoder does."""
