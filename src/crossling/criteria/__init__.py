"""Criteria: how a study picks one value of an axis, and which labels that takes. One file each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from crossling.registry import load_kind

if TYPE_CHECKING:
    from crossling.models.model import Model
    from crossling.recipe.recipe import FrozenSettings, Recipe

S = TypeVar("S", bound="FrozenSettings", covariant=True)
SettingsT = TypeVar("SettingsT", bound="FrozenSettings", contravariant=True)


@dataclass(frozen=True)
class FinishedCell:
    """One seed of one variant: its predictions lie in ``folder``, its model in ``model_folder``."""

    seed: int
    folder: Path
    find_model: Callable[[], Path]
    """Brings the model from the store's address, if it has one: for criteria that need models."""
    record: Mapping[str, Any]
    """How the last stage's training went: ``dev_score``, ``history`` and more."""

    @property
    def model_folder(self) -> Path:
        """Where the trained model lies."""
        return self.find_model()

    def load_model(self) -> Model:
        """The trained model, on the CPU; for criteria that compare representations."""
        from crossling.models.model import load_model

        return load_model(self.model_folder)[0]


@dataclass(frozen=True)
class ChoiceContext(Generic[S]):
    """What a criterion is given besides the finished cells of one value of the axis."""

    task: str
    recipe: Recipe
    """Of the value being scored."""
    store: Path
    settings: S
    """The criterion's own."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Kept between values of one choice, for what is costly to make, such as encoded sentences."""


class Criterion(Protocol[SettingsT]):
    """What the module of a criterion defines."""

    Settings: type[FrozenSettings]
    """Its settings, with ``kind: Literal["<kind>"]``; every field with a docstring."""
    LABELS: str
    """Which labels a choice takes, for the reader; ``{settings.table}`` stands for a setting."""

    def score(self, cells: Sequence[FinishedCell], context: ChoiceContext[SettingsT]) -> float:
        """How good one value of the axis is; the highest score is picked."""


def load_criterion(kind: str) -> Criterion[FrozenSettings]:
    """The module of a criterion."""
    return cast("Criterion[FrozenSettings]", load_kind("criteria", kind))
