"""What a stage is given besides its settings and its data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossling.progress import NoProgress, Progress
from crossling.recipe.recipe import EncoderSettings

if TYPE_CHECKING:
    from crossling.encoders.encoder import Encoder
    from crossling.models.model import Model, ModelCard
    from crossling.tasks import Task
    from crossling.training.distributed import Distributed
    from crossling.training.loop import Execution


@dataclass
class StageContext:
    """One training run: its seed, its source language, where it works and what it starts from."""

    seed: int
    source: str
    encoder: Encoder
    encoder_settings: EncoderSettings
    distributed: Distributed
    work: Path
    """Checkpoints."""
    store: Path
    """Below it: ``data`` and ``encoded``, the caches."""
    checkpoint_seconds: float = 120.0
    progress: Progress = field(default_factory=NoProgress)
    track: Callable[[dict[str, float], int], None] = lambda values, step: None
    on_start: Callable[[Task, Encoder], None] | None = None
    """Called with the task and the encoder as training starts: test data can be encoded meanwhile."""
    base: Callable[[], Encoder] | None = None
    """Loads the encoder that the recipe names; none where the stage starts from that very encoder."""
    load_earlier: Callable[[int], tuple[Model, ModelCard]] | None = None
    """Loads the model of the stage before with the seed that is given, trained first where it is missing; none for the
    first stage."""

    @property
    def encoded(self) -> Path:
        """Where encoded examples are kept."""
        return self.store / "encoded"

    def should_trim(self, weight_decay: float) -> bool:
        """Rows that no gradient reaches stay as they are only where weight decay does not change them either."""
        wanted = self.encoder_settings.trim
        return weight_decay == 0 if wanted == "auto" else wanted

    def execution(self, what: str, *, folder: str = "") -> Execution:
        """Where and how the stage trains; ``folder``: of checkpoints, where the stage trains more than once."""
        from crossling.training.loop import Execution

        return Execution(
            self.distributed,
            self.seed,
            self.work / folder,
            checkpoint_seconds=self.checkpoint_seconds,
            progress=self.progress,
            track=self.track,
            what=f"{what} (seed {self.seed})",
        )

    def describe_model(self, **more: Any) -> ModelCard:
        """The card of a model that was trained here; ``more``: its fusion and tasks, where it has any."""
        from crossling.models.model import ModelCard

        return ModelCard(
            encoder=self.encoder_settings.name,
            encoder_identity=self.encoder.identity,
            revision=self.encoder_settings.revision,
            attention=self.encoder_settings.attention,
            source=self.source,
            **more,
        )
