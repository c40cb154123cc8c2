"""What a criterion is given: the finished cells of one value of the axis."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.recipe.recipe import Recipe

if TYPE_CHECKING:
    from crossling.models.model import Model


@dataclass(frozen=True)
class FinishedCell:
    """One seed of one variant: its predictions lie in ``folder``, its model in ``model_folder``."""

    seed: int
    folder: Path
    find_model: Callable[[], Path]
    """Brings the model from the store's address, if it has one: for those that look at models alone."""
    record: Mapping[str, Any]
    """How the last stage's training went: ``dev_score``, ``history`` and more."""

    @property
    def model_folder(self) -> Path:
        """Where the trained model lies."""
        return self.find_model()

    def load_model(self) -> Model:
        """The trained model, on the CPU; for criteria that look at representations."""
        from crossling.models.model import load_model

        return load_model(self.model_folder)[0]


@dataclass(frozen=True)
class ChoiceContext:
    """What all values of the axis share."""

    task: str
    recipe: Recipe
    """Of the value being scored."""
    store: Path
    settings: Any
    """The criterion's own."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Kept between values of one choice, for what is costly to make, such as encoded sentences."""
