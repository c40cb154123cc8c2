"""Stages: training runs of an encoder, one file per kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

from crossling.registry import load_kind
from crossling.training.settings import TrainingSettings

if TYPE_CHECKING:
    from crossling.data.rows import Rows
    from crossling.models.model import Model, ModelCard
    from crossling.progress import Progress
    from crossling.stages.context import StageContext


class StageSettings(TrainingSettings):
    """What the settings of all stages have."""

    kind: str
    """The stage's name."""


class StageData(Protocol):
    """The data that a stage reads, opened."""

    def described(self) -> list[tuple[str, Rows]]:
        """Each set with its role."""

    def reads_per_epoch(self) -> list[tuple[Rows, float]]:
        """Each set that is trained on, and how often it is read in an epoch."""


class TrainedStage(NamedTuple):
    """What a stage gives."""

    model: Model
    card: ModelCard
    """What is needed to build the model again, besides its weights."""
    record: dict[str, Any]
    """How training went, for JSON: steps, seconds, the history of the loss."""


SettingsT = TypeVar("SettingsT", bound=StageSettings, contravariant=True)
DataT = TypeVar("DataT", bound=StageData)


class Stage(Protocol[SettingsT, DataT]):
    """What a stage's module defines; its ``Settings`` are a subclass of :class:`StageSettings`.

    It may also define ``complete_settings(settings, earlier)``, which takes what a recipe does not say from the
    settings of earlier stages; ``list_earlier(settings, seed)``, the seeds whose models of the stage before it reads;
    ``find_start(settings, stages, number)``, the stage whose encoder it starts from (default: the one before; -1: the
    recipe's encoder, or its own); ``check_following(settings, following)``, which refuses a stage after it, or none;
    ``resolve_settings(settings, data)``, which fills in what depends on the data; and ``check_scored(settings, data,
    scored)``, which refuses data that must not be scored.
    """

    VERSION: int
    """Raised when the same settings, data and seed would give another result."""

    def open_stage_data(
        self, settings: SettingsT, *, source: str, store: Path, progress: Progress | None = None
    ) -> DataT:
        """Find and open what the stage reads; ``source`` is the language that it is trained in."""

    def identity_inputs(self, settings: SettingsT, data: DataT) -> dict[str, Any]:
        """The part of the identity that is specific to the stage: data count by content, not by name."""

    def train(self, settings: SettingsT, data: DataT, context: StageContext) -> TrainedStage:
        """Train an encoder."""


def load_stage(settings: StageSettings) -> Stage[StageSettings, StageData]:
    """The stage that these settings are of."""
    return cast("Stage[StageSettings, StageData]", load_kind("stages", settings.kind))
